"""The rounded hinge of separate classes from its dual: sweeps over all classes at once, to a proven gap.

    P(w, b) = |w|^2 / 2 + sum_i C_i phi(1 - y_i (x_i.w + b)),   phi(g) = 0, g^2 / 2 width, g - width / 2
    D(a)    = sum_i (a_i - width a_i^2 / (2 C_i)) - |sum_i a_i y_i x_i|^2 / 2,   0 <= a_i <= C_i,  sum_i a_i y_i = 0

C_i = weight_i / (n ridge); P is the objective over ridge. The square in D makes it bend everywhere, so sweeps alone
come as near as is asked, where the sharp hinge's end in interior points. Rows are read as CSR, whatever they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.threads import pmap
from kway.linear.objective.objective import Objective
from kway.linear.solvers.base import Control, Solution
from kway.linear.solvers.stopping import WIDE_GAP, tol_scale
from kway.linear.solvers.svm.shared_rows import Group, SharedMachines

_ROUND = 5  # sweeps between two looks at the gap, which takes about as long as one


@dataclass(frozen=True)
class Sweeps:
    """Dual coordinate descent of all classes at once."""

    name: ClassVar[str] = "sweeps"
    needs: ClassVar[frozenset[str]] = frozenset({"loss.rounded", "penalty.smooth", "penalty.pulls", "rows.here"})
    promises: ClassVar[bool] = True
    spans: ClassVar[bool] = False  # its variables are one a row already

    def solve(self, objective: Objective, theta: NDArray, control: Control) -> Solution:
        """From the dual's zero to an optimum; theta says nothing about the dual variables and is not used."""
        rows = objective if sp.issparse(objective.X) else replace(objective, X=sp.csr_matrix(objective.X))
        shared = SharedMachines(rows, dtype=objective.X.dtype)
        best, value, lower, passes = objective.zeros(), objective.value(objective.zeros()), 0.0, 0
        history: list[float] = []
        while passes < control.max_iter and value - lower > control.tol * tol_scale(value, control.least):
            shared.sweep(_ROUND)
            passes += _ROUND
            found = shared.theta()
            here = objective.value(found)
            if here < value:
                best, value = objective.laid_out(found), here
            lower = max(lower, objective.penalty.ridge * lower_bound(shared))
            history.append(value)
            if control.progress is not None and control.progress(len(history), value):
                break
            if control.validate is not None and control.validate(best):
                break
        miss = max(0.0, value - lower) / tol_scale(value, control.least)
        converged = miss <= control.tol
        advice = "" if converged else WIDE_GAP
        return Solution(best, passes, converged, miss, history or [value], advice, proved=True)


def lower_bound(shared: SharedMachines) -> float:
    """D of variables that meet sum a y = 0, of all classes: the heavier side of each is shrunk."""
    return float(sum(pmap(lambda group: _dual_value(shared, group), shared.groups, shared.objective.n_jobs)))


def _dual_value(shared: SharedMachines, group: Group) -> float:
    own = shared.codes[:, None] == group.first + np.arange(group.a.shape[1])
    a = group.a.astype(np.float64)  # (n, k)
    if shared.objective.fit_intercept:
        ours, others = a.sum(axis=0, where=own), a.sum(axis=0, where=~own)
        most, least = np.maximum(np.maximum(ours, others), 1e-300), np.minimum(ours, others)
        a *= np.where(own == (ours > others), least / most, 1.0)
    W = shared.objective.X.T @ np.where(own, a, -a)  # (d, k)
    return float(a.sum() - np.einsum("i,ik,ik->", shared.bend, a, a) / 2 - np.einsum("jk,jk->", W, W) / 2)
