"""Solvers: an Objective and a start in, a Solution out.

base.py              Solver, Control, Solution, and the one check of what works with what
registry.py          SOLVERS by name, and `auto`
solver_at_work.py    a problem in the columns that suit its solver, and its solution made sure of
least_squares.py     the squared loss in closed form
newton/              whole Hessians, through kinks, to a proof: small problems, and what others leave to be proved
lbfgs.py             the default: preconditioned L-BFGS (where it begins: lbfgs_start.py, its steps: quasi_newton.py)
proximal.py          L1 and elastic net: proximal Newton with momentum
svm/                 hinges: `dual` and its machines, and rounding for `lbfgs`
gradient_descent.py  steepest descent, which the others improve on
stochastic/          stochastic gradient descent
many_classes/        sampled softmax
shards/              classes over a cluster, and steps kept for a run that is begun again
preconditioners/     inverse Hessians and local models, from all rows or some
stopping.py          when a run may end: what tol is relative to, and separable classes
point.py             where a descent stands; power_method.py largest eigenvalues; watching.py progress, early stopping
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kway.lazy_names import lazy_names

_HOME = {
    "Constant": "stochastic.schedules",
    "Cosine": "stochastic.schedules",
    "Decay": "stochastic.schedules",
    "Dual": "svm.dual",
    "GradientDescent": "gradient_descent",
    "LBFGS": "lbfgs",
    "LeastSquares": "least_squares",
    "Newton": "newton.newton",
    "Proximal": "proximal",
    "SGD": "stochastic.sgd",
    "SOLVERS": "registry",
    "Sampled": "many_classes.sampled",
}

__all__ = [
    "LBFGS",
    "SGD",
    "SOLVERS",
    "Constant",
    "Cosine",
    "Decay",
    "Dual",
    "GradientDescent",
    "LeastSquares",
    "Newton",
    "Proximal",
    "Sampled",
]

if TYPE_CHECKING:
    from kway.linear.solvers.gradient_descent import GradientDescent
    from kway.linear.solvers.lbfgs import LBFGS
    from kway.linear.solvers.least_squares import LeastSquares
    from kway.linear.solvers.many_classes.sampled import Sampled
    from kway.linear.solvers.newton.newton import Newton
    from kway.linear.solvers.proximal import Proximal
    from kway.linear.solvers.registry import SOLVERS
    from kway.linear.solvers.stochastic.schedules import Constant, Cosine, Decay
    from kway.linear.solvers.stochastic.sgd import SGD
    from kway.linear.solvers.svm.dual import Dual

__getattr__, __dir__ = lazy_names(__name__, _HOME)
