"""The main job: choose a classifier and its hyperparameters, and test it on rows that no choice depends on.

fit_options          the options of a job: one dataclass for `kway.fit`, `kway.compare` and the commands
train_test           read DATA, encode its labels, split it into training and test rows
larger_than_memory   DATA of which memory holds only a part
columns              how each column was read
leaks                rows and columns that reveal the label in DATA, but not in new rows
compare_data         learn features and compare the families on them
race/                the comparison: families, folds, rounds, scores
checkpoint           the best model so far and the predictions of the folds, to resume a job
refit                fit the families of the leaderboard on all rows
calibration          probabilities, prediction sets and "unknown", from held-out rows
costs                the costs of mistakes, and the saving by decisions of lowest expected cost
trained_rows         which rows are training rows, by hashes that a model file keeps for `kway evaluate`
evaluation           scores of a model on labeled rows, and whether they are better than the most frequent class
hierarchy            accuracy per level of labels that are paths
wrong_labels         rows whose label is probably wrong, near-duplicates and shared test rows (`kway inspect`)
drift                which columns of new rows differ from the training rows
suggest              which unlabeled rows to label next
multilabel           the job for rows with several labels
learning_curve       whether more rows would help
reasons              which features are evidence for each class (`kway.explain`)
job                  the main job, which calls these modules in order
tune                 choose the hyperparameters of one estimator (`kway.tune`)
"""
