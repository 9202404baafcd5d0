"""Second-order knowledge for solvers: approximations of the Hessian that are cheap to make and to apply.

moments.py       Moments: X'X / n of all rows or some, and the factors made of it (shared, per class, Newton's)
factors.py       what stands for an inverse Hessian: maps a gradient (R, d + 1) to a step
sampled_gram.py  X' diag(h) X / n from rows drawn in proportion to their curvature h
local_models.py  models of the mean loss around a point, which proximal steps minimise with the L1 part
"""
