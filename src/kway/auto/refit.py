"""Fit the chosen families on all training rows, and the best one on all of DATA if that exceeds memory.

If an exact search among all rows would be slow, neighbors get Landmarks (an inverted file) with an agreement target.

DATA larger than memory is read again in pieces (`fit_all_data`):

linear models    write the rows, as floats or sparse entries, to temporary files and pass over them several times
centroids        are running means
neighbors        store codes of all rows, with 8 bits per number if they fit in memory, else 4, 2 or 1
others           have no `fit_blocks` and keep the model of the rows in memory

A calibration split of the rows in memory is left out.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway import progress
from kway.auto.compare_data import DataComparison
from kway.auto.larger_than_memory import LargeData
from kway.auto.race.clock import Clock
from kway.auto.race.folds import FEW_ROWS, HELD_OUT_SHARE
from kway.auto.race.scoring import LeaderboardRow
from kway.auto.train_test import TrainTest
from kway.confidence.splits import hold_out
from kway.errors import CombinationError, InputError, KwayError
from kway.linear.classifier import LinearClassifier
from kway.memory import available_bytes, rows_per_block
from kway.planning import costs
from kway.planning.costs import Size
from kway.planning.rates import Rates
from kway.rows.gpu.device import names_gpu
from kway.search.auto import choose
from kway.search.codecs.bits import Bits
from kway.search.codecs.int8 import Int8
from kway.search.codecs.stores import Store
from kway.search.flat import Flat
from kway.search.metrics import Metric, pick_metric
from kway.tables.features.features import Features
from kway.tables.sources.frames import take_rows
from kway.threads import spans
from kway.validation import Rows

_FILE_TOL = 1e-2  # tolerance of fits that read rows from files: a third of the time at the same accuracy
_SLOW_SEARCH = 1e-3  # seconds per query above which an exact search is replaced by Landmarks: about 300,000 rows


# ---- on all training rows


def adapted(estimator: Any, size: Size) -> tuple[Any, str]:
    """Return an estimator with an approximate index if an exact search among all rows would be slow, and a note."""
    params = estimator.get_params()
    name = _index_parameter(estimator)
    if name is None or params[name] != "auto" or size.sparse:
        return estimator, ""
    if names_gpu(params.get(name.removesuffix("index") + "device", "cpu")):  # an exact search on a GPU is fast
        return estimator, ""
    metric = pick_metric(params[name.removesuffix("index") + "metric"])
    exact = isinstance(choose(size.n, size.d, metric).recipe, Flat)
    if not exact or costs.flat(size, Rates()).predict_seconds <= _SLOW_SEARCH:
        return estimator, ""
    note = (
        f"an exact search among {size.n:,} rows is slow, so the model uses index='landmarks', which is approximate; "
        "index='flat' is exact"
    )
    return estimator.set_params(**{name: "landmarks"}), note


def fit_families(
    chosen: DataComparison, names: Sequence[str], clock: Clock
) -> tuple[dict[str, LeaderboardRow], tuple[str, ...]]:
    """Fit these families on all training rows, as far as the budget allows; return leaderboard rows and notes.

    The first family that can be fitted is fitted even if the budget is used up.
    """
    comparison, size, y = chosen.comparison, chosen.size, chosen.data.y
    rows, notes = {row.model: row for row in comparison.rows}, list[str]()
    for place, name in enumerate(names):
        has_fitted, seconds = (
            any(rows[above].fitted is not None for above in names[:place]),
            comparison.fit_seconds(name),
        )
        if has_fitted and clock.up(seconds):
            continue
        clock.charge(seconds, seconds)
        try:
            with progress.stage(f"{name}: all training rows", place, len(names), left=clock.left()):
                estimator, note = adapted(comparison.estimator(rows[name], chosen.options.seed), size)
                X = chosen.view(name).X
                rows[name] = fitted_row(rows[name], X, partial(estimator.fit, X, y, **chosen.data.fit_params()))
                notes += [note] if note else []
        except (KwayError, MemoryError) as error:
            rows[name] = replace(rows[name], note=f"could not be fitted: {error}")
    if all(row.fitted is None for row in rows.values()):
        raise InputError(f"no model could be fitted; {names[0]}: {rows[names[0]].note}")
    return rows, tuple(notes)


def fitted_row(row: LeaderboardRow, X: Rows, fit: Callable[[], Any]) -> LeaderboardRow:
    """Return the row with the model that `fit` returns, its size, and the seconds per fit and per predicted row."""
    started = time.perf_counter()
    model = fit()
    fit_seconds = time.perf_counter() - started
    sample = X[: min(FEW_ROWS, X.shape[0])]
    model.predict(sample[:8])  # compiles kernels
    started = time.perf_counter()
    model.predict(sample)
    predict_seconds = (time.perf_counter() - started) / sample.shape[0]
    return replace(
        row, fitted=model, fit_seconds=fit_seconds, predict_seconds=predict_seconds, n_bytes=model_bytes(model)
    )


def model_bytes(model: Any) -> int:
    """Return the bytes of the arrays that a model file would contain."""
    from kway.modelfile import pack

    return int(sum(np.asarray(array).nbytes for array in pack(model)[1].values()))


def size_in_words(n_bytes: int | None) -> str:
    """Return a number of bytes with its unit; a dash if it is not known.

    >>> size_in_words(2_500_000), size_in_words(800)
    ('2.5 MB', '0.8 kB')
    """
    if n_bytes is None:
        return "–"
    return f"{n_bytes / 1e6:,.1f} MB" if n_bytes >= 1e6 else f"{n_bytes / 1e3:,.1f} kB"


# ---- on all rows of DATA that exceeds memory


class AllDataFit(NamedTuple):
    """The leaderboard row with the fitted model, the number of rows in that fit, and the calibration split.

    `held_out` are the numbers of the training rows that were left out of the fit; None if all rows were used.
    """

    row: LeaderboardRow
    rows: int
    held_out: NDArray[np.int64] | None = None
    note: str = ""


def fit_all_data(chosen: DataComparison, row: LeaderboardRow) -> AllDataFit:
    """Fit the model of a row again on all rows of DATA, if memory holds only a part of them and if that is possible."""
    data, options, (features, X) = chosen.data, chosen.options, chosen.view(row.model)
    larger = data.larger
    if larger is None:
        return AllDataFit(row, data.n)
    if options.guarantees or data.weights is not None:
        what = "guarantees" if options.guarantees else "weights"
        note = f"{what} need rows in memory, so the model was trained on these rows only"
        return AllDataFit(row, data.n, note=note)
    calibration_rows = _held_out(data, chosen.folds, options.seed)
    reader = _CountingReader(larger.without(calibration_rows, data.groups, data.order), features)
    try:
        model = _prepared(row.fitted, X, larger.n)
        with progress.stage(f"{row.model}: all {larger.n:,} rows"):
            fitted = fitted_row(row, X, lambda: model.fit_blocks(reader.blocks()))
    except (KwayError, MemoryError, OSError) as error:
        why = f"{row.model} was fitted on the {data.n:,} rows in memory, not on all {larger.n:,}: {error}"
        return AllDataFit(row, data.n, note=why)
    index = _index_parameter(model)
    stored = f" and stored as {model.get_params()[index]}" if index else ""
    note = (
        f"{row.model} was then fitted on {reader.rows:,} of {larger.n:,} rows, read in pieces{stored}; the test rows "
        f"and a calibration split of {len(calibration_rows):,} rows were left out"
    )
    return AllDataFit(fitted, reader.rows, calibration_rows, note)


def _held_out(data: TrainTest, folds: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Return the calibration split: a fold if groups or order are kept, else drawn at random."""
    if data.keeps_groups_or_order:
        return np.flatnonzero(folds == (0 if data.order is None else folds.max()))
    return hold_out(data.labels.codes, HELD_OUT_SHARE, np.random.RandomState(seed)).held_out


class _CountingReader:
    """Reads all rows as numbers, block by block, and counts them."""

    def __init__(self, larger: LargeData, features: Features) -> None:
        self.larger, self.features, self.rows = larger, features, 0

    def blocks(self) -> Iterator[tuple[Any, NDArray]]:
        """Yield blocks (m, d) with labels (m,)."""
        at_once = rows_per_block(8 * self.features.n_features_out_)
        for rows, y in self.larger.blocks():
            for part in spans(len(y), at_once):
                self.rows += len(y[part])
                yield self.features.transform(take_rows(rows, np.arange(part.start, part.stop))), y[part]


def _prepared(model: Any, X: Any, n: int) -> Any:
    """Return the model with parameters for n rows like X; raise a KwayError if it cannot be fitted in blocks."""
    if not hasattr(model, "fit_blocks"):
        raise CombinationError(f"{type(model).__name__} needs all rows in memory")
    params = model.get_params()
    changes: dict[str, Any] = {"tol": _FILE_TOL} if params.get("tol", _FILE_TOL) < _FILE_TOL else {}
    in_memory = X.data.nbytes + X.indices.nbytes if sp.issparse(X) else X.shape[0] * X.shape[1] * X.dtype.itemsize
    file_bytes = n * in_memory / X.shape[0]
    if isinstance(model, LinearClassifier) and file_bytes > shutil.disk_usage(tempfile.gettempdir()).free:
        raise CombinationError(f"{tempfile.gettempdir()} cannot store {file_bytes / 2**30:,.0f} GiB of floats")
    if index := _index_parameter(model):
        if sp.issparse(X):
            raise CombinationError("its rows are sparse, and only dense rows can be stored as codes")
        changes[index] = _recipe(pick_metric(params[index.removesuffix("index") + "metric"]), n, X.shape[1])
    return copy.copy(model).set_params(**changes)


def _index_parameter(model: Any) -> str | None:
    """Return the name of the index parameter of neighbors, of the model or of an estimator inside it."""
    names = (name for name in model.get_params() if name.rpartition("__")[2] == "index")
    return next((name for name in names if name.removesuffix("index") + "weights" in model.get_params()), None)


def _recipe(metric: Metric, n: int, d: int) -> Flat:
    """Return the most precise codes of n rows of which two copies fit in memory.

    Two, because the codes of all blocks are joined at the end.
    """
    stores: dict[Store, float] = {Int8(rerank=False): d + 4}  # bytes per row
    stores |= {Bits(bits, rerank=False): d * bits / 8 + 8 for bits in (4, 2, 1)}
    for store, per_row in stores.items():
        if 2 * n * per_row <= available_bytes():
            recipe = Flat(store=store)
            recipe.check(metric)
            return recipe
    raise CombinationError(f"codes of {n:,} rows, {n * d / 8 / 2**30:,.1f} GiB, are larger than memory")
