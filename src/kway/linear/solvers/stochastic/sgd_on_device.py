"""SGD where the rows live on a GPU: theta stays there between batches and is fetched once an epoch.

Softmax over MANY classes steps by products in bfloat16 with float32 weights and sums (linear/softmax_step.py): all
classes are in every step, none is sampled. Everything else is in full precision. Where all rows against all classes
would take longer than the epochs, these are judged by some of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kway.compute.threads import spans
from kway.linear.objective.distinct_rows import Distinct
from kway.linear.objective.objective import Objective
from kway.linear.objective.on_device import DeviceObjective
from kway.linear.solvers.base import Control
from kway.linear.solvers.stochastic.sgd import SGD, Epochs

if TYPE_CHECKING:
    from kway.compute.gpu.linear.batches import Batches

_BATCH = 8192  # rows a step, where batch_size does not say: below it the products do not fill the device
_STEPS = 64  # that an epoch has at least, where batch_size does not say
MANY_CLASSES = 16_384  # classes from which rounding the products' operands buys ten times the speed of an epoch
WHOLE = 2e12  # products of the objective of all rows: a tenth of a second; of 1M rows x 200,000 classes it took 5 s
WATCHED_ROWS = 4096  # rows that stand for all


@dataclass
class DeviceEpochs(Epochs):
    """A run whose theta lives on the device."""

    @cached_property
    def engine(self) -> Batches:
        """The weights there."""
        from kway.compute.gpu.linear.batches import AnyBatches, BatchRule, SoftmaxBatches

        o = self.objective
        assert isinstance(o, DeviceObjective)
        sizes = self.sizes if self.solver.adagrad else None
        rule = BatchRule(o.penalty.ridge, o.penalty.lasso, o.fit_intercept, self.solver.momentum, sizes)
        given = (o.there, self.distinct.weight, self.theta, rule)
        hard = o.targets.soft is None and o.loss.cross_entropy and o.loss.joint
        if hard and o.n_scores >= MANY_CLASSES and not self.solver.momentum and not o.penalty.lasso:
            with o.device.room("the weights of all classes", 3 * self.theta.nbytes):
                return SoftmaxBatches(*given, batch=self.control.batch_size)
        return AnyBatches(*given, loss=o.losses_of)

    def epoch(self, number: int, mean: Any = None) -> float:
        """One pass; theta comes back after it."""
        found = super().epoch(number, mean)
        self.theta = self.engine.theta()
        return found

    def batches(self, order: NDArray[np.int64], eta: NDArray) -> float:
        """Steps from these rows; the losses are summed on the device."""
        parts = spans(len(order), self.control.batch_size)
        losses = [self.engine.step(order[part], float(rate)) for part, rate in zip(parts, eta)]
        if self.solver.average:
            self.theta = self.engine.theta()
        return float(sum(losses))

    def _single(self, order: NDArray[np.int64], eta: NDArray) -> float:
        """Batches of one row: theta and rows are there."""
        return self.batches(order, eta)

    @cached_property
    def watched(self) -> Objective:
        """All rows, or some of them where all would take too long."""
        o = self.objective
        if o.n * o.n_scores * float(o.d) <= WHOLE or o.n <= WATCHED_ROWS:
            return o
        return o.rows(np.sort(np.random.default_rng(0).choice(o.n, WATCHED_ROWS, replace=False)))


def begun_on_device(
    solver: SGD, objective: Objective, control: Control, distinct: Distinct, theta: NDArray
) -> DeviceEpochs:
    """A run from theta; batches of one row become as many as the device is good for."""
    if control.batch_size == 1:
        control = replace(control, batch_size=max(1, min(_BATCH, len(distinct.rows) // _STEPS)))
    return DeviceEpochs(solver, objective, control, distinct, theta)
