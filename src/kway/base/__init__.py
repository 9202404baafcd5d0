"""What every classifier is built on: score rows, keep the best k, vote.

classifier.py   Classifier: predict, predict_topk, decision_function and predict_proba from what a family gives
class_rows.py   one row of weights per class: scores, the best k classes, probabilities
wrappers.py     EstimatorInside, DelegatedAnswers: classifiers around another one, and their model files
"""

from kway.base.classifier import Classifier

__all__ = ["Classifier"]
