"""Solvers: an Objective and a start in, a Solution out.

base.py              Solver, Control, Solution, and the one check of what works with what
registry.py          SOLVERS by name, and `auto`
least_squares.py     the squared loss in closed form
newton/              whole Hessians, through kinks, to a proof: small problems, and what others leave to be proved
work.py              a problem in the columns that suit its solver, and its solution made sure of
lbfgs.py             the default: preconditioned L-BFGS (its steps: quasi_newton.py)
class_shards.py      the same with the classes of a softmax over a cluster: what each runs class_parts.py, on GPUs
                     trained_classes.py
diary.py             who keeps the steps of a descent, for a run that is begun again; step_files.py: in files
proximal.py          L1 and elastic net: proximal Newton with momentum
sgd.py               stochastic gradient descent (its rates: schedules.py; on a GPU: sgd_on_device.py)
held_to_tol.py       where sgd ended, held against the optimum
sampled.py           softmax for very many classes: sums over a sample of them (checkpoints.py: going on after an end;
                     mapped_weights.py: weights larger than memory; sampled_on_device.py: on a GPU)
gradient_descent.py  steepest descent, which the others improve on
svm/                 hinges: `dual` and its machines, and rounding for `lbfgs`
preconditioners/     inverse Hessians and local models, from all rows or some
point.py             where a descent stands; power_method.py largest eigenvalues; watching.py progress, early stopping
"""
