"""scikit-learn's own checks over every public estimator, and life inside its pipelines."""

import inspect

import numpy as np
import pytest
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from tests.helpers.models import ESTIMATORS, small

import kway

DEFAULTS = [pytest.param(e(), marks=pytest.mark.slow) if e is kway.BlendClassifier else e() for e in ESTIMATORS]
MORE = [
    small(kway.BlendClassifier, cv=3),
    kway.LinearClassifier(loss="hinge", multiclass="one-vs-all"),
    kway.LinearClassifier(penalty="l1", alpha=1e-3),
    kway.LinearClassifier(solver="sgd"),
    kway.LeastSquaresClassifier(targets="number"),
    kway.NeighborsClassifier(weights="distance"),
    kway.CentroidClassifier("cosine"),
    kway.TemperatureScaledClassifier(kway.NeighborsClassifier(), cv=0.3),
    kway.TemperatureScaledClassifier(GaussianNB()),
    kway.ConformalClassifier(kway.CentroidClassifier(), method="aps", per_class=True),
    kway.OpenSetClassifier(kway.NeighborsClassifier(), score_by="distance"),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize("model", [*DEFAULTS, *MORE], ids=lambda m: str(m)[:60])
def test_scikit_learns_checks_pass(model):
    results = check_estimator(model, on_fail=None, on_skip=None)
    failed = [r for r in results if r["status"] == "failed"]
    assert not failed, "\n".join(f"{r['check_name']}: {r['exception']!r}"[:300] for r in failed)
    assert len(results) > 40


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: e.__name__)
def test_constructors_only_store_and_docstrings_say_something(estimator):
    model = estimator()
    names = list(inspect.signature(estimator.__init__).parameters)[1:]
    assert set(names) <= set(vars(model))
    assert not [name for name in vars(model) if name.endswith("_")]
    assert len(estimator.__doc__) > 60
    clone(model)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: e.__name__)
def test_lives_inside_scikit_learn(estimator):
    X, y = load_iris(return_X_y=True)
    least = 0.6 if estimator is kway.NaiveBayesClassifier else 0.7  # lengths of leaves are no counts: ComplementNB 0.67
    assert cross_val_score(make_pipeline(StandardScaler(), small(estimator)), X, y, cv=3).mean() > least
    found = Parallel(n_jobs=2)(delayed(clone(small(estimator)).fit)(X, y) for _ in range(2))
    np.testing.assert_array_equal(found[0].predict(X), found[1].predict(X))
    calibrated = CalibratedClassifierCV(small(estimator), cv=2).fit(X, y)
    np.testing.assert_allclose(calibrated.predict_proba(X).sum(1), 1)


def test_grid_search_over_alpha():
    X, y = load_iris(return_X_y=True)
    search = GridSearchCV(kway.SoftmaxClassifier(), {"alpha": [1.0, 1e-3]}, cv=3).fit(X, y)
    assert search.best_params_["alpha"] == 1e-3


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: e.__name__)
def test_string_labels_top_k_and_model_files(estimator, tmp_path):
    X, codes = load_iris(return_X_y=True)
    y = np.array(["setosa", "versicolor", "virginica"])[codes]
    model = small(estimator).fit(X, y)
    top = model.predict_topk(X, 2)
    assert top.ids.shape == top.scores.shape == (150, 2)
    np.testing.assert_array_equal(top.ids[:, 0], model.predict(X))
    assert (np.diff(top.scores, axis=1) <= 0).all()
    model.save(tmp_path / "model.kway")
    again = kway.load(tmp_path / "model.kway")
    assert type(again) is estimator
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.predict_topk(X, 2).scores, top.scores)
