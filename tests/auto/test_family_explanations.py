"""Every family that scores columns explains its scores: contributions plus baseline are the score of the class."""

import numpy as np
import pytest
from sklearn.datasets import make_classification

import kway
from kway.auto.race.families import FAMILIES
from kway.auto.race.folds import fold_numbers
from kway.auto.race.neighbor_families import NeighborsFamily
from kway.auto.race.scoring import FoldedRows

SCORED_BY_ROWS = ["centroid", *(name for name, each in FAMILIES.items() if isinstance(each, NeighborsFamily))]
ON_COUNTS = ["naive-bayes"]


def problem(name, n_classes):
    X, y = make_classification(150, 5, n_informative=4, n_redundant=1, n_classes=n_classes, random_state=1)
    return np.floor(np.abs(3 * X)) if name in ON_COUNTS else X, y


def check_contributions(model, X):
    """Compare contributions plus baseline with the scores of the predicted classes; of a forest, probabilities."""
    is_forest = getattr(model, "kind", "") == "extra"
    f = (model.predict_proba(X) if is_forest else model.decision_function(X)).astype(np.float64)
    codes = np.searchsorted(model.classes_, model.predict(X))
    scores = np.where(codes == 1, f, -f) if f.ndim == 1 else f[np.arange(len(X)), codes]
    explained = model.explain(X)
    parts = getattr(explained, "details", explained)  # linear models also return the leads over the second class
    np.testing.assert_allclose(parts.values.sum(axis=1) + parts.baseline, scores, rtol=1e-4, atol=1e-4)
    assert np.abs(parts.values).max() > 0


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in SCORED_BY_ROWS])
def test_contributions_add_up_to_the_score(name, n_classes):
    X, y = problem(name, n_classes)
    family = FAMILIES[name]
    setting = family.settings(FoldedRows(X, y, fold_numbers(y, 3)))[0]
    check_contributions(family.make(setting, 0).fit(X, y), X[:40])


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_contributions_to_a_blend_add_up_to_its_score_up_to_a_constant_per_row(n_classes):
    X, y = problem("blend", n_classes)
    kernel = kway.KernelSoftmaxClassifier(alpha=1e-2)  # no probability below 1e-6, which a blend would raise
    members = [kway.SoftmaxClassifier(), kernel, kway.TreesClassifier("extra", 20)]
    fitted = [member.fit(X, y) for member in members]
    blend = kway.BlendClassifier.of(["a", "b", "c"], fitted, [0.6, 0.5, 0.4], fitted[0].classes_, rows=X)
    totals = []
    for label in blend.classes_:
        parts = blend.explain(X[:20], labels=label)
        totals.append(parts.values.sum(axis=1) + parts.baseline)
    logs = np.log(blend.predict_proba(X[:20]))
    if n_classes == 2:  # the score of a class is its lead over the other class
        expected = np.stack([logs[:, 0] - logs[:, 1], logs[:, 1] - logs[:, 0]], axis=1)
    else:
        expected = logs - logs[:, :1] + totals[0][:, None]
    np.testing.assert_allclose(np.stack(totals, axis=1), expected, atol=1e-3)
