"""The losses on a device: scores (m, R), targets -> value (m,) float64, slopes (m, R), as kernels/linear/losses.py.

The formulas are those of the kernels, written for whole blocks, by the same numbers; a battery over every registered
loss holds the two against each other. Slopes may overwrite the scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from kway.kernels.linear import loss_numbers as kinds
from kway.rows.gpu.device import Device
from kway.rows.passes import RowLosses
from kway.threads import spans


class BlockTargets(NamedTuple):
    """Targets of a block: codes (m,), and distributions (m, R) where they are soft."""

    codes: Tensor
    soft: Tensor | None = None


class Slopes(NamedTuple):
    """value (m,) in float64 and slopes (m, R) of a block."""

    value: Tensor
    slope: Tensor


class Phi(NamedTuple):
    """A column loss and its slope at margins t, each of the shape of t."""

    value: Tensor
    slope: Tensor


def slopes(kind: int, scores: Tensor, targets: BlockTargets, margin: float, width: float) -> Slopes:
    """Any registered loss by its number."""
    if kind in _COLUMNS:
        return _column_rows(_COLUMNS[kind], scores, targets, margin, width)
    return _JOINT[kind](scores, targets, margin, width)


# ---------------------------------------------------------------- each column a binary problem with margin t


def _column_rows(
    phi: Callable[[Tensor, float, float], Phi], f: Tensor, targets: BlockTargets, margin: float, width: float
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


def _logistic(t: Tensor, margin: float, width: float) -> Phi:
    return Phi(torch.clamp(-t, min=0) + torch.log1p(torch.exp(-t.abs())), -torch.sigmoid(-t))


def _hinge(t: Tensor, margin: float, width: float) -> Phi:
    value, slope = _gaps(margin - t, width)
    return Phi(value, -slope)


def _perceptron(t: Tensor, margin: float, width: float) -> Phi:
    value, slope = _hinge(t, margin, width)
    if width == 0:  # at t = 0 the row is not separated yet: it moves, or from W = 0 it never would
        slope = torch.where(t == 0, -1, slope)
    return Phi(value, slope)


def _squared(t: Tensor, margin: float, width: float) -> Phi:
    return Phi((1 - t) ** 2, -2 * (1 - t))


def _sigmoid_squared(t: Tensor, margin: float, width: float) -> Phi:
    miss = torch.sigmoid(-t)
    return Phi(2 * miss * miss, -4 * miss * miss * (1 - miss))


def _sigmoid_absolute(t: Tensor, margin: float, width: float) -> Phi:
    miss = torch.sigmoid(-t)
    return Phi(2 * miss, -2 * miss * (1 - miss))


def _gaps(gap: Tensor, width: float) -> Phi:
    """max(0, gap), its kink rounded over `width` (0: not at all), and the slope."""
    if width == 0:
        return Phi(gap.clamp(min=0), (gap > 0).to(gap.dtype))
    inside = gap.clamp(0, width)
    return Phi(inside * (gap + (gap - inside)) / (2 * width), inside / width)


# ---------------------------------------------------------------- all classes in one problem


def _softmax(f: Tensor, targets: BlockTargets, margin: float, width: float) -> Slopes:
    """-sum_k Y_k log p_k and p - Y; the others' mass apart, so that 1 - p of a nearly certain row keeps its digits."""
    codes, soft = targets
    f.sub_(f.amax(1, keepdim=True))
    along = f.gather(1, codes[:, None]).squeeze(1).double() if soft is None else (soft * f).sum(1, dtype=torch.float64)
    f.exp_()
    if soft is not None:
        mass = f.sum(1, dtype=torch.float64)
        return Slopes(mass.log() - along, f.div_(mass.to(f.dtype)[:, None]).sub_(soft))
    own = f.gather(1, codes[:, None]).squeeze(1)
    f.scatter_(1, codes[:, None], 0)
    others = f.sum(1)
    mass = own.double() + others.double()
    share = (1 / mass).to(f.dtype)
    f.mul_(share[:, None]).scatter_(1, codes[:, None], -(others * share)[:, None])
    return Slopes(mass.log() - along, f)


def _softmax_squared(f: Tensor, targets: BlockTargets, margin: float, width: float) -> Slopes:
    p = f.softmax(1)
    miss = p - _distributions(f, targets)
    return Slopes((miss * miss).sum(1, dtype=torch.float64), _through_softmax(p, 2 * miss))


def _softmax_absolute(f: Tensor, targets: BlockTargets, margin: float, width: float) -> Slopes:
    p = f.softmax(1)
    miss = p - _distributions(f, targets)
    return Slopes(miss.abs().sum(1, dtype=torch.float64), _through_softmax(p, miss.sign()))


def _through_softmax(p: Tensor, slope: Tensor) -> Tensor:
    """Slopes in p turned into slopes in the scores: p (u - p.u)."""
    return p * (slope - (p * slope).sum(1, keepdim=True))


def _one_hot(f: Tensor, targets: BlockTargets, margin: float, width: float) -> Slopes:
    miss = f - _distributions(f, targets)
    return Slopes((miss * miss).sum(1, dtype=torch.float64), 2 * miss)


def _multi_hinge(f: Tensor, targets: BlockTargets, margin: float, width: float) -> Slopes:
    own = targets.codes[:, None]
    gap = (margin + f) - f.gather(1, own)
    value, slope = _gaps(gap, width)
    if margin == 0 and width == 0:  # the perceptron moves on a tie
        slope = torch.where(gap == 0, 1, slope)
    value.scatter_(1, own, 0)
    slope.scatter_(1, own, 0)
    slope.scatter_(1, own, -slope.sum(1, keepdim=True))
    return Slopes(value.sum(1, dtype=torch.float64), slope)


def _distributions(f: Tensor, targets: BlockTargets) -> Tensor:
    if targets.soft is not None:
        return targets.soft
    return torch.zeros_like(f).scatter_(1, targets.codes[:, None], 1)


_COLUMNS: dict[int, Callable[[Tensor, float, float], Phi]] = {
    kinds.LOGISTIC: _logistic,
    kinds.HINGE: _hinge,
    kinds.PERCEPTRON: _perceptron,
    kinds.SQUARED: _squared,
    kinds.SIGMOID_SQUARED: _sigmoid_squared,
    kinds.SIGMOID_ABSOLUTE: _sigmoid_absolute,
}
_JOINT: dict[int, Callable[[Tensor, BlockTargets, float, float], Slopes]] = {
    kinds.SOFTMAX: _softmax,
    kinds.SOFTMAX_SQUARED: _softmax_squared,
    kinds.SOFTMAX_ABSOLUTE: _softmax_absolute,
    kinds.ONE_HOT: _one_hot,
    kinds.MULTI_HINGE: _multi_hinge,
}


DEVICE_BLOCK = 1 << 29  # bytes of a block's scores: large enough that a launch costs nothing beside it (G2)


class Weights(NamedTuple):
    """theta apart: W (R, d) and b (R,), each contiguous."""

    W: Tensor
    b: Tensor

    @staticmethod
    def of(theta: Tensor) -> Weights:
        """From theta (R, d + 1)."""
        return Weights(theta[:, :-1].contiguous(), theta[:, -1].contiguous())

    def zeros(self) -> Weights:
        """As many zeros."""
        return Weights(torch.zeros_like(self.W), torch.zeros_like(self.b))

    def together(self) -> NDArray:
        """(R, d + 1), on the host."""
        found: NDArray = torch.cat((self.W, self.b[:, None]), dim=1).cpu().numpy()
        return found


@dataclass(frozen=True)
class LabeledRows:
    """X (n, d), codes (n,), soft targets (n, R) or None and weights (n,) or None on one device."""

    device: Device
    X: Tensor
    codes: Tensor
    soft: Tensor | None
    weight: Tensor | None

    def targets(self, rows: slice | NDArray) -> BlockTargets:
        """Targets of some rows."""
        some = rows if isinstance(rows, slice) else self.device.put(rows)
        return BlockTargets(self.codes[some], None if self.soft is None else self.soft[some])

    def scores(self, weights: Weights, rows: slice) -> Tensor:
        """f of some rows (m, R)."""
        return torch.addmm(weights.b, self.X[rows].to(weights.W.dtype), weights.W.T)

    def add_product(self, into: Weights, slope: Tensor, rows: slice) -> None:
        """into += slope' [X 1]."""
        into.W.addmm_(slope.T, self.X[rows].to(slope.dtype))
        into.b.add_(slope.sum(0))

    def blocks(self, n_scores: int, itemsize: int) -> list[slice]:
        """The rows in blocks whose scores stay small."""
        return score_blocks(len(self.X), n_scores, itemsize)


def score_blocks(n: int, n_scores: int, itemsize: int) -> list[slice]:
    """n rows in blocks whose scores take at most DEVICE_BLOCK bytes."""
    return spans(n, max(256, DEVICE_BLOCK // (n_scores * itemsize)))


BlockSlopes = Callable[[Tensor, Any], Slopes]  # scores (m, R) of some rows -> their values and slopes


def block_slopes(held: LabeledRows, losses: RowLosses) -> BlockSlopes:
    """Values and slopes of blocks on the device; those of a loss without a kernel are computed on the host."""
    loss = losses.loss

    def compiled(scores: Tensor, rows: slice | NDArray) -> Slopes:
        return slopes(loss.kernel, scores, held.targets(rows), loss.margin, loss.width)

    def in_python(scores: Tensor, rows: slice | NDArray) -> Slopes:
        value, slope = loss.value_gradient(scores.cpu().numpy(), losses.targets.of(rows))
        return Slopes(held.device.put(value), held.device.put(slope))

    return compiled if loss.compiled else in_python
