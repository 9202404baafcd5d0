"""Support vector machines.

dual.py               `dual`: binary and one-vs-all hinges, soft margin and hard, a machine a class, to a proven gap
machine.py            one machine: dual variables, duality gap, exact best bias; sweeps or interior points
interior_point.py     the box-constrained problem of the rows still undecided, to high accuracy
newton_one_vs_all.py  a start for machines of few features: Newton's method on the rounded hinge
shared_rows.py        the machines of many classes on shared sparse rows: sweeps over all of them at once
sweeps.py             `sweeps`: rounded hinges, by those sweeps alone, to a proven gap
separable.py          whether a hyperplane separates two classes, for the hard margin
smoothing.py          hinges for smooth solvers: rounded over a width that shrinks until it does not matter
"""
