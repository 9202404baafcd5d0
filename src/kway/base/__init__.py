"""What every kway classifier is built on: score rows, keep the best k, vote.

classifier.py        Classifier: predict, predict_topk, predict_proba, decision_function from a family's best and scores
own_threads.py       a model's work on no more threads than its n_jobs
tensors.py           TensorClassifier: the same answers to torch tensors, as tensors
estimator_inside.py  EstimatorInside, DelegatedAnswers: classifiers around another one, and their model files
class_rows.py        one row a class: f = X W^T + b, the best k with their shares, block by block
best_columns.py      the largest columns of a table of scores; ties that go to the winner
budget.py            the memory that one answer of size n x K may take
"""

from kway.base.classifier import Classifier

__all__ = ["Classifier"]
