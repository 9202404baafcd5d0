"""Newton's method: whole Hessians where they are small, products with them where they are not, and proofs from both.

newton.py             `newton`, what it can afford, and finish(): another method's solution brought to a proof
newton_run.py         one minimisation: roundings that shrink, zeros, what the number format keeps
rounded_objective.py  the rounded objective, its steps, and how far it is above the optimum
kinks.py              |t| rounded, and the dual variable through which Newton's method sees it
hessians.py           steps by how a loss couples the scores of a row
standard_columns.py   columns centred and in units of their own
working_set.py        L1 on many columns: a few at a time
decrement.py          the distance to the minimum by conjugate gradients, for problems of any size
bound.py              the distance to the minimum for a solver that knows slopes alone
lasso_bound.py        the distance to the minimum under an L1 penalty, for problems of any size
gap.py                the distance to the minimum of a rounded hinge by its dual
"""
