"""The base of every classifier: score rows, keep the best k, vote.

classifier.py   Classifier: predict, predict_topk, decision_function and predict_proba from three methods of a family
callbacks.py    scikit-learn's callbacks for iterative estimators
contributions.py  how much each column moved a score: the result of explain, and sampled Shapley values
class_rows.py   one row of weights per class: scores, the best k classes, probabilities
wrappers.py     classifiers that contain another estimator, and their model files
"""

from kway.base.classifier import Classifier

__all__ = ["Classifier"]
