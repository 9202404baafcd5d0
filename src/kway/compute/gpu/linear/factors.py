"""Inverse Hessians a class on a device: [X 1]' diag(h_k) [X 1] / n + ridge for each score k, made and applied there.

As on the host (linear/solvers/preconditioners): rows are drawn in proportion to their curvature h_k, a share of the
plain matrix is mixed in, matrices are scaled to a unit diagonal and given a floor that grows until all have a factor.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from numpy.typing import NDArray
from torch import Tensor

from kway.compute.gpu.linear.rows import DeviceRows, Weights

GROWTH, HIGHEST_FLOOR = 30.0, 10.0  # of the floor
_LEAST = {torch.float32: 1e-6, torch.float64: 1e-12}


@dataclass(frozen=True)
class ClassInverses:
    """One inverse (D, D) a score; maps a gradient (R, d + 1) of the host to a step."""

    held: DeviceRows
    inverses: Tensor  # (R, D, D)

    def __call__(self, gradient: NDArray) -> NDArray:
        """Each row of the gradient times its own inverse; a bias that is not fitted stays."""
        g = self.held.here(gradient)
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


def class_inverses(held: DeviceRows, h: Tensor, rule: GramRule) -> ClassInverses:
    """The inverses at curvatures h (R, n), which the rows' weights are part of."""
    plain = held.here(rule.plain)
    ridges = held.here(rule.ridges).to(plain.dtype)
    with held.device.full_precision():
        grams = torch.stack([_gram(held, h[k], k, plain, rule) for k in range(len(h))])
        return ClassInverses(held, _inverted(grams, ridges))


def device_gram(held: DeviceRows, bias: bool, dtype: torch.dtype) -> NDArray:
    """[X 1]' diag(weight) [X 1] / n of all rows, (D, D)."""
    total: Tensor | None = None
    with held.device.full_precision():
        for rows in held.blocks(held.X.shape[1] + bias, torch.finfo(dtype).bits // 8):
            root = None if held.weight is None else held.weight[rows].to(dtype).sqrt()
            Z = _with_bias(held.X[rows].to(dtype), root, bias)
            total = Z.T @ Z if total is None else total.addmm_(Z.T, Z)
    assert total is not None
    return held.device.fetch(total / len(held.X))


def probabilities_curvatures(held: DeviceRows, theta: NDArray, joint: bool) -> Tensor:
    """weight p (1 - p) of every row and score, (R, n); p softmax where `joint`, else sigmoid."""
    weights = Weights.of(held.here(theta))
    out = weights.W.new_empty((len(theta), len(held.X)))
    with held.device.full_precision():
        for rows in held.blocks(len(theta), out.element_size()):
            f = held.block_scores(weights, rows)
            p = f.softmax(1) if joint else f.sigmoid()
            h = p * (1 - p)
            out[:, rows] = (h if held.weight is None else h * held.weight[rows, None]).T
    return out


def _gram(held: DeviceRows, h: Tensor, k: int, plain: Tensor, rule: GramRule) -> Tensor:
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
    floor, unit = _LEAST[A.dtype], torch.eye(A.shape[1], dtype=A.dtype, device=A.device)
    while floor < HIGHEST_FLOOR:
        factor, failed = torch.linalg.cholesky_ex(A + floor * unit)
        if not bool(failed.any()):
            inverse: Tensor = torch.cholesky_inverse(factor)
            return inverse * scale[:, :, None] * scale[:, None, :]
        floor *= GROWTH
    return unit * (scale * scale)[:, :, None]
