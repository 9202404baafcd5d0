"""Products with the Hessian of a mean loss over rows on a device; the formulas are linear/objective/bends.py's."""

from __future__ import annotations

import torch
from numpy.typing import NDArray
from torch import Tensor

from kway.compute.gpu.linear.rows import DeviceRows, Weights


class DeviceBends:
    """sum_i w_i (B_i f(V)_i) [x_i 1] from the curvatures (n, R) of each row's loss, which live on the device.

    `cross_entropy`: B_i = diag(p) - p p'; `couples`: pairs of the own class with each other; else B_i is diagonal.
    """

    def __init__(self, held: DeviceRows, bend: Tensor, cross_entropy: bool, couples: bool) -> None:
        self._held, self._bend = held, bend
        self._cross_entropy, self._couples = cross_entropy, couples
        self._turn, self._turned = torch.zeros_like(bend), torch.empty_like(bend)

    @staticmethod
    def of_softmax(held: DeviceRows, theta: NDArray) -> DeviceBends:
        """The bends of softmax are its probabilities."""
        weights = Weights.of(held.here(theta))
        bend = weights.W.new_empty((len(held.X), len(theta)))
        with held.device.full_precision():
            for rows in held.blocks(len(theta), bend.element_size()):
                bend[rows] = held.block_scores(weights, rows).softmax(1)
        return DeviceBends(held, bend, True, True)

    def sums(self, V: NDArray) -> NDArray:
        """The sum over all rows, (R, d + 1)."""
        held, weights = self._held, Weights.of(self._held.here(V))
        into = weights.zeros()
        with held.device.full_precision():
            for rows in held.blocks(len(V), weights.W.element_size()):
                self._turned[rows] = held.block_scores(weights, rows)
                slope = self._slopes(rows)
                held.add_product(into, slope if held.weight is None else slope * held.weight[rows, None], rows)
        return into.together()

    def advance(self, t: float) -> float:
        """Go t along the last direction; the farthest that any score has come."""
        self._turn.add_(self._turned, alpha=t)
        return float(self._turn.abs().max())

    def _slopes(self, rows: slice) -> Tensor:
        """What the last direction's change of scores does to the slopes of some rows."""
        bend, turn = self._bend[rows], self._turned[rows]
        if self._cross_entropy:
            return bend * (turn - (bend * turn).sum(1, keepdim=True))
        if not self._couples:
            return bend * turn
        own = self._held.codes[rows, None]
        slope = bend * (turn - turn.gather(1, own))
        slope.scatter_(1, own, 0)
        return slope.scatter_(1, own, -slope.sum(1, keepdim=True))
