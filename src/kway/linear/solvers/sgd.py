"""Stochastic gradient descent: theta <- prox(theta - eta_t grad), with the gradient of one row or of a batch.

An epoch visits the rows in random order, or draws each at random. The penalty acts through its proximal operator
(`Penalty.prox`), so that an L1 penalty gives exact zeros. Rows are drawn among distinct rows (equivalent.py). So the
result depends on the data and the seed, but not on the order or the repetition of rows. Rows on a GPU take the steps
themselves, on weights that stay on the GPU.
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
from kway.linear.solvers.base import Control, Solution, Solver
from kway.linear.solvers.sampled import FIRST_GAIN
from kway.linear.solvers.schedules import pick_schedule
from kway.linear.solvers.stopping import ADVICE_DIVERGED, tol_scale
from kway.parameters import YES_OR_NO, check_parameters, one_of, share
from kway.rows.matrices import largest_eigenvalue, transposed_product
from kway.rows.passes import ON_GPU, SteppingRows, StepRule
from kway.threads import pmap, single_blas, spans

PATIENCE = 10  # epochs in a row without a gain of tol after which the fit stops (tests/linear/test_held_to_tol.py)
ZERO_CUTS = 20  # quantiles of the absolute weights that are tried as thresholds of zero under an L1 penalty
# Parts of an epoch. After each part, the mean of the iterates is updated (`average`). On a GPU, an epoch has at least
# this number of steps if batch_size is not set.
PARTS = 64
# The curvature of a loss is estimated at random scores of this number of rows. The largest scale of the scores covers
# the region around 0 in which losses have most of their curvature (tests/linear/test_own_loss.py).
SAMPLE_ROWS = 256
_MAX_SCORE = 3.0
_GPU_BATCH = 8192  # rows per step on a GPU if batch_size is not set; smaller products leave the GPU idle (row G2)
# Multiplications that the objective after each epoch may take on a GPU. It is computed from a sample of the rows if all
# rows take more. With 2e12, it takes 0.2 s, a third of an epoch of 400,000 rows and 100,000 classes (row G2).
WATCHED_WORK = 5e11


@dataclass(frozen=True)
class SGD(Solver):
    """Stochastic gradient descent with single rows or mini-batches.

    Parameters
    ----------
    momentum : float
        The step follows the running mean v <- momentum v + (1 - momentum) gradient. The mean keeps the weight of the
        penalty relative to the loss, because the proximal operator acts at every step whatever the momentum.
    average : bool
        Whether the result is the mean of the iterates after the first epoch.
    sampling : {"epochs", "random"}
        "epochs" visits every row once per epoch, "random" draws each row independently.
    adagrad : bool
        Whether each score has a learning rate of its own, divided by the root of the sum of its mean squared gradients
        so far. It suits very many classes.
    """

    momentum: float = 0.0
    average: bool = False
    sampling: str = "epochs"
    adagrad: bool = False
    name: ClassVar[str] = "sgd"
    guarantees_tol: ClassVar[bool] = False  # tol only ends epochs with little gain; registry.py checks the result

    def __post_init__(self) -> None:
        check_parameters(
            self, momentum=share(), average=YES_OR_NO, sampling=one_of("epochs", "random"), adagrad=YES_OR_NO
        )

    def solve(self, objective: Objective, theta: NDArray, control: Control) -> Solution:
        """Run epochs until PATIENCE of them lower the objective by less than tol, or max_iter."""
        with single_blas():
            return _run_epochs(Epochs(self, objective, control, distinct_rows(objective), theta.copy()))

    def epoch(self, objective: Objective, theta: NDArray, control: Control, number: int) -> NDArray:
        """Return theta after one pass over the rows at the learning rates of epoch `number`, for `partial_fit`."""
        with single_blas():
            run = Epochs(self, objective, control, distinct_rows(objective), theta.copy())
            run.epoch(number)
            return run.theta


@dataclass
class Epochs:
    """The state of a run: theta, which epochs replace, and the objects that take the steps."""

    solver: SGD
    objective: Objective
    control: Control
    distinct: DistinctRows
    theta: NDArray

    def __post_init__(self) -> None:
        if ON_GPU in self.objective.rows.offers and self.control.batch_size == 1:
            batch = max(1, min(_GPU_BATCH, len(self.distinct.rows) // PARTS))
            self.control = replace(self.control, batch_size=batch)

    @cached_property
    def steps(self) -> HostSteps:
        """Return the object that takes the steps: the rows on a GPU, a kernel for single rows, or BLAS."""
        o, batch = self.objective, self.control.batch_size
        rule = StepRule(o.penalty.ridge, o.penalty.lasso, o.fit_intercept, self.solver.momentum, self.sq_grad_sums)
        if ON_GPU in o.rows.offers:
            rows = cast(SteppingRows, o.rows)
            return cast(HostSteps, rows.batch_steps(o.losses, self.distinct.weight, self.theta, rule, batch))
        single = batch == 1 and o.loss.compiled and not self.solver.adagrad
        return (SingleSteps if single else HostSteps)(o, self.distinct.weight, self.theta, rule, batch)

    @property
    def sq_grad_sums(self) -> NDArray | None:
        """Return the initial sums of mean squared gradients of Adagrad (R, 1): those of the first row of a class."""
        if not self.solver.adagrad:
            return None
        first = (self.objective.rows.mean_square() or 1.0) / self.control.batch_size**2
        return np.full((len(self.theta), 1), first, self.theta.dtype)

    @cached_property
    def first_rate(self) -> float:
        """Return the initial learning rate if the schedule has none."""
        if self.solver.adagrad:
            return float(FIRST_GAIN / (self.objective.d * np.sqrt(self.objective.rows.mean_square() or 1.0)))
        return _first_rate(self.objective, self.distinct, self.control.batch_size)

    def epoch(self, number: int, mean: RunningMean | None = None) -> None:
        """Make one pass over the rows; add the iterate after each part to `mean`."""
        rows, rng, batch = self.distinct.rows, self.control.rng, self.control.batch_size
        order = rng.permutation(rows) if self.solver.sampling == "epochs" else rng.choice(rows, len(rows))
        schedule = pick_schedule(self.control.learning_rate)
        for part in spans(len(order), max(batch, -(-len(order) // PARTS) // batch * batch)):
            times = number + np.arange(part.start, part.stop, batch) / len(order)
            first = schedule.eta or self.first_rate
            rates = np.array([schedule.at(float(time), first, self.control.max_iter) for time in times])
            self.steps.run(order[part], rates)
            if mean is not None:
                mean.add(self.steps.fetch())
        self.theta = self.steps.fetch()

    @cached_property
    def watched(self) -> Objective:
        """Return the objective that is computed after each epoch: that of all rows, or of a sample on a GPU."""
        o = self.objective
        max_rows = max(1, int(WATCHED_WORK / (o.n_scores * float(o.d))))
        if ON_GPU not in o.rows.offers or o.n <= max_rows:
            return o
        return o.take(np.sort(np.random.default_rng(0).choice(o.n, max_rows, replace=False)))


class HostSteps:
    """Steps of batches, by matrix products. Rows on a GPU have steps with the same methods."""

    def __init__(self, objective: Objective, weight: NDArray, theta: NDArray, rule: StepRule, batch: int) -> None:
        self.objective, self.weight, self.theta, self.rule, self.batch = objective, weight, theta, rule, batch
        self.velocity = np.zeros_like(theta)  # running mean of the gradients
        self.sq_grad_sums = rule.sq_grad_sums

    def fetch(self) -> NDArray:
        """Return theta."""
        return self.theta

    def run(self, order: NDArray[np.int64], rates: NDArray) -> float:
        """Take one step per batch of the rows in `order`; return the sum of the losses before each step."""
        o, total, dtype = self.objective, 0.0, self.theta.dtype.type
        momentum = self.rule.momentum
        for batch, rate in zip(spans(len(order), self.batch), rates):
            rows = order[batch]
            X = o.X[rows]
            scores = np.asarray(X @ self.theta[:, :-1].T) + self.theta[:, -1]
            value, slope = o.loss.value_gradient(scores, o.targets.of(rows), scores)
            weight = self.weight[rows]
            total += float(value @ weight)
            slope *= weight[:, None] / dtype(len(rows))
            slope *= dtype(1 - momentum)
            self.velocity *= dtype(momentum)
            self.velocity[:, :-1] += transposed_product(slope, X)
            self.velocity[:, -1] += slope.sum(axis=0) * o.fit_intercept
            step = self._step_sizes(rate)
            self.theta -= np.asarray(step, dtype) * self.velocity
            if o.penalty.ridge or o.penalty.lasso:
                self.theta[:, :-1] = o.penalty.prox(self.theta[:, :-1], step)
        return total

    def _step_sizes(self, rate: float) -> float | NDArray:
        """Return the learning rate, or one per score (R, 1) for Adagrad."""
        if self.sq_grad_sums is None:
            return rate
        self.sq_grad_sums += np.square(self.velocity).mean(axis=1, keepdims=True)
        return rate / np.sqrt(self.sq_grad_sums)


class SingleSteps(HostSteps):
    """Steps of one row each, by a kernel."""

    def run(self, order: NDArray[np.int64], rates: NDArray) -> float:
        """Take one step per row in `order`; return the sum of the losses before each step."""
        o, loss = self.objective, self.objective.loss
        X, (codes, soft), weight = o.X, o.targets, self.weight
        if sp.issparse(X):  # the rows of a part become dense, so that one kernel serves both kinds of rows
            X, codes, weight = X[order].toarray(), codes[order], weight[order]
            soft, order = None if soft is None else soft[order], np.arange(len(order))
        hard = soft is None
        Y = np.empty((len(codes), 0), self.theta.dtype) if soft is None else soft
        return float(
            sgd_steps(
                loss.kernel, loss.margin, loss.width, X, codes, Y, hard, weight, order, rates, self.rule.momentum,
                o.penalty.ridge, o.penalty.lasso, o.fit_intercept, self.theta, self.velocity,
            )
        )  # fmt: skip


@dataclass
class RunningMean:
    """Running mean of iterates."""

    total: NDArray
    count: int = 0

    def add(self, theta: NDArray) -> None:
        """Add an iterate."""
        self.total += theta
        self.count += 1

    def mean_or(self, theta: NDArray) -> NDArray:
        """Return the mean, or theta if no iterate was added."""
        return (self.total / self.count).astype(theta.dtype) if self.count else theta


def _run_epochs(run: Epochs) -> Solution:
    """Run epochs; the result is the best iterate, or the best mean of iterates, of any epoch."""
    objective, control = run.watched, run.control
    mean = RunningMean(np.zeros(run.theta.shape)) if run.solver.average else None
    history: list[float] = []
    best, best_theta, idle_epochs = np.inf, run.theta, 0
    for number in range(control.max_iter):
        run.epoch(number, mean if number else None)
        theta = run.theta if mean is None else mean.mean_or(run.theta)
        history.append(objective.value(theta))
        if not np.isfinite(history[-1]):
            return Solution(best_theta, number + 1, False, np.inf, history, ADVICE_DIVERGED)
        value = _error_rate(objective, theta) if objective.loss.minimized_by_zero else history[-1]
        idle_epochs = 0 if number == 0 or value < best - control.tol * tol_scale(best) else idle_epochs + 1
        if value < best:
            best, best_theta = value, theta.copy()
        stopped = control.should_stop(number + 1, history[-1], theta)
        if stopped or idle_epochs >= PATIENCE or value == 0:
            return Solution(_with_zeros(objective, best_theta), number + 1, history=history, value=_estimate(run, best))
    gain = (history[-min(len(history), PATIENCE)] - min(history)) / tol_scale(min(history))
    advice = "raise max_iter or tol, or use solver='auto'"
    theta = _with_zeros(objective, best_theta)
    return Solution(theta, control.max_iter, False, gain, history, advice, value=_estimate(run, best))


def _estimate(run: Epochs, value: float) -> float | None:
    """Return the value of the objective if it was estimated from a sample; None if it has to be computed."""
    return None if run.watched is run.objective else value


def _with_zeros(objective: Objective, theta: NDArray) -> NDArray:
    """Return theta with its smallest weights set to zero under an L1 penalty.

    Steps make weights zero only for a moment, and means of iterates have no zeros at all. The number of weights is the
    one, among ZERO_CUTS quantiles, that gives the smallest objective.
    """
    if not objective.penalty.lasso:
        return theta
    best, best_theta = objective.value(theta), theta
    sizes = np.abs(theta[:, :-1])
    for threshold in np.quantile(sizes, np.arange(1, ZERO_CUTS) / ZERO_CUTS, method="lower"):
        cut = theta.copy()
        cut[:, :-1][sizes <= threshold] = 0
        value = objective.value(cut)
        if value <= best:
            best, best_theta = value, cut
    return best_theta


def _error_rate(objective: Objective, theta: NDArray) -> float:
    """Return the weighted share of rows with a nonzero slope.

    It judges the epochs of the perceptron, whose loss depends on the length of the weights.
    """

    def sum_block(rows: slice) -> float:
        _, slope = objective.loss.value_gradient(objective.scores(theta, rows), objective.targets.of(rows))
        return objective.weighted_sum((slope != 0).any(axis=1), rows)

    return sum(pmap(sum_block, spans(objective.n, 4096))) / objective.n


def _first_rate(objective: Objective, distinct: DistinctRows, batch: int) -> float:
    """Return 1 / smoothness of the mean loss of a batch, plus the ridge.

    The smoothness is c ||x||^2 for one row and c lambda_max(X'X / n) for all rows, with the curvature c of the loss. A
    batch is between the two.
    """
    X, weight = objective.X, distinct.weight[distinct.rows]
    square = np.average(objective.rows.row_squares()[distinct.rows], weights=weight)
    one_row = float(square) + objective.fit_intercept
    all_rows = one_row
    if batch > 1:
        some = X[distinct.rows[:: max(1, len(weight) // 2000)]]
        n = some.dtype.type(some.shape[0])
        moment = largest_eigenvalue(lambda v: np.asarray(some.T @ (some @ v)) / n, np.ones(objective.d, some.dtype))
        all_rows = min(one_row, moment)
    smoothness = (one_row + (batch - 1) * all_rows) / batch
    return 1.0 / (max(max_curvature(objective) * smoothness, 1e-12) + objective.penalty.ridge)


def max_curvature(objective: Objective) -> float:
    """Return the largest second derivative of a row's loss along any direction of its scores.

    If the loss does not declare it, return an estimate: the largest eigenvalue of the Hessians of SAMPLE_ROWS rows, at
    random scores of size 0 to _MAX_SCORE.
    """
    loss = objective.loss
    if loss.max_curvature is not None:
        return loss.max_curvature
    rng = np.random.default_rng(0)
    rows = rng.integers(objective.n, size=SAMPLE_ROWS)
    targets = objective.targets.of(rows)
    scale = np.linspace(0, _MAX_SCORE, SAMPLE_ROWS)[:, None]
    scores = scale * rng.standard_normal((SAMPLE_ROWS, objective.n_scores))
    return largest_eigenvalue(lambda v: loss.hessian_product(scores, targets, v), rng.standard_normal(scores.shape))
