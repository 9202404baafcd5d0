"""Class rows: one row of weights per class, scored by inner product, f = X W' + b.

    class_scores   (n, R)   scores of all classes
    class_shares   (n, K)   probabilities of all classes, whose largest is the class of the largest score
    best_classes   (n, k)   the k best classes with their scores or probabilities; never n x K

R is 1 for two classes: the score of the second class against the first. Rows X are dense, CSR or `ConvertedRows`; rows
on a GPU score class rows themselves (kway.rows.gpu.class_scores).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.errors import InputError
from kway.memory import CACHE_BYTES
from kway.probabilities import Shares
from kway.rows.blocks import ConvertedRows, row_blocks
from kway.search.results import TopK
from kway.threads import pmap, single_blas, spans, workers
from kway.validation import Rows, largest_value

CLASS_BLOCK = CACHE_BYTES // 4  # scores that a thread computes at a time, as float32
WIDE = 4096  # classes of a block of dense rows; rows of a block of CSR, whose product copies the class rows (T1, T12)


def class_scores(X: Rows, W: NDArray, b: NDArray) -> Any:
    """Return scores (n, R); the caller has checked that they fit in memory."""
    return X.class_scores(W, b) if hasattr(X, "class_scores") else _table(X, W, b, len(b))


def class_shares(X: Rows, W: NDArray, b: NDArray, shares: Shares) -> Any:
    """Return probabilities (n, K); the caller has checked that they fit in memory."""
    if hasattr(X, "class_shares"):
        return X.class_shares(W, b, shares)
    return _table(X, W, b, max(2, len(b)), lambda f: probabilities(f, shares))


def _table(X: Rows, W: NDArray, b: NDArray, width: int, answer: Callable[[NDArray], NDArray] | None = None) -> NDArray:
    """Return the scores (n, R), or a table (n, width) of answers to them, in the blocks of `best_classes`.

    BLAS rounds the same product differently in a block of another shape. With the same blocks, the class with the
    largest probability is the one that is predicted.
    """
    out = np.empty((X.shape[0], width), np.result_type(X.dtype, W.dtype))
    wide = len(b) if sp.issparse(X) else _class_span(X, len(b))  # products of CSR do not depend on the block

    def block(rows: slice) -> None:
        x = X[rows]
        f = out[rows] if answer is None else np.empty((x.shape[0], len(b)), out.dtype)
        for classes in spans(len(b), wide):
            _score(x, W[classes], b[classes], rows.start, f[:, classes])
        if answer is not None:
            out[rows] = answer(f)

    _each_block(block, X, W, wide)
    return out


def _class_span(X: Rows, n_classes: int) -> int:
    """Return how many classes are scored at a time."""
    return min(n_classes, CLASS_BLOCK // WIDE if sp.issparse(X) else WIDE)


def probabilities(f: NDArray, shares: Shares) -> NDArray:
    """Return probabilities (m, K) of scores (m, R); the class of the largest score has the largest probability."""
    if f.shape[1] == 1:
        return lift_winners(shares.sigmoids(np.hstack([-f, f])), (f[:, 0] > 0).astype(np.int64))
    p = np.exp(shares.log_weights(f, f.max(axis=1, keepdims=True))) if shares.joint else shares.sigmoids(f)
    total = p.sum(axis=1, keepdims=True)
    p = np.divide(p, total, out=np.full_like(p, 1 / p.shape[1]), where=total > 0)
    return lift_winners(p, f.argmax(axis=1))


def best_classes(X: Rows, W: NDArray, b: NDArray, k: int, shares: Shares | None = None) -> TopK:
    """Return the k best classes with their scores or, with `shares`, probabilities; ties go to the lower code."""
    if hasattr(X, "best_classes"):
        return TopK(*X.best_classes(W, b, k, shares))
    if len(b) == 1:
        return _best_of_two(class_scores(X, W, b)[:, 0], k, shares)
    wide = _class_span(X, len(b))
    codes = np.empty((X.shape[0], k), np.int64)
    found = np.empty((X.shape[0], k), np.result_type(X.dtype, W.dtype))

    def block(rows: slice) -> None:
        x, best = X[rows], None
        for classes in spans(len(b), wide):
            f = _score(x, W[classes], b[classes], rows.start)
            best = _first_best(f, k, shares) if best is None else best.merged(f, classes.start, k, shares)
        assert best is not None  # there are two classes at least
        codes[rows], found[rows] = best.codes, best.answers(shares)

    _each_block(block, X, W, wide)
    return TopK(codes, found)


class _Best(NamedTuple):
    """The k best of the classes so far, and the sum of all weights relative to the best."""

    codes: NDArray[np.int64]  # (m, k)
    scores: NDArray  # (m, k)
    total: NDArray | None  # (m,)

    def merged(self, f: NDArray, first: int, k: int, shares: Shares | None) -> _Best:
        """Return the best after the scores (m, c) of classes first, first + 1, ... were added."""
        codes, scores = self.codes, self.scores
        full = scores.shape[1] == k
        hot = np.flatnonzero(f.max(axis=1) > scores[:, -1]) if full else np.arange(len(f))  # few after some blocks
        if len(hot):
            mine = f if len(hot) == len(f) else f[hot]
            columns = best_columns(mine, min(k, f.shape[1]))
            both = np.concatenate([scores[hot], np.take_along_axis(mine, columns, axis=1)], axis=1)
            names = np.concatenate([codes[hot], columns + first], axis=1)
            order = np.argsort(-both, axis=1, kind="stable")[:, :k]
            names, both = np.take_along_axis(names, order, axis=1), np.take_along_axis(both, order, axis=1)
            if full:
                codes, scores = codes.copy(), scores.copy()
                codes[hot], scores[hot] = names, both
            else:
                codes, scores = names, both
        if shares is None or self.total is None:
            return _Best(codes, scores, None)
        peak = scores[:, :1]
        before = np.exp(shares.log_weights(self.scores[:, :1], peak))[:, 0]
        return _Best(codes, scores, self.total * before + np.exp(shares.log_weights(f, peak)).sum(axis=1))

    def answers(self, shares: Shares | None) -> NDArray:
        """Return scores or probabilities (m, k)."""
        if shares is None or self.total is None:
            return self.scores
        return np.asarray(np.exp(shares.log_weights(self.scores, self.scores[:, :1])) / self.total[:, None])


def _first_best(f: NDArray, k: int, shares: Shares | None) -> _Best:
    """Return the k best of the first block of classes, from their scores (m, c)."""
    codes = best_columns(f, min(k, f.shape[1]))
    scores = f[np.arange(len(f))[:, None], codes]
    total = None if shares is None else np.exp(shares.log_weights(f, scores[:, :1])).sum(axis=1)
    return _Best(codes, scores, total)


def _best_of_two(f: NDArray, k: int, shares: Shares | None) -> TopK:
    """Return the best of two classes with scores -f and f, from f (n,)."""
    first = (f > 0).astype(np.int64)
    codes = np.stack([first, 1 - first], axis=1)[:, :k]
    scores = np.stack([np.abs(f), -np.abs(f)], axis=1)[:, :k]
    return TopK(codes, scores if shares is None else shares.sigmoids(scores))


def _score(x: Rows, W: NDArray, b: NDArray, first: int, out: NDArray | None = None) -> NDArray:
    """Return scores (m, c) of a block of rows, which begins at row `first` of the caller."""
    with np.errstate(over="ignore", invalid="ignore"):
        f = np.add(np.asarray(x @ W.T), b, out=out)
    if not np.isfinite(f).all():
        row = int(np.flatnonzero(~np.isfinite(f).all(axis=1))[0])
        raise InputError(
            f"the scores of row {first + row} overflow {f.dtype}: its largest value is "
            f"{largest_value(x[row : row + 1])}; scale the column as in fit, or drop the row"
        )
    return f


def _each_block(work: Any, X: Rows, W: NDArray, width: int) -> None:
    """Run work(rows) on blocks of rows with `width` scores each; a small product runs in this thread."""
    n = X.shape[0]
    if n * max(width, X.shape[1]) <= CLASS_BLOCK and not sp.issparse(X):
        with _one_blas_thread(n * W.size):
            work(slice(0, n))
        return
    held = (
        max(width, X.shape[1]) if isinstance(X, ConvertedRows) else width
    )  # a block of stored rows is copied to floats
    size = max(16, min(CLASS_BLOCK // max(1, held), -(-n // workers())))
    pmap(work, row_blocks(X, size))


def _one_blas_thread(multiplications: int) -> AbstractContextManager[None]:
    """Limit BLAS to one thread for a product of this size; small products use one thread anyway."""
    return nullcontext() if multiplications < 1 << 18 else single_blas()


def best_columns(table: NDArray, k: int) -> NDArray[np.int64]:
    """Return the columns (m, k) of the k largest values per row, largest first; ties go to the lower column.

    >>> best_columns(np.array([[1.0, 3.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0]]), 2)
    array([[1, 3]])
    """
    width = table.shape[1]
    if k == 1:
        return table.argmax(axis=1)[:, None]
    if 8 * k > width:
        return np.argsort(-table, axis=1, kind="stable")[:, :k]
    left, rows = table.copy(), np.arange(len(table))  # few of many columns: one by one is faster than a partition (T12)
    columns = np.empty((len(table), k), np.int64)
    for j in range(k):
        columns[:, j] = left.argmax(axis=1)
        left[rows, columns[:, j]] = -np.inf
    return columns


def lift_winners(table: NDArray, winners: NDArray[np.int64]) -> NDArray:
    """Make the winner (m,) of each row its argmax in the table (m, c), in place.

    If rounding or a tie left another column as large, the winner is set to the next larger float.

    >>> lift_winners(np.array([[0.5, 0.5]]), np.array([1])).argmax(axis=1)
    array([1])
    """
    rows = np.flatnonzero(table.argmax(axis=1) != winners)
    largest = table[rows].max(axis=1, initial=-np.inf)
    table[rows, winners[rows]] = np.nextafter(largest, np.asarray(np.inf, table.dtype))
    return table
