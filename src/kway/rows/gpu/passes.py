"""Passes of a linear model over rows that live on a GPU; theta and gradients are arrays of the host.

    scores     f = X W' + b, a block of rows at a time: (m, R)
    gradient   sum_i slope_i [x_i 1], (R, d + 1), with the sum of the losses

Products have full float32 or float64 precision (no TF32), and sums of losses are float64. The scores of a block take
at most DEVICE_BLOCK bytes, so that a million classes pass as ten do.

`class_factor` makes an inverse Hessian per class, [X 1]' diag(h_k) [X 1] / n + ridge for each score k, as the
preconditioners of the host do: rows are drawn in proportion to their curvature h_k, a share of the plain matrix is
mixed in, and matrices are scaled to a unit diagonal and given a floor that grows until all have a factor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from kway.errors import InputError
from kway.rows.dense import bends
from kway.rows.gpu import losses as loss_blocks
from kway.rows.gpu.device import Device
from kway.rows.gpu.losses import LabeledRows, Weights, block_slopes, score_blocks
from kway.rows.gpu.stochastic_steps import GpuSteps, SampledWeights, gpu_steps
from kway.rows.gpu.tensor_rows import TensorRows
from kway.rows.passes import CLASS_FACTOR, DISTINCT, FETCHED, QUICK, STEPS, ClassSums, RowLosses, StepRule, Sums
from kway.units import ByteUnit

MOST_DENSE = 4 * ByteUnit.GiB  # bytes of sparse rows that are made dense for a GPU
# the floor under the diagonal of a scaled matrix: its least value, its growth until all have a factor, its most (G2)
_LEAST_FLOOR = {torch.float32: 1e-6, torch.float64: 1e-12}
GROWTH, HIGHEST_FLOOR = 30.0, 10.0


@dataclass(frozen=True, eq=False)
class GpuRows:
    """A tensor (n, d) on a device; targets and weights are copied to it when a pass first names them."""

    X: TensorRows
    _copies: list[Any] = field(default_factory=list, repr=False)  # of the last targets and weights

    @staticmethod
    def on(device: Device, X: Any) -> GpuRows:
        """Rows sent to the device; BudgetError if there is no room for them and a block of scores."""
        if isinstance(X, TensorRows):
            return GpuRows(X)
        X = _dense(X)
        with device.room("copying the rows", X.nbytes + 2 * loss_blocks.DEVICE_BLOCK):
            return GpuRows(TensorRows(device.put(X), copied=True))

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.X)

    @property
    def d(self) -> int:
        """Number of features."""
        return self.X.shape[1]

    @property
    def dtype(self) -> np.dtype:
        """Float type of the rows."""
        return self.X.dtype

    @cached_property
    def device(self) -> Device:
        """Where the rows are."""
        return self.X.device

    @property
    def offers(self) -> frozenset[str]:
        """Equal rows can be found; the device makes stochastic steps and factors per class. Tensors stay there."""
        offered = frozenset({QUICK, DISTINCT, STEPS, CLASS_FACTOR})
        return offered | {FETCHED} if self.X.copied else offered

    @property
    def most_taken(self) -> int:
        """All rows."""
        return self.n

    def take(self, chosen: NDArray | slice) -> GpuRows:
        """Some of the rows, on the device."""
        return GpuRows(self.X[chosen])

    def sample(self) -> GpuRows:
        """These rows."""
        return self

    def shuffled(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """The rows in a new order (n,)."""
        return rng.permutation(self.n)

    def held(self, losses: RowLosses) -> LabeledRows:
        """The rows with the targets and weights of these losses, copied to the device once."""
        given = (losses.targets.codes, losses.targets.soft, losses.weight)
        if not self._copies or any(a is not b for a, b in zip(self._copies[0], given)):
            sent = (None if a is None else self.device.put(a) for a in given)
            self._copies[:] = [given, LabeledRows(self.device, self.X.tensor, *sent)]
        found: LabeledRows = self._copies[1]
        return found

    # ---- passes

    def laid_out(self, theta: NDArray) -> NDArray:
        """theta in C order."""
        return np.asarray(theta, order="C")

    def scores(self, theta: NDArray, rows: slice) -> NDArray:
        """f of some rows (m, R), on the host."""
        weights = Weights.of(self.device.put(theta))
        with self.device.full_precision():
            return self.device.fetch(torch.addmm(weights.b, self.X.tensor[rows].to(weights.W.dtype), weights.W.T))

    def fill_scores(self, theta: NDArray, rows: slice, scores: NDArray) -> None:
        """f of some rows into scores (m, R), on the host."""
        scores[:] = self.scores(theta, rows)

    def value(self, theta: NDArray, losses: RowLosses) -> float:
        """The sum of the weighted losses."""
        held, weights = self.held(losses), Weights.of(self.device.put(theta))
        total = torch.zeros((), dtype=torch.float64, device=held.X.device)
        slopes_of = block_slopes(held, losses)
        with self.device.full_precision():
            for rows in held.blocks(len(theta), weights.W.element_size()):
                value = slopes_of(held.scores(weights, rows), rows).value
                total += value.sum() if held.weight is None else value @ held.weight[rows].double()
        return float(total)

    def value_gradient(self, theta: NDArray, losses: RowLosses) -> Sums:
        """The sums of the weighted losses and of their gradients."""
        held, weights = self.held(losses), Weights.of(self.device.put(theta))
        total = torch.zeros((), dtype=torch.float64, device=held.X.device)
        into, slopes_of = weights.zeros(), block_slopes(held, losses)
        with self.device.full_precision():
            for rows in held.blocks(len(theta), weights.W.element_size()):
                value, slope = slopes_of(held.scores(weights, rows), rows)
                if held.weight is not None:
                    value = value * held.weight[rows].double()
                    slope = slope * held.weight[rows, None].to(slope.dtype)
                total += value.sum()
                held.add_product(into, slope, rows)
        return Sums(float(total), into.together())

    def reads_once(self, losses: RowLosses, n_scores: int) -> bool:
        """No: the fused kernel is the CPU's."""
        return False

    # ---- second derivatives

    def hessian_at(self, theta: NDArray, losses: RowLosses) -> GpuHessian:
        """Products with the Hessian at theta."""
        held, loss = self.held(losses), losses.loss
        if not loss.cross_entropy:
            return GpuHessian(held, self.device.put(bends(self, theta, losses)), False, loss.couples)
        weights = Weights.of(self.device.put(theta))
        bend = weights.W.new_empty((self.n, len(theta)))
        with self.device.full_precision():
            for rows in held.blocks(len(theta), bend.element_size()):
                bend[rows] = held.scores(weights, rows).softmax(1)
        return GpuHessian(held, bend, True, True)

    def curvatures(self, theta: NDArray, losses: RowLosses) -> NDArray:
        """Weighted second derivatives at theta, (R, n), on the host."""
        out = np.empty((len(theta), self.n), theta.dtype)
        for rows in score_blocks(self.n, len(theta), theta.itemsize):
            out[:, rows] = losses.curvatures(self.scores(theta, rows), rows).T
        return out

    def class_sums(self, theta: NDArray, losses: RowLosses, bias: bool) -> ClassSums:
        """Not on a GPU, which makes a factor per class for less."""
        raise NotImplementedError

    def class_factor(
        self, theta: NDArray, losses: RowLosses, plain: NDArray, ridges: NDArray, n_drawn: int, share: float
    ) -> Callable[[NDArray], NDArray]:
        """An inverse Hessian per score at theta, from about n_drawn rows and a share of the `plain` matrix (D, D)."""
        held, loss, rule = self.held(losses), losses.loss, GramRule(plain, ridges, n_drawn, share)
        if loss.p_curvatures:
            h = probability_curvatures(held, theta, loss.joint)
        else:
            h = self.device.put(self.curvatures(theta, losses))
        return class_inverses(held, h, rule)

    # ---- stochastic steps

    def step_rows(self) -> int:
        """Rows of a step of sampled softmax if the fit does not say: steps of few rows wait for their launches."""
        return max(256, min(2048, self.n // 64))  # 64 steps per epoch or more (G2)

    def batch_steps(self, losses: RowLosses, weight: NDArray, theta: NDArray, rule: StepRule, batch: int) -> GpuSteps:
        """Steps of SGD on weights that stay on the device."""
        return gpu_steps(self.held(losses), losses, weight, theta, rule, batch)

    def sampled_weights(
        self, losses: RowLosses, theta: NDArray, sizes: NDArray, met: NDArray, ridge: float, fit_intercept: bool
    ) -> SampledWeights:
        """The weights of a run of sampled softmax, on the device."""
        return SampledWeights.on(self.held(losses), theta, sizes, met, ridge, fit_intercept)

    # ---- sums over the rows

    def gram(self, weight: NDArray | None, bias: bool, dtype: np.dtype) -> NDArray:
        """[X 1]' diag(weight) [X 1] / n (D, D), in Fortran order."""
        root = None if weight is None else np.sqrt(weight)
        return np.asfortranarray(self.X.gram(root, bias, dtype) / dtype.type(max(1, self.n)))

    def squares(self, h: NDArray | None) -> NDArray:
        """sum_i h_ki x_ij^2 (R, d); without h (R, n) the plain sums (1, d)."""
        return self.X.squares(h)

    def row_squares(self) -> NDArray:
        """||x_i||^2 (n,)."""
        return self.X.row_squares()

    def mean_square(self) -> float:
        """The mean of the squares of all numbers in X."""
        return self.X.mean_square()

    # ---- columns and equal rows

    def mark(self) -> str:
        """A digest that a change of any value changes."""
        keys = self.keys(np.random.default_rng(0).standard_normal(self.d))
        return f"{self.X.shape}: {keys.sum()!r} {keys @ keys!r}"

    def mean(self) -> NDArray:
        """The mean row (d,)."""
        return self.X.mean()

    def less(self, mean: NDArray) -> GpuRows:
        """Each row less the mean (d,)."""
        return GpuRows(self.X.less(mean))

    def keys(self, direction: NDArray) -> NDArray[np.float64]:
        """x_i . direction (n,): equal rows have equal keys."""
        return self.X.keys(direction)

    def equal(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether rows a are rows b, one by one."""
        return self.X.equal(a, b)

    def units(self) -> NDArray[np.float64]:
        """The root mean square (d,) of each column's nonzero entries; 1 if all are zero."""
        return self.X.units()

    def divided(self, units: NDArray) -> GpuRows:
        """Each column in units of its own."""
        return GpuRows(self.X.divided(units))


def _dense(X: Any) -> Any:
    """Sparse rows as dense ones if those are not large."""
    if not sp.issparse(X):
        return X
    needed = X.shape[0] * X.shape[1] * X.dtype.itemsize
    if needed > MOST_DENSE:
        raise InputError(
            f"X is sparse, {X.shape[0]:,} x {X.shape[1]:,}: a GPU multiplies dense rows, which would take "
            f"{needed / 2**30:.1f} GiB (at most {MOST_DENSE / 2**30:.0f}); use device='cpu', which reads it so"
        )
    return np.ascontiguousarray(X.toarray())


class GpuHessian:
    """sum_i w_i (B_i f(V)_i) [x_i 1] from the bends (n, R) of each row's loss, which are on the device.

    `cross_entropy`: B_i = diag(p) - p p'; `couples`: pairs of the own class with each other; else B_i is diagonal.
    """

    def __init__(self, held: LabeledRows, bend: Tensor, cross_entropy: bool, couples: bool) -> None:
        self._held, self._bend = held, bend
        self._cross_entropy, self._couples = cross_entropy, couples
        self._change, self._last = torch.zeros_like(bend), torch.empty_like(bend)

    def product(self, V: NDArray) -> NDArray:
        """The sum over all rows, (R, d + 1)."""
        held, weights = self._held, Weights.of(self._held.device.put(V))
        into = weights.zeros()
        with held.device.full_precision():
            for rows in held.blocks(len(V), weights.W.element_size()):
                self._last[rows] = held.scores(weights, rows)
                slope = self._slopes(rows)
                held.add_product(into, slope if held.weight is None else slope * held.weight[rows, None], rows)
        return into.together()

    def advance(self, t: float) -> float:
        """Go t along the last direction; returns the largest change of any score so far."""
        self._change.add_(self._last, alpha=t)
        return float(self._change.abs().max())

    def _slopes(self, rows: slice) -> Tensor:
        """How the last direction's change of the scores of some rows changes their slopes."""
        bend, change = self._bend[rows], self._last[rows]
        if self._cross_entropy:
            return bend * (change - (bend * change).sum(1, keepdim=True))
        if not self._couples:
            return bend * change
        own = self._held.codes[rows, None]
        slope = bend * (change - change.gather(1, own))
        slope.scatter_(1, own, 0)
        return slope.scatter_(1, own, -slope.sum(1, keepdim=True))


# ---- inverse Hessians per class


@dataclass(frozen=True)
class ClassInverses:
    """One inverse (D, D) a score; maps a gradient (R, d + 1) of the host to a step."""

    held: LabeledRows
    inverses: Tensor  # (R, D, D)

    def __call__(self, gradient: NDArray) -> NDArray:
        """Each row of the gradient times its own inverse; a bias that is not fitted stays."""
        g = self.held.device.put(gradient)
        out, D = torch.zeros_like(g), self.inverses.shape[1]
        with self.held.device.full_precision():
            step = torch.bmm(self.inverses, g[:, :D, None].to(self.inverses.dtype))
        out[:, :D] = step.squeeze(2).to(g.dtype)
        return self.held.device.fetch(out)


@dataclass(frozen=True)
class GramRule:
    """How a class's matrix is made: about n_drawn rows, a share of the plain one (D, D), ridges (D,)."""

    plain: NDArray
    ridges: NDArray
    n_drawn: int
    share: float


def class_inverses(held: LabeledRows, h: Tensor, rule: GramRule) -> ClassInverses:
    """The inverses at curvatures h (R, n), which the rows' weights are part of."""
    plain = held.device.put(rule.plain)
    ridges = held.device.put(rule.ridges).to(plain.dtype)
    with held.device.full_precision():
        grams = torch.stack([_gram(held, h[k], k, plain, rule) for k in range(len(h))])
        return ClassInverses(held, _inverted(grams, ridges))


def probability_curvatures(held: LabeledRows, theta: NDArray, joint: bool) -> Tensor:
    """weight p (1 - p) of every row and score, (R, n); p softmax where `joint`, else sigmoid."""
    weights = Weights.of(held.device.put(theta))
    out = weights.W.new_empty((len(theta), len(held.X)))
    with held.device.full_precision():
        for rows in held.blocks(len(theta), out.element_size()):
            f = held.scores(weights, rows)
            p = f.softmax(1) if joint else f.sigmoid()
            h = p * (1 - p)
            out[:, rows] = (h if held.weight is None else h * held.weight[rows, None]).T
    return out


def _gram(held: LabeledRows, h: Tensor, k: int, plain: Tensor, rule: GramRule) -> Tensor:
    """The matrix of one class (D, D)."""
    n, generator = len(h), torch.Generator(h.device).manual_seed(k)
    chance = (rule.n_drawn * h / h.sum().clamp(min=1e-30)).clamp(max=1)
    drawn = torch.nonzero(torch.rand(n, generator=generator, device=h.device) < chance).squeeze(1)
    root = ((1 - rule.share) * h[drawn] / (n * chance[drawn].clamp(min=1e-30))).sqrt().to(plain.dtype)
    Z = _with_bias(held.X[drawn].to(plain.dtype), root, len(plain) > held.X.shape[1])
    return torch.addmm(plain, Z.T, Z, beta=float(rule.share * h.mean()))


def _with_bias(X: Tensor, root: Tensor | None, bias: bool) -> Tensor:
    """diag(root) [X 1], (m, D)."""
    Z = torch.cat((X, X.new_ones((len(X), 1))), dim=1) if bias else X
    return Z if root is None else Z * root[:, None]


def _inverted(A: Tensor, ridges: Tensor) -> Tensor:
    """(A_k + diag(ridges))^-1 of every k; zero curvature becomes one, as its gradient is zero anyway."""
    diagonal = A.diagonal(dim1=1, dim2=2)
    diagonal += ridges
    diagonal[diagonal <= 0] = 1
    scale = diagonal.rsqrt()  # (R, D)
    A *= scale[:, :, None]
    A *= scale[:, None, :]
    floor, unit = _LEAST_FLOOR[A.dtype], torch.eye(A.shape[1], dtype=A.dtype, device=A.device)
    while floor < HIGHEST_FLOOR:
        factor, failed = torch.linalg.cholesky_ex(A + floor * unit)
        if not bool(failed.any()):
            inverse: Tensor = torch.cholesky_inverse(factor)
            return inverse * scale[:, :, None] * scale[:, None, :]
        floor *= GROWTH
    return unit * (scale * scale)[:, :, None]
