"""Measures against scikit-learn's, from the path, the sweep and single fits alike; learning curves that rise."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.metrics import balanced_accuracy_score, f1_score

import kway
from kway.auto.race.scoring import Predictions
from kway.measures import class_scores


@pytest.fixture(scope="module")
def uneven():
    return make_classification(
        400, 6, n_informative=4, n_classes=3, weights=[0.8, 0.15, 0.05], class_sep=0.8, random_state=0
    )


def test_class_scores_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    for classes in (2, 3, 9):
        codes, predicted = rng.integers(0, classes, 80), rng.integers(0, classes, (80, 4))
        found = class_scores(codes, predicted)
        for j in range(4):
            assert found.balanced[j] == pytest.approx(balanced_accuracy_score(codes, predicted[:, j]))
            shown = np.unique(codes)
            assert found.macro_f1[j] == pytest.approx(f1_score(codes, predicted[:, j], labels=shown, average="macro"))


@pytest.mark.parametrize("weight", [None, "balanced"])
@pytest.mark.parametrize(("metric", "theirs"), [
    ("balanced", balanced_accuracy_score),
    ("macro-f1", lambda y, p: f1_score(y, p, average="macro")),
])  # fmt: skip
def test_scores_of_every_family_are_those_of_single_fits(uneven, metric, theirs, weight):
    X, y = uneven
    found = kway.compare(X, y, ["softmax", "neighbors", "centroid"], folds=3, metric=metric, class_weight=weight)
    whole = [line for line in found.rows if not line.stopped]
    assert whole == sorted(whole, key=lambda s: -s.score)
    for line in found.rows:
        for fold, score in enumerate(line.fold_scores):
            inside = found.folds == fold
            model = found.estimator(line).fit(X[~inside], y[~inside])
            assert score == pytest.approx(theirs(y[inside], model.predict(X[inside])), abs=0.05)


def test_a_curve_of_what_can_be_learned_rises(uneven):
    curve = kway.fit(*uneven, models="neighbors", folds=3).result.curve
    assert curve is not None
    assert curve.scores.shape == (3, 2)
    assert (np.diff(curve.rows) > 0).all()
    assert curve.scores[-1].mean() > curve.scores[0].mean()
    assert "ore rows would help" in str(curve)


def test_a_budget_that_is_used_up_leaves_out_the_curve(uneven):
    result = kway.fit(*uneven, models="neighbors", folds=3, budget=1e-3).result
    assert result.curve is None
    assert any("curve" in note for note in result.notes), result.notes


def test_without_held_out_rows_no_setting_was_run():
    assert Predictions.empty(0, 3).has_run.tolist() == [False, False, False]
