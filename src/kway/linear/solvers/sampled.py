"""Sampled softmax: mini-batches whose Z is estimated from few classes, so that a step never touches all K.

    Z_i ~ sum_{c in S} e^{f_ic}  +  (K - |S|) / m  sum_{c in U} e^{f_ic}

S, the known classes: those of the batch's own rows, and h hard ones: by default those that rows are confused with most
often, found now and then by scoring a few rows against all classes; with an `index`, those that an index over the
weights (rows [W, b], refreshed every REINDEX steps) finds nearest to the batch's own rows. U: m
classes drawn from the others without repetition, the same for all rows of the batch. A row's own class is in S, so it
is counted once and never drawn. The estimate is unbiased for every S; where S and U are all classes it is exact. Its
gradient touches |S| + m rows of W, by row-wise Adagrad (one number per class). Weight decay is applied when a row is
touched. Weights larger than memory lie in a file that is mapped (sampled_files.py).

Rows are about their mean if there is a bias (equivalent.py). Rows that make stochastic steps themselves, on a GPU,
hold the weights; this module makes orders, draws and rates from the same random numbers, so that both make the same
steps.
What is reported is never the estimate: `history` holds the exact objective on a fixed sample of rows, scored in blocks.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.base.class_rows import best_classes
from kway.errors import CombinationError
from kway.kernels.linear.sampled import decay_rows, step_rows
from kway.linear.equivalent import center_rows
from kway.linear.losses import Targets
from kway.linear.objective import Objective
from kway.linear.solvers.base import Control, Solution
from kway.linear.solvers.certificates import BLEW_UP
from kway.linear.solvers.sampled_files import mapped_zeros, read_checkpoint, write_checkpoint
from kway.linear.solvers.schedules import pick_schedule
from kway.parameters import check_parameters, whole
from kway.probabilities import Shares
from kway.rows.passes import STEPS, RowLosses, RowPasses, SampledWeights, SteppingRows, StepPlan
from kway.search.auto import pick_index
from kway.search.index import Index
from kway.search.metrics import pick_metric
from kway.threads import pmap, single_blas, spans
from kway.validation import Rows

_BATCH = 256  # rows per step if batch_size is 1
CLASSES_EACH = 256  # touched by one worker at a time; fixed, so that the answer does not depend on how many there are
_TOGETHER = 64  # rows scored by one worker at a time: 1,000 classes of them stay in the second cache
CONFUSED = 16  # classes that a row scored against all of them names
_REFRESH = 256  # steps between two such scorings
_REINDEX = 4 * _REFRESH  # steps after which an index over the weights is built again
SCORING = 0.1  # of the products of those steps that a scoring may take
FEWEST_SCORED, MOST_SCORED = 16, 1000  # rows, against all classes: enough to say something, not more than needed
_EXACT = 2e11  # products of an exact loss: some seconds
_WHOLE = 1e10  # products up to which the objective at the end is that of all rows: less than an epoch takes
STEP = 4.0  # the score that a row's first step gives its class, about
_PATIENCE = 3  # epochs without a gain of tol, as a share of the loss at W = 0


class DrawnClasses(NamedTuple):
    """Classes of a step (c,), the known ones first and in order, and the logarithm of what each stands for (c,)."""

    ids: NDArray[np.int64]
    log_weight: NDArray


def draw_classes(known: NDArray[np.int64], n_classes: int, m: int, rng: np.random.Generator) -> DrawnClasses:
    """The known classes (s,), sorted and distinct, and m of the others, each of which stands for (K - s) / m."""
    others = n_classes - len(known)
    m = min(m, others)
    ranks = np.sort(rng.choice(others, m, replace=False, shuffle=False))
    behind = np.searchsorted(known - np.arange(len(known)), ranks, side="right")  # known classes before each
    log_weight = np.zeros(len(known) + m)
    log_weight[len(known) :] = np.log(max(1, others) / max(1, m))
    return DrawnClasses(np.concatenate([known, ranks + behind]), log_weight)


@dataclass(frozen=True)
class Sampled:
    """Softmax for very many classes: each row against its own, `hard` ones and `negatives` drawn from the rest.

    It approaches the optimum and does not promise to be within tol of it: tol is the least gain of PATIENCE epochs that
    is worth going on for, as a share of the loss at W = 0. `checkpoint` names a folder in which the state after each
    epoch is kept: a fit that was ended goes on from there (sampled_files.py). `index`, a recipe of kway.search or its
    name, finds the hard classes of each batch among the weights as they were; building and asking it costs, so it is
    for classes that come in tight groups. `weights` names a folder in whose file the weights lie, memory-mapped; None:
    in memory, or in a temporary file if memory is too small.
    """

    negatives: int = 512
    hard: int = 256
    checkpoint: str | None = None
    index: Any = None
    weights: str | None = None
    name: ClassVar[str] = "sampled"
    needs: ClassVar[frozenset[str]] = frozenset({"loss.cross_entropy", "penalty.smooth"})
    promises: ClassVar[bool] = False
    spans: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_parameters(self, negatives=whole(1), hard=whole(0))

    def cold_start(self, objective: Objective) -> NDArray:
        """Weights of zero, in memory or in a file."""
        found = mapped_zeros((objective.n_scores, objective.d + 1), objective.rows.dtype, self.weights)
        return objective.zeros() if found is None else found

    def solve(self, objective: Objective, theta: NDArray, control: Control) -> Solution:
        """Epochs until the exact loss of a sample of rows stops falling by tol, or max_iter."""
        if objective.targets.soft is not None:
            raise CombinationError(
                "solver 'sampled' takes one label per row, not distributions or label_smoothing; "
                "use solver='sgd', which sums over all classes"
            )
        with single_blas():
            frame, validate = center_rows(objective), control.validate
            if validate is not None:
                control = replace(control, validate=lambda theta: validate(frame.back(theta.copy())))
            # the start is not copied: there may be a billion weights
            start = frame.into(np.require(theta, requirements=["C", "W"]))
            run = SampledRun(self, frame.objective, control, start)
            found = _epochs(run)
            run.weights.fetch()
            frame.back(found.theta)
            return found


@dataclass
class SampledRun:
    """The state of a run: theta (K, d + 1), sums of squared gradients (K,), and each class's last step (K,)."""

    solver: Sampled
    objective: Objective
    control: Control
    theta: NDArray
    step: int = 0

    def __post_init__(self) -> None:
        o = self.objective
        by_rows = STEPS in o.rows.offers
        usual = cast(SteppingRows, o.rows).step_rows() if by_rows else _BATCH
        self.batch = min(self.control.batch_size if self.control.batch_size > 1 else usual, o.n)
        self.squares = o.rows.mean_square() or 1.0  # of a row's numbers
        # a class's first row moves it by about `eta`; classes that are only drawn, whose slopes are small, by less
        self.sizes = np.full(o.n_scores, self.squares / self.batch**2, np.float32)
        self.met = np.zeros(o.n_scores, np.int32)
        self.hard = np.empty(0, np.int64)
        self.index: Index | None = None

    @cached_property
    def weights(self) -> SampledWeights:
        """What makes the steps; made at the first step, since a checkpoint may fill theta, sizes and met before."""
        o = self.objective
        if STEPS in o.rows.offers:
            return cast(SteppingRows, o.rows).sampled_weights(
                o.losses, self.theta, self.sizes, self.met, o.penalty.ridge, o.fit_intercept
            )
        return HostWeights(o, self.theta, self.sizes, self.met)

    @cached_property
    def first_rate(self) -> float:
        """The rate at which a class's first row raises its own score by STEP."""
        return STEP / (self.objective.d * np.sqrt(self.squares))

    def rate(self) -> float:
        """Return the learning rate of this step."""
        schedule = pick_schedule(self.control.learning_rate)
        epoch = self.step * self.batch / self.objective.n
        return float(schedule.at(epoch, schedule.eta or self.first_rate, self.control.max_iter))

    def epoch(self) -> None:
        """One pass over the rows in a new order; then every class has all the decay that it is due."""
        o = self.objective
        order = o.rows.shuffled(self.control.rng)
        for number, at in enumerate(spans(o.n, self.batch)):
            rows = np.sort(order[at])
            if self.solver.index is not None:
                self.hard = self.nearest_classes(rows, anew=number % _REINDEX == 0)
            elif self.step % _REFRESH == 0:
                self.hard = self.confused()
            self.descend(rows)
        self.weights.decay(self.step, self.rate())

    def descend(self, rows: NDArray[np.int64]) -> None:
        """One step from some rows: their classes, the hard ones and some that are drawn."""
        codes = self.objective.targets.codes[rows]
        known = np.union1d(codes, self.hard)
        drawn = draw_classes(known, self.objective.n_scores, self.solver.negatives, self.control.rng)
        own = np.searchsorted(known, codes)
        plan = StepPlan(rows, own, drawn.ids, len(known), float(drawn.log_weight[-1]), self.rate())
        self.weights.step(plan, self.step)
        self.step += 1

    def confused(self) -> NDArray[np.int64]:
        """The classes that some rows, scored against all, most often prefer to their own or nearly so, sorted."""
        o, K = self.objective, self.objective.n_scores
        touched = self.batch + self.solver.hard + self.solver.negatives
        if self.step == 0 or touched >= K:
            return np.empty(0, np.int64)
        wanted = int(np.clip(SCORING * _REFRESH * self.batch * touched / K, FEWEST_SCORED, MOST_SCORED))
        rows = np.sort(self.control.rng.choice(o.n, min(o.n, wanted), replace=False))
        return self._most_named(self.weights.best(rows, min(CONFUSED, K)), rows)

    def nearest_classes(self, rows: NDArray[np.int64], anew: bool) -> NDArray[np.int64]:
        """The classes that an index over the weights finds nearest to these rows, sorted."""
        o, K = self.objective, self.objective.n_scores
        if self.step == 0 or self.batch + self.solver.hard + self.solver.negatives >= K:
            return np.empty(0, np.int64)
        if self.index is None or anew:
            self.weights.fetch()
            recipe = pick_index(self.solver.index, K, self.theta.shape[1], pick_metric("dot")).recipe
            self.index = recipe.build(self.theta.copy(), "dot")  # which goes on changing
        ids = self.index.nearest(_with_ones(o.X[rows]), min(CONFUSED, K)).ids
        return self._most_named(ids, rows)

    def _most_named(self, ids: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The `hard` classes that ids (b, k) name most often, but for those of their own rows (b,)."""
        found, counts = np.unique(ids[ids != self.objective.targets.codes[rows][:, None]], return_counts=True)
        return np.sort(found[np.argsort(-counts, kind="stable")[: self.solver.hard]])


@dataclass
class HostWeights:
    """Steps on the arrays of the run, by kernels on the CPU."""

    objective: Objective
    theta: NDArray
    sizes: NDArray
    met: NDArray

    def step(self, plan: StepPlan, number: int) -> None:
        """The classes gathered as [W b], scored by [x 1] and moved along slopes' [x 1]."""
        o, theta, ids, eta, ridge = self.objective, self.theta, plan.ids, plan.eta, self.objective.penalty.ridge
        X, parts = _with_ones(o.X[plan.rows]), spans(len(ids), CLASSES_EACH)  # (b, d + 1)
        held = np.empty((len(ids), theta.shape[1]), theta.dtype)  # (c, d + 1)
        slopes = np.empty((len(plan.rows), len(ids)), theta.dtype)  # (b, c)
        log_weight = np.where(np.arange(len(ids)) < plan.known, 0.0, plan.log_weight)

        def gather(s: slice) -> None:
            decay_rows(theta, ids[s], self.sizes, self.met, number, eta, ridge)
            np.take(theta, ids[s], axis=0, out=held[s], mode="clip")  # "raise" would go through a buffer
            held[s, -1] += log_weight[s]

        def slope(s: slice) -> None:
            np.matmul(X[s], held.T, out=slopes[s])
            o.loss.value_gradient(slopes[s], Targets(plan.own[s]), slopes[s])

        weight = np.ones(len(plan.rows)) if o.weight is None else o.weight[plan.rows]
        weighed = X * (weight / len(plan.rows))[:, None].astype(X.dtype)

        def move(s: slice) -> None:
            gradient = slopes[:, s].T @ weighed  # (c, d + 1)
            step_rows(theta, ids[s], gradient, self.sizes, self.met, number + 1, eta, ridge, o.fit_intercept)

        pmap(gather, parts)
        pmap(slope, spans(len(plan.rows), _TOGETHER))
        pmap(move, parts)

    def decay(self, step: int, eta: float) -> None:
        """Every class has all the decay that it is due."""

        def some(s: slice) -> None:
            every = np.arange(s.start, s.stop)
            decay_rows(self.theta, every, self.sizes, self.met, step, eta, self.objective.penalty.ridge)

        pmap(some, spans(len(self.theta), CLASSES_EACH * 64))

    def best(self, rows: NDArray[np.int64], k: int) -> NDArray[np.int64]:
        """The k best classes of some rows (m, k)."""
        return best_classes(self.objective.X[rows], self.theta[:, :-1], self.theta[:, -1], k).ids

    def mean_loss(self, watched: RowPasses, losses: RowLosses) -> float:
        """Classes in blocks: log Z of a row is its best score less the logarithm of that class's share."""
        X, theta = watched.X, self.theta
        best = best_classes(X, theta[:, :-1], theta[:, -1], 1, Shares())
        leader = best.ids[:, 0]
        loss = _own(X, theta, leader) - _own(X, theta, losses.targets.codes) - np.log(best.scores[:, 0])
        return float(np.average(np.maximum(loss, 0), weights=losses.weight))

    def squares(self) -> float:
        """||W||^2, a copy of some classes at a time: W is not contiguous."""
        parts = (self.theta[s, :-1] for s in spans(len(self.theta), CLASSES_EACH * 64))
        return sum(float(np.square(W, dtype=np.float64).sum()) for W in parts)

    def finite(self) -> bool:
        """Whether all steps so far were numbers."""
        return bool(np.isfinite(self.sizes).all())

    def fetch(self) -> None:
        """They are up to date."""


def exact(weights: SampledWeights, watched: Objective) -> float:
    """The objective of some rows."""
    return weights.mean_loss(watched.rows, watched.losses) + watched.penalty.ridge / 2 * weights.squares()


def _own(X: Rows, theta: NDArray, codes: NDArray[np.int64]) -> NDArray:
    """Each row's score of one class (n,)."""
    held = theta[codes].astype(np.float64)
    products = X.multiply(held[:, :-1]).sum(axis=1) if sp.issparse(X) else np.einsum("ij,ij->i", X, held[:, :-1])
    return np.asarray(products).ravel() + held[:, -1]


def _epochs(run: SampledRun) -> Solution:
    """Epochs until PATIENCE of them in a row gained less than tol of the loss at W = 0, which is log K."""
    o, control, folder = run.objective, run.control, run.solver.checkpoint
    watched = o.take(_sample(o, control.rng))
    mark = "" if folder is None else _mark(run)
    history = [] if folder is None else read_checkpoint(folder, run, mark)
    for number in range(len(history), control.max_iter):
        if _idle(history, control.tol, o.n_scores) >= _PATIENCE:
            return Solution(run.theta, number, history=history, value=_value(o, history))
        run.epoch()
        if not run.weights.finite():
            return Solution(run.theta, number + 1, False, np.inf, history, BLEW_UP)
        history.append(exact(run.weights, watched))
        if folder is not None or control.validate is not None:
            run.weights.fetch()
        if folder is not None:
            write_checkpoint(folder, run, history, mark)
        told = control.progress is not None and control.progress(number + 1, history[-1])
        if told or (control.validate and control.validate(run.theta)):
            return Solution(run.theta, number + 1, history=history, value=_value(o, history))
    enough = _idle(history, control.tol, o.n_scores) >= _PATIENCE
    lost, advice = (0.0, "") if enough else (np.inf, "raise max_iter or tol")
    return Solution(run.theta, len(history), enough, lost, history, advice, value=_value(o, history))


def _idle(history: list[float], tol: float, n_classes: int) -> int:
    """Epochs, the last ones, that gained less than tol of the loss at W = 0."""
    start = best = float(np.log(n_classes))
    since = 0
    for loss in history:
        since = 0 if loss < best - tol * start else since + 1
        best = min(best, loss)
    return since


def _mark(run: SampledRun) -> str:
    """What tells this run from others: its rows, every one of them, their labels and weights, and its settings."""
    o = run.objective
    beside = (zlib.crc32(a.tobytes()) for a in (o.targets.codes, o.weight) if a is not None)
    settings = (run.theta.shape, run.batch, run.solver.negatives, run.solver.hard, o.penalty.ridge, run.solver.index)
    return repr((o.rows.mark(), *beside, settings, run.control.learning_rate, o.fit_intercept))


def _sample(objective: Objective, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the rows that the exact loss is computed on: all of them if there are few."""
    wanted = int(np.clip(_EXACT / (objective.n_scores * objective.d), FEWEST_SCORED, MOST_SCORED))
    return np.sort(rng.choice(objective.n, min(objective.n, wanted), replace=False))


def _value(objective: Objective, history: list[float]) -> float | None:
    """Return the objective on the sample if all rows against all classes are too many; else None."""
    return history[-1] if objective.n * objective.n_scores * objective.d > _WHOLE else None


def _with_ones(X: Rows) -> NDArray:
    """[x 1] of each row (m, d + 1): f = [x 1] . [w b]."""
    found = np.ones((X.shape[0], X.shape[1] + 1), X.dtype)
    found[:, :-1] = X.toarray() if sp.issparse(X) else X
    return found
