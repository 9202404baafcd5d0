"""Rows, targets and weights of a linear model on a device, as products read them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from kway.rows.gpu.device import Device
from kway.rows.gpu.losses import DeviceTargets, Slopes, slopes
from kway.rows.passes import RowLosses
from kway.threads import spans

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
class HeldRows:
    """X (n, d), codes (n,), soft targets (n, R) or None and weights (n,) or None on one device."""

    device: Device
    X: Tensor
    codes: Tensor
    soft: Tensor | None
    weight: Tensor | None

    def targets(self, rows: slice | NDArray) -> DeviceTargets:
        """Targets of some rows."""
        some = rows if isinstance(rows, slice) else self.device.put(rows)
        return DeviceTargets(self.codes[some], None if self.soft is None else self.soft[some])

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


def block_slopes(held: HeldRows, losses: RowLosses) -> BlockSlopes:
    """Values and slopes of blocks on the device; those of a loss without a kernel are computed on the host."""
    loss = losses.loss

    def compiled(scores: Tensor, rows: slice | NDArray) -> Slopes:
        return slopes(loss.kernel, scores, held.targets(rows), loss.margin, loss.width)

    def in_python(scores: Tensor, rows: slice | NDArray) -> Slopes:
        value, slope = loss.value_gradient(scores.cpu().numpy(), losses.targets.of(rows))
        return Slopes(held.device.put(value), held.device.put(slope))

    return compiled if loss.compiled else in_python
