"""Rows that live on a device, and the passes of a linear model over them; theta and gradients are arrays of the host.

    scores     f = X W' + b, a block of rows at a time: (m, R)
    gradient   sum_i slope_i [x_i 1], (R, d + 1), with the sum of the losses

Products are of full float32 or float64 precision (no TF32), sums of losses float64. A block's scores stay under
BLOCK_BYTES, so that a million classes pass as ten do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from kway.compute.gpu.device import Device
from kway.compute.gpu.far_rows import FarRows
from kway.compute.gpu.linear.losses import DeviceTargets, Slopes
from kway.compute.threads import spans

DEVICE_BLOCK = 1 << 29  # of a block's scores: large enough that a launch costs nothing beside it

LossOf = Callable[[Tensor, slice], Slopes]  # scores (m, R) of some rows -> their values and slopes


class DeviceSums(NamedTuple):
    """The sum of the weighted losses, and of their gradients (R, d + 1)."""

    total: float
    gradient: NDArray


@dataclass(frozen=True)
class DeviceRows:
    """X (n, d), codes (n,), soft targets (n, R) or None, weights (n,) or None, on one device."""

    device: Device
    X: Tensor
    codes: Tensor
    soft: Tensor | None
    weight: Tensor | None

    @staticmethod
    def on(device: Device, X: NDArray, codes: NDArray, soft: NDArray | None, weight: NDArray | None) -> DeviceRows:
        """The rows, copied there if they are not; BudgetError where there is no room for them and a block of scores."""
        given = [a.tensor if isinstance(a, FarRows) else a for a in (X, codes, soft, weight)]
        sent = sum(a.nbytes for a in (X, codes, soft, weight) if a is not None and not isinstance(a, FarRows))
        with device.room("copying the rows", sent + 2 * DEVICE_BLOCK):
            return DeviceRows(device, *(None if a is None else device.put(a) for a in given))

    def targets(self, rows: slice | NDArray) -> DeviceTargets:
        """Targets of some rows."""
        some = rows if isinstance(rows, slice) else self.device.put(rows)
        return DeviceTargets(self.codes[some], None if self.soft is None else self.soft[some])

    def here(self, theta: NDArray) -> Tensor:
        """An array of the host on the device, in its own precision."""
        return self.device.put(theta)

    def scores(self, theta: NDArray, rows: slice) -> NDArray:
        """f of some rows (m, R), on the host."""
        with self.device.full_precision():
            return self.device.fetch(self.block_scores(Weights.of(self.here(theta)), rows))

    def value(self, theta: NDArray, loss: LossOf) -> float:
        """Sum of the weighted losses."""
        weights = Weights.of(self.here(theta))
        total = torch.zeros((), dtype=torch.float64, device=self.X.device)
        with self.device.full_precision():
            for rows in self.blocks(len(theta), weights.W.element_size()):
                value = loss(self.block_scores(weights, rows), rows).value
                total += value.sum() if self.weight is None else value @ self.weight[rows].double()
        return float(total)

    def value_gradient(self, theta: NDArray, loss: LossOf) -> DeviceSums:
        """Sums of the losses and of their gradients."""
        weights = Weights.of(self.here(theta))
        total = torch.zeros((), dtype=torch.float64, device=self.X.device)
        into = weights.zeros()
        with self.device.full_precision():
            for rows in self.blocks(len(theta), weights.W.element_size()):
                value, slope = loss(self.block_scores(weights, rows), rows)
                if self.weight is not None:
                    value = value * self.weight[rows].double()
                    slope = slope * self.weight[rows, None].to(slope.dtype)
                total += value.sum()
                self.add_product(into, slope, rows)
        return DeviceSums(float(total), into.together())

    def block_scores(self, weights: Weights, rows: slice) -> Tensor:
        """f of some rows (m, R), on the device."""
        return torch.addmm(weights.b, self.X[rows].to(weights.W.dtype), weights.W.T)  # (m, R)

    def add_product(self, into: Weights, slope: Tensor, rows: slice) -> None:
        """into += slope' [X 1]."""
        into.W.addmm_(slope.T, self.X[rows].to(slope.dtype))
        into.b.add_(slope.sum(0))

    def blocks(self, n_scores: int, itemsize: int) -> list[slice]:
        """The rows in blocks whose scores stay small."""
        return spans(len(self.X), max(256, DEVICE_BLOCK // (n_scores * itemsize)))


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
