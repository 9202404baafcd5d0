"""Sampled softmax for many classes: each step estimates the denominators of softmax from a few of the K classes.

    Z_i = sum_c e^{f_ic} ~ sum_{c in S} e^{f_ic}  +  (K - |S|) / m  sum_{c in U} e^{f_ic}

S    the known classes: the classes of the rows of the batch, and h hard classes. By default the hard classes are those
     that rows are confused with most often, found every few hundred steps by scoring a few rows against all classes.
     With an `index`, they are the classes that an index over the weights [W, b] finds nearest to the rows of the batch.
U    m other classes, drawn without replacement and shared by all rows of the batch

The class of a row is in S, so it is counted once and never drawn. The estimate of Z is unbiased for every S, and exact
if S and U contain all classes. A step updates |S| + m rows of W by row-wise Adagrad, which stores one sum of squared
gradients per class. Weight decay is applied to a class when a step updates it. Weights that do not fit in memory are in
a memory-mapped file (sampled_files.py).

If there is a bias, the mean row mu is subtracted first: f = W (x - mu) + c = W x + b with b = c - W mu. Without it, the
steps go mostly along mu. Sparse rows are not centered, because that would make them dense.

Rows on a GPU store the weights and take the steps themselves. This module then only draws the batches and classes and
sets the rates. Steps on a GPU and on the CPU are the same, because random numbers are drawn only in this module, and in
the same order.

`history` contains the exact objective on a fixed sample of rows, never the estimate.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.base.class_rows import best_classes
from kway.errors import CombinationError
from kway.kernels.linear.sampled import decay_rows, step_rows
from kway.linear.losses import Targets
from kway.linear.objective import Objective
from kway.linear.solvers.base import Control, Solution, Solver
from kway.linear.solvers.sampled_files import mapped_zeros, read_checkpoint, write_checkpoint
from kway.linear.solvers.schedules import pick_schedule
from kway.linear.solvers.stopping import ADVICE_DIVERGED
from kway.memory import CACHE_BYTES, rows_per_block
from kway.parameters import check_parameters, whole
from kway.probabilities import Shares
from kway.rows.passes import ON_GPU, RowLosses, RowPasses, SteppingRows, StepPlan
from kway.search.auto import pick_index
from kway.search.index import Index
from kway.search.metrics import pick_metric
from kway.threads import pmap, single_blas, spans
from kway.validation import Rows

# Decided by the benchmark of sampled softmax (benchmarks/jobs/sampled.py, rows C1 and C2) unless noted.
_BATCH = 256  # rows per step if batch_size is 1
CANDIDATES = 16  # best classes of each scored row that are counted when hard classes are selected
_REFRESH = 256  # steps between two selections of hard classes by scoring rows against all classes
_REINDEX = 4 * _REFRESH  # steps between two builds of the index over the weights
SCORING_SHARE = 0.1  # cost of a selection, relative to the products of the _REFRESH steps before it
MAX_SCORED_ROWS = 1000  # largest number of rows that are scored against all classes at once
_EXACT_WORK = 5e10  # multiplications that the exact loss after an epoch may take, about a second
FIRST_GAIN = 4.0  # approximate increase of the score of a row's class by the first step of that class
_PATIENCE = 3  # epochs in a row with a gain below tol, relative to the loss at W = 0, after which the fit stops


def draw_classes(
    known: NDArray[np.int64], n_classes: int, m: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], float]:
    """Draw m classes that are not in `known` (s,), which must be sorted and distinct.

    Return the known and then the drawn classes, and the logarithm of (K - s) / m, the number of classes that each drawn
    class represents.
    """
    n_others = n_classes - len(known)
    m = min(m, n_others)
    ranks = np.sort(rng.choice(n_others, m, replace=False, shuffle=False))  # among the classes that are not known
    # ids minus ranks: known[i] - i classes that are not known are below known[i]
    n_known_below = np.searchsorted(known - np.arange(len(known)), ranks, side="right")
    return np.concatenate([known, ranks + n_known_below]), float(np.log(max(1, n_others) / max(1, m)))


@dataclass(frozen=True)
class Sampled(Solver):
    """Softmax for very many classes, by mini-batch steps on the classes of the rows and a sample of the others.

    The result is near the optimum, but not guaranteed to be within tol of it. The fit stops when three epochs in a row
    have each lowered the loss by less than tol, relative to the loss at W = 0.

    Parameters
    ----------
    negatives : int
        Classes that each step draws at random.
    hard : int
        Hard classes of each step: classes that the rows are confused with most often.
    checkpoint : str, optional
        Folder in which the state after each epoch is stored. A fit that was interrupted continues from it.
    index : index of kway.search or its name, optional
        Finds the hard classes of each batch by a search among the weights. Building and searching the index takes time;
        it pays if the classes form tight groups.
    weights : str, optional
        Folder of the file with the weights, which is memory-mapped. By default the weights are in memory, or in a
        temporary file if they do not fit.
    """

    negatives: int = 512
    hard: int = 256
    checkpoint: str | None = None
    index: Any = None
    weights: str | None = None
    name: ClassVar[str] = "sampled"
    needs: ClassVar[frozenset[str]] = frozenset({"loss.cross_entropy", "penalty.smooth"})
    guarantees_tol: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_parameters(self, negatives=whole(1), hard=whole(0))

    def cold_start(self, objective: Objective, rng: np.random.Generator | None = None) -> NDArray:
        """Return weights of zero, in memory or in a file."""
        mapped = mapped_zeros((objective.n_scores, objective.d + 1), objective.rows.dtype, self.weights)
        return objective.zeros() if mapped is None else mapped

    def solve(self, objective: Objective, theta: NDArray, control: Control) -> Solution:
        """Run epochs until the exact loss of a sample stops falling by tol, or max_iter; theta is overwritten."""
        if objective.targets.soft is not None:
            raise CombinationError(
                "solver 'sampled' takes one label per row, not distributions or label_smoothing; "
                "use solver='sgd', which sums over all classes"
            )
        with single_blas():
            o, validate, mean = objective, control.validate, np.zeros(objective.d, objective.rows.dtype)
            if o.fit_intercept:
                mean = o.rows.mean()
                o = replace(o, rows=o.rows.subtract_mean(mean))

            def uncentered(theta: NDArray) -> NDArray:
                """Change theta of the centered rows, in place, to that of the original rows."""
                theta[:, -1] -= theta[:, :-1] @ mean
                return theta

            if validate is not None:
                control = replace(control, validate=lambda theta: validate(uncentered(theta.copy())))
            # theta is changed in place, because a copy of a billion weights would not fit
            start = np.require(theta, requirements=["C", "W"])
            start[:, -1] += start[:, :-1] @ mean
            run = SampledRun(self, o, control, start)
            solution = _run_epochs(run)
            run.weights.fetch()
            uncentered(solution.theta)
            return solution


@dataclass
class SampledRun:
    """The state of a run. Steps update these arrays in place.

    theta         (K, d + 1)  weights and biases
    sq_grad_sums  (K,)        Adagrad's sum of squared gradients of each class
    last_step     (K,)        step up to which the weight decay of each class is applied
    hard          (h,)        current hard classes

    A checkpoint replaces the contents of these arrays. It must be read before `weights` is used for the first time,
    because the object that takes the steps may copy the arrays to a GPU.
    """

    solver: Sampled
    objective: Objective
    control: Control
    theta: NDArray
    step: int = 0

    def __post_init__(self) -> None:
        o = self.objective
        default = cast(SteppingRows, o.rows).step_rows() if ON_GPU in o.rows.offers else _BATCH
        self.batch = min(self.control.batch_size if self.control.batch_size > 1 else default, o.n)
        self.mean_square = o.rows.mean_square() or 1.0  # of the entries of X
        # The first row of a class moves its weights by about the learning rate. Classes that are only drawn have small
        # gradients and move less.
        self.sq_grad_sums = np.full(o.n_scores, self.mean_square / self.batch**2, np.float32)
        self.last_step = np.zeros(o.n_scores, np.int32)
        self.hard = np.empty(0, np.int64)
        self.index: Index | None = None

    @cached_property
    def weights(self) -> HostWeights:
        """Return the object that takes the steps, on a GPU or on the CPU."""
        o = self.objective
        if ON_GPU in o.rows.offers:
            arrays = self.theta, self.sq_grad_sums, self.last_step
            rows = cast(SteppingRows, o.rows)
            return cast(HostWeights, rows.sampled_weights(o.losses, arrays, o.penalty.ridge, o.fit_intercept))
        return HostWeights(o, self.theta, self.sq_grad_sums, self.last_step)

    @cached_property
    def first_rate(self) -> float:
        """Return the rate at which the first row of a class raises its score by FIRST_GAIN."""
        return FIRST_GAIN / (self.objective.d * np.sqrt(self.mean_square))

    def rate(self) -> float:
        """Return the learning rate of this step."""
        schedule = pick_schedule(self.control.learning_rate)
        epoch = self.step * self.batch / self.objective.n
        return float(schedule.at(epoch, schedule.eta or self.first_rate, self.control.max_iter))

    def epoch(self) -> None:
        """Take steps over all rows in random order, then apply the weight decay that each class has accumulated."""
        o = self.objective
        order = o.rows.shuffled(self.control.rng)
        for number, batch in enumerate(spans(o.n, self.batch)):
            rows = np.sort(order[batch])
            if self.solver.index is not None:
                self.hard = self.nearest_classes(rows, rebuild=number % _REINDEX == 0)
            elif self.step % _REFRESH == 0:
                self.hard = self.confused_classes()
            self.take_step(rows)
        self.weights.decay(self.step, self.rate())

    def take_step(self, rows: NDArray[np.int64]) -> None:
        """Take one step on a batch of rows: update their classes, the hard classes and the drawn classes."""
        codes = self.objective.targets.codes[rows]
        known = np.union1d(codes, self.hard)
        ids, log_weight = draw_classes(known, self.objective.n_scores, self.solver.negatives, self.control.rng)
        own = np.searchsorted(known, codes)  # position of each row's class among the classes of the step
        plan = StepPlan(rows, own, ids, len(known), log_weight, self.rate())
        self.weights.step(plan, self.step)
        self.step += 1

    def confused_classes(self) -> NDArray[np.int64]:
        """Return the classes that are most often among the best of a sample of rows but not their own, sorted."""
        o, K = self.objective, self.objective.n_scores
        n_step_classes = self.batch + self.solver.hard + self.solver.negatives
        if self.step == 0 or n_step_classes >= K:
            return np.empty(0, np.int64)
        affordable = SCORING_SHARE * _REFRESH * self.batch * n_step_classes / K
        n_rows = _limit_scored_rows(affordable, self.solver)
        rows = np.sort(self.control.rng.choice(o.n, min(o.n, n_rows), replace=False))
        return self._most_frequent(self.weights.best(rows, min(CANDIDATES, K)), rows)

    def nearest_classes(self, rows: NDArray[np.int64], rebuild: bool) -> NDArray[np.int64]:
        """Return the classes that an index over the weights most often finds nearest to these rows, sorted."""
        o, K = self.objective, self.objective.n_scores
        if self.step == 0 or self.batch + self.solver.hard + self.solver.negatives >= K:
            return np.empty(0, np.int64)
        if self.index is None or rebuild:
            self.weights.fetch()
            recipe = pick_index(self.solver.index, K, self.theta.shape[1], pick_metric("dot")).recipe
            self.index = recipe.build(self.theta.copy(), "dot")  # a copy, as steps change theta
        ids = self.index.nearest(_with_ones(o.X[rows]), min(CANDIDATES, K)).ids
        return self._most_frequent(ids, rows)

    def _most_frequent(self, ids: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the `hard` most frequent classes of ids (b, k), not counting the class of each row (b,)."""
        confused = ids[ids != self.objective.targets.codes[rows][:, None]]
        classes, counts = np.unique(confused, return_counts=True)
        return np.sort(classes[np.argsort(-counts, kind="stable")[: self.solver.hard]])


@dataclass
class HostWeights:
    """Steps by CPU kernels, which update the arrays of the run in place. Rows on a GPU have weights with these methods.

    `number` is the number of the step, from 0.
    """

    objective: Objective
    theta: NDArray
    sq_grad_sums: NDArray
    last_step: NDArray

    def step(self, plan: StepPlan, number: int) -> None:
        """Gather the class rows [W b], score them against [x 1], and subtract the scaled gradient from theta."""
        o, theta, ids, eta, ridge = self.objective, self.theta, plan.ids, plan.eta, self.objective.penalty.ridge
        X, parts = _with_ones(o.X[plan.rows]), self._class_blocks(len(ids))  # (b, d + 1)
        class_rows = np.empty((len(ids), theta.shape[1]), theta.dtype)  # (c, d + 1)
        slopes = np.empty((len(plan.rows), len(ids)), theta.dtype)  # (b, c)
        log_weight = np.where(np.arange(len(ids)) < plan.known, 0.0, plan.log_weight)

        def gather(s: slice) -> None:
            decay_rows(theta, ids[s], self.sq_grad_sums, self.last_step, number, eta, ridge)
            np.take(theta, ids[s], axis=0, out=class_rows[s], mode="clip")  # mode="raise" would copy through a buffer
            class_rows[s, -1] += log_weight[s]  # a larger bias counts e^f as often as the class represents classes

        def score(s: slice) -> None:
            np.matmul(X[s], class_rows.T, out=slopes[s])  # scores, which the loss replaces by slopes
            o.loss.value_gradient(slopes[s], Targets(plan.own[s]), slopes[s])

        weight = np.ones(len(plan.rows)) if o.weight is None else o.weight[plan.rows]
        weighted = X * (weight / len(plan.rows))[:, None].astype(X.dtype)

        def move(s: slice) -> None:
            gradient = slopes[:, s].T @ weighted  # (c, d + 1)
            step_rows(
                theta, ids[s], gradient, self.sq_grad_sums, self.last_step, number + 1, eta, ridge, o.fit_intercept
            )

        pmap(gather, parts)
        pmap(score, spans(len(plan.rows), rows_per_block(slopes[0].nbytes, CACHE_BYTES // 8)))
        pmap(move, parts)

    def decay(self, step: int, eta: float) -> None:
        """Apply the weight decay that each class has accumulated since its last step."""

        def decay_block(s: slice) -> None:
            ids = np.arange(s.start, s.stop)
            decay_rows(self.theta, ids, self.sq_grad_sums, self.last_step, step, eta, self.objective.penalty.ridge)

        pmap(decay_block, self._class_blocks(len(self.theta)))

    def best(self, rows: NDArray[np.int64], k: int) -> NDArray[np.int64]:
        """Return the k classes with the highest scores for each of the given rows, (m, k)."""
        return best_classes(self.objective.X[rows], self.theta[:, :-1], self.theta[:, -1], k).ids

    def mean_loss(self, watched: RowPasses, losses: RowLosses) -> float:
        """Return the exact mean loss: log Z is the best score of a row minus the log probability of that class."""
        X, theta = watched.X, self.theta
        best = best_classes(X, theta[:, :-1], theta[:, -1], 1, Shares())
        best_scores = _class_scores(X, theta, best.ids[:, 0])
        loss = best_scores - np.log(best.scores[:, 0]) - _class_scores(X, theta, losses.targets.codes)
        return float(np.average(np.maximum(loss, 0), weights=losses.weight))

    def squares(self) -> float:
        """Return ||W||^2, in blocks: W is not contiguous, so that each block is copied."""
        parts = (self.theta[s, :-1] for s in self._class_blocks(len(self.theta)))
        return sum(float(np.square(W, dtype=np.float64).sum()) for W in parts)

    def _class_blocks(self, n: int) -> list[slice]:
        """Return blocks of n rows of theta; their size does not depend on the number of workers."""
        return spans(n, rows_per_block(self.theta[0].nbytes, CACHE_BYTES // 8))

    def finite(self) -> bool:
        """Return whether all steps so far were finite."""
        return bool(np.isfinite(self.sq_grad_sums).all())

    def fetch(self) -> None:
        """Copy the state to the arrays of the run; here, they are always current."""


def exact_objective(weights: HostWeights, watched: Objective) -> float:
    """Return the objective of the watched rows, over all classes."""
    return weights.mean_loss(watched.rows, watched.losses) + watched.penalty.ridge / 2 * weights.squares()


def _class_scores(X: Rows, theta: NDArray, codes: NDArray[np.int64]) -> NDArray:
    """Return the score of one class per row, (n,)."""
    class_rows = theta[codes].astype(np.float64)
    W = class_rows[:, :-1]
    products = X.multiply(W).sum(axis=1) if sp.issparse(X) else np.einsum("ij,ij->i", X, W)
    return np.asarray(products).ravel() + class_rows[:, -1]


def _run_epochs(run: SampledRun) -> Solution:
    """Run epochs until _PATIENCE of them in a row gain less than tol times the loss at W = 0, which is log K."""
    o, control, folder = run.objective, run.control, run.solver.checkpoint
    watched = o.take(_sample(run))  # drawn before the checkpoint restores the state of rng, as in the first run
    fingerprint = "" if folder is None else _fingerprint(run)
    history = [] if folder is None else read_checkpoint(folder, run, fingerprint)
    for number in range(len(history), control.max_iter):
        if _idle_epochs(history, control.tol, o.n_scores) >= _PATIENCE:
            return Solution(run.theta, number, history=history, value=_value(o, history))
        run.epoch()
        if not run.weights.finite():
            return Solution(
                run.theta, number + 1, converged=False, rel_excess=np.inf, history=history, advice=ADVICE_DIVERGED
            )
        history.append(exact_objective(run.weights, watched))
        if folder is not None or control.validate is not None:
            run.weights.fetch()
        if folder is not None:
            write_checkpoint(folder, run, history, fingerprint)
        if control.should_stop(number + 1, history[-1], run.theta):
            return Solution(run.theta, number + 1, history=history, value=_value(o, history))
    value = _value(o, history)
    if _idle_epochs(history, control.tol, o.n_scores) >= _PATIENCE:
        return Solution(run.theta, len(history), history=history, value=value)
    advice = "raise max_iter or tol"
    return Solution(run.theta, len(history), False, rel_excess=np.inf, history=history, advice=advice, value=value)


def _idle_epochs(history: list[float], tol: float, n_classes: int) -> int:
    """Return the number of epochs at the end of `history` that gained less than tol times the loss at W = 0, log K."""
    start = best = float(np.log(n_classes))
    n_idle = 0
    for loss in history:
        n_idle = 0 if loss < best - tol * start else n_idle + 1
        best = min(best, loss)
    return n_idle


def _fingerprint(run: SampledRun) -> str:
    """Return a string that identifies the rows, labels, weights and settings of a run."""
    o = run.objective
    digests = (zlib.crc32(a.tobytes()) for a in (o.targets.codes, o.weight) if a is not None)
    settings = (run.theta.shape, run.batch, run.solver.negatives, run.solver.hard, o.penalty.ridge, run.solver.index)
    return repr((o.rows.fingerprint(), *digests, settings, run.control.learning_rate, o.fit_intercept))


def _sample(run: SampledRun) -> NDArray[np.int64]:
    """Return the rows on which the exact loss is computed: a sample, or all rows if there are few."""
    o = run.objective
    n_rows = _limit_scored_rows(_EXACT_WORK / (o.n_scores * o.d), run.solver)
    return np.sort(run.control.rng.choice(o.n, min(o.n, n_rows), replace=False))


def _limit_scored_rows(affordable: float, solver: Sampled) -> int:
    """Return a number of rows to score: at least enough for `hard` classes, at most MAX_SCORED_ROWS."""
    return int(np.clip(affordable, max(1, solver.hard // CANDIDATES), MAX_SCORED_ROWS))


def _value(objective: Objective, history: list[float]) -> float | None:
    """Return the objective on the sample if computing it on all rows takes too long, else None."""
    return history[-1] if objective.n * objective.n_scores * objective.d > _EXACT_WORK else None


def _with_ones(X: Rows) -> NDArray:
    """Return [x 1] for each row as a dense array (m, d + 1), so that f = [x 1] . [w b]."""
    extended = np.ones((X.shape[0], X.shape[1] + 1), X.dtype)
    extended[:, :-1] = X.toarray() if sp.issparse(X) else X
    return extended
