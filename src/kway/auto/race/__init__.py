"""The comparison of families on the same folds.

compare             the comparison and its leaderboard
rounds              which families run on which folds, and when a family is stopped
paired              the paired test that decides which families leave
pool                the blend of the families of a race
families            the families
neighbor_families   the families of nearest neighbors
references          classifiers of other libraries, scored for comparison
folds               test rows, folds, and the sample to compare on
scoring             measures, scores of settings, rows of the leaderboard
clock               the budget, and what the parts of a job may take
"""
