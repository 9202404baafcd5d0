"""Every family on the same folds.

folds         which rows are the test, and in which fold each other row is validated
compare       the contest: losers stopped early                         families   what they are and how each is scored
heats         slow families against the others on a few classes         stand_ins  linear ones that give way to another
learned_neighbors   the family that learns what columns count
scans         what families are scored on, and their scores             views      the same rows as other numbers
spread_scans  families and folds over a cluster                         references   classifiers of other libraries
standings     the lines of a leaderboard, and the comparison            measures   what a choice is made by
clock         what is left of the budget                                sample     rows to compare on, if not all
"""
