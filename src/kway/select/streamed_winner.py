"""The winner fitted on all rows of DATA that memory does not hold: read again, made numbers and learned, by the piece.

linear        rows as floats, or entries of sparse ones, in temporary files: some passes over them, or sampled
              softmax (linear/from_files.py)
centroids     running means
neighbours    codes of all rows: a byte a number where memory holds that, else 4, 2 or 1 bits

What cannot learn from blocks (`fit_blocks`) keeps what it learned from the rows in memory, and the notes say so. Some
of those are left out, to set the temperature of the model that is kept.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway import progress
from kway.compute.threads import spans
from kway.confidence.heldout import hold_out
from kway.data.blocks.sparse_files import ENTRY_BYTES
from kway.data.features.features import Features
from kway.data.labels import encode
from kway.data.sources.frames import take_rows
from kway.errors import CombinationError, KwayError
from kway.linear.classifier import LinearClassifier
from kway.planning.machine import available_bytes
from kway.search.flat import Flat
from kway.search.spaces.metrics import Metric, pick_metric
from kway.search.stores.base import Store
from kway.search.stores.bits import Bits
from kway.search.stores.int8 import Int8
from kway.select.larger_than_memory import Larger
from kway.select.leaderboard import Line, fitted_line
from kway.select.train_test import Parts

HELD_SHARE, MOST_HELD = 0.2, 10_000  # of the rows in memory, for the temperature: its error is then under a per cent
TOL = 1e-2  # of the passes: more take long, and change few answers
_TOGETHER = 8192  # rows made numbers at a time
_CODES = 0.4  # of the memory there is, for the codes of neighbours
_FLOATS = 0.9  # of the disk that is free, for rows as floats


class Refit(NamedTuple):
    """The line with the model that was kept, the rows it learned from, and the training rows held out of them."""

    line: Line
    rows: int
    held: NDArray[np.int64] | None  # None: the model is that of the rows in memory
    note: str


def refit(
    line: Line, features: Features, X: Any, parts: Parts, larger: Larger, folds: NDArray[np.int64], seed: int
) -> Refit:
    """The line's model, learned from X (n, d), fitted again on all rows where it can be."""
    held = _held(parts, folds, seed)
    name, counted = line.standing.model, _Counted(larger.without(held, parts.groups, parts.order), features)
    try:
        model = _ready(line.model, X, larger.n)
        with progress.stage(f"{name}: all {larger.n:,} rows"):
            found = fitted_line(line.standing, X, lambda: model.fit_blocks(counted.blocks()))
    except (KwayError, OSError) as error:
        why = f"{name} was fitted on the {parts.n:,} rows in memory, not on all {larger.n:,}: {error}"
        return Refit(line, parts.n, None, why)
    how = f", kept as {model.get_params()[at]}" if (at := _index_of(model)) else ""
    note = f"{name} was then fitted on {counted.rows:,} of {larger.n:,} rows, read a piece at a time{how}; left out "
    return Refit(found, counted.rows, held, note + f"were those for the test, and {len(held):,} for the temperature")


def _held(parts: Parts, folds: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Numbers of the training rows that set the temperature: of a fold, where rows drawn at random are too easy."""
    if parts.order is not None or parts.groups is not None:
        return np.flatnonzero(folds == (0 if parts.order is None else folds.max()))
    share = min(HELD_SHARE, MOST_HELD / parts.n)
    return hold_out(encode(parts.y).codes, share, np.random.RandomState(seed)).held


class _Counted:
    """All rows as numbers, and how many there were."""

    def __init__(self, larger: Larger, features: Features) -> None:
        self.larger, self.features, self.rows = larger, features, 0

    def blocks(self) -> Iterator[tuple[Any, NDArray]]:
        """Blocks (m, d) with labels (m,): of some thousand rows, since a text makes many more numbers than letters."""
        for rows, y in self.larger.blocks():
            for part in spans(len(y), _TOGETHER):
                self.rows += len(y[part])
                yield self.features.transform(take_rows(rows, np.arange(part.start, part.stop))), y[part]


def _ready(model: Any, X: Any, n: int) -> Any:
    """The model with parameters for n rows like X; an error that says why it cannot learn them."""
    if not hasattr(model, "fit_blocks"):
        raise CombinationError(f"{type(model).__name__} learns from all rows at once")
    params = model.get_params()
    changes: dict[str, Any] = {"tol": TOL} if params.get("tol", TOL) < TOL else {}
    each = ENTRY_BYTES * X.nnz / X.shape[0] if sp.issparse(X) else X.shape[1] * X.dtype.itemsize
    floats = n * each
    if isinstance(model, LinearClassifier) and floats > _FLOATS * shutil.disk_usage(tempfile.gettempdir()).free:
        raise CombinationError(f"{tempfile.gettempdir()} has no room for {floats / 2**30:,.0f} GiB of floats")
    if at := _index_of(model):
        if sp.issparse(X):
            raise CombinationError("its rows are sparse, and codes are made of dense ones")
        changes[at] = _recipe(pick_metric(params[at.removesuffix("index") + "metric"]), n, X.shape[1])
    return copy.copy(model).set_params(**changes)


def _index_of(model: Any) -> str | None:
    """The parameter of neighbours' index, of the model or of what is inside it."""
    found = (name for name in model.get_params() if name.rpartition("__")[2] == "index")
    return next((name for name in found if name.removesuffix("index") + "weights" in model.get_params()), None)


def _recipe(metric: Metric, n: int, d: int) -> Flat:
    """The sharpest codes of n rows that memory holds under this metric."""
    stores: dict[Store, float] = {Int8(rerank=False): d + 4}  # bytes a row
    stores |= {Bits(bits, rerank=False): d * bits / 8 + 8 for bits in (4, 2, 1)}
    for store, each in stores.items():
        if n * each <= _CODES * available_bytes():
            recipe = Flat(store=store)
            recipe.check(metric)
            return recipe
    raise CombinationError(f"codes of {n:,} rows, {n * d / 8 / 2**30:,.1f} GiB, are larger than memory")
