"""Solvers: an Objective and a start in, a Solution out.

base.py              Solver, Control, Solution, and the one check of what works with what
registry.py          SOLVERS by name, and `auto`
work.py              a problem in the columns that suit its solver, and its solution made sure of
least_squares.py     the squared loss in closed form
newton/              whole Hessians, through kinks, to a proof: small problems, and what others leave to be proved
lbfgs.py             the default: preconditioned L-BFGS (its steps: quasi_newton.py)
proximal.py          L1 and elastic net: proximal Newton with momentum
svm/                 hinges: `dual` and its machines, and rounding for `lbfgs`
gradient_descent.py  steepest descent, which the others improve on
stochastic/          stochastic gradient descent
many_classes/        sampled softmax
shards/              classes over a cluster, and steps kept for a run that is begun again
preconditioners/     inverse Hessians and local models, from all rows or some
point.py             where a descent stands; power_method.py largest eigenvalues; watching.py progress, early stopping
"""
