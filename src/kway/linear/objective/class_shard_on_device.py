"""DeviceClassShard: some classes of a softmax whose passes over the rows run on a device."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from numpy.typing import NDArray

from kway.linear.objective.class_shard import ClassShard, Normalisers

if TYPE_CHECKING:
    from kway.compute.gpu.linear.class_scores import DeviceClassScores


@dataclass(frozen=True)
class DeviceClassShard(ClassShard):
    """A ClassShard of dense rows; theta and its gradient stay on the host."""

    device: str = field(default="cpu", kw_only=True)

    @cached_property
    def _held(self) -> DeviceClassScores:
        from kway.compute.gpu.linear.class_scores import DeviceClassScores

        return DeviceClassScores(self.device, self.X, self.targets.codes, self.weight)

    def _normalisers(self, theta: NDArray, held: dict[tuple[int, int], NDArray]) -> Normalisers:
        return Normalisers(*self._held.normalisers(theta))

    def _products(self, theta: NDArray, log_z: NDArray, held: dict[tuple[int, int], NDArray]) -> NDArray:
        return self._held.products(theta, log_z)
