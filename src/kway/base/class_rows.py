"""Class rows: one row of weights per class, scored by inner product, f = X W' + b.

    class_scores   (n, R)   scores of all classes
    class_shares   (n, K)   probabilities of all classes, whose largest is the class of the largest score
    best_classes   (n, k)   the k best classes with their scores or probabilities; never n x K

n rows, K classes, R scores per row. R is 1 for two classes, with the score of the second class against the first, and K
otherwise. m is the number of rows of a block, c that of its classes. Rows X are dense, CSR or `ConvertedRows`. Rows on
a GPU, and rows on the host that a GPU scores, have the method `answers_of` (kway.rows.gpu.class_scores).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
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

CLASS_BLOCK = (
    CACHE_BYTES // 4
)  # scores of a block that a thread computes at a time, float32 numbers that fill the cache
# Classes of a block of dense rows, and rows of a block of CSR, whose product copies the class rows. Decided by the
# benchmarks of predictions with many classes (rows T1 and T12).
BLOCK_SIDE = 4096


def class_scores(X: Rows, W: NDArray, b: NDArray) -> Any:
    """Return scores (n, R); the caller has checked that they fit in memory."""
    if hasattr(X, "answers_of"):
        return X.answers_of(W, b, lambda classes, x: [classes.scores(x)])[0]
    return _table(X, W, b, len(b))


def class_shares(X: Rows, W: NDArray, b: NDArray, shares: Shares) -> Any:
    """Return probabilities (n, K); the caller has checked that they fit in memory."""
    if hasattr(X, "answers_of"):
        return X.answers_of(W, b, lambda classes, x: [classes.shares(x, shares)])[0]
    return _table(X, W, b, max(2, len(b)), lambda f: probabilities(f, shares))


def _table(X: Rows, W: NDArray, b: NDArray, width: int, answer: Callable[[NDArray], NDArray] | None = None) -> NDArray:
    """Return the scores (n, R), or a table (n, width) of answers to them, in the blocks of `best_classes`.

    BLAS rounds the same product differently in a block of another shape. With the same blocks, the class with the
    largest probability is the one that is predicted.
    """
    out = np.empty((X.shape[0], width), np.result_type(X.dtype, W.dtype))
    # the products of CSR rows do not depend on the block
    n_classes = len(b) if sp.issparse(X) else _classes_per_block(X, len(b))

    def block(rows: slice) -> None:
        x = X[rows]
        f = out[rows] if answer is None else np.empty((x.shape[0], len(b)), out.dtype)
        for classes in spans(len(b), n_classes):
            _score(x, W[classes], b[classes], rows.start, f[:, classes])
        if answer is not None:
            out[rows] = answer(f)

    _each_block(block, X, W, n_classes)
    return out


def _classes_per_block(X: Rows, n_classes: int) -> int:
    """Return the number of classes that are scored at a time."""
    return min(n_classes, CLASS_BLOCK // BLOCK_SIDE if sp.issparse(X) else BLOCK_SIDE)


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
    if hasattr(X, "answers_of"):
        return TopK(*X.answers_of(W, b, lambda classes, x: classes.best_answers(x, k, shares)))
    if len(b) == 1:
        f = class_scores(X, W, b)
        best = best_of_table(np.hstack([-f, f]), k)
        return best if shares is None else best._replace(scores=shares.sigmoids(best.scores))
    n_classes = _classes_per_block(X, len(b))
    codes = np.empty((X.shape[0], k), np.int64)
    answers = np.empty((X.shape[0], k), np.result_type(X.dtype, W.dtype))

    def block(rows: slice) -> None:
        x, best = X[rows], None
        for classes in spans(len(b), n_classes):
            f = _score(x, W[classes], b[classes], rows.start)
            best = _first_best(f, k, shares) if best is None else best.merged(f, classes.start, k, shares)
        assert best is not None  # there are at least two classes
        codes[rows], answers[rows] = best.codes, best.answers(shares)

    _each_block(block, X, W, n_classes)
    return TopK(codes, answers)


class _Best(NamedTuple):
    """The k best of the classes so far, and the sum of the unnormalized probabilities relative to that of the best."""

    codes: NDArray[np.int64]  # (m, k)
    scores: NDArray  # (m, k)
    total: NDArray | None  # (m,); None if scores are wanted

    def merged(self, f: NDArray, first: int, k: int, shares: Shares | None) -> _Best:
        """Return the best with the classes first, first + 1, ... and their scores f (m, c) added."""
        codes, scores = self.codes, self.scores
        full = scores.shape[1] == k
        # rows in which a new class is among the k best; after some blocks they are few
        changed = np.flatnonzero(f.max(axis=1) > scores[:, -1]) if full else np.arange(len(f))
        if len(changed):
            new_scores = f if len(changed) == len(f) else f[changed]
            columns = best_columns(new_scores, min(k, f.shape[1]))
            merged_scores = np.hstack([scores[changed], np.take_along_axis(new_scores, columns, axis=1)])
            merged_codes = np.hstack([codes[changed], columns + first])
            order = np.argsort(-merged_scores, axis=1, kind="stable")[:, :k]
            merged_scores = np.take_along_axis(merged_scores, order, axis=1)
            merged_codes = np.take_along_axis(merged_codes, order, axis=1)
            if full:
                codes, scores = codes.copy(), scores.copy()
                codes[changed], scores[changed] = merged_codes, merged_scores
            else:
                codes, scores = merged_codes, merged_scores
        if shares is None or self.total is None:
            return _Best(codes, scores, None)
        best = scores[:, :1]
        rescaled = self.total * np.exp(shares.log_weights(self.scores[:, :1], best))[:, 0]
        return _Best(codes, scores, rescaled + np.exp(shares.log_weights(f, best)).sum(axis=1))

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
        with nullcontext() if n * W.size < 1 << 18 else single_blas():  # BLAS uses one thread for small products anyway
            work(slice(0, n))
        return
    # a block of ConvertedRows is copied to floats, which have to fit in the cache as well
    row_length = max(width, X.shape[1]) if isinstance(X, ConvertedRows) else width
    size = max(16, min(CLASS_BLOCK // max(1, row_length), -(-n // workers())))
    pmap(work, row_blocks(X, size))


def best_columns(table: NDArray, k: int) -> NDArray[np.int64]:
    """Return the columns (m, k) of the k largest values per row, largest first; ties go to the lower column.

    >>> best_columns(np.array([[1.0, 3.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0]]), 2)
    array([[1, 3]])
    """
    if k == 1:
        return table.argmax(axis=1)[:, None]
    if 8 * k > table.shape[1]:
        return np.argsort(-table, axis=1, kind="stable")[:, :k]
    # for few of many columns, k searches for the maximum are faster than a partition (row T12)
    remaining, rows = table.copy(), np.arange(len(table))
    columns = np.empty((len(table), k), np.int64)
    for j in range(k):
        columns[:, j] = remaining.argmax(axis=1)
        remaining[rows, columns[:, j]] = -np.inf
    return columns


def best_of_table(table: NDArray, k: int) -> TopK:
    """Return the k largest values per row of a table (m, c), with their columns."""
    columns = best_columns(table, k)
    return TopK(columns, np.take_along_axis(table, columns, axis=1))


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
