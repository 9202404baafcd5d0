"""Fits against their optima, and their time against scikit-learn's."""

from __future__ import annotations

import time
import warnings
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from kway.linear.classifier import LinearClassifier
from optimum_attack.optima import optimum
from optimum_attack.problems import Problem
from optimum_attack.values import Bounds, objective, weights


class Verdict(NamedTuple):
    """A fit against its optimum: `excess` over it in units of tol, and what was said."""

    problem: Problem
    excess: float
    warned: bool
    error: str
    seconds: float
    bounds: Bounds

    @property
    def silent_miss(self) -> bool:
        """Above tol, and nobody was told."""
        return bool(self.error) or (not self.warned and not self.excess <= 1)

    def __str__(self) -> str:
        p = self.problem
        said = self.error or ("warned" if self.warned else "silent")
        return (
            f"seed {p.seed}: {'/'.join(p.kind)} alpha {p.options['alpha']:.1e} tol {p.options['tol']:g} {p.X.shape} "
            f"K {p.y.max() + 1} {' '.join(p.traits)}{'' if p.options['fit_intercept'] else ' no bias'}: "
            f"{self.excess:.3g} tol above {self.bounds.upper:.3g} (zero: {self.bounds.zero:.3g}), {said}, "
            f"{self.seconds:.2f} s"
        )


def judge(problem: Problem) -> Verdict:
    """Fit and compare."""
    bounds = optimum(problem)
    try:
        model, warned, seconds = fitted(problem)
    except Exception as error:
        return Verdict(problem, np.inf, False, f"{type(error).__name__}: {error}", 0.0, bounds)
    with np.errstate(all="ignore"):
        found = objective(problem, model.coef_, model.intercept_)
    excess = (found - bounds.upper) / (problem.options["tol"] * bounds.scale)
    return Verdict(problem, excess, warned, "", seconds, bounds)


def fitted(problem: Problem) -> tuple[LinearClassifier, bool, float]:
    """The model, whether it warned that it has not converged, and the seconds it took."""
    model = LinearClassifier(**problem.options)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        begun = time.perf_counter()
        model.fit(problem.X, problem.y, sample_weight=problem.weight)
        seconds = time.perf_counter() - begun
    return model, any(issubclass(w.category, ConvergenceWarning) for w in said), seconds


def peers(problem: Problem) -> list[Any]:
    """scikit-learn's estimators of the same objective: softmax and binary log loss with L2, and ridge regression."""
    o, n = problem.options, problem.X.shape[0]
    if o["penalty"] != "l2" or (o["loss"] == "softmax" and problem.y.max() > 1 and not problem.joint):
        return []
    if o["loss"] == "softmax":
        C = 1 / (o["alpha"] * n)  # its weights add up to their sum: scaled to a mean of 1 before
        more = {"C": C, "fit_intercept": o["fit_intercept"], "max_iter": 1000}
        tols = (1e-4, 1e-7)
        small = problem.X.shape[1] * (problem.y.max() + 1) <= 500  # it factors a matrix of that order in every step
        solvers = ("lbfgs", "newton-cholesky") if small else ("lbfgs",)
        return [LogisticRegression(solver=s, tol=tol, **more) for s in solvers for tol in tols]
    return []


def peer_seconds(problem: Problem, bounds: Bounds) -> float:
    """The least CPU time of a peer that reaches the optimum within tol; infinite if none does."""
    weight = weights(problem) * len(problem.y)
    best = np.inf
    for peer in peers(problem):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            begun = time.process_time()
            try:
                peer.fit(problem.X, problem.y, sample_weight=None if problem.weight is None else weight)
            except Exception:
                continue
            seconds = time.process_time() - begun
        with np.errstate(all="ignore"):
            found = objective(problem, peer.coef_, peer.intercept_)
        if found - bounds.upper <= problem.options["tol"] * bounds.scale:
            best = min(best, seconds)
    return best


def time_ratio(verdict: Verdict) -> float:
    """kway's CPU time over the best peer's; nan where there is no peer, 0 where none reaches the optimum."""
    problem = verdict.problem
    if problem.options["solver"] != "auto" or not peers(problem):
        return np.nan
    best = peer_seconds(problem, verdict.bounds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begun = time.process_time()
        LinearClassifier(**problem.options).fit(problem.X, problem.y, sample_weight=problem.weight)
    return (time.process_time() - begun) / best
