"""Fit the families of the leaderboard on all training rows, and the best one on all of DATA if that exceeds memory.

The best family is always fitted, the runner-up unless that takes minutes, and the others if they are fast. A family
that was stopped as clearly behind is fitted only as the runner-up, and only if it is fast. The sizes of the data decide
this, not the clock, so that the same rows give the same leaderboard on a busy machine. Only a budget ends the fits.

If families were compared on a sample, the setting is adapted to all rows (`SampleToAll`):

    alpha    times K' / K, the classes of the sample and all classes: each class has a smaller part in the mean loss
    tol      at least 0.01 if a linear fit takes long
    index    Landmarks (an inverted file) with an agreement target, if an exact search among all rows would be slow

DATA larger than memory is read again in pieces (`fit_all_data`). Linear models keep the rows, as floats or sparse
entries, in temporary files and pass over them several times. Centroids are running means. Neighbors keep codes of all
rows, with 8 bits per number if memory has room, else 4, 2 or 1. A calibration split of the rows in memory is left out.
A family without `fit_blocks` keeps what it learned from the rows in memory.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway import progress
from kway.auto.larger_than_memory import LargeData
from kway.auto.race.clock import COMPARISON_SECONDS, Clock, extra_seconds
from kway.auto.race.compare import Comparison
from kway.auto.race.families import WIDE_TOL, LinearFamily
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

_SLOW_SEARCH = 1e-3  # seconds of an exact search of one row above which Landmarks are used: 300,000 rows (T3)


# ---- on all training rows


@dataclass(frozen=True)
class SampleToAll:
    """The size of all training rows, and of the sample that families were compared on (None: all rows)."""

    size: Size
    sample: Size | None = None

    def times(self, by_class: bool) -> float:
        """Return how many times longer a fit on all rows takes; `by_class`: its cost also grows with the classes."""
        if self.sample is None:
            return 1.0
        return self.size.n / self.sample.n * (self.size.K / self.sample.K if by_class else 1.0)

    def estimator(self, made: Any) -> Any:
        """Return the estimator of a setting, adapted to all rows."""
        if self.sample is None:
            return made
        params = made.get_params()
        changes: dict[str, Any] = {}
        if "alpha" in params:
            changes["alpha"] = params["alpha"] * self.sample.K / self.size.K
        if self._long_fit(params):
            changes["tol"] = WIDE_TOL
        if (name := self._slow_index(params)) is not None:
            changes[name] = "landmarks"
        return made.set_params(**changes)

    def notes(self, made: Any) -> tuple[str, ...]:
        """Return what was changed of an estimator, in words."""
        if self.sample is None:
            return ()
        notes, params = [], made.get_params()
        if self.sample.K < self.size.K and "alpha" in params:
            share = f"{self.sample.K:,} / {self.size.K:,}"
            notes.append(f"for the fit on all classes, the best alpha of the sample was multiplied by {share}")
        if self._long_fit(params):
            notes.append(f"a fit on all rows takes long, so it used tol={WIDE_TOL:g}")
        if self._slow_index(params) is not None:
            notes.append(
                f"an exact search among {self.size.n:,} rows is slow, so the model uses index='landmarks', which is "
                "approximate; index='flat' is exact"
            )
        return tuple(notes)

    def _long_fit(self, params: dict[str, Any]) -> bool:
        exact = {"alpha", "tol"} <= set(params) and params["tol"] < WIDE_TOL
        return exact and costs.softmax(self.size, Rates()).fit_seconds > COMPARISON_SECONDS

    def _slow_index(self, params: dict[str, Any]) -> str | None:
        """Return the name of the index parameter if it is "auto" and would choose a slow exact search."""
        name = next((name for name in params if name.rpartition("__")[2] == "index"), None)
        if name is None or params[name] != "auto" or self.size.sparse:
            return None
        metric = pick_metric(params[name.removesuffix("index") + "metric"])
        flat = isinstance(choose(self.size.n, self.size.d, metric).recipe, Flat)
        slow = costs.flat(self.size, Rates()).predict_seconds > _SLOW_SEARCH
        return name if flat and slow else None


def fit_leaderboard(
    found: Comparison,
    rows_of: Callable[[str], Rows],
    y: NDArray,
    seed: int,
    clock: Clock,
    sizes: SampleToAll,
) -> list[LeaderboardRow]:
    """Return the leaderboard with fitted models, best first; a family that cannot be fitted moves to the end."""
    leaderboard, failed = list[LeaderboardRow](), list[LeaderboardRow]()
    for place, row in enumerate(found.rows):
        family = found.families[row.model]
        expected = family.expected_seconds(sizes.size)
        needed = sizes.times(isinstance(family, LinearFamily)) * found.scans[row.model].fit_seconds
        first = not any(above.fitted is not None for above in leaderboard)
        if not first and (expected > _seconds_allowed(row, len(leaderboard)) or clock.up(needed)):
            leaderboard.append(row)
            continue
        try:
            with progress.stage(f"{row.model}: all training rows", place, len(found.rows)):
                made = sizes.estimator(found.estimator(row, seed))
                X = rows_of(row.model)
                leaderboard.append(fitted_row(row, X, partial(made.fit, X, y)))
        except KwayError as error:
            failed.append(replace(row, note=f"could not be fitted: {error}"))
            continue
        if first:
            clock.keep(leaderboard[-1].fit_seconds or 0.0)
    if not leaderboard or leaderboard[0].fitted is None:
        raise InputError(f"no model could be fitted; {failed[0].model}: {failed[0].note}")
    return leaderboard + failed


def _seconds_allowed(row: LeaderboardRow, place: int) -> float:
    """Return the seconds that a fit of the runner-up (place 1), or of a family behind it, may take."""
    if row.stopped:
        return extra_seconds(0.0) if place == 1 else 0.0
    return COMPARISON_SECONDS if place == 1 else extra_seconds(0.0)


def fitted_row(row: LeaderboardRow, X: Rows, fit: Callable[[], Any]) -> LeaderboardRow:
    """Return the row with the model that `fit` returns, and the seconds of the fit and of predicting one row of X."""
    begun = time.perf_counter()
    model = fit()
    fit_seconds = time.perf_counter() - begun
    some = X[: min(FEW_ROWS, X.shape[0])]
    model.predict(some[:8])  # compiles kernels
    begun = time.perf_counter()
    model.predict(some)
    seconds = (time.perf_counter() - begun) / some.shape[0]
    return replace(row, fitted=model, fit_seconds=fit_seconds, predict_seconds=seconds, n_bytes=model_bytes(model))


def model_bytes(model: Any) -> int:
    """Return the bytes of the arrays that a model file would contain."""
    from kway.modelfile import pack

    return int(sum(np.asarray(array).nbytes for array in pack(model)[1].values()))


def size_in_words(n_bytes: int | None) -> str:
    """Return a number of bytes in words; a dash if it is not known.

    >>> size_in_words(2_500_000), size_in_words(800)
    ('2.5 MB', '0.8 kB')
    """
    if n_bytes is None:
        return "–"
    return f"{n_bytes / 1e6:,.1f} MB" if n_bytes >= 1e6 else f"{n_bytes / 1e3:,.1f} kB"


# ---- on all rows of DATA that exceeds memory


class AllDataFit(NamedTuple):
    """The row of the best family, the number of rows it learned from, and its calibration split."""

    row: LeaderboardRow
    rows: int
    held: NDArray[np.int64] | None = None  # training rows that it did not learn from; None if it learned from all
    note: str = ""


def fit_all_data(
    row: LeaderboardRow, features: Features, X: Any, data: TrainTest, folds: NDArray[np.int64], seed: int
) -> AllDataFit:
    """Fit the model of a row, which learned from X (n, d), again on all rows of DATA if it can be."""
    larger = data.larger
    if larger is None:
        return AllDataFit(row, data.n)
    held = _held_out(data, folds, seed)
    reader = _CountingReader(larger.without(held, data.groups, data.order), features)
    try:
        model = _prepared(row.fitted, X, larger.n)
        with progress.stage(f"{row.model}: all {larger.n:,} rows"):
            found = fitted_row(row, X, lambda: model.fit_blocks(reader.blocks()))
    except (KwayError, OSError) as error:
        why = f"{row.model} was fitted on the {data.n:,} rows in memory, not on all {larger.n:,}: {error}"
        return AllDataFit(row, data.n, note=why)
    index = _index_parameter(model)
    stored = f" and stored as {model.get_params()[index]}" if index else ""
    note = (
        f"{row.model} was then fitted on {reader.rows:,} of {larger.n:,} rows, read in pieces{stored}; the test rows "
        f"and a calibration split of {len(held):,} rows were left out"
    )
    return AllDataFit(found, reader.rows, held, note)


def _held_out(data: TrainTest, folds: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Return the calibration split: a fold if groups or order are kept, else drawn at random."""
    if data.keeps_groups_or_order:
        return np.flatnonzero(folds == (0 if data.order is None else folds.max()))
    return hold_out(data.labels.codes, HELD_OUT_SHARE, np.random.RandomState(seed)).calibration


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
    """Return the model with parameters for n rows like X, or raise an error if it cannot learn them."""
    if not hasattr(model, "fit_blocks"):
        raise CombinationError(f"{type(model).__name__} needs all rows in memory")
    params = model.get_params()
    changes: dict[str, Any] = {"tol": WIDE_TOL} if params.get("tol", WIDE_TOL) < WIDE_TOL else {}
    in_memory = X.data.nbytes + X.indices.nbytes if sp.issparse(X) else X.shape[0] * X.shape[1] * X.dtype.itemsize
    on_disk = n * in_memory / X.shape[0]
    if isinstance(model, LinearClassifier) and on_disk > shutil.disk_usage(tempfile.gettempdir()).free:
        raise CombinationError(f"{tempfile.gettempdir()} has no room for {on_disk / 2**30:,.0f} GiB of floats")
    if index := _index_parameter(model):
        if sp.issparse(X):
            raise CombinationError("its rows are sparse, and only dense rows can be stored as codes")
        changes[index] = _recipe(pick_metric(params[index.removesuffix("index") + "metric"]), n, X.shape[1])
    return copy.copy(model).set_params(**changes)


def _index_parameter(model: Any) -> str | None:
    """Return the name of the index parameter of neighbors, of the model or of an estimator inside it."""
    found = (name for name in model.get_params() if name.rpartition("__")[2] == "index")
    return next((name for name in found if name.removesuffix("index") + "weights" in model.get_params()), None)


def _recipe(metric: Metric, n: int, d: int) -> Flat:
    """Return the most precise codes of n rows of which two copies fit in memory, as blocks are joined at the end."""
    stores: dict[Store, float] = {Int8(rerank=False): d + 4}  # bytes per row
    stores |= {Bits(bits, rerank=False): d * bits / 8 + 8 for bits in (4, 2, 1)}
    for store, per_row in stores.items():
        if 2 * n * per_row <= available_bytes():
            recipe = Flat(store=store)
            recipe.check(metric)
            return recipe
    raise CombinationError(f"codes of {n:,} rows, {n * d / 8 / 2**30:,.1f} GiB, are larger than memory")
