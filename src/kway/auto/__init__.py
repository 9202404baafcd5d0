"""The main job: choose a classifier and its hyperparameters, and test it on rows that no choice depends on.

fit_options          the options of a job: one dataclass for `kway.fit`, `kway.compare` and the commands
train_test           read DATA, encode its labels, split it into training and test rows
larger_than_memory   DATA of which memory holds only a part
columns              how each column was read
leaks                rows and columns that tell the label here, but will not in new rows
suspects             what may leak, by the values of the training rows
compare_data         learn features and compare the families on them
race/                the comparison: families, folds, rounds, scores
checkpoint           what an interrupted job leaves, and how it continues
refit                fit the families of the leaderboard on all rows
calibration          probabilities, prediction sets and "unknown", from held-out rows
verdict              the test result in words
trained_rows         hashes of training rows, for `kway evaluate`
evaluation           scores of a model on labeled rows
hierarchy            accuracy per level of labels that are paths
wrong_labels         rows whose label is probably wrong
inspection           these, conflicts and shared test rows, for `kway inspect`
drift                do new rows look like the training rows?
suggest              which unlabeled rows to label next
multilabel           the job for rows with several labels
learning_curve       would more rows help?
reasons              which features count for each class (`kway.explain`)
job                  all of these in order
tune                 choose the hyperparameters of one estimator (`kway.tune`)
"""
