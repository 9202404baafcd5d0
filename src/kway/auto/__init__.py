"""Choosing a classifier and its setting, and measuring it on rows that no choice has looked at.

options         what can be asked of a job: one dataclass for `kway.fit`, `kway.compare` and the commands
train_test      DATA, read and split into training and test rows; labels encoded and checked
larger_than_memory   DATA of which memory holds a part
compare_data    features, and the families compared on them
race/           the comparison: families, folds, rounds, scores
refit           the families of the leaderboard fitted on all rows
calibration     probabilities, sets and "unknown", from rows held out
evaluation      scores of a model on labelled rows
learning_curve  would more rows help?
reasons         what distinguishes the classes
job             the main job: all of these in order
tune            the best setting of one estimator
"""
