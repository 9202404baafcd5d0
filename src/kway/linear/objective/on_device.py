"""DeviceObjective: the objective whose rows live on a GPU; theta, gradients and all that solvers do stay on the host.

    value, value_gradient, scores, bends   passes over all rows: on the device
    X                                      the same rows on the host: samples and Gram matrices of some rows; of a fit
                                           of tensors FarRows: these, too, are made there

Any solver that asks an Objective for nothing else gets its passes from the device without knowing. An objective on
other rows (`rows`, a span, condensed ones) sends those: what is held always is what X, targets and weight say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kway.compute.gpu.device import Device
from kway.linear.objective.bends import Bends, bends_of_rows, with_ridge
from kway.linear.objective.curvature import curvatures
from kway.linear.objective.objective import Objective

if TYPE_CHECKING:
    from kway.compute.gpu.linear.bends import DeviceBends
    from kway.compute.gpu.linear.losses import Slopes
    from kway.compute.gpu.linear.rows import DeviceRows


@dataclass(frozen=True)
class HeldRows:
    """Rows on a device, and the arrays that they are a copy of."""

    rows: DeviceRows
    sources: tuple[Any, ...]

    @staticmethod
    def on(device: Device, objective: Objective) -> HeldRows:
        """The objective's rows, sent."""
        from kway.compute.gpu.linear.rows import DeviceRows

        sources = objective.held_arrays
        return HeldRows(DeviceRows.on(device, *sources), sources)

    def are(self, objective: Objective) -> bool:
        """Whether they are the rows of an objective."""
        return all(a is b for a, b in zip(self.sources, objective.held_arrays))


@dataclass(frozen=True)
class DeviceObjective(Objective):
    """An Objective of dense rows, with a copy of them on a device."""

    device: Device = field(default_factory=Device)
    held: HeldRows | None = field(default=None, compare=False, repr=False)

    on_device: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.held is None or not self.held.are(self):
            object.__setattr__(self, "held", HeldRows.on(self.device, self))

    @staticmethod
    def of(objective: Objective, device: Device) -> DeviceObjective:
        """The same problem, its rows sent to the device."""
        facts = {f.name: getattr(objective, f.name) for f in fields(Objective)}
        return DeviceObjective(**facts, device=device)

    @property
    def there(self) -> DeviceRows:
        """The rows on the device."""
        assert self.held is not None
        return self.held.rows

    def value(self, theta: NDArray) -> float:
        """F(theta), every part of the penalty included."""
        return self.there.value(theta, self.losses_of) / self.n + self.penalty.value(theta[:, :-1])

    def _dense_gradient(self, theta: NDArray) -> tuple[float, NDArray]:
        return self.there.value_gradient(theta, self.losses_of)

    def fill_scores(self, theta: NDArray, rows: slice, scores: NDArray) -> None:
        """f = X W^T + b of some rows into scores (m, R), on the host."""
        scores[:] = self.there.scores(theta, rows)

    def bends(self, theta: NDArray) -> Bends:
        """Products with the Hessian at theta."""
        from kway.compute.gpu.linear.bends import DeviceBends

        there, loss = self.there, self.loss
        if loss.cross_entropy:
            return _Ridged(self, DeviceBends.of_softmax(there, theta))
        return _Ridged(self, DeviceBends(there, there.here(bends_of_rows(self, theta)), False, loss.couples))

    def gram(self, dtype: np.dtype) -> NDArray:
        """[X 1]' diag(weight) [X 1] / n, (D, D), in Fortran's order."""
        from kway.compute.gpu.linear.factors import device_gram

        return np.asfortranarray(device_gram(self.there, self.fit_intercept, getattr(self.device.torch, dtype.name)))

    def class_factor(
        self, theta: NDArray, plain: NDArray, ridges: NDArray, n_drawn: int, share: float
    ) -> Callable[[NDArray], NDArray]:
        """An inverse Hessian for each score at theta, from about n_drawn rows and a share of `plain` (D, D)."""
        from kway.compute.gpu.linear.factors import GramRule, class_inverses, probabilities_curvatures

        if self.loss.p_curvatures:
            h = probabilities_curvatures(self.there, theta, self.loss.joint)
        else:
            h = self.there.here(curvatures(self, theta))
        return class_inverses(self.there, h, GramRule(plain, ridges, n_drawn, share))

    def losses_of(self, scores: Any, rows: slice | NDArray) -> Slopes:
        """Values and slopes of some rows on the device; those of a loss without a kernel are computed on the host."""
        from kway.compute.gpu.linear import losses

        loss, there = self.loss, self.there
        if loss.compiled:
            return losses.slopes(loss.kernel, scores, there.targets(rows), loss.margin, loss.width)
        value, slope = loss.value_gradient(scores.cpu().numpy(), self.block_targets(rows))
        return losses.Slopes(there.here(value), there.here(slope))


@dataclass(frozen=True)
class _Ridged:
    """Bends of the mean loss on the device, with the penalty's part added on the host."""

    objective: DeviceObjective
    inner: DeviceBends

    def product(self, V: NDArray) -> NDArray:
        """H V, (R, d + 1)."""
        return with_ridge(self.objective, self.inner.sums(V), V)

    def advance(self, t: float) -> float:
        """Go t along the direction of the last product."""
        return self.inner.advance(t)
