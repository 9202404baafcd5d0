"""Values and gradients of the losses on a device, for blocks of rows with their targets.

The formulas are those of kernels/linear/losses.py, written for whole blocks: scores (m, R) and targets in, values (m,)
float64 and slopes (m, R) out. A test compares the two for every registered loss. Slopes may overwrite the scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from kway.kernels.linear import loss_numbers as kinds
from kway.rows.gpu.device import Device, row_blocks
from kway.rows.passes import RowLosses, Targets


class Slopes(NamedTuple):
    """Values and slopes: of a block (m,) in float64 and (m, R), or of margins t, each of the shape of t."""

    value: Tensor
    slope: Tensor


def slopes(kind: int, scores: Tensor, targets: Targets, margin: float, width: float) -> Slopes:
    """Return values and slopes of a registered loss, by its number."""
    if kind in _COLUMNS:
        return _column_rows(_COLUMNS[kind], scores, targets, margin, width)
    return _JOINT[kind](scores, targets, margin, width)


# ---------------------------------------------------------------- each column a binary problem with margin t


def _column_rows(
    phi: Callable[[Tensor, float, float], Slopes], f: Tensor, targets: Targets, margin: float, width: float
) -> Slopes:
    if targets.soft is None:
        sign = torch.full_like(f, -1)
        if f.shape[1] == 1:
            sign[targets.codes == 1] = 1
        else:
            sign.scatter_(1, targets.codes[:, None], 1)
        value, slope = phi(sign * f, margin, width)
        return Slopes(value.double().sum(1), sign * slope)
    q = targets.soft
    up, down = phi(f, margin, width), phi(-f, margin, width)
    value = q * up.value + (1 - q) * down.value
    return Slopes(value.double().sum(1), q * up.slope - (1 - q) * down.slope)


def _logistic(t: Tensor, margin: float, width: float) -> Slopes:
    return Slopes(torch.clamp(-t, min=0) + torch.log1p(torch.exp(-t.abs())), -torch.sigmoid(-t))


def _hinge(t: Tensor, margin: float, width: float) -> Slopes:
    value, slope = _gaps(margin - t, width)
    return Slopes(value, -slope)


def _perceptron(t: Tensor, margin: float, width: float) -> Slopes:
    value, slope = _hinge(t, margin, width)
    if width == 0:  # a row at t = 0 is not separated; without a slope, W = 0 would never change
        slope = torch.where(t == 0, -1, slope)
    return Slopes(value, slope)


def _squared(t: Tensor, margin: float, width: float) -> Slopes:
    return Slopes((1 - t) ** 2, -2 * (1 - t))


def _sigmoid_squared(t: Tensor, margin: float, width: float) -> Slopes:
    miss = torch.sigmoid(-t)
    return Slopes(2 * miss * miss, -4 * miss * miss * (1 - miss))


def _sigmoid_absolute(t: Tensor, margin: float, width: float) -> Slopes:
    miss = torch.sigmoid(-t)
    return Slopes(2 * miss, -2 * miss * (1 - miss))


def _gaps(gap: Tensor, width: float) -> Slopes:
    """Return max(0, gap) and its slope; the kink is smoothed over `width`, if it is not 0."""
    if width == 0:
        return Slopes(gap.clamp(min=0), (gap > 0).to(gap.dtype))
    inside = gap.clamp(0, width)
    return Slopes(inside * (gap + (gap - inside)) / (2 * width), inside / width)


# ---------------------------------------------------------------- all classes in one problem


def _softmax(f: Tensor, targets: Targets, margin: float, width: float) -> Slopes:
    """Return -sum_k Y_k log p_k and p - Y.

    The slope of the label is minus the sum of the other probabilities, because 1 - p would cancel if p is near 1.
    """
    codes, soft = targets
    f.sub_(f.amax(1, keepdim=True))
    label_scores = (
        f.gather(1, codes[:, None]).squeeze(1).double() if soft is None else (soft * f).sum(1, dtype=torch.float64)
    )
    f.exp_()
    if soft is not None:
        mass = f.sum(1, dtype=torch.float64)
        return Slopes(mass.log() - label_scores, f.div_(mass.to(f.dtype)[:, None]).sub_(soft))
    own = f.gather(1, codes[:, None]).squeeze(1)
    f.scatter_(1, codes[:, None], 0)
    others = f.sum(1)
    mass = own.double() + others.double()
    share = (1 / mass).to(f.dtype)
    f.mul_(share[:, None]).scatter_(1, codes[:, None], -(others * share)[:, None])
    return Slopes(mass.log() - label_scores, f)


def _softmax_squared(f: Tensor, targets: Targets, margin: float, width: float) -> Slopes:
    p = f.softmax(1)
    miss = p - _distributions(f, targets)
    return Slopes((miss * miss).sum(1, dtype=torch.float64), _through_softmax(p, 2 * miss))


def _softmax_absolute(f: Tensor, targets: Targets, margin: float, width: float) -> Slopes:
    p = f.softmax(1)
    miss = p - _distributions(f, targets)
    return Slopes(miss.abs().sum(1, dtype=torch.float64), _through_softmax(p, miss.sign()))


def _through_softmax(p: Tensor, slope: Tensor) -> Tensor:
    """Turn slopes in p into slopes in the scores: p (u - p.u)."""
    return p * (slope - (p * slope).sum(1, keepdim=True))


def _one_hot(f: Tensor, targets: Targets, margin: float, width: float) -> Slopes:
    miss = f - _distributions(f, targets)
    return Slopes((miss * miss).sum(1, dtype=torch.float64), 2 * miss)


def _multi_hinge(f: Tensor, targets: Targets, margin: float, width: float) -> Slopes:
    own = targets.codes[:, None]
    gap = (margin + f) - f.gather(1, own)
    value, slope = _gaps(gap, width)
    if margin == 0 and width == 0:  # the perceptron also learns from ties
        slope = torch.where(gap == 0, 1, slope)
    value.scatter_(1, own, 0)
    slope.scatter_(1, own, 0)
    slope.scatter_(1, own, -slope.sum(1, keepdim=True))
    return Slopes(value.sum(1, dtype=torch.float64), slope)


def _distributions(f: Tensor, targets: Targets) -> Tensor:
    if targets.soft is not None:
        return targets.soft
    return torch.zeros_like(f).scatter_(1, targets.codes[:, None], 1)


_COLUMNS: dict[int, Callable[[Tensor, float, float], Slopes]] = {
    kinds.LOGISTIC: _logistic,
    kinds.HINGE: _hinge,
    kinds.PERCEPTRON: _perceptron,
    kinds.SQUARED: _squared,
    kinds.SIGMOID_SQUARED: _sigmoid_squared,
    kinds.SIGMOID_ABSOLUTE: _sigmoid_absolute,
}
_JOINT: dict[int, Callable[[Tensor, Targets, float, float], Slopes]] = {
    kinds.SOFTMAX: _softmax,
    kinds.SOFTMAX_SQUARED: _softmax_squared,
    kinds.SOFTMAX_ABSOLUTE: _softmax_absolute,
    kinds.ONE_HOT: _one_hot,
    kinds.MULTI_HINGE: _multi_hinge,
}


class Weights(NamedTuple):
    """The parts of theta: W (R, d) and b (R,), each contiguous."""

    W: Tensor
    b: Tensor

    @staticmethod
    def split(theta: Tensor) -> Weights:
        """Split theta (R, d + 1)."""
        return Weights(theta[:, :-1].contiguous(), theta[:, -1].contiguous())

    def zeros(self) -> Weights:
        """Return zeros of the same shapes."""
        return Weights(torch.zeros_like(self.W), torch.zeros_like(self.b))

    def joined(self) -> NDArray:
        """Return theta (R, d + 1), on the host."""
        theta: NDArray = torch.cat((self.W, self.b[:, None]), dim=1).cpu().numpy()
        return theta


@dataclass(frozen=True)
class LabeledRows:
    """X (n, d), codes (n,), soft targets (n, R) or None, and weights (n,) or None, on one device."""

    device: Device
    X: Tensor
    codes: Tensor
    soft: Tensor | None
    weight: Tensor | None

    def scores(self, weights: Weights, rows: slice) -> Tensor:
        """Return the scores (m, R) of the given rows."""
        return torch.addmm(weights.b, self.X[rows].to(weights.W.dtype), weights.W.T)

    def add_product(self, sums: Weights, slope: Tensor, rows: slice) -> None:
        """Add slope' [X 1] of the given rows to the sums."""
        sums.W.addmm_(slope.T, self.X[rows].to(slope.dtype))
        sums.b.add_(slope.sum(0))

    def blocks(self, n_scores: int, itemsize: int) -> list[slice]:
        """Return blocks of rows whose scores take at most GPU_BLOCK_BYTES."""
        return row_blocks(len(self.X), n_scores * itemsize)


BlockSlopes = Callable[[Tensor, Any], Slopes]  # (scores (m, R), rows) -> values and slopes


def block_slopes(labeled: LabeledRows, losses: RowLosses) -> BlockSlopes:
    """Return a function that computes values and slopes; a loss without a kernel is computed on the host."""
    loss, targets = losses.loss, Targets(labeled.codes, labeled.soft)

    def compiled(scores: Tensor, rows: slice | Tensor) -> Slopes:
        return slopes(loss.kernel, scores, targets.of(rows), loss.margin, loss.width)

    def in_python(scores: Tensor, rows: slice | Tensor) -> Slopes:
        on_host = rows if isinstance(rows, slice) else labeled.device.fetch(rows)
        value, slope = loss.value_gradient(scores.cpu().numpy(), losses.targets.of(on_host))
        return Slopes(labeled.device.put(value), labeled.device.put(slope))

    return compiled if loss.compiled else in_python
