import pickle

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.datasets import load_iris
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import PredefinedSplit
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

import kway
from kway.confidence import TemperatureScaledClassifier, expected_calibration_error
from kway.confidence.temperature import LOGS, SCORES
from kway.errors import CombinationError, InputError

MODELS = {
    "softmax": (kway.SoftmaxClassifier(), SCORES),
    "one-vs-all": (kway.LogisticClassifier(), LOGS),
    "svm": (kway.SVMClassifier(), SCORES),
    "least squares": (kway.LeastSquaresClassifier(), SCORES),
    "neighbors": (kway.NeighborsClassifier(), LOGS),
    "centroid": (kway.CentroidClassifier(), SCORES),
    "sklearn logistic": (LogisticRegression(max_iter=1000), SCORES),
    "sklearn bayes": (GaussianNB(), LOGS),
    "sklearn neighbors": (KNeighborsClassifier(), LOGS),
}


@pytest.mark.parametrize("two", [False, True], ids=["three classes", "two classes"])
@pytest.mark.parametrize(("estimator", "source"), MODELS.values(), ids=MODELS)
def test_any_classifier_gets_probabilities_and_keeps_its_answers(estimator, source, two):
    X, codes = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])
    X, y = (X[codes > 0], names[codes[codes > 0]]) if two else (X, names[codes])
    model = TemperatureScaledClassifier(estimator, cv=3, random_state=0).fit(X, y)
    if not (two and isinstance(estimator, kway.LogisticClassifier)):  # of two classes its scores are log-odds
        assert model.source_ == source
    plain = model.estimator_.predict(X)
    np.testing.assert_array_equal(model.predict(X), plain)
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert (p > 0).all()
    np.testing.assert_array_equal(model.classes_[p.argmax(axis=1)], plain)
    f = model.decision_function(X)
    np.testing.assert_allclose(
        softmax(f, axis=1) if f.ndim == 2 else 1 / (1 + np.exp(-f)), p if f.ndim == 2 else p[:, 1]
    )
    top = model.predict_topk(X, 2)
    np.testing.assert_array_equal(top.ids[:, 0], plain)
    np.testing.assert_allclose(top.scores[:, 0], p.max(axis=1))
    assert model.log_loss_after_ <= model.log_loss_before_ + 1e-12
    assert model.temperature_fit_.n_rows == len(y)


@pytest.mark.parametrize("sharpness", [0.2, 1.0, 5.0])
def test_finds_the_temperature_that_the_labels_were_drawn_at(rng, sharpness, draw, Stated):
    X, y = draw(rng, 20_000)
    model = TemperatureScaledClassifier(Stated(sharpness).fit(X), cv="prefit").fit(X, y)
    assert model.temperature_ == pytest.approx(sharpness, rel=0.05)
    assert model.ece_after_ < 0.01
    fresh, truth = draw(rng, 20_000)
    assert expected_calibration_error(truth, model.predict_proba(fresh)) < 0.012
    assert log_loss(truth, model.predict_proba(fresh)) <= log_loss(truth, model.estimator_.predict_proba(fresh)) + 1e-3


def test_folds_score_rows_by_estimators_that_did_not_see_them(rng):
    """Labels at random: one neighbor is always sure of rows it has learned, and wrong on the others."""
    X, y = rng.standard_normal((300, 3)), rng.integers(0, 3, 300)
    model = TemperatureScaledClassifier(kway.NeighborsClassifier(n_neighbors=1), cv=3, random_state=0).fit(X, y)
    assert model.ece_before_ > 0.5
    assert model.ece_after_ < 0.1
    assert model.temperature_ > 10
    np.testing.assert_array_equal(model.predict(X), y)  # the estimator itself has seen every row


def test_each_way_of_holding_out(rng, draw):
    X, y = draw(rng, 400, n_classes=3)
    whole = kway.SoftmaxClassifier().fit(X, y)
    for cv in (5, 0.3, PredefinedSplit(np.arange(400) % 2 - 1), [(np.arange(300), np.arange(300, 400))]):
        model = TemperatureScaledClassifier(cv=cv, random_state=0).fit(X, y)
        np.testing.assert_allclose(model.estimator_.coef_, whole.coef_, atol=1e-6)
        assert model.temperature_fit_.n_rows == {5: 400, 0.3: 120}.get(
            cv if isinstance(cv, float | int) else 0, 100 if isinstance(cv, list) else 200
        )
    given = TemperatureScaledClassifier(whole, cv="prefit").fit(X, y)
    frozen = TemperatureScaledClassifier(FrozenEstimator(whole)).fit(X, y)
    assert given.temperature_ == frozen.temperature_
    assert given.estimator_ is whole
    half = [(np.arange(200), np.arange(200, 400))]
    by_hand = kway.SoftmaxClassifier().fit(X[:200], y[:200])
    expected = TemperatureScaledClassifier(by_hand, cv="prefit").fit(X[200:], y[200:]).temperature_
    assert TemperatureScaledClassifier(cv=half).fit(X, y).temperature_ == pytest.approx(expected, rel=1e-6)


def test_votes_of_zero_are_smoothed_by_how_often_they_are_wrong(rng, draw):
    X, y = draw(rng, 500, n_classes=4)
    votes = kway.NeighborsClassifier(n_neighbors=3).fit(X[:250], y[:250])
    model = TemperatureScaledClassifier(votes, cv="prefit").fit(X[250:], y[250:])
    p = votes.predict_proba(X[250:])
    lost = np.count_nonzero(p[np.arange(250), y[250:]] == 0)
    assert lost > 5
    smooth = np.log((1 - (lost + 1) / 252) * p + (lost + 1) / 252 / 4)
    np.testing.assert_allclose(model.predict_proba(X[250:]), softmax(smooth / model.temperature_, axis=1), rtol=1e-6)
    assert np.isfinite(model.log_loss_before_)


def test_text_in_a_pipeline():
    words = ["red apple", "green apple", "red car", "fast car", "green pear", "old car"] * 5
    y = ["fruit", "fruit", "car", "car", "fruit", "car"] * 5
    model = TemperatureScaledClassifier(make_pipeline(TfidfVectorizer(), LogisticRegression()), cv=3).fit(words, y)
    assert model.predict(["green apple", "fast red car"]).tolist() == ["fruit", "car"]


def test_blocks_of_rows_change_nothing(rng, monkeypatch, draw):
    X, y = draw(rng, 120)
    model = TemperatureScaledClassifier(kway.SoftmaxClassifier(), cv=2, random_state=0).fit(X, y)
    whole = model.predict_topk(X, 3)
    monkeypatch.setattr("kway.base.classifier.BLOCK_BYTES", 480)
    parts = model.predict_topk(X, 3)
    np.testing.assert_array_equal(parts.ids, whole.ids)
    np.testing.assert_allclose(parts.scores, whole.scores, rtol=1e-5)
    again = TemperatureScaledClassifier(kway.SoftmaxClassifier(), cv=2, random_state=0).fit(X, y)
    assert again.temperature_ == pytest.approx(model.temperature_, rel=1e-5)


def test_many_classes_are_calibrated_on_a_sample(rng, monkeypatch, draw, Stated):
    X, y = draw(rng, 400)
    monkeypatch.setattr("kway.confidence.splits.BLOCK_BYTES", 4800)
    model = TemperatureScaledClassifier(Stated().fit(X), cv="prefit", random_state=0).fit(X, y)
    assert model.temperature_fit_.n_rows == 100


def test_one_row_a_class_leaves_nothing_to_hold_out():
    model = TemperatureScaledClassifier(kway.NeighborsClassifier(n_neighbors=1)).fit(np.eye(3), ["a", "b", "c"])
    assert model.temperature_ == 1.0
    assert np.isnan(model.ece_before_)
    assert model.reliability_before_ is None


def test_what_cannot_work_is_refused(rng, draw, Stated):
    X, y = draw(rng, 30, n_classes=3)

    class Silent(Stated):
        decision_function = predict_proba = property()

    with pytest.raises(CombinationError, match="neither predict_proba nor decision_function"):
        TemperatureScaledClassifier(Silent(), cv=2).fit(X, y)
    with pytest.raises(InputError, match="cv must be"):
        TemperatureScaledClassifier(cv=1).fit(X, y)
    with pytest.raises(InputError, match="needs a fitted estimator"):
        TemperatureScaledClassifier(cv="prefit").fit(X, y)
    with pytest.raises(InputError, match="not among the 3 known"):
        TemperatureScaledClassifier(Stated().fit(X), cv="prefit").fit(X, y + 1)
    with pytest.raises(InputError, match="inconsistent"):
        TemperatureScaledClassifier().fit(X, y[:-1])


@pytest.mark.parametrize("inner", [kway.SoftmaxClassifier(), kway.NeighborsClassifier(), kway.SVMClassifier()], ids=str)
def test_model_files_and_pickles(inner, tmp_path):
    X, codes = load_iris(return_X_y=True)
    y = np.array(["a", "bb", "ccc"])[codes]
    model = TemperatureScaledClassifier(inner, random_state=0).fit(X, y)
    model.save(tmp_path / "model.kway")
    for again in (kway.load(tmp_path / "model.kway"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
        assert again.temperature_fit_ == model.temperature_fit_
        assert again.ece_after_ == model.ece_after_
        np.testing.assert_array_equal(again.reliability_after_.rows, model.reliability_after_.rows)


def test_another_librarys_estimator_has_no_model_file(tmp_path):
    X, y = load_iris(return_X_y=True)
    model = TemperatureScaledClassifier(GaussianNB()).fit(X, y)
    with pytest.raises(kway.errors.ModelFileError):
        model.save(tmp_path / "model.kway")
    assert not list(tmp_path.iterdir())
