"""Stochastic gradient descent: steps from a few rows each.

sgd.py            the solver; schedules.py: its rates
sgd_on_device.py  the same on a GPU
held_to_tol.py    where it ended, held against the optimum
"""
