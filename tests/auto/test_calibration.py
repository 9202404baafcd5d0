"""The winner's temperature comes from votes on the folds, which are those of a classifier fitted outside them."""

import numpy as np
import pytest
import scipy.sparse as sp

import kway
from kway.auto.calibration import MOVED, calibrate
from kway.auto.evaluation import evaluate_model
from kway.auto.fit_options import FitOptions
from kway.auto.race.clock import Clock
from kway.auto.race.families import FAMILIES
from kway.auto.race.folds import fold_numbers
from kway.auto.race.scoring import CALIBRATION_ROWS, FoldedRows, LeaderboardRow
from kway.auto.train_test import TrainTest
from kway.labels import encode

SETTINGS = {
    "neighbors": {"weights": "distance", "n_neighbors": 7},
    "neighbors-cosine": {"weights": "uniform", "n_neighbors": 4},
    "neighbors-nca": {"map": "scales", "weights": "similarity", "n_neighbors": 9},
}


def fitted(model):
    return LeaderboardRow("some", {}, 0.0, 0.0, (), None, 0.0, fitted=model)


def drawn(n, n_classes=4, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    return (rng.normal(size=(n_classes, 5))[y] + rng.normal(size=(n, 5))).astype(np.float32), y


@pytest.mark.parametrize("balanced", [None, "balanced"])
@pytest.mark.parametrize("name", SETTINGS)
def test_votes_on_the_folds_are_those_of_a_classifier_fitted_outside(name, balanced):
    X, y = drawn(300)
    y[y == 3] = np.where(np.arange((y == 3).sum()) % 3, 0, 3)  # a class that is rare
    data = FoldedRows(X, y, fold_numbers(y, 3, None, None, 0), {})
    family = FAMILIES[name]
    if balanced and name == "neighbors":  # the others weigh alike
        family = type(family)(name, family.metric, class_weight=balanced)
    held = family.scan(data, [0, 1], Clock()).held_out(SETTINGS[name])
    rows = np.flatnonzero(np.isin(data.folds, [0, 1])) if "nca" not in name else None
    for fold in (0, 1):
        inside = np.flatnonzero(data.folds == fold)
        at = (
            np.searchsorted(rows, inside)
            if rows is not None
            else np.arange(len(inside)) + fold * (data.folds == 0).sum()
        )
        model = family.make(SETTINGS[name], 0).fit(X[data.folds != fold], y[data.folds != fold])
        if hasattr(model, "map"):
            model.set_params(random_state=None).fit(X[data.folds != fold], y[data.folds != fold])
        np.testing.assert_array_equal(held.codes[at], y[inside])
        tolerance = 0.02 if balanced and name == "neighbors" else 1e-4  # weights of classes are those of all rows
        np.testing.assert_allclose(held.values[at], model.predict_proba(X[inside]), atol=tolerance)


def test_a_temperature_from_known_votes_is_near_that_of_five_folds():
    X, y = drawn(1500)
    data = FoldedRows(X, y, fold_numbers(y, 5, None, None, 0), {})
    family, setting = FAMILIES["neighbors"], SETTINGS["neighbors"]
    scan = family.scan(data, [0], Clock()).joined(family.scan(data, [1, 2, 3, 4], Clock()))
    held = scan.held_out(setting)
    assert len(held.codes) == len(y)
    model = kway.NeighborsClassifier(**setting).fit(X, y)
    scaled, note = calibrate(fitted(model), X, data.folds, None, FitOptions(), Clock(), held)
    other = kway.TemperatureScaledClassifier(kway.NeighborsClassifier(**setting), cv=5).fit(X, y)
    assert not note
    assert scaled.temperature_fit_.certified
    assert scaled.temperature_ == pytest.approx(other.temperature_, rel=0.1)
    np.testing.assert_array_equal(scaled.predict(X), model.predict(X))


def test_no_more_votes_are_kept_than_a_temperature_needs():
    X, y = drawn(6 * CALIBRATION_ROWS)
    data = FoldedRows(X, y, fold_numbers(y, 5, None, None, 0), {})
    family = FAMILIES["neighbors"]
    scan = family.scan(data, [0], Clock())
    assert (
        len(scan.joined(family.scan(data, [1], Clock())).held_out(SETTINGS["neighbors"]).codes)
        == (data.folds == 0).sum()
    )
    assert FAMILIES["centroid"].scan(data, [0], Clock()).held_out({}) is None


def motley(n, seed):
    """Rows of eleven classes, of which the last, a tenth of the rows, lies everywhere; as counts, sparse."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 11, n)
    words = np.where((y == 10)[:, None], rng.integers(0, 200, (n, 6)), 20 * y[:, None] + rng.integers(0, 20, (n, 6)))
    words = np.where(rng.random((n, 6)) < 0.45, rng.integers(0, 200, (n, 6)), words)  # noise
    return sp.csr_matrix((np.ones(6 * n, np.float32), (np.repeat(np.arange(n), 6), words.ravel())), (n, 220)), y


def test_scores_of_machines_are_made_comparable():
    X, y = motley(1500, 0)
    Q, asked = motley(4000, 1)
    make = lambda: FAMILIES["svm-one-vs-all"].make({"alpha": 1e-3}, 0)  # noqa: E731
    data = TrainTest("made", X, y, Q, asked, labels=encode(y))
    plain, moved = make().fit(X, y), make().fit(X, y)
    uneven = FitOptions(metric="balanced")
    same, note = calibrate(fitted(plain), X, None, data, uneven, Clock())
    assert not note
    np.testing.assert_array_equal(same.predict(Q), plain.predict(Q))
    even, note = calibrate(fitted(moved), X, None, data, FitOptions(), Clock())
    assert note == MOVED
    np.testing.assert_array_equal(moved.coef_, plain.coef_)
    np.testing.assert_array_equal(even.predict(Q), even.classes_[even.predict_proba(Q).argmax(axis=1)])
    losses = [evaluate_model(model, Q, asked).scores.log_loss for model in (same, even)]
    assert losses[1] < losses[0] - 0.01
    assert even.score(Q, asked) > same.score(Q, asked)
