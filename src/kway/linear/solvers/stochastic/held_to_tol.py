"""What sgd ended at, held against the optimum: its own rule ends epochs that gain little, wherever they are.

    (F(theta) - F*) / tol_scale(F*) <= tol,   F* from below by Newton's method

Where Newton's steps are dear the question stays open, and the fit says so. Losses without a known Hessian have no proof
from any solver, and rows on a device none either: there sgd's word is what there is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kway.linear.objective.objective import Objective
from kway.linear.objective.row_span import row_span
from kway.linear.solvers.base import Control, Solution, offers
from kway.linear.solvers.newton.newton import Newton, affordable
from kway.linear.solvers.newton.newton_run import proves
from kway.linear.solvers.stopping import least_of, tol_scale

_MOST = 1e8  # products of a step of the check: a hundredth of a second, and there are some tens of them
_ABOVE = "sgd's tol ends epochs that gain less, wherever they are: lower it, or use solver='auto'"
_OPEN = (
    "how far it is above the optimum was not checked: the problem is large, and sgd's tol only ends epochs that gain "
    "less; use solver='auto' for a fit that is within tol"
)


def held_to_tol(objective: Objective, found: Solution, control: Control) -> Solution:
    """The solution, converged where it is within tol of the optimum and not else."""
    if not Newton.needs <= offers(objective.loss, objective.penalty, objective.on_device):
        return found
    if found.miss == np.inf or control.validate is not None:  # blew up, or was stopped by rows held out
        return found
    least = least_of(objective)
    lowest = _optimum(objective, least, control.tol)
    if lowest is None:
        return replace(found, converged=False, miss=np.inf, advice=_OPEN)
    excess = objective.value(found.theta.astype(np.float64)) - lowest
    miss = max(0.0, excess) / tol_scale(lowest, least)
    within = miss <= control.tol
    advice, proved = "" if within else found.advice or _ABOVE, proves(objective.loss)
    return replace(found, converged=within, miss=miss, proved=proved, advice=advice)


def _optimum(objective: Objective, least: float, tol: float) -> float | None:
    """A lower bound of F*, a quarter of tol from it; None where it is dear."""
    span = row_span(objective)
    problem = objective if span is None else span.objective
    if not affordable(problem, _MOST):
        return None
    end = Newton().solve(problem, problem.zeros(), Control(tol=min(tol, 1e-3) / 4))
    value = end.history[-1]
    return max(0.0, value - end.miss * tol_scale(value, least)) if end.miss < np.inf else 0.0
