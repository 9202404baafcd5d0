"""Passes of a linear model over rows on a GPU. theta and gradients are arrays on the host.

    scores     f = X W' + b, (m, R), computed one block of m rows at a time
    gradient   sum_i slope_i [x_i 1], (R, d + 1), where slope_i (R,) is the derivative of loss i by its scores

Products have full float32 or float64 precision (no TF32), and sums of losses are float64. The scores of a block take at
most GPU_BLOCK_BYTES, whatever the number of classes.

`class_factor` approximates one inverse Hessian per score k, of [X 1]' diag(h_k) [X 1] / n + ridge, as the
preconditioners of the host do:

1. Draw rows in proportion to their curvature h_k, and estimate the matrix from them.
2. Add a share of the unweighted matrix, in proportion to the mean of h_k, but at least to a share of its mean over all
   scores, so that a class without curvature gets an inverse, too.
3. Scale the matrices to a unit diagonal, and add a multiple of the identity, which grows until Cholesky succeeds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from kway.errors import InputError
from kway.rows.dense import hessian_terms
from kway.rows.gpu.device import GPU_BLOCK_BYTES, Device, row_blocks
from kway.rows.gpu.losses import LabeledRows, Weights, block_slopes
from kway.rows.gpu.stochastic_steps import GpuSteps, SampledWeights, gpu_steps
from kway.rows.gpu.tensor_rows import TensorRows
from kway.rows.passes import DISTINCT, ON_GPU, QUICK, ClassSums, RowLoss, RowLosses, StepRule, Sums
from kway.units import ByteUnit

MAX_DENSE_BYTES = 4 * ByteUnit.GiB  # bytes of sparse rows that are converted to dense rows for a GPU


@dataclass(frozen=True, eq=False)
class GpuRows(TensorRows):
    """Rows (n, d) on a device; targets and weights are copied to it in the first pass that uses them."""

    _copies: list[Any] = field(default_factory=list, repr=False)  # the last targets and weights, and their copies

    @staticmethod
    def on(device: Device, X: Any) -> Any:
        """Copy rows to the device; raise BudgetError if they and two blocks of scores do not fit."""
        if isinstance(X, TensorRows):
            return GpuRows(X.tensor)
        X = _dense(X)
        with device.room("copying the rows", X.nbytes + 2 * GPU_BLOCK_BYTES):
            return GpuRows(device.put(X))

    @property
    def X(self) -> GpuRows:
        """The rows."""
        return self

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self)

    @property
    def d(self) -> int:
        """Number of features."""
        return self.shape[1]

    @property
    def offers(self) -> frozenset[str]:
        """Capabilities."""
        return frozenset({QUICK, DISTINCT, ON_GPU})

    @property
    def max_rows_in_memory(self) -> int:
        """Number of rows, because `take` may return all of them."""
        return self.n

    def take(self, chosen: NDArray | slice) -> GpuRows:
        """Return the chosen rows, on the device."""
        return self[chosen]

    def sample(self) -> GpuRows:
        """Return all rows: the device needs no sample."""
        return self

    def shuffled(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return a random order (n,) of the rows."""
        return rng.permutation(self.n)

    def labeled(self, losses: RowLosses) -> LabeledRows:
        """Return the rows with the targets and weights of these losses, which are copied to the device once."""
        arrays = (losses.targets.codes, losses.targets.soft, losses.weight)
        if not self._copies or any(a is not b for a, b in zip(self._copies[0], arrays)):
            copies = (None if a is None else self.device.put(a) for a in arrays)
            self._copies[:] = [arrays, LabeledRows(self.device, self.tensor, *copies)]
        labeled: LabeledRows = self._copies[1]
        return labeled

    # ---- passes

    def with_layout(self, theta: NDArray) -> NDArray:
        """Return theta in C order."""
        return np.asarray(theta, order="C")

    def scores(self, theta: NDArray, rows: slice) -> NDArray:
        """Return the scores (m, R) of the given rows, on the host."""
        weights = Weights.split(self.device.put(theta))
        with self.device.full_precision():
            return self.device.fetch(torch.addmm(weights.b, self.tensor[rows].to(weights.W.dtype), weights.W.T))

    def value(self, theta: NDArray, losses: RowLosses) -> float:
        """Return the sum of the weighted losses."""
        return self._sum_losses(Weights.split(self.device.put(theta)), losses)

    def value_gradient(self, theta: NDArray, losses: RowLosses) -> Sums:
        """Return the sum of the weighted losses and its gradient."""
        weights = Weights.split(self.device.put(theta))
        gradient = weights.zeros()
        return Sums(self._sum_losses(weights, losses, gradient), gradient.joined())

    def _sum_losses(self, weights: Weights, losses: RowLosses, gradient: Weights | None = None) -> float:
        """Return the sum of the weighted losses, and add their gradient to `gradient`."""
        labeled, n_scores = self.labeled(losses), len(weights.b)
        total = torch.zeros((), dtype=torch.float64, device=labeled.X.device)
        slopes_of = block_slopes(labeled, losses)
        with self.device.full_precision():
            for rows in labeled.blocks(n_scores, weights.W.element_size()):
                value, slope = slopes_of(labeled.scores(weights, rows), rows)
                weight = None if labeled.weight is None else labeled.weight[rows]
                total += value.sum() if weight is None else value @ weight.double()
                if gradient is not None:
                    slope = slope if weight is None else slope * weight[:, None].to(slope.dtype)
                    labeled.add_product(gradient, slope, rows)
        return float(total)

    # ---- second derivatives

    def hessian_at(self, theta: NDArray, losses: RowLosses) -> GpuHessian:
        """Return Hessian-vector products at theta."""
        labeled, loss = self.labeled(losses), losses.loss
        if not loss.cross_entropy:
            return GpuHessian(labeled, loss, self.device.put(hessian_terms(self, theta, losses)))
        weights = Weights.split(self.device.put(theta))
        terms = weights.W.new_empty((self.n, len(theta)))
        with self.device.full_precision():
            for rows in labeled.blocks(len(theta), terms.element_size()):
                terms[rows] = labeled.scores(weights, rows).softmax(1)
        return GpuHessian(labeled, loss, terms)

    def curvatures(self, theta: NDArray, losses: RowLosses) -> NDArray:
        """Return the weighted second derivatives (R, n) at theta, on the host."""
        if losses.loss.p_curvatures:
            return self.device.fetch(probability_curvatures(self.labeled(losses), theta, losses.loss.joint))
        out = np.empty((len(theta), self.n), theta.dtype)
        for rows in row_blocks(self.n, len(theta) * theta.itemsize):
            out[:, rows] = losses.curvatures(self.scores(theta, rows), rows).T
        return out

    def class_sums(self, theta: NDArray, losses: RowLosses, bias: bool) -> ClassSums:
        """Return the sums of the curvatures of a cross entropy per class, in one pass that stores no curvature."""
        labeled, weights = self.labeled(losses), Weights.split(self.device.put(theta))
        mass, own_mass = (self.device.zeros(len(theta), "float64") for _ in range(2))
        own_rows = weights.W.new_zeros((len(theta), self.d + bias))
        with self.device.full_precision():
            for rows in labeled.blocks(len(theta), own_rows.element_size()):
                h, codes = _p_curvatures(labeled, weights, rows, losses.loss.joint), labeled.codes[rows]
                own = h.gather(1, codes[:, None])
                mass += h.sum(0, dtype=torch.float64)
                own_mass.index_put_((codes,), own[:, 0].double(), accumulate=True)  # adds in a fixed order
                own_rows.index_put_(
                    (codes,), own * _with_bias(labeled.X[rows].to(h.dtype), None, bias), accumulate=True
                )
        return ClassSums(*map(self.device.fetch, (mass, own_mass, own_rows)))

    def class_factor(
        self, theta: NDArray, losses: RowLosses, plain: NDArray, ridges: NDArray, n_drawn: int, share: float
    ) -> Callable[[NDArray], NDArray]:
        """Return a function that multiplies each row of a gradient (R, d + 1) by an approximate inverse Hessian.

        The Hessian of score k is approximated by (1 - share) times an estimate from about n_drawn rows, which are drawn
        in proportion to their curvature, plus share times `plain` (D, D), the unweighted Gram matrix scaled to the same
        mean curvature, plus diag(ridges).
        """
        labeled, loss = self.labeled(losses), losses.loss
        if loss.p_curvatures:
            h = probability_curvatures(labeled, theta, loss.joint)
        else:
            h = self.device.put(self.curvatures(theta, losses))
        unweighted = self.device.put(plain)
        with self.device.full_precision():
            mean = h.mean(1, dtype=torch.float64)
            mass = (share * mean.clamp(min=share * float(mean.mean()))).tolist()
            drawn = (_drawn_rows(labeled, h[k], k, n_drawn, unweighted) for k in range(len(h)))
            grams = [torch.addmm(unweighted, Z.T, Z, beta=mass[k], alpha=1 - share) for k, Z in enumerate(drawn)]
            ridge = self.device.put(ridges).to(unweighted.dtype)
            return ClassInverses(labeled, _inverted(torch.stack(grams), ridge))

    # ---- stochastic steps

    def step_rows(self) -> int:
        """Return the default batch size of sampled softmax; smaller batches would wait for kernel launches."""
        return max(256, min(2048, self.n // 64))  # at least 64 steps per epoch (decided by the benchmark gpu_linear)

    def batch_steps(self, losses: RowLosses, weight: NDArray, theta: NDArray, rule: StepRule, batch: int) -> GpuSteps:
        """Return SGD steps on weights that stay on the device."""
        return gpu_steps(self.labeled(losses), losses, weight, theta, rule, batch)

    def sampled_weights(
        self, losses: RowLosses, host: tuple[NDArray, NDArray, NDArray], ridge: float, fit_intercept: bool
    ) -> SampledWeights:
        """Return the weights of sampled softmax, on the device; `host` are theta, sq_grad_sums and last_step."""
        return SampledWeights.copy(self.labeled(losses), host, ridge, fit_intercept)

    def fingerprint(self) -> str:
        """Return a digest that changes with any value."""
        keys = self.keys(np.random.default_rng(0).standard_normal(self.d))
        return f"{self.shape}: {keys.sum()!r} {keys @ keys!r}"


def _dense(X: Any) -> Any:
    """Return sparse rows as dense rows; raise InputError if these would be too large."""
    if not sp.issparse(X):
        return X
    needed = X.shape[0] * X.shape[1] * X.dtype.itemsize
    if needed > MAX_DENSE_BYTES:
        raise InputError(
            f"X is sparse, {X.shape[0]:,} x {X.shape[1]:,}: a GPU needs dense rows, which would take "
            f"{needed / 2**30:.1f} GiB (at most {MAX_DENSE_BYTES / 2**30:.0f}); use device='cpu', "
            "which reads sparse rows"
        )
    return np.ascontiguousarray(X.toarray())


@dataclass(frozen=True)
class GpuHessian:
    """Hessian-vector products sum_i w_i (B_i f(V)_i) [x_i 1], from second derivatives (n, R) on the device.

    B_i is diag(p) - p p' for a cross entropy. For another joint loss, it couples the score of the row's class with
    every other score, and otherwise it is diagonal.
    """

    labeled: LabeledRows
    loss: RowLoss
    terms: Tensor

    def product(self, V: NDArray) -> NDArray:
        """Return the product with V, (R, d + 1)."""
        labeled, weights = self.labeled, Weights.split(self.labeled.device.put(V))
        products = weights.zeros()
        with labeled.device.full_precision():
            for rows in labeled.blocks(len(V), weights.W.element_size()):
                slope = self._slopes(labeled.scores(weights, rows), rows)
                slope = slope if labeled.weight is None else slope * labeled.weight[rows, None]
                labeled.add_product(products, slope, rows)
        return products.joined()

    def _slopes(self, change: Tensor, rows: slice) -> Tensor:
        """Return the change of the slopes of the given rows for a change (m, R) of their scores."""
        terms = self.terms[rows]
        if self.loss.cross_entropy:
            return terms * (change - (terms * change).sum(1, keepdim=True))
        if not self.loss.couples:
            return terms * change
        own = self.labeled.codes[rows, None]
        slope = terms * (change - change.gather(1, own))
        slope.scatter_(1, own, 0)
        return slope.scatter_(1, own, -slope.sum(1, keepdim=True))


# ---- inverse Hessians per class


@dataclass(frozen=True)
class ClassInverses:
    """One inverse (D, D) per score, which maps a gradient (R, d + 1) on the host to a step."""

    labeled: LabeledRows
    inverses: Tensor  # (R, D, D)

    def __call__(self, gradient: NDArray) -> NDArray:
        """Multiply each row of the gradient by its inverse; the step of the bias is 0 if it is not fitted."""
        g = self.labeled.device.put(gradient)
        out, D = torch.zeros_like(g), self.inverses.shape[1]
        with self.labeled.device.full_precision():
            step = torch.bmm(self.inverses, g[:, :D, None].to(self.inverses.dtype))
        out[:, :D] = step.squeeze(2).to(g.dtype)
        return self.labeled.device.fetch(out)


def probability_curvatures(labeled: LabeledRows, theta: NDArray, joint: bool) -> Tensor:
    """Return weight p (1 - p) of every row and score, (R, n); p is softmax if `joint`, else sigmoid."""
    weights = Weights.split(labeled.device.put(theta))
    out = weights.W.new_empty((len(theta), len(labeled.X)))
    with labeled.device.full_precision():
        for rows in labeled.blocks(len(theta), out.element_size()):
            out[:, rows] = _p_curvatures(labeled, weights, rows, joint).T
    return out


def _p_curvatures(labeled: LabeledRows, weights: Weights, rows: slice, joint: bool) -> Tensor:
    """Return weight p (1 - p) of the given rows, (m, R)."""
    f = labeled.scores(weights, rows)
    p = f.softmax(1) if joint else f.sigmoid()
    h = p * (1 - p)
    return h if labeled.weight is None else h * labeled.weight[rows, None]


def _drawn_rows(labeled: LabeledRows, h: Tensor, k: int, n_drawn: int, plain: Tensor) -> Tensor:
    """Return rows Z, drawn for class k, such that Z' Z estimates [X 1]' diag(h) [X 1] / n, for curvatures h (n,)."""
    n, generator = len(h), torch.Generator(h.device).manual_seed(k)
    chance = (n_drawn * h / h.sum().clamp(min=1e-30)).clamp(max=1)
    drawn = torch.nonzero(torch.rand(n, generator=generator, device=h.device) < chance).squeeze(1)
    root = (h[drawn] / (n * chance[drawn].clamp(min=1e-30))).sqrt().to(plain.dtype)
    return _with_bias(labeled.X[drawn].to(plain.dtype), root, len(plain) > labeled.X.shape[1])


def _with_bias(X: Tensor, root: Tensor | None, bias: bool) -> Tensor:
    """Return diag(root) [X 1], (m, D)."""
    Z = torch.cat((X, X.new_ones((len(X), 1))), dim=1) if bias else X
    return Z if root is None else Z * root[:, None]


def _inverted(A: Tensor, ridges: Tensor) -> Tensor:
    """Return (A_k + diag(ridges))^-1 for every k; zero curvature becomes one, because its gradient is zero.

    A multiple of the identity is added to the scaled matrices: first a few units of rounding, then its square root,
    and so on until Cholesky succeeds.
    """
    diagonal = A.diagonal(dim1=1, dim2=2)
    diagonal += ridges
    diagonal[diagonal <= 0] = 1
    scale = diagonal.rsqrt()  # (R, D)
    A *= scale[:, :, None]
    A *= scale[:, None, :]
    added, unit = 8 * torch.finfo(A.dtype).eps, torch.eye(A.shape[1], dtype=A.dtype, device=A.device)
    while added < 0.5:
        factor, failed = torch.linalg.cholesky_ex(A + added * unit)
        if not bool(failed.any()):
            inverse: Tensor = torch.cholesky_inverse(factor)
            return inverse * scale[:, :, None] * scale[:, None, :]
        added **= 0.5
    return unit * (scale * scale)[:, :, None]
