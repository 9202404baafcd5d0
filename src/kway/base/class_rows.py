"""Class rows: one row a class, scored by inner product, f = X W^T + b, and the best k of them kept.

    scores   (n, R)   the whole table; the caller has checked that this fits
    top      (n, k)   block by block, so K may be a million; one product serves the k best and the log-normaliser

Linear models and class means are such rows. Rows of X may be dense, CSR or `Stored`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.base.best_columns import best_columns
from kway.compute.threads import pmap, spans, workers
from kway.data.blocks.row_blocks import row_blocks
from kway.data.gate import Rows
from kway.data.messages import largest_value
from kway.errors import InputError
from kway.search.index import TopK

CLASS_BLOCK = 1 << 19  # scores computed at a time by a worker: 2 MB in float32, about the second cache
_WIDE = 1 << 12  # classes of a block, where there are more
SPARSE_ROWS = 4096  # a sparse product copies the class rows, so it must serve many rows of X

LogWeights = Callable[[NDArray], NDArray]  # scores (m, c) -> log of what each class weighs, before normalising


def scores(X: Rows, W: NDArray, b: NDArray, n_jobs: int | None = None) -> NDArray:
    """(n, R); the caller has checked that this fits."""
    out = np.empty((X.shape[0], len(b)), np.result_type(X.dtype, W.dtype))

    def block(rows: slice) -> None:
        x = X[rows]
        with np.errstate(over="ignore", invalid="ignore"):
            np.add(np.asarray(x @ W.T), b, out=out[rows])
        _refuse_overflow(x, out[rows], rows.start)

    pmap(block, row_blocks(X, _rows_a_block(X, len(b), n_jobs)), n_jobs)
    return out


def top(
    X: Rows, W: NDArray, b: NDArray, k: int, log_weights: LogWeights | None = None, n_jobs: int | None = None
) -> TopK:
    """The k best of K >= 2 classes with their scores, or, with `log_weights`, their shares of all classes' weights.

    exp(log_weights(f)) / sum over all classes; equal scores go by the lower code.
    """
    n, wide = X.shape[0], min(len(b), CLASS_BLOCK // SPARSE_ROWS if sp.issparse(X) else _WIDE)
    codes, found = np.empty((n, k), np.int64), np.empty((n, k), np.result_type(X.dtype, W.dtype))

    def block(rows: slice) -> None:
        running = _Running.start(rows.stop - rows.start, k, found.dtype)
        x = X[rows]
        for classes in spans(len(b), wide):
            with np.errstate(over="ignore", invalid="ignore"):
                f = np.asarray(x @ W[classes].T)  # (m, c)
                f += b[classes]
            _refuse_overflow(x, f, rows.start)
            running.offer(f, classes.start, log_weights)
        codes[rows] = running.codes
        found[rows] = running.scores if log_weights is None else running.shares(log_weights)

    pmap(block, row_blocks(X, _rows_a_block(X, wide, n_jobs)), n_jobs)
    return TopK(codes, found)


class _Running(NamedTuple):
    """After some classes: the k best of each row, its largest log weight, and the sum of exp(log weight - largest)."""

    codes: NDArray[np.int64]  # (m, k)
    scores: NDArray  # (m, k)
    peak: NDArray  # (m,)
    total: NDArray  # (m,)

    @staticmethod
    def start(m: int, k: int, dtype: np.dtype) -> _Running:
        low = np.full(m, -np.inf, dtype)
        return _Running(np.full((m, k), -1, np.int64), np.full((m, k), -np.inf, dtype), low, np.zeros(m, dtype))

    def offer(self, f: NDArray, first: int, log_weights: LogWeights | None) -> None:
        """Take in the scores (m, c) of classes first, first + 1, ..."""
        k = self.scores.shape[1]
        largest = f.max(axis=1)
        hot = np.flatnonzero(largest > self.scores[:, -1])  # few, after the first blocks of classes
        if len(hot):
            mine = f if len(hot) == len(f) else f[hot]
            columns = best_columns(mine, min(k, f.shape[1]))
            both = np.concatenate([self.scores[hot], np.take_along_axis(mine, columns, axis=1)], axis=1)
            names = np.concatenate([self.codes[hot], columns + first], axis=1)
            order = np.argsort(-both, axis=1, kind="stable")[:, :k]
            self.codes[hot] = np.take_along_axis(names, order, axis=1)
            self.scores[hot] = np.take_along_axis(both, order, axis=1)
        if log_weights is not None:
            logs = log_weights(f)  # (m, c)
            peak = np.maximum(self.peak, log_weights(largest))
            logs -= peak[:, None]
            np.exp(logs, out=logs)
            self.total[:] = self.total * np.exp(self.peak - peak) + logs.sum(axis=1)
            self.peak[:] = peak

    def shares(self, log_weights: LogWeights) -> NDArray:
        """The best classes' shares of the weights of all (m, k)."""
        return np.exp(log_weights(self.scores) - self.peak[:, None]) / self.total[:, None]


def _refuse_overflow(x: Rows, f: NDArray, first: int) -> None:
    """Refuse rows whose scores (m, c) are no numbers, with the value that made them so."""
    low, high = float(f.min(initial=0.0)), float(f.max(initial=0.0))
    if np.isfinite(low) and np.isfinite(high):
        return
    row = int(np.flatnonzero(~np.isfinite(f).all(axis=1))[0])
    raise InputError(
        f"the scores of row {first + row} leave {f.dtype}: its largest value is {largest_value(x[row : row + 1])}; "
        "scale the column as in fit, or drop the row"
    )


def _rows_a_block(X: Rows, width: int, n_jobs: int | None) -> int:
    """Rows of X whose scores on so many classes a worker holds, fewer where that gives every worker some."""
    return max(16, min(CLASS_BLOCK // max(1, width), -(-X.shape[0] // workers(n_jobs))))
