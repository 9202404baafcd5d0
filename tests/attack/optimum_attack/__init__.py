"""Drawn problems and their optima: what `tol` promises, put to the test.

problems.py   draw(seed): rows, labels, weights and an estimator, of any shape, units, alpha, loss, penalty and solver
values.py     the objective in float64, and what its derivatives are made of: code of its own
optima.py     optimum(problem): float64 bounds of min alpha R(W) + mean_i w_i loss(f_i, y_i)
verdicts.py   judge(problem): a fit against its optimum; time_ratio(verdict) against scikit-learn
campaign.py   run(seeds): many processes, counts; __main__.py: the long run
"""
