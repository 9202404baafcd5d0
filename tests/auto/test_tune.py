"""tune finds what a grid search finds, refits, and refuses what it cannot follow."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV, PredefinedSplit

import kway
from kway.auto.race.folds import fold_numbers
from kway.auto.race.neighbor_families import NeighborsFamily
from kway.auto.race.scoring import FoldedRows
from kway.confidence.splits import Split
from kway.errors import KwayError


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:500] / 16, y[:500]


def test_neighbors_as_a_grid_search_finds_them(digits):
    X, y = digits
    found = kway.tune(kway.NeighborsClassifier(metric="manhattan"), X, y, folds=3)
    folds = PredefinedSplit(fold_numbers(y, 3))
    grid = GridSearchCV(
        kway.NeighborsClassifier(metric="manhattan"),
        {"n_neighbors": list(range(1, 6)), "weights": ["uniform", "distance"]},
        cv=folds,
    ).fit(X, y)
    assert found.accuracy == pytest.approx(grid.best_score_)
    assert found.estimator.get_params()["metric"] == "manhattan"
    assert {k: found.estimator.get_params()[k] for k in found.best} == found.best
    records = found.records()
    one = [r["accuracy"] for r in records if r["n_neighbors"] == 1 and r["weights"] == "uniform"]
    at = grid.cv_results_["params"].index({"n_neighbors": 1, "weights": "uniform"})
    np.testing.assert_allclose(one, [grid.cv_results_[f"split{f}_test_score"][at] for f in range(3)])
    assert len(found.to_pandas()) == len(records)


@pytest.mark.parametrize("ties", ["nearest", "smallest", "prior"])
def test_neighbors_are_scored_with_the_ties_of_the_estimator(ties):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 2))
    y = np.r_[rng.permutation(60) < 32, rng.permutation(30) < 5]  # True is more frequent only in the training rows
    folds = fold_numbers(y, 3, order=np.arange(90))
    records = kway.tune(kway.NeighborsClassifier(ties=ties), X, y, folds=3, order=np.arange(90)).records()
    for k in (2, 3, 4, 6):
        model = kway.NeighborsClassifier(k, ties=ties).fit(X[folds != 0], y[folds != 0])
        scores = [r["accuracy"] for r in records if r["n_neighbors"] == k and r["weights"] == "uniform"]
        assert scores == [pytest.approx(model.score(X[folds == 0], y[folds == 0]))]


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine"])
@pytest.mark.parametrize("split", ["folds", "order", "groups"])
def test_one_search_of_all_folds_predicts_as_a_search_per_fold(digits, metric, split):
    X, codes = digits
    other = {"folds": {}, "order": {"order": np.arange(len(codes))}, "groups": {"groups": np.arange(len(codes)) // 4}}
    data = FoldedRows(X, codes, fold_numbers(codes, 4, **other[split]))
    family = NeighborsFamily("neighbors", metric)
    settings = family.settings(data)
    for fold, together in enumerate(family.predict_folds(data, settings)):
        inside = data.folds == fold
        parts = Split(np.flatnonzero(~inside), np.flatnonzero(inside))
        alone = family.fit_predict(data, parts, settings, range(len(settings)), lambda: False)
        np.testing.assert_array_equal(together.predicted, alone.predicted)
        np.testing.assert_allclose(together.losses, alone.losses, rtol=1e-6)


@pytest.mark.parametrize("model", [kway.SoftmaxClassifier, kway.LogisticClassifier, kway.LeastSquaresClassifier])
def test_alpha_of_linear_classifiers(digits, model):
    X, y = digits
    found = kway.tune(model(max_iter=500), X, y, folds=3)
    assert isinstance(found.estimator, model)
    assert found.estimator.alpha == found.best["alpha"]
    assert found.estimator.max_iter == 500
    scores = {a: np.mean([r["accuracy"] for r in found.records() if r["alpha"] == a]) for a in
              {r["alpha"] for r in found.records()}}  # fmt: skip
    assert scores[found.best["alpha"]] == pytest.approx(max(scores.values())) == pytest.approx(found.accuracy)


def test_a_loss_that_is_asked_for_is_the_one_that_is_scored(digits):
    X, y = digits[0][:200], digits[1][:200]
    plain, named = (kway.tune(m, X, y, folds=3) for m in (kway.LinearClassifier(), kway.SoftmaxClassifier()))
    assert type(plain.estimator) is kway.LinearClassifier
    assert plain.records() == named.records()


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (RandomForestClassifier(), "got RandomForestClassifier; use scikit-learn's GridSearchCV"),
        (kway.PerceptronClassifier(), "got PerceptronClassifier"),
        (kway.SoftmaxClassifier(penalty="l1"), "only the defaults of these parameters, got .'penalty': 'l1'."),
        (kway.NeighborsClassifier(max_distance=1.0), "does not support class_weight or max_distance"),
    ],
)
def test_what_cannot_be_tuned_is_refused(digits, estimator, message):
    with pytest.raises(KwayError, match=message):
        kway.tune(estimator, *digits)


def test_it_prints_as_a_table():
    iris = kway.datasets.load("iris")
    tuned = kway.tune(kway.NeighborsClassifier(), iris.x_train, iris.y_train)
    lines = str(tuned).splitlines()
    assert lines[0].startswith("best setting of NeighborsClassifier: ")
    assert all(f"{name} {value}" in lines[0] for name, value in tuned.best.items())
    assert len(lines) == len(tuned.scan.settings) + 3
    assert lines[-1].endswith(f"{tuned.accuracy:.4f} ± {tuned.std:.4f}")
    assert "<table>" in tuned._repr_html_()
