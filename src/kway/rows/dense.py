"""Passes over rows that this process reads a block at a time, and the fused kernel for arrays in memory.

    BlockRows   any rows whose slices are arrays: BLAS computes scores and gradients, and slopes overwrite the scores
    DenseRows   an array (n, d): as BlockRows, or the fused kernel, which reads each row once for scores and gradient

Each worker gets a share of the rows and reads it in blocks that fit into the cache. Shapes: n rows, d features, m rows
of a block, R scores, D columns (d, or d + 1 with the bias).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.kernels.linear import fused
from kway.kernels.linear.loss_numbers import SOFTMAX
from kway.kernels.linear.sgd import row_hashes
from kway.kernels.product_tiles import MAX_SCORES, Tile, in_registers, tile_of
from kway.memory import CACHE_BYTES
from kway.rows.matrices import add_gram, rooted_rows, row_squares, transposed_product
from kway.rows.passes import DISTINCT, IN_MEMORY, QUICK, ClassSums, RowLosses, Sums
from kway.threads import pmap, shares, spans, spans_of

# a block of rows has about this many values, and at most this many rows. Smaller blocks lose time to the overhead of
# BLAS, larger ones to the caches (decided by the linear benchmarks, for 16 to 4000 features and 5 to 150 scores)
BLOCK_VALUES = CACHE_BYTES // 2
BLOCK_ROWS = 2048
LEAST_SHARE = 256  # smallest number of rows of the share of a worker (decided by the linear benchmarks)
FUSED_FEATURES = 48  # with fewer, the fused kernel spends more time on sums across lanes than on products
FUSED_PRODUCTS = 1 << 26  # products of a pass; with fewer, compiling the kernel takes longer than it saves


@dataclass(frozen=True, eq=False)
class BlockRows:
    """Passes over rows (n, d) of any type for which X[slice] and X[positions] return arrays."""

    X: Any
    n_whole: int = 0  # number of rows of the problem that these rows are a sample of; 0 if they are no sample
    order: ClassVar[Literal["C", "F"]] = "C"  # memory order of theta
    squared_rows: ClassVar[int] = BLOCK_ROWS  # rows per block of sums of squares

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def d(self) -> int:
        """Number of features."""
        return int(self.X.shape[1])

    @property
    def dtype(self) -> np.dtype:
        """Floating-point type of the rows."""
        return np.dtype(self.X.dtype)

    @property
    def offers(self) -> frozenset[str]:
        """Capabilities, a subset of those in passes.py: none, only passes are possible."""
        return frozenset()

    @property
    def max_rows_in_memory(self) -> int:
        """Largest number of rows that `take` may copy into memory."""
        return self.n

    def take(self, chosen: NDArray | slice) -> BlockRows:
        """Return the chosen rows, in memory."""
        return DenseRows(self.X[chosen], max(self.n, self.n_whole))

    def sample(self) -> BlockRows:
        """Return rows that support `take`: these, or those of a sample in memory."""
        return self

    def shuffled(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the row numbers in random order, (n,)."""
        return rng.permutation(self.n)

    # ---- passes

    def with_layout(self, theta: NDArray) -> NDArray:
        """Return theta in the memory order that the products read."""
        return np.asarray(theta, order=self.order)

    def scores(self, theta: NDArray, rows: slice) -> NDArray:
        """Return f = X W' + b of the given rows, (m, R)."""
        scores = np.empty((len(range(*rows.indices(self.n))), len(theta)), theta.dtype)
        self.fill_scores(theta, rows, scores)
        return scores

    def fill_scores(self, theta: NDArray, rows: slice, scores: NDArray) -> None:
        """Write f of the given rows to scores (m, R)."""
        np.matmul(self.X[rows], theta[:, :-1].T, out=scores)
        scores += theta[:, -1]

    def value(self, theta: NDArray, losses: RowLosses) -> float:
        """Return the sum of the weighted losses."""
        theta = self.with_layout(theta)
        blocks = spans(self.n, self.block_rows(len(theta)))
        return sum(pmap(lambda rows: losses.loss_sum(self.scores(theta, rows), rows), blocks))

    def value_gradient(self, theta: NDArray, losses: RowLosses) -> Sums:
        """Return the sums of the weighted losses and of their gradients, one share of the rows per worker."""
        theta = self.with_layout(theta)
        parts = pmap(lambda share: self.share_sums(theta, losses, share), shares(self.n, least=LEAST_SHARE))
        total, gradient = parts[0]
        for part in parts[1:]:
            total += part.value
            gradient += part.gradient
        return Sums(total, gradient)

    def share_sums(self, theta: NDArray, losses: RowLosses, share: slice) -> Sums:
        """Return the sums over a share of the rows, by two matrix products per block."""
        W, bias = np.ascontiguousarray(theta[:, :-1]), theta[:, -1].copy()
        total, gradient, product = 0.0, np.zeros_like(theta), np.empty_like(W)
        size = self.block_rows(len(theta))
        buffer, ones = np.empty((size, len(theta)), theta.dtype), np.ones(size, theta.dtype)
        for rows in spans_of(share, size):
            X, scores = self.X[rows], buffer[: rows.stop - rows.start]  # (m, d), (m, R)
            np.matmul(X, W.T, out=scores)
            scores += bias
            total += losses.overwrite_with_slopes(scores, rows)
            np.matmul(scores.T, X, out=product)
            gradient[:, :-1] += product
            gradient[:, -1] += ones[: len(scores)] @ scores  # numpy's sum over rows takes as long as both products
        return Sums(total, gradient)

    def block_rows(self, n_scores: int) -> int:
        """Return the number of rows of a block."""
        return max(64, min(BLOCK_ROWS, BLOCK_VALUES // max(1, self.d), 2 * BLOCK_VALUES // n_scores))

    def reads_once(self, losses: RowLosses, n_scores: int) -> bool:
        """Return whether the fused kernel computes gradients."""
        return False

    # ---- second derivatives

    def hessian_at(self, theta: NDArray, losses: RowLosses) -> HostHessian:
        """Return the operator that multiplies with the Hessian at theta."""
        return HostHessian(self, losses, hessian_terms(self, theta, losses))

    def curvatures(self, theta: NDArray, losses: RowLosses) -> NDArray:
        """Return the weighted second derivatives at theta, (R, n)."""
        out = np.empty((len(theta), self.n), theta.dtype)

        def part(rows: slice) -> None:
            out[:, rows] = losses.curvatures(self.scores(theta, rows), rows).T

        pmap(part, spans(self.n, BLOCK_ROWS))
        return out

    def class_sums(self, theta: NDArray, losses: RowLosses, bias: bool) -> ClassSums:
        """Return the sums of the curvatures per class, in one pass that stores no curvature."""
        R, D, dtype = len(theta), self.d + bias, theta.dtype

        def part(share: slice) -> ClassSums:
            sums = ClassSums(np.zeros(R), np.zeros(R), np.zeros((R, D), dtype))
            for rows in spans_of(share, BLOCK_ROWS):
                h = losses.curvatures(self.scores(theta, rows), rows)
                codes, positions = losses.targets.codes[rows], np.arange(len(h))
                own = sp.csr_matrix((h[positions, codes], (codes, positions)), (R, len(h)))
                sums.mass[:] += h.sum(axis=0)
                sums.own_mass[:] += np.asarray(own.sum(axis=1)).ravel()
                sums.own_rows[:] += own @ rooted_rows(self.X[rows], None, dtype, bias)
            return sums

        parts = pmap(part, shares(self.n, least=LEAST_SHARE))
        return ClassSums(*(np.sum(arrays, axis=0) for arrays in zip(*parts, strict=True)))

    # ---- sums over the rows

    def gram(self, weight: NDArray | None, bias: bool, dtype: np.dtype) -> NDArray:
        """Return the upper triangle of [X 1]' diag(weight) [X 1] / n (D, D), in Fortran order."""

        def part(share: slice) -> NDArray:
            A = np.zeros((self.d + bias, self.d + bias), dtype, order="F")
            for rows in spans_of(share, BLOCK_ROWS):
                root = None if weight is None else np.sqrt(weight[rows])
                add_gram(A, rooted_rows(self.X[rows], root, dtype, bias), 1.0 / self.n)
            return A

        parts = pmap(part, shares(self.n, least=LEAST_SHARE))
        total = parts[0]
        for A in parts[1:]:
            total += A
        return total

    def squares(self, h: NDArray | None) -> NDArray:
        """Return sum_i h_ki x_ij^2 (R, d); without h (R, n) return sum_i x_ij^2 (1, d)."""

        def part(share: slice) -> NDArray:
            return np.asarray(sum(self._block_squares(rows, h) for rows in spans_of(share, self.squared_rows)))

        return np.asarray(np.sum(pmap(part, shares(self.n, least=LEAST_SHARE)), axis=0))

    def _block_squares(self, rows: slice, h: NDArray | None) -> NDArray:
        X = self.X[rows]
        return np.einsum("ij,ij->j", X, X)[None, :] if h is None else h[:, rows] @ np.square(X)

    def row_squares(self) -> NDArray:
        """Return ||x_i||^2 of each row, (n,)."""
        return np.concatenate([row_squares(self.X[rows], self.dtype) for rows in spans(self.n, BLOCK_ROWS)])

    def mean_square(self) -> float:
        """Return the mean of the squared entries of X."""
        total = sum(float(row_squares(X).sum()) for X in self._blocks())
        return total / (self.n * self.d)

    def mean(self) -> NDArray:
        """Return the vector (d,) that centers the rows: their mean, or zeros for sparse rows, which stay sparse."""
        total = sum(X.sum(axis=0, dtype=np.float64) for X in self._blocks())
        return np.asarray(total / self.n, self.dtype)

    def subtract_mean(self, mean: NDArray) -> BlockRows:
        """Return rows from which the mean (d,) is subtracted when a block is read; sparse rows do not change."""
        return CenteredRows(X=Centered(self.X, mean), original=self)

    def keys(self, direction: NDArray) -> NDArray[np.float64]:
        """Return x_i . direction (n,); equal rows have equal keys."""
        keys = np.empty(self.n)
        row_hashes(self.X, direction, keys)
        return keys

    def equal(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether row a[i] equals row b[i], for each i."""
        return np.asarray((self.X[a] == self.X[b]).all(axis=1))

    def units(self) -> NDArray[np.float64]:
        """Return the root mean square of the nonzero entries of each column, (d,); 1 for a column of zeros."""
        peaks = np.abs(self.X).max(axis=0).astype(np.float64)  # divided out, so that no square overflows
        peaks[peaks == 0] = 1
        squares, counts = np.square(self.X / peaks).sum(axis=0), (self.X != 0).sum(axis=0)
        return np.where(counts > 0, peaks * np.sqrt(squares / np.maximum(counts, 1)), 1.0)

    def scale_columns(self, units: NDArray) -> BlockRows:
        """Return rows with each column divided by its unit (d,)."""
        return DenseRows((self.X / units).astype(self.dtype))

    def fingerprint(self) -> str:
        """Return a digest that changes with any value, or with the names, sizes and times of files."""
        digest = 0
        for X in self._blocks():
            digest = zlib.crc32(np.ascontiguousarray(X).data, digest)
        return f"{self.n} x {self.d}: {digest}"

    def _blocks(self) -> Any:
        return (self.X[rows] for rows in spans(self.n, 2 * BLOCK_ROWS))


@dataclass(frozen=True, eq=False)
class DenseRows(BlockRows):
    """An array (n, d) in memory."""

    @property
    def offers(self) -> frozenset[str]:
        """Capabilities: X is in memory, and equal rows can be merged."""
        return frozenset({IN_MEMORY, QUICK, DISTINCT})

    def share_sums(self, theta: NDArray, losses: RowLosses, share: slice) -> Sums:
        """Return the sums over a share of the rows."""
        if self.reads_once(losses, len(theta)):
            return self.fused_share(theta, losses, share)
        return super().share_sums(theta, losses, share)

    def fused_share(self, theta: NDArray, losses: RowLosses, share: slice) -> Sums:
        """Return the sums over a share of the rows, each of which is read once."""
        arrays, loss = FusedPass.of(theta, self.dtype), losses.loss
        kind = None if loss.kernel == SOFTMAX else loss.kernel
        total = fused.fused_losses(kind, loss.margin, loss.width, *self.fused_rows(losses, share), *arrays)
        return Sums(total, arrays.gradient(self.d))

    def reads_once(self, losses: RowLosses, n_scores: int) -> bool:
        """Return whether the fused kernel computes gradients: it is faster if rows are long and have few scores."""
        X = self.X
        n = max(self.n, self.n_whole)  # a kernel that is compiled for all rows is also used for a sample
        is_faster = self.d >= FUSED_FEATURES and n * self.d * n_scores >= FUSED_PRODUCTS
        is_supported = n_scores <= MAX_SCORES and losses.loss.compiled and losses.targets.soft is None
        return is_faster and is_supported and X.strides[1] == X.itemsize and in_registers()

    def fused_rows(self, losses: RowLosses, share: slice) -> tuple[Any, ...]:
        """Return the arguments of a fused kernel for a share of the rows.

        These are the address, the stride, the numbers of rows and features, the codes and the weights.
        """
        X, codes, weight = self.X[share], losses.targets.codes[share], losses.weight
        weights = np.empty(0, X.dtype) if weight is None else np.ascontiguousarray(weight[share], X.dtype)
        return X.ctypes.data, X.strides[0], len(X), self.d, codes, weights


class FusedPass(NamedTuple):
    """Weights and gradients in the layout of a fused kernel: padded to the width of its tiles."""

    weights: NDArray
    bias: NDArray
    products: NDArray
    sums: NDArray
    tile: Tile
    classes: tuple[np.floating, ...]

    @staticmethod
    def of(theta: NDArray, dtype: np.dtype) -> FusedPass:
        """Return the layout of theta (R, d + 1) for rows of this float type, with gradients of zero."""
        R, d = len(theta), theta.shape[1] - 1
        tile = tile_of(R, dtype.itemsize)
        weights = np.zeros((R, fused.padded_width(d, tile.lanes)), dtype)
        weights[:, :d] = theta[:, :-1]
        bias, products = theta[:, -1].astype(dtype), np.zeros_like(weights)
        return FusedPass(weights, bias, products, np.zeros(R, dtype), tile, (dtype.type(0),) * R)

    def gradient(self, d: int) -> NDArray:
        """Return the gradient, (R, d + 1)."""
        return np.column_stack((self.products[:, :d], self.sums))


@dataclass(frozen=True, eq=False)
class HostHessian:
    """Hessian-vector products at one theta, from numbers `terms` (n, R) that define the Hessian B_i of each row's loss.

    For softmax B_i = diag(p) - p p', and the terms are p. For joint hinges B_i couples the row's own class with every
    other class. For other losses B_i is diagonal.
    """

    rows: BlockRows
    losses: RowLosses
    terms: NDArray

    def product(self, V: NDArray) -> NDArray:
        """Return sum_i w_i (B_i f(V)_i) [x_i 1], (R, d + 1), with the scores f(V)_i of row i for weights V."""
        rows, loss = self.rows, self.losses.loss
        V = rows.with_layout(V)
        has_kernel = loss.cross_entropy or not loss.couples
        part = self._fused_product if has_kernel and rows.reads_once(self.losses, len(V)) else self._product
        return np.asarray(np.sum(pmap(lambda share: part(V, share), shares(rows.n, least=LEAST_SHARE)), axis=0))

    def _fused_product(self, V: NDArray, share: slice) -> NDArray:
        rows = self.rows
        assert isinstance(rows, DenseRows)
        arrays = FusedPass.of(V, rows.dtype)
        fused_rows = rows.fused_rows(self.losses, share)
        fused.fused_hessian_product(self.losses.loss.couples, self.terms[share], *fused_rows, *arrays)
        return arrays.gradient(rows.d)

    def _product(self, V: NDArray, share: slice) -> NDArray:
        out = np.zeros(V.shape, V.dtype)
        for block in spans_of(share, _rows_of_terms(self.rows, len(V))):
            slope = self._slopes(block, self.rows.scores(V, block))
            out[:, :-1] += transposed_product(slope, self.rows.X[block])
            out[:, -1] += slope.sum(axis=0)
        return out

    def _slopes(self, rows: slice, change: NDArray) -> NDArray:
        """Return the change of the weighted slopes of the given rows for a change (m, R) of their scores."""
        losses, terms = self.losses, self.terms[rows]
        if losses.loss.cross_entropy:
            slope = terms * (change - np.einsum("ij,ij->i", terms, change)[:, None])
        elif losses.loss.couples:
            own = np.arange(len(change)), losses.targets.codes[rows]
            slope = terms * (change - change[own][:, None])
            slope[own] = -slope.sum(axis=1)
        else:
            slope = terms * change
        return slope if losses.weight is None else slope * losses.weight[rows, None]


def hessian_terms(rows: Any, theta: NDArray, losses: RowLosses) -> NDArray:
    """Return the numbers (n, R) that define B_i: probabilities for softmax, else second derivatives by each score."""
    terms, loss = np.empty((rows.n, len(theta)), theta.dtype), losses.loss

    def part(share: slice) -> None:
        for block in spans_of(share, _rows_of_terms(rows, len(theta))):
            scores, targets = rows.scores(theta, block), losses.targets.of(block)
            labels = np.arange(len(scores)), targets.codes
            if loss.cross_entropy:  # the slopes are p - Y, and Y is added again: twice as fast as softmax by numpy
                _, p = loss.value_gradient(scores, targets, scores)
                if targets.soft is None:
                    p[labels] += 1
                else:
                    p += targets.soft
                terms[block] = p
            else:
                terms[block] = loss.curvatures(scores, targets)
            if loss.hinge and loss.couples:
                terms[block][labels] = 0

    pmap(part, shares(rows.n, least=LEAST_SHARE))
    return terms


def _rows_of_terms(rows: Any, n_scores: int) -> int:
    """Return the number of rows whose terms are computed at a time."""
    return max(64, BLOCK_VALUES // max(rows.d, n_scores))


@dataclass(frozen=True)
class Centered:
    """Rows (n, d) from which the mean (d,) is subtracted when a slice or positions are read."""

    original: Any
    mean: NDArray

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (n, d) of the rows."""
        n, d = self.original.shape
        return n, d

    @property
    def dtype(self) -> np.dtype:
        """Floating-point type of the rows."""
        return np.dtype(self.original.dtype)

    def __len__(self) -> int:
        return len(self.original)

    def __getitem__(self, where: Any) -> NDArray:
        return np.asarray(self.original[where] - self.mean)


@dataclass(frozen=True, eq=False, kw_only=True)
class CenteredRows(BlockRows):
    """Passes over rows from which their mean is subtracted."""

    X: Centered
    original: BlockRows

    def shuffled(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return a random order in which the original rows are read fast."""
        return self.original.shuffled(rng)

    def fingerprint(self) -> str:
        """Return the digest of the original rows."""
        return self.original.fingerprint()
