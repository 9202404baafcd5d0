"""Every family of classifiers on the same folds.

compare             the comparison and its leaderboard
rounds              which families run on which folds, and when one is stopped
families            the families; neighbor_families   those of nearest neighbors
references          classifiers of other libraries, scored for comparison
folds               test rows, folds, and the sample to compare on
scoring             measures, scores of settings, rows of the leaderboard
clock               what is left of the budget
"""
