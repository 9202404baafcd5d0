"""The comparison of families on the same folds.

compare             `kway.compare`: runs a race and returns its leaderboard
rounds              the race: which families run on which folds, and when a family leaves
paired              the paired test that decides which families leave
pool                the blend of the families of a race
family              the base of all families, and a family in a race: predictions, scores, expected seconds
families            the families
neighbor_families   the families of nearest neighbors
references          classifiers of other libraries, scored for comparison
folds               the test split, the folds, and the samples of a race
scoring             measures, scores of settings, rows of the leaderboard
clock               the budget of a job
"""
