"""Choosing: which classifier, with which setting, and how good it is on rows that nothing has looked at.

job           the main job: features, families compared, the best refitted, calibrated, tested once
train_test    DATA read and cut: rows to learn from, rows for the test; labels that cannot be learned are refused
folds         which rows are the test, and in which fold each other row is validated
compare       every family on the same folds, losers stopped early      families   what they are and how each is scored
heats         slow families against the others on a few classes
learned_neighbors   the family that learns what columns count
standings     the lines of a leaderboard, and the comparison            measures   what a choice is made by
spread_scans  families and folds over a cluster
scans         what families are scored on, and their scores             views      the same rows as other numbers
references    classifiers of other libraries on the same folds          promises   sets and "unknown" around the winner
reasons       what tells each class                                     learning_curve   would more rows help?
saved         the winner as a model file                                larger     DATA that memory does not hold
leaderboard   its models fitted on all rows: seconds to fit, to ask, bytes to keep
all_rows      from the sample that was compared on to all rows
evaluation    figures of a model on labelled rows                       tune       the best setting of one estimator
clock         what is left of the budget                                sample     rows to compare on, if not all
"""
