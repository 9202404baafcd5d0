"""Newton's method with whole Hessians, through kinks, to a proof.

newton.py       the solver: small problems of every convex loss and penalty, and what others leave to be proved
run.py          one minimisation, down the roundings        standard.py  columns centred and in units of their own
valley.py       the rounded objective, its steps, its gap   kinks.py     |t| and max(0, g) rounded, and their duals
hessians.py     by how a loss couples the scores of a row   working_set.py  L1: the few columns that matter
decrement.py    how far a point is from the minimum where the Hessian is too large to be written down
"""
