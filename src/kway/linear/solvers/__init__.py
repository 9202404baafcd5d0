"""Solvers: an Objective and a start in, a Solution out.

base.py              Solver, Control, Point, Solution, the check of what works with what
registry.py            SOLVERS by name, "auto", the columns that suit a solver, and whether its solution may be trusted
stopping.py      when a fit may end: what tol means, the Newton decrement and the duality gap
least_squares.py     the squared loss in closed form
lbfgs.py             the default: preconditioned L-BFGS, Newton's method if the problem is small
preconditioners.py   its approximate inverses of the Hessian; dense_hessian.py the exact one of small problems
standard_columns.py  centered and scaled columns of small problems
proximal.py          L1 and elastic net: proximal Newton with momentum, on the models of proximal_models.py
interior_point.py    small problems with kinks (hinges, L1): a primal-dual interior point method with a proof
dual.py              hinges from their dual problem; hinge_newton.py its start if columns are few
smoothing.py         hinges for L-BFGS
gradient_descent.py  steepest descent, which the others improve on
sgd.py, schedules.py stochastic gradient descent
sampled.py           sampled softmax for many classes; sampled_files.py its checkpoints
power_method.py      largest eigenvalues, for step sizes and scales
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kway.lazy_names import lazy_names

_HOME = {
    "Constant": "schedules",
    "Cosine": "schedules",
    "Decay": "schedules",
    "Dual": "dual",
    "GradientDescent": "gradient_descent",
    "LBFGS": "lbfgs",
    "LeastSquares": "least_squares",
    "Proximal": "proximal",
    "SGD": "sgd",
    "SOLVERS": "registry",
    "Sampled": "sampled",
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
    "Proximal",
    "Sampled",
]

if TYPE_CHECKING:
    from kway.linear.solvers.dual import Dual
    from kway.linear.solvers.gradient_descent import GradientDescent
    from kway.linear.solvers.lbfgs import LBFGS
    from kway.linear.solvers.least_squares import LeastSquares
    from kway.linear.solvers.proximal import Proximal
    from kway.linear.solvers.registry import SOLVERS
    from kway.linear.solvers.sampled import Sampled
    from kway.linear.solvers.schedules import Constant, Cosine, Decay
    from kway.linear.solvers.sgd import SGD

__getattr__, __dir__ = lazy_names(__name__, _HOME)
