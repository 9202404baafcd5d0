"""Choosing: which classifier, with which setting, and how good it is on rows that nothing has looked at.

job             the main job: features, families compared, the best refitted, calibrated, tested once
train_test      DATA read and cut: rows to learn from, rows for the test; labels that cannot be learned are refused
shared_rows     test rows that were learned from
contest/        every family on the same folds, losers stopped early
leaderboard     its models fitted on all rows: seconds to fit, to ask, bytes to keep
all_rows        from the sample that was compared on to all rows
larger_than_memory   DATA that memory does not hold; streamed_winner   the best on all of it, by the piece
calibration     the winner's probabilities, by rows that it did not see
promises        sets and "unknown" around the winner
evaluation      figures of a model on labelled rows                     tune       the best setting of one estimator
reasons         what tells each class                                   learning_curve   would more rows help?
image_parts     the same of images: where the model looks
saved_winner    the winner as a model file                              wishes     what is asked of the job
"""
