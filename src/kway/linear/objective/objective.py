"""The objective: F(theta) = alpha R(W) + mean_i w_i loss(f_i, y_i), f = X W^T + b, theta = [W b] of shape (R, d + 1).

R is 1 for two classes (class 0 has score 0) and K otherwise. Rows are read in blocks, once for scores and gradient
both: a block's scores (m, R) turn into its slopes in place and are multiplied with the block again. Three ways: a
fused kernel (at most 16 scores a row), BLAS, and for CSR rows a kernel that the transpose serves as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.gpu.far_rows import FarRows
from kway.compute.kernels.linear import fused
from kway.compute.kernels.product_tiles import MOST, in_registers
from kway.compute.threads import pmap, shares, spans, spans_of
from kway.data.blocks.file_rows import MIXED_BYTES, FileRows
from kway.data.blocks.sparse_files import FileCSR
from kway.data.gate import Rows
from kway.linear.losses import Loss, Targets
from kway.linear.objective.bends import Bends, HostBends, bends_of_rows
from kway.linear.objective.curvature import curvatures, gram, mean_squares
from kway.linear.objective.fused_pass import FusedPass
from kway.linear.objective.sparse_rows import RowRun, add_scores, runs
from kway.linear.penalties import Penalty

# measured over 16 to 4000 features, 5 to 150 scores: blocks of about a million values, at most 2048 rows, are within
# 5 % of the best; smaller ones lose to the overhead of BLAS, larger ones to the cache
BLOCK_VALUES = 1 << 20
_MOST_ROWS = 2048
FUSED_FEATURES = 48  # with fewer the sums across lanes weigh more than the products
FUSED_PRODUCTS = 1 << 26  # of a pass over the rows; with fewer a fit gains less than the second that compiling takes


@dataclass(frozen=True)
class Objective:
    """alpha R(W) + weighted mean loss; weights (n,) have mean 1 or are None."""

    X: Rows  # (n, d)
    targets: Targets  # codes (n,), soft (n, R) or None
    n_scores: int  # R
    loss: Loss
    penalty: Penalty  # alpha included
    fit_intercept: bool = True
    weight: NDArray | None = None
    n_jobs: int | None = None
    turned: list[Any] = field(default_factory=list, compare=False, repr=False)  # X and its runs, where X is CSR
    n_whole: int = field(default=0, compare=False, repr=False)  # rows of the problem that this is a part of

    on_device: ClassVar[bool] = False  # whether passes over the rows run on a GPU (on_device.py)
    rows_apart: ClassVar[bool] = False  # whether passes over the rows run on a cluster (on_cluster.py)
    classes_apart: ClassVar[bool] = False  # whether a solver is to split the classes over a cluster (class_shard.py)

    @property
    def rows_here(self) -> bool:
        """Whether X is all rows, in this machine's memory; else on a device, in files, or a sample (folder_rows.py)."""
        return not (self.rows_in_files or isinstance(self.X, FarRows))

    @property
    def rows_in_files(self) -> bool:
        """Whether X is read a block at a time, and no pass may need more."""
        return isinstance(self.X, FileRows | FileCSR)

    @property
    def n(self) -> int:
        """Rows."""
        return int(self.X.shape[0])

    @property
    def d(self) -> int:
        """Features."""
        return int(self.X.shape[1])

    @property
    def all_scores(self) -> int:
        """Scores a row has, those that are held elsewhere included (class_shard.py)."""
        return self.n_scores

    @property
    def held_arrays(self) -> tuple[Any, ...]:
        """The arrays that a copy of the rows elsewhere is made of."""
        return self.X, self.targets.codes, self.targets.soft, self.weight

    def zeros(self) -> NDArray:
        """theta = 0."""
        return self.laid_out(np.zeros((self.n_scores, self.d + 1), self.X.dtype))

    def laid_out(self, theta: NDArray) -> NDArray:
        """theta as the products read it: for CSR rows a feature's weights lie together (Fortran's order)."""
        return np.asarray(theta, order="F" if sp.issparse(self.X) else "C")

    def with_loss(self, loss: Loss) -> Objective:
        """The same problem under another loss."""
        return replace(self, loss=loss)

    def total(self, part: NDArray) -> NDArray:
        """Sums over the scores held here, plus those of whoever holds other scores: here are all (class_shard.py)."""
        return part

    def centred(self, theta: NDArray) -> NDArray:
        """theta less its mean over the scores: where a shift is free the loss is the same, the penalty no larger."""
        return theta - theta.mean(axis=0)

    def shifted(self, theta: NDArray) -> NDArray:
        """theta less the row that leaves the least penalty, where a shift of all scores changes no loss."""
        if not self.loss.shift_free or len(theta) < 2:
            return theta
        return theta - np.append(self.penalty.shift(theta[:, :-1]), theta[:, -1].mean())

    def rows(self, chosen: NDArray | slice) -> Objective:
        """The same problem on some of the rows (the mean then is theirs)."""
        soft = None if self.targets.soft is None else self.targets.soft[chosen]
        weight = None if self.weight is None else self.weight[chosen]
        if weight is not None:
            weight = weight / weight.mean()
        targets = Targets(self.targets.codes[chosen], soft)
        whole = max(self.n, self.n_whole)
        return replace(self, X=self.X[chosen], targets=targets, weight=weight, turned=[], n_whole=whole)

    def some(self, most: int) -> Objective:
        """The problem itself, or on so many of its rows, drawn at random, where it has more."""
        if self.rows_in_files:
            most = min(most, self.X.rows_in(MIXED_BYTES))
        if self.n <= most:
            return self
        return self.rows(np.sort(np.random.default_rng(0).choice(self.n, most, replace=False)))

    def value(self, theta: NDArray) -> float:
        """F(theta), every part of the penalty included."""
        theta = self.laid_out(theta)
        total = sum(pmap(lambda s: self._block_value(theta, s), self._blocks(), self.n_jobs))
        return total / self.n + self.penalty.value(theta[:, :-1])

    def value_gradient(self, theta: NDArray) -> tuple[float, NDArray]:
        """The smooth part, mean loss + ridge / 2 ||W||^2, with its gradient (R, d + 1)."""
        total, gradient = self._sparse_gradient(theta) if sp.issparse(self.X) else self._dense_gradient(theta)
        gradient /= gradient.dtype.type(self.n)
        ridge = self.penalty.ridge
        if ridge:
            gradient[:, :-1] += gradient.dtype.type(ridge) * theta[:, :-1]
        if not self.fit_intercept:
            gradient[:, -1] = 0
        return total / self.n + Penalty(ridge).value(theta[:, :-1]), gradient

    def scores(self, theta: NDArray, rows: slice) -> NDArray:
        """f = X W^T + b of some rows (m, R)."""
        scores = np.empty((len(range(*rows.indices(self.n))), len(theta)), theta.dtype)
        self.fill_scores(theta, rows, scores)
        return scores

    def gram(self, dtype: np.dtype) -> NDArray:
        """[X 1]' diag(weight) [X 1] / n, (D, D): upper triangle, in Fortran's order."""
        return gram(self, dtype)

    def mean_squares(self) -> NDArray:
        """Of each feature, by the rows' weights, (1, d)."""
        return mean_squares(self)

    def curvatures(self, theta: NDArray) -> NDArray:
        """Weighted second derivatives of each row's loss by each score at theta, (R, n)."""
        return curvatures(self, theta)

    def bends(self, theta: NDArray) -> Bends:
        """Products with the Hessian at theta."""
        return HostBends(self, bends_of_rows(self, theta))

    def fill_scores(self, theta: NDArray, rows: slice, scores: NDArray) -> None:
        """f = X W^T + b of some rows into scores (m, R)."""
        if sp.issparse(self.X):
            scores[:] = theta[:, -1]
            add_scores(self.X, rows, np.ascontiguousarray(theta[:, :-1].T), scores)
        else:
            np.matmul(self.X[rows], theta[:, :-1].T, out=scores)
            scores += theta[:, -1]

    def block_targets(self, rows: slice | NDArray) -> Targets:
        """Targets of some rows."""
        soft = self.targets.soft
        return Targets(self.targets.codes[rows], None if soft is None else soft[rows])

    def weighted_sum(self, values: NDArray, rows: slice | NDArray) -> float:
        """Of a value (m,) for each of some rows."""
        return float(values.sum() if self.weight is None else values @ self.weight[rows])

    def _blocks(self) -> list[slice]:
        return spans(self.n, self._block_rows)

    @property
    def _block_rows(self) -> int:
        return max(64, min(_MOST_ROWS, BLOCK_VALUES // max(1, self.d), 2 * BLOCK_VALUES // self.n_scores))

    def _block_value(self, theta: NDArray, rows: slice) -> float:
        value, _ = self.loss.value_gradient(self.scores(theta, rows), self.block_targets(rows))
        return self.weighted_sum(value, rows)

    def _dense_gradient(self, theta: NDArray) -> tuple[float, NDArray]:
        """Sum of losses and of gradients."""
        return self._by_shares(self._fused_share if self.fused else self._blas_share, theta)

    def _by_shares(self, share: Callable[..., tuple[float, NDArray]], theta: NDArray) -> tuple[float, NDArray]:
        """The sums of all rows, a share of them a worker."""
        parts = pmap(lambda s: share(theta, s), shares(self.n, self.n_jobs, least=256), self.n_jobs)
        total, gradient = parts[0]
        for value, more in parts[1:]:
            total += value
            gradient += more
        return total, gradient

    @property
    def fused(self) -> bool:
        """Whether gradients read rows once, by the fused kernel: it wins where a row is long and has few scores."""
        X = self.X
        if not isinstance(X, np.ndarray):
            return False
        passed = max(self.n, self.n_whole)  # what is compiled for all rows serves a sample of them, too
        pays = self.d >= FUSED_FEATURES and passed * self.d * self.n_scores >= FUSED_PRODUCTS
        able = self.n_scores <= MOST and self.loss.compiled and self.targets.soft is None
        return pays and able and X.strides[1] == X.itemsize and in_registers()

    def _fused_share(self, theta: NDArray, share: slice) -> tuple[float, NDArray]:
        one = FusedPass.of(theta, self.X.dtype)
        facts = (self.loss.kernel, self.loss.margin, self.loss.width)
        total = fused.each_fused(*facts, *self.fused_rows(share), *one)
        return total, one.gradient(self.d)

    def fused_rows(self, share: slice) -> tuple[Any, ...]:
        """Some rows as fused kernels take them: address, stride, how many, features, codes, weights or none."""
        X, codes, weight = self.X[share], self.targets.codes[share], self.weight
        weights = np.empty(0, X.dtype) if weight is None else np.ascontiguousarray(weight[share], X.dtype)
        return X.ctypes.data, X.strides[0], len(X), self.d, codes, weights

    def _blas_share(self, theta: NDArray, share: slice) -> tuple[float, NDArray]:
        W, bias = np.ascontiguousarray(theta[:, :-1]), theta[:, -1].copy()
        total, gradient, product = 0.0, np.zeros_like(theta), np.empty_like(W)
        buffer, ones = np.empty((self._block_rows, self.n_scores), theta.dtype), np.ones(self._block_rows, theta.dtype)
        for rows in spans_of(share, self._block_rows):
            X, scores = self.X[rows], buffer[: rows.stop - rows.start]  # (m, d), (m, R)
            np.matmul(X, W.T, out=scores)
            scores += bias
            total += self._slopes(scores, rows)
            np.matmul(scores.T, X, out=product)
            gradient[:, :-1] += product
            gradient[:, -1] += ones[: len(scores)] @ scores  # numpy's sum down columns takes as long as both products
        return total, gradient

    def _sparse_gradient(self, theta: NDArray) -> tuple[float, NDArray]:
        """Sum of losses and of gradients over CSR rows; theta and the gradient column by column in memory."""
        theta = self.laid_out(theta)
        if self.rows_in_files:
            return self._by_shares(self._file_share, theta)
        gradient = np.zeros_like(theta)
        total = 0.0
        for run in self._runs():
            first = run.rows.start
            slopes = np.empty((run.rows.stop - first, self.n_scores), theta.dtype)

            def block(rows: slice, first: int = first, slopes: NDArray = slopes) -> float:
                here = slopes[rows.start - first : rows.stop - first]
                self.fill_scores(theta, rows, here)
                return self._slopes(here, rows)

            parts = shares(len(slopes), self.n_jobs, least=64)
            total += sum(pmap(block, [slice(first + s.start, first + s.stop) for s in parts], self.n_jobs))
            run.add_product(slopes, gradient.T[:-1], self.n_jobs)
            gradient[:, -1] += slopes.sum(axis=0)
        return total, gradient

    def _file_share(self, theta: NDArray, share: slice) -> tuple[float, NDArray]:
        """Of CSR rows in files, whose runs are turned anew in each pass: all take as much memory as the rows."""
        total, gradient = 0.0, np.zeros_like(theta)
        for run in runs(self.X, self.n_scores, 1, share, self.X.rows_in(MIXED_BYTES // 2)):
            slopes = self.scores(theta, run.rows)
            total += self._slopes(slopes, run.rows)
            run.add_product(slopes, gradient.T[:-1], 1)
            gradient[:, -1] += slopes.sum(axis=0)
        return total, gradient

    def _runs(self) -> list[RowRun]:
        """Runs of the CSR rows, made once; `replace` hands them on, rows that are others have others."""
        if not self.turned or self.turned[0] is not self.X:
            self.turned[:] = [self.X, list(runs(self.X, self.n_scores, self.n_jobs, slice(0, self.n)))]
        found: list[RowRun] = self.turned[1]
        return found

    def _slopes(self, scores: NDArray, rows: slice) -> float:
        """Scores turned into weighted slopes in place; the sum of the weighted losses."""
        value, slope = self.loss.value_gradient(scores, self.block_targets(rows), scores)
        if self.weight is None:
            return float(value.sum())
        slope *= self.weight[rows, None]
        return float(value @ self.weight[rows])
