"""Stochastic gradient descent: theta <- prox(theta - eta_t grad of a few rows), one row or a batch at a time.

Rows come by shuffled epochs, or each drawn at random. The L1 part acts through its prox, so zeros are exact.
The draws run over distinct rows (objective/distinct_rows.py): the answer depends on the data and the seed, not on how
the rows were arranged or repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.kernels.linear.sgd import sgd_steps
from kway.compute.threads import pmap, single_blas, spans
from kway.linear.losses import Targets
from kway.linear.objective.bends import transposed_product
from kway.linear.objective.curvature import row_squares
from kway.linear.objective.distinct_rows import Distinct, distinct_rows
from kway.linear.objective.objective import Objective
from kway.linear.solvers.base import Control, Solution
from kway.linear.solvers.many_classes.sampled import STEP, mean_square_row
from kway.linear.solvers.power_method import largest_bend, largest_moment
from kway.linear.solvers.stochastic.held_to_tol import held_to_tol
from kway.linear.solvers.stochastic.schedules import Schedule, pick_schedule
from kway.linear.solvers.stopping import BLEW_UP, tol_scale
from kway.parameters import YES_OR_NO, check_parameters, one_of, share

EPOCHS_WITHOUT_GAIN = 10  # (of tol) before it counts as converged; the best epoch is the answer
CUTS = 20  # shares of the weights, by size, that are tried as zeros
CHUNKS = 32  # parts of an epoch; averages are taken and rates renewed between them


@dataclass(frozen=True)
class SGD:
    """Single-sample or mini-batch SGD; `average` returns the mean of the iterates of the later epochs.

    The gradient stepped along is a running mean, v <- momentum v + (1 - momentum) g, so that the penalty's prox, which
    acts at every step, keeps its weight against the loss whatever the momentum. `adagrad`: each score's row of weights
    has a rate of its own, over the root of the sum of its mean squared steps so far; for very many classes.
    """

    momentum: float = 0.0
    average: bool = False
    sampling: str = "epochs"  # or "random": each row drawn anew
    adagrad: bool = False
    name: ClassVar[str] = "sgd"
    needs: ClassVar[frozenset[str]] = frozenset()
    promises: ClassVar[bool] = False  # its tol ends epochs without much gain; what that comes to is checked afterwards
    spans: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_parameters(
            self, momentum=share(), average=YES_OR_NO, sampling=one_of("epochs", "random"), adagrad=YES_OR_NO
        )

    def solve(self, objective: Objective, theta: NDArray, control: Control) -> Solution:
        """Epochs until the objective stops falling by tol, or max_iter; converged where that is within tol."""
        with single_blas():
            return held_to_tol(objective, _epochs(self, objective, theta.copy(), control), control)

    def epoch(self, objective: Objective, theta: NDArray, control: Control, number: int) -> NDArray:
        """One pass over the rows at learning rates of epoch `number`: what `partial_fit` is made of."""
        with single_blas():
            run = begun(self, objective, control, theta.copy())
            run.epoch(number)
            return run.theta


@dataclass
class Epochs:
    """A run: where theta stands, and the rate that it started with."""

    solver: SGD
    objective: Objective
    control: Control
    distinct: Distinct
    theta: NDArray

    @cached_property
    def velocity(self) -> NDArray:
        """Running mean of the gradients."""
        return np.zeros_like(self.theta)

    @cached_property
    def sizes(self) -> NDArray:
        """Of Adagrad: the sums of mean squares (R, 1), which begin as large as the step of a class's first row."""
        one = mean_square_row(self.objective.X) / self.control.batch_size**2
        return np.full((len(self.theta), 1), one, self.theta.dtype)

    @cached_property
    def first_rate(self) -> float:
        """Of a schedule that names none."""
        if self.solver.adagrad:
            return float(STEP / (self.objective.d * np.sqrt(mean_square_row(self.objective.X))))
        return _first_rate(self.objective, self.distinct, self.control.batch_size)

    def epoch(self, number: int, mean: _Mean | None = None) -> float:
        """One pass; the mean loss met on the way."""
        objective, rows = self.objective, self.distinct.rows
        rng, batch = self.control.rng, self.control.batch_size
        order = rng.permutation(rows) if self.solver.sampling == "epochs" else rng.choice(rows, len(rows))
        schedule = pick_schedule(self.control.learning_rate)
        single = batch == 1 and objective.loss.compiled and not self.solver.adagrad
        step = self._single if single else self.batches
        total = 0.0
        for chunk in spans(len(order), max(batch, -(-len(order) // CHUNKS) // batch * batch)):
            steps = np.arange(chunk.start, chunk.stop, batch) / len(order)
            eta = _rates(schedule, number + steps, schedule.eta or self.first_rate, self.control.max_iter)
            total += step(order[chunk], eta)
            if mean is not None:
                mean.add(self.theta)
        return total / len(order)

    @property
    def watched(self) -> Objective:
        """What epochs are judged by."""
        return self.objective

    def estimated(self, value: float) -> float | None:
        """The objective of the answer where only some rows were watched, whose value this is; None: to be computed."""
        return None if self.watched is self.objective else value

    def _single(self, order: NDArray[np.int64], eta: NDArray) -> float:
        o, loss = self.objective, self.objective.loss
        X, codes, soft, weight = o.X, o.targets.codes, o.targets.soft, self.distinct.weight
        if sp.issparse(X):  # a chunk made dense keeps one kernel for both kinds of rows
            X, codes, weight = X[order].toarray(), codes[order], weight[order]
            soft, order = None if soft is None else soft[order], np.arange(len(order))
        hard = soft is None
        Y = np.empty((len(codes), 0), self.theta.dtype) if soft is None else soft
        return float(
            sgd_steps(
                loss.kernel, loss.margin, loss.width, X, codes, Y, hard, weight, order, eta, self.solver.momentum,
                o.penalty.ridge, o.penalty.lasso, o.fit_intercept, self.theta, self.velocity,
            )
        )  # fmt: skip

    def batches(self, order: NDArray[np.int64], eta: NDArray) -> float:
        """Steps from these rows, a batch at a time; the sum of the losses met."""
        o, total, dtype = self.objective, 0.0, self.theta.dtype.type
        for batch, rate in zip(spans(len(order), self.control.batch_size), eta):
            rows = order[batch]
            X = o.X[rows]
            scores = np.asarray(X @ self.theta[:, :-1].T) + self.theta[:, -1]
            soft = None if o.targets.soft is None else o.targets.soft[rows]
            value, slope = o.loss.value_gradient(scores, Targets(o.targets.codes[rows], soft), scores)
            weight = self.distinct.weight[rows]
            slope *= weight[:, None] / dtype(len(rows))
            total += float(value @ weight)
            slope *= dtype(1 - self.solver.momentum)
            self.velocity *= dtype(self.solver.momentum)
            self.velocity[:, :-1] += transposed_product(slope, X)
            self.velocity[:, -1] += slope.sum(axis=0) * o.fit_intercept
            step = self._lengths(rate)
            self.theta -= np.asarray(step, dtype) * self.velocity
            if o.penalty.ridge or o.penalty.lasso:
                self.theta[:, :-1] = o.penalty.prox(self.theta[:, :-1], step)
        return total

    def _lengths(self, rate: float) -> float | NDArray:
        """The step along the velocity: one for all, or one a row (R, 1)."""
        if not self.solver.adagrad:
            return rate
        self.sizes += np.square(self.velocity).mean(axis=1, keepdims=True)
        return rate / np.sqrt(self.sizes)


@dataclass
class _Mean:
    """Running mean of iterates."""

    total: NDArray
    count: int = 0

    def add(self, theta: NDArray) -> None:
        self.total += theta
        self.count += 1


def _settled(objective: Objective, theta: NDArray) -> NDArray:
    """theta with zeros for the weights that only jitter about it, or are means of such: the share of the smallest
    weights without which the objective is least."""
    if not objective.penalty.lasso:
        return theta
    best, answer = objective.value(theta), theta
    sizes = np.abs(theta[:, :-1])
    for size in np.quantile(sizes, np.arange(1, CUTS) / CUTS, method="lower"):
        cut = theta.copy()
        cut[:, :-1][sizes <= size] = 0
        value = objective.value(cut)
        if value <= best:
            best, answer = value, cut
    return answer


def begun(solver: SGD, objective: Objective, control: Control, theta: NDArray) -> Epochs:
    """A run from theta, where the rows are."""
    if objective.on_device:
        from kway.linear.solvers.stochastic.sgd_on_device import begun_on_device

        return begun_on_device(solver, objective, control, distinct_rows(objective), theta)
    return Epochs(solver, objective, control, distinct_rows(objective), theta)


def _epochs(solver: SGD, objective: Objective, theta: NDArray, control: Control) -> Solution:
    run = begun(solver, objective, control, theta)
    objective = run.watched
    mean = _Mean(np.zeros(theta.shape)) if solver.average else None
    history: list[float] = []
    best, answer, since = np.inf, theta, 0
    for number in range(control.max_iter):
        run.epoch(number, mean if number else None)
        here = run.theta if mean is None or not mean.count else (mean.total / mean.count).astype(theta.dtype)
        history.append(objective.value(here))
        if not np.isfinite(history[-1]):
            return Solution(answer, number + 1, False, np.inf, history, BLEW_UP)
        value = _mistakes(objective, here) if objective.loss.minimised_by_zero else history[-1]
        since = 0 if number == 0 or value < best - control.tol * tol_scale(best) else since + 1
        if value < best:
            best, answer = value, here.copy()
        told = control.progress is not None and control.progress(number + 1, history[-1])
        if told or (control.validate and control.validate(here)) or since >= EPOCHS_WITHOUT_GAIN or value == 0:
            return Solution(_settled(objective, answer), number + 1, history=history, value=run.estimated(best))
    gain = (history[-min(len(history), EPOCHS_WITHOUT_GAIN)] - min(history)) / tol_scale(min(history))
    answer, advice = _settled(objective, answer), "raise max_iter or tol, or use solver='auto'"
    return Solution(answer, control.max_iter, False, gain, history, advice, value=run.estimated(best))


def _mistakes(objective: Objective, theta: NDArray) -> float:
    """Weighted share of rows that would still move a perceptron: its loss shrinks with the weights and says nothing."""

    def block(rows: slice) -> float:
        _, slope = objective.loss.value_gradient(objective.scores(theta, rows), objective.block_targets(rows))
        return objective.weighted_sum((slope != 0).any(axis=1), rows)

    return sum(pmap(block, spans(objective.n, 4096), objective.n_jobs)) / objective.n


def _rates(schedule: Schedule, epochs: NDArray, first: float, last: int) -> NDArray:
    return np.array([schedule.at(float(epoch), first, last) for epoch in epochs])


def _first_rate(objective: Objective, distinct: Distinct, batch: int) -> float:
    """1 / smoothness of the mean loss of a batch: between that of one row, c ||x||^2, and of all rows, c lambda_max."""
    X, weight = objective.X, distinct.weight[distinct.rows]
    one = float(np.average(row_squares(X, X.dtype)[distinct.rows], weights=weight)) + objective.fit_intercept
    every = min(one, largest_moment(X[distinct.rows[:: max(1, len(weight) // 2000)]])) if batch > 1 else one
    smoothness = (one + (batch - 1) * every) / batch
    return 1.0 / (max(largest_bend(objective) * smoothness, 1e-12) + objective.penalty.ridge)
