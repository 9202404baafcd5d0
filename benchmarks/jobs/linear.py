"""T4: linear classifiers at the same objective. A peer gets more iterations until its objective is as low as kway's.

A peer may have several solvers; the fastest of them is timed.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.special

import kway

from .. import datasets
from ..models import NotInstalled, cyanure_linear, snap_linear
from ..models import sklearn_linear as peers
from ..race import Row, absent, race, row, settled

STEPS = (10, 20, 40, 80, 160, 320, 640, 1280)
CLOSE = 1.001  # objectives within this factor count as equal
PATIENCE = 30  # times kway's seconds that a run of a peer may take in T4b, whose highest goal is 15
TOL = 1e-3  # of kway's fits: how far above the optimum, relatively, an objective may end


def softmax_objective(model, X, y, alpha, penalty="l2"):
    """Return the mean cross-entropy plus penalty of a model with coef_ and intercept_, in float64."""
    W, b = np.asarray(model.coef_, np.float64), np.asarray(model.intercept_, np.float64)
    codes = np.searchsorted(model.classes_, y)
    total = 0.0
    for a in range(0, X.shape[0], 10_000):
        Z = X[a : a + 10_000].astype(np.float64) @ W.T + b
        total += float((scipy.special.logsumexp(Z, axis=1) - Z[np.arange(len(Z)), codes[a : a + 10_000]]).sum())
    return total / X.shape[0] + alpha * (np.abs(W).sum() if penalty == "l1" else (W * W).sum() / 2)


def hinge_objective(model, X, y, alpha):
    """One-vs-all hinge without a bias: sum over classes of mean hinge plus alpha / 2 ||w||^2."""
    return float(np.maximum(0, 1 - margins(model, X, y)).sum(1).mean() + alpha / 2 * _square(model))


def logistic_objective(model, X, y, alpha):
    """The same with log(1 + exp(-margin))."""
    return float(np.logaddexp(0, -margins(model, X, y)).sum(1).mean() + alpha / 2 * _square(model))


def margins(model, X, y):
    """Return the margins (n, K) in float64: scores with the opposite sign for other classes."""
    classes = np.unique(y)  # not every peer keeps them
    return (X.astype(np.float64) @ np.asarray(model.coef_, np.float64).T) * (2.0 * (y[:, None] == classes) - 1)


def _square(model):
    return float((np.asarray(model.coef_, np.float64) ** 2).sum())


def accuracy(model, data):
    """Return the test accuracy of a model with coef_ and intercept_."""
    return float((model.classes_[(data.Q @ model.coef_.T + model.intercept_).argmax(axis=1)] == data.yq).mean())


def timed(run):
    start = time.perf_counter()
    model = run()
    return time.perf_counter() - start, model


class Problem(NamedTuple):
    """Rows, kway's fit, and the objective of any model that solves it."""

    job: str
    data: datasets.Data
    alpha: float
    ours: Callable[[], Any]
    objective: Callable[[Any], float]
    optimum: float | None = None  # the lowest objective there is, where it is known


class Peer(NamedTuple):
    """A peer: its solvers (X, y, alpha, iterations) -> model by name, and the iteration limits to try."""

    name: str
    ways: dict[str, Callable[..., Any]]
    steps: tuple[int, ...] = STEPS


LBFGS = Peer(peers.NAME, {"": peers.softmax})
INTEL = Peer(peers.INTEL, {"": peers.softmax_intel})
NEWTON = Peer(peers.NEWTON, {"": peers.softmax_newton})
CYANURE = Peer(
    cyanure_linear.NAME,
    {solver: functools.partial(cyanure_linear.softmax, solver) for solver in cyanure_linear.SOLVERS},
    cyanure_linear.PASSES,
)
SAGA = Peer(peers.SAGA, {"": peers.softmax_l1})
SVC = Peer(peers.SVC, {"": peers.svm})
SNAP = Peer(
    snap_linear.NAME,
    {way: functools.partial(snap_linear.logistic, dual) for way, dual in snap_linear.WAYS.items()},
    snap_linear.PASSES,
)
SNAP_SVM = Peer(snap_linear.NAME, {"": snap_linear.svm}, snap_linear.PASSES)


class Reached(NamedTuple):
    """How a peer reached the objective of kway, or how close it came."""

    way: str
    steps: int
    objective: float
    seconds: float


def as_low(problem: Problem, peer: Peer, value: float, enough: float = 100.0) -> Reached:
    """The quickest of the peer's ways to an objective of `value`, each at the first limit that gets there.

    A way that took more than `enough` seconds gets no more iterations. Of a second way that limit is looked for only
    if it gets there in 1.5 times the seconds of the first: else it will not be the quickest.
    """
    enough = min(enough, 0.5) if datasets.limited() else enough
    found: list[Reached] = []
    for way in peer.ways:
        run = functools.partial(_run, problem, peer, way)
        best = min((r.seconds for r in found if r.objective <= value * CLOSE), default=None)
        last = None if best is None else _in_time(run, peer.steps, 1.5 * best)
        if last is None or last.objective <= value * CLOSE:
            for steps in peer.steps:
                last = run(steps)
                if last.objective <= value * CLOSE or last.seconds > enough:
                    break
        found.append(last)
    low_ones = [r for r in found if r.objective <= value * CLOSE]
    return min(low_ones, key=lambda r: r.seconds) if low_ones else min(found, key=lambda r: r.objective)


def _run(problem: Problem, peer: Peer, way: str, steps: int) -> Reached:
    data = problem.data
    spent, model = timed(lambda: peer.ways[way](data.X, data.y, problem.alpha, steps))
    return Reached(way, steps, float(problem.objective(model)), spent)


def _in_time(run: Callable[[int], Reached], limits: tuple[int, ...], seconds: float) -> Reached:
    """Return the run with the highest limit that fits into the given seconds, extrapolated from two runs."""
    few, more = run(limits[0]), run(limits[len(limits) // 4])
    each = (more.seconds - few.seconds) / (more.steps - few.steps)
    return run(max(s for s in limits if s == few.steps or few.seconds + each * (s - few.steps) <= seconds))


def against(target: str, problem: Problem, peer: Peer, rounds: int, patience: float = np.inf) -> Row:
    """Find how the peer reaches the objective of kway, then time both in turns.

    `patience`: times kway's own seconds after which the peer gets no more iterations. Where it is above kway's
    objective after that long (and kway, where the optimum is known, within TOL of it), their ratio is less than it
    would be, and the row says so.
    """
    problem.ours()  # compiles
    spent, model = timed(problem.ours)
    value = float(problem.objective(model))
    try:
        find = functools.partial(as_low, problem, peer, value, min(100.0, patience * spent))
        found = Reached(*settled("iterations", lambda: list(find())))
    except NotInstalled as error:
        return absent(target, problem.job, problem.data.name, peer.name, error)
    fit = functools.partial(peer.ways[found.way], problem.data.X, problem.data.y, problem.alpha, found.steps)
    timings = race({"kway": problem.ours, peer.name: fit}, rounds if found.seconds < 15 else min(rounds, 2))
    how = f"{found.way}, {found.steps}" if found.way else f"{found.steps}"
    quality = f"objective {value:.5f} against {found.objective:.5f} ({how} iterations)"
    good, late = found.objective <= value * CLOSE, found.seconds > patience * spent
    if problem.optimum is not None:
        over, theirs = ((v - problem.optimum) / problem.optimum for v in (value, found.objective))
        quality = f"above the optimum {problem.optimum:.4g}: {over:.1e} against {theirs:.1e} ({how} iterations)"
        late = late and over <= TOL
        good = over <= TOL and good
    if late and not good:
        quality += f"; the peer was given {patience:g} times kway's seconds"
    return row(target, problem.job, problem.data.name, peer.name, timings, quality, good or late)


def softmax(data: datasets.Data, alpha: float, penalty: str = "l2") -> Problem:
    """Return the softmax problem with an unpenalized bias."""
    return Problem(
        f"softmax{' L1' if penalty == 'l1' else ''}, alpha {alpha:g}",
        data,
        alpha,
        lambda: kway.SoftmaxClassifier(penalty, alpha).fit(data.X, data.y),
        lambda model: softmax_objective(model, data.X, data.y, alpha, penalty),
    )


def one_vs_all(data: datasets.Data, alpha: float, loss: str = "hinge") -> Problem:
    """Return the one-vs-all problem without a bias, because the peers would penalize it."""
    kind, objective = {
        "hinge": (kway.SVMClassifier, hinge_objective),
        "logistic": (kway.LogisticClassifier, logistic_objective),
    }[loss]
    return Problem(
        f"one-vs-all {loss}, alpha {alpha:g}",
        data,
        alpha,
        lambda: kind(alpha=alpha, multiclass="one-vs-all", fit_intercept=False).fit(data.X, data.y),
        lambda model: objective(model, data.X, data.y, alpha),
    )


def sgd_row(target, data, alpha):
    """For information: SGDClassifier minimizes another loss, so its test accuracy is given."""
    contestants = {
        "kway": lambda: kway.SoftmaxClassifier(alpha=alpha).fit(data.X, data.y),
        peers.SGD: lambda: peers.logistic_sgd(data.X, data.y, alpha),
    }
    timings = race(contestants, 1)
    ours, theirs = (accuracy(timings[name].answer, data) for name in contestants)
    quality = f"test accuracy {ours:.4f} against {theirs:.4f}"
    return row(
        target,
        f"linear fit by accuracy, alpha {alpha:g}",
        data.name,
        peers.SGD,
        timings,
        quality,
        bool(ours >= theirs),
    )


def t4(rounds: int, quick: bool) -> list[Row]:
    """Softmax on MNIST; Snap ML has only one-vs-all, which is listed for information."""
    data = datasets.images("mnist")
    rows = [against("T4", softmax(data, 1e-4), peer, rounds) for peer in (LBFGS, INTEL, CYANURE)]
    return [*rows, against("T4", one_vs_all(data, 1e-4, "logistic"), SNAP, rounds), sgd_row("T4", data, 1e-4)]


def t4b(rounds: int, quick: bool) -> list[Row]:
    """Softmax on embeddings, letters and Fashion-MNIST.

    newton-cholesky stands beside letter only: on MNIST its Hessian of 7,850 x 7,850 in float64 is 4 TFLOP an iteration.
    """
    letter, three = datasets.letter(), (LBFGS, INTEL, CYANURE)
    pairs = [(datasets.embeddings(name), peer) for name in ("banking77", "clinc150") for peer in three]
    pairs += [(letter, peer) for peer in (*three, NEWTON)]
    pairs += [(datasets.standardized(letter), CYANURE), (datasets.images("fashion_mnist"), CYANURE)]
    return [against("T4b", softmax(data, 1e-4), peer, rounds, PATIENCE) for data, peer in pairs]


def t4c(rounds: int, quick: bool) -> list[Row]:
    """L1 on 20,000 rows of MNIST."""
    data = datasets.some(datasets.images("mnist"), 3000 if quick else 20_000)
    return [against("T4c", softmax(data, 1e-3, "l1"), SAGA, rounds)]


def t4d(rounds: int, quick: bool) -> list[Row]:
    """One-vs-all SVM on images, letters and texts."""
    mnist, letter = datasets.images("mnist"), datasets.letter()
    problems = [one_vs_all(mnist, 1e-4), one_vs_all(letter, 1e-4), one_vs_all(datasets.texts("banking77"), 1e-4)]
    if not quick:
        problems += [one_vs_all(letter, 1e-5), one_vs_all(datasets.texts("clinc150"), 1e-4)]
    rows = [against("T4d", problem, SVC, rounds) for problem in problems]
    return [*rows, *(against("T4d", problem, SNAP_SVM, rounds) for problem in problems[:2])]
