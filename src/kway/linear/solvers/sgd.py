"""Stochastic gradient descent: theta <- prox(theta - eta_t grad of a few rows), one row or a batch at a time.

Rows come by shuffled epochs, or each drawn at random. The L1 part acts through its prox, so zeros are exact.
The draws run over distinct rows (equivalent.py): the answer depends on the data and the seed, not on how
the rows were arranged or repeated. Rows on a GPU make the steps themselves, on weights that stay on the GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.kernels.linear.sgd import sgd_steps
from kway.linear.equivalent import DistinctRows, distinct_rows
from kway.linear.objective import Objective
from kway.linear.solvers.base import Control, Solution
from kway.linear.solvers.certificates import BLEW_UP, tol_scale
from kway.linear.solvers.power_method import largest_moment, max_curvature
from kway.linear.solvers.sampled import FIRST_GAIN
from kway.linear.solvers.schedules import Schedule, pick_schedule
from kway.parameters import YES_OR_NO, check_parameters, one_of, share
from kway.rows.matrices import transposed_product
from kway.rows.passes import STEPS, BatchSteps, SteppingRows, StepRule
from kway.threads import pmap, single_blas, spans

EPOCHS_WITHOUT_GAIN = 10  # (of tol) before it counts as converged; the best epoch is the answer
CUTS = 20  # shares of the weights, by size, that are tried as zeros
CHUNKS = 32  # parts of an epoch; averages are taken and rates renewed between them
# of rows that make their steps themselves, on a GPU (G2)
_GPU_BATCH = 8192  # rows per step if batch_size does not say: with fewer the products do not fill the device
_GPU_STEPS = 64  # steps of an epoch, at least, if batch_size does not say
WHOLE = 2e12  # products of the objective of all rows: a tenth of a second; 1M rows x 200,000 classes took 5 s
WATCHED_ROWS = 4096  # rows that stand for all


@dataclass(frozen=True)
class SGD:
    """Single-sample or mini-batch SGD; `average` returns the mean of the iterates of the later epochs.

    The gradient stepped along is a running mean, v <- momentum v + (1 - momentum) g, so that the penalty's prox, which
    acts at every step, keeps its weight against the loss whatever the momentum. `adagrad`: each score's row of weights
    has a rate of its own, over the root of the sum of its mean squared steps so far; for very many classes.
    """

    momentum: float = 0.0
    average: bool = False
    sampling: str = "epochs"  # or "random": each row drawn independently
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
        """Epochs until the objective stops falling by tol, or max_iter."""
        with single_blas():
            return _epochs(self, objective, theta.copy(), control)

    def epoch(self, objective: Objective, theta: NDArray, control: Control, number: int) -> NDArray:
        """One pass over the rows at learning rates of epoch `number`: what `partial_fit` is made of."""
        with single_blas():
            run = Epochs(self, objective, control, distinct_rows(objective), theta.copy())
            run.epoch(number)
            return run.theta


@dataclass
class Epochs:
    """A run: the steps on theta, and the rate that it started with."""

    solver: SGD
    objective: Objective
    control: Control
    distinct: DistinctRows
    theta: NDArray

    def __post_init__(self) -> None:
        if STEPS in self.objective.rows.offers and self.control.batch_size == 1:
            batch = max(1, min(_GPU_BATCH, len(self.distinct.rows) // _GPU_STEPS))
            self.control = replace(self.control, batch_size=batch)

    @cached_property
    def steps(self) -> BatchSteps:
        """What makes the steps."""
        o, batch = self.objective, self.control.batch_size
        rule = StepRule(o.penalty.ridge, o.penalty.lasso, o.fit_intercept, self.solver.momentum, self.sq_grad_sums)
        if STEPS in o.rows.offers:
            rows = cast(SteppingRows, o.rows)
            return rows.batch_steps(o.losses, self.distinct.weight, self.theta, rule, batch)
        single = batch == 1 and o.loss.compiled and not self.solver.adagrad
        return (SingleSteps if single else HostSteps)(o, self.distinct.weight, self.theta, rule, batch)

    @property
    def sq_grad_sums(self) -> NDArray | None:
        """Of Adagrad: the sums of mean squares (R, 1), which begin as large as the step of a class's first row."""
        if not self.solver.adagrad:
            return None
        one = (self.objective.rows.mean_square() or 1.0) / self.control.batch_size**2
        return np.full((len(self.theta), 1), one, self.theta.dtype)

    @cached_property
    def first_rate(self) -> float:
        """The first rate if the schedule has none."""
        if self.solver.adagrad:
            return float(FIRST_GAIN / (self.objective.d * np.sqrt(self.objective.rows.mean_square() or 1.0)))
        return _first_rate(self.objective, self.distinct, self.control.batch_size)

    def epoch(self, number: int, mean: RunningMean | None = None) -> float:
        """Make one pass over the rows; return the mean of the losses before each step."""
        rows, rng, batch = self.distinct.rows, self.control.rng, self.control.batch_size
        order = rng.permutation(rows) if self.solver.sampling == "epochs" else rng.choice(rows, len(rows))
        schedule = pick_schedule(self.control.learning_rate)
        total = 0.0
        for chunk in spans(len(order), max(batch, -(-len(order) // CHUNKS) // batch * batch)):
            steps = np.arange(chunk.start, chunk.stop, batch) / len(order)
            eta = _rates(schedule, number + steps, schedule.eta or self.first_rate, self.control.max_iter)
            total += self.steps.run(order[chunk], eta)
            if mean is not None:
                mean.add(self.steps.fetch())
        self.theta = self.steps.fetch()
        return total / len(order)

    @cached_property
    def watched(self) -> Objective:
        """What epochs are judged by: all rows, or some of them if all rows against all classes take too long."""
        o = self.objective
        if STEPS not in o.rows.offers or o.n * o.n_scores * float(o.d) <= WHOLE or o.n <= WATCHED_ROWS:
            return o
        return o.take(np.sort(np.random.default_rng(0).choice(o.n, WATCHED_ROWS, replace=False)))

    def estimated(self, value: float) -> float | None:
        """The objective of the answer if only some rows were watched, whose value this is; None: to be computed."""
        return None if self.watched is self.objective else value


class HostSteps:
    """Steps of batches, by BLAS."""

    def __init__(self, objective: Objective, weight: NDArray, theta: NDArray, rule: StepRule, batch: int) -> None:
        self.objective, self.weight, self.theta, self.rule, self.batch = objective, weight, theta, rule, batch
        self.velocity = np.zeros_like(theta)  # running mean of the gradients
        self.sq_grad_sums = rule.sq_grad_sums

    def fetch(self) -> NDArray:
        """theta."""
        return self.theta

    def run(self, order: NDArray[np.int64], eta: NDArray) -> float:
        """Steps from these rows, a batch at a time; the sum of the losses met."""
        o, total, dtype = self.objective, 0.0, self.theta.dtype.type
        momentum = self.rule.momentum
        for batch, rate in zip(spans(len(order), self.batch), eta):
            rows = order[batch]
            X = o.X[rows]
            scores = np.asarray(X @ self.theta[:, :-1].T) + self.theta[:, -1]
            value, slope = o.loss.value_gradient(scores, o.targets.of(rows), scores)
            weight = self.weight[rows]
            slope *= weight[:, None] / dtype(len(rows))
            total += float(value @ weight)
            slope *= dtype(1 - momentum)
            self.velocity *= dtype(momentum)
            self.velocity[:, :-1] += transposed_product(slope, X)
            self.velocity[:, -1] += slope.sum(axis=0) * o.fit_intercept
            step = self._lengths(rate)
            self.theta -= np.asarray(step, dtype) * self.velocity
            if o.penalty.ridge or o.penalty.lasso:
                self.theta[:, :-1] = o.penalty.prox(self.theta[:, :-1], step)
        return total

    def _lengths(self, rate: float) -> float | NDArray:
        """The step along the velocity: one for all, or one per row (R, 1)."""
        if self.sq_grad_sums is None:
            return rate
        self.sq_grad_sums += np.square(self.velocity).mean(axis=1, keepdims=True)
        return rate / np.sqrt(self.sq_grad_sums)


class SingleSteps(HostSteps):
    """Steps of one row each, by a kernel."""

    def run(self, order: NDArray[np.int64], eta: NDArray) -> float:
        """Steps from these rows; the sum of the losses met."""
        o, loss = self.objective, self.objective.loss
        X, (codes, soft), weight = o.X, o.targets, self.weight
        if sp.issparse(X):  # a chunk made dense keeps one kernel for both kinds of rows
            X, codes, weight = X[order].toarray(), codes[order], weight[order]
            soft, order = None if soft is None else soft[order], np.arange(len(order))
        hard = soft is None
        Y = np.empty((len(codes), 0), self.theta.dtype) if soft is None else soft
        return float(
            sgd_steps(
                loss.kernel, loss.margin, loss.width, X, codes, Y, hard, weight, order, eta, self.rule.momentum,
                o.penalty.ridge, o.penalty.lasso, o.fit_intercept, self.theta, self.velocity,
            )
        )  # fmt: skip


@dataclass
class RunningMean:
    """Running mean of iterates."""

    total: NDArray
    count: int = 0

    def add(self, theta: NDArray) -> None:
        """Count one more iterate."""
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


def _epochs(solver: SGD, objective: Objective, theta: NDArray, control: Control) -> Solution:
    run = Epochs(solver, objective, control, distinct_rows(objective), theta)
    objective = run.watched
    mean = RunningMean(np.zeros(theta.shape)) if solver.average else None
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

    return sum(pmap(block, spans(objective.n, 4096))) / objective.n


def _rates(schedule: Schedule, epochs: NDArray, first: float, last: int) -> NDArray:
    return np.array([schedule.at(float(epoch), first, last) for epoch in epochs])


def _first_rate(objective: Objective, distinct: DistinctRows, batch: int) -> float:
    """1 / smoothness of the mean loss of a batch: between that of one row, c ||x||^2, and of all rows, c lambda_max."""
    X, weight = objective.X, distinct.weight[distinct.rows]
    one = float(np.average(objective.rows.row_squares()[distinct.rows], weights=weight)) + objective.fit_intercept
    every = min(one, largest_moment(X[distinct.rows[:: max(1, len(weight) // 2000)]])) if batch > 1 else one
    smoothness = (one + (batch - 1) * every) / batch
    return 1.0 / (max(max_curvature(objective) * smoothness, 1e-12) + objective.penalty.ridge)
