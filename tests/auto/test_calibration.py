"""The temperature of the winner comes from rows that it did not learn from."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

import kway
from kway.auto.calibration import ADJUSTED, calibrate
from kway.auto.evaluation import evaluate_model
from kway.auto.fit_options import FitOptions
from kway.auto.race.clock import Clock
from kway.auto.race.families import FAMILIES
from kway.auto.race.folds import fold_numbers
from kway.auto.race.scoring import LeaderboardRow
from kway.auto.train_test import TrainTest
from kway.confidence.blend import HeldOut
from kway.labels import encode


def calibrated(model, X, data=None, options=None, held=None):
    """The model with its temperature, and the note, after a comparison on rows X."""
    row = LeaderboardRow("some", {}, 0.0, 0.0, (), None, 0.0, fitted=model)
    comparison = SimpleNamespace(fit_seconds=lambda name: 0.0)
    view = SimpleNamespace(X=X)
    chosen = SimpleNamespace(
        data=data, options=options or FitOptions(), folds=None, comparison=comparison, view=lambda name: view
    )
    return calibrate(chosen, row, Clock(), held)


def drawn(n, n_classes=4, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    return (rng.normal(size=(n_classes, 5))[y] + rng.normal(size=(n, 5))).astype(np.float32), y


def test_a_temperature_from_answers_of_the_race_is_near_that_of_five_folds():
    X, y = drawn(1500)
    folds = fold_numbers(y, 5, None, None, 0)
    setting = {"weights": "distance", "n_neighbors": 7}
    p, codes = [], []
    for fold in range(5):
        p.append(
            kway.NeighborsClassifier(**setting).fit(X[folds != fold], y[folds != fold]).predict_proba(X[folds == fold])
        )
        codes.append(y[folds == fold])
    model = kway.NeighborsClassifier(**setting).fit(X, y)
    held = HeldOut(np.concatenate(p), np.concatenate(codes))
    scaled, note = calibrated(model, X, held=held)
    other = kway.TemperatureScaledClassifier(kway.NeighborsClassifier(**setting), cv=5).fit(X, y)
    assert not note
    assert scaled.temperature_fit_.certified
    assert scaled.temperature_ == pytest.approx(other.temperature_, rel=0.1)
    np.testing.assert_array_equal(scaled.predict(X), model.predict(X))


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
    same, note = calibrated(plain, X, data, uneven)
    assert not note
    np.testing.assert_array_equal(same.predict(Q), plain.predict(Q))
    even, note = calibrated(moved, X, data)
    assert note == ADJUSTED
    np.testing.assert_array_equal(moved.coef_, plain.coef_)
    np.testing.assert_array_equal(moved.intercept_, plain.intercept_)  # the fitted model is not changed
    assert (even.estimator_.intercept_ != plain.intercept_).any()
    np.testing.assert_array_equal(even.predict(Q), even.classes_[even.predict_proba(Q).argmax(axis=1)])
    losses = [evaluate_model(model, Q, asked).scores.log_loss for model in (same, even)]
    assert losses[1] < losses[0] - 0.01
    assert even.score(Q, asked) > same.score(Q, asked)
