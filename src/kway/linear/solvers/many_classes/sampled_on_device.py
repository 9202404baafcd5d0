"""Sampled softmax where the rows live on a GPU: the same draws and steps, on weights that stay there.

Orders, draws and rates are the host's, from the same random numbers: with one seed and batch_size a fit here and a fit
there take the same steps, and end apart by rounding alone. Where batch_size does not say, steps are of more rows: those
of 256 wait for their launches, not for their products. Weights are fetched when somebody asks for them: at the end, for
a checkpoint, for early stopping.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kway.linear.objective.objective import Objective
from kway.linear.objective.on_device import DeviceObjective
from kway.linear.solvers.many_classes.sampled import _Run, draw_classes
from kway.planning.gpu_ways import STEP_ROWS

if TYPE_CHECKING:
    from kway.compute.gpu.linear.best_classes import BestClasses
    from kway.compute.gpu.linear.sampled_weights import SampledWeights


class DeviceSampledRun(_Run):
    """A run whose weights are on the device from its first step on."""

    _weights: SampledWeights | None = None

    def __post_init__(self) -> None:
        if self.control.batch_size == 1:
            least, most, steps = STEP_ROWS
            self.control = replace(self.control, batch_size=max(least, min(most, self.objective.n // steps)))
        super().__post_init__()

    @property
    def weights(self) -> SampledWeights:
        """Those of the device; sent at the first step, so that a checkpoint may have filled the host's before."""
        if self._weights is None:
            from kway.compute.gpu.linear.sampled_weights import SampledWeights

            o = self._objective
            self._weights = SampledWeights.on(
                o.there, self.theta, self.sizes, self.met, o.penalty.ridge, o.fit_intercept
            )
        return self._weights

    @property
    def _objective(self) -> DeviceObjective:
        assert isinstance(self.objective, DeviceObjective)
        return self.objective

    def settle(self) -> None:
        """Fetch theta, sizes and met."""
        if self._weights is not None:
            self._weights.fetch(self.theta, self.sizes, self.met)

    def finite(self) -> bool:
        """Whether all steps so far were numbers."""
        return self.weights.finite()

    def decay(self, eta: float) -> None:
        """Every class has all the decay that it is due."""
        self.weights.decay(self.step, eta)

    def descend(self, rows: NDArray[np.int64]) -> None:
        """One step from some rows."""
        from kway.compute.gpu.linear.sampled_weights import StepPlan

        o, codes = self.objective, self.objective.targets.codes[rows]
        known = np.union1d(codes, self.hard)
        drawn = draw_classes(known, o.n_scores, self.solver.negatives, self.control.rng)
        own = np.searchsorted(known, codes)
        self.weights.step(
            StepPlan(rows, own, drawn.ids, len(known), float(drawn.log_weight[-1]), self.rate()), self.step
        )
        self.step += 1

    def best(self, rows: NDArray[np.int64], k: int) -> NDArray[np.int64]:
        """The k best classes of some rows (m, k)."""
        held = self.weights.held
        return held.device.fetch(self.weights.classes.best(held.X[held.device.put(rows)], k).codes)

    def exact(self, watched: Objective) -> float:
        """The objective of some rows, classes in blocks."""
        assert isinstance(watched, DeviceObjective)
        from kway.compute.gpu.linear.best_classes import softmax_weights

        there, weights = watched.there, self.weights
        found: BestClasses = weights.classes.best(there.X, 1, softmax_weights(1.0))
        W, b = weights.W[there.codes], weights.b[there.codes]
        own = (there.X * W).sum(1).double() + b.double()
        assert found.log_total is not None
        loss = watched.device.fetch((found.log_total.double() - own).clamp(min=0))
        return float(np.average(loss, weights=watched.weight)) + watched.penalty.ridge / 2 * weights.squares()
