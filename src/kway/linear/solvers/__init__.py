"""Solvers: an Objective and a start in, a Solution out.

registry.py           SOLVERS by name, the choice of "auto", the columns that suit a solver, and the run (`Task`)
base.py               Solver, Control, Point, Solution, and the check of what works with what
stopping.py           the meaning of tol, and upper bounds of the excess: the Newton decrement and the duality gap
least_squares.py      the squared loss in closed form
lbfgs.py              the default: preconditioned L-BFGS, or Newton's method if the problem is small
preconditioners.py    approximate inverses of the Hessian for L-BFGS
dense_hessian.py      the Hessian of small problems and its inverse
proximal.py           L1 and elastic net: accelerated proximal Newton
interior_point.py     small problems with kinks (hinges, L1): a primal-dual interior point method with a proof
dual.py               hinges of separate classes by dual coordinate ascent, and the hard margin
hinge_newton.py       the start of dual.py if there are few columns
smoothing.py          hinges as a sequence of smooth problems, for L-BFGS and the proximal solver
gradient_descent.py   steepest descent, on which the others improve
sgd.py, schedules.py  stochastic gradient descent and its learning rates
sampled.py            sampled softmax for many classes
sampled_files.py      checkpoints of sampled softmax, and weights in a file
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

if TYPE_CHECKING:  # "as" tells type checkers that the names are public
    from kway.linear.solvers.dual import Dual as Dual
    from kway.linear.solvers.gradient_descent import GradientDescent as GradientDescent
    from kway.linear.solvers.lbfgs import LBFGS as LBFGS
    from kway.linear.solvers.least_squares import LeastSquares as LeastSquares
    from kway.linear.solvers.proximal import Proximal as Proximal
    from kway.linear.solvers.registry import SOLVERS as SOLVERS
    from kway.linear.solvers.sampled import Sampled as Sampled
    from kway.linear.solvers.schedules import Constant as Constant
    from kway.linear.solvers.schedules import Cosine as Cosine
    from kway.linear.solvers.schedules import Decay as Decay
    from kway.linear.solvers.sgd import SGD as SGD

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOME)
