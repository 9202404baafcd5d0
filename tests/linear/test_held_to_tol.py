"""sgd is held against the optimum: a fit that says nothing is within tol, and one that cannot be checked says so."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_blobs, make_classification
from sklearn.exceptions import ConvergenceWarning

from kway import LogisticClassifier, PerceptronClassifier, SoftmaxClassifier
from kway.linear.classifier import LinearClassifier
from kway.linear.solvers import registry
from kway.linear.solvers.sgd import SGD

X, y = make_blobs(200, 5, centers=3, cluster_std=6.0, random_state=0)


def said(model, X=X, y=y):
    """The model after a fit, and what it warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    return model, [str(w.message) for w in caught if w.category is ConvergenceWarning]


@pytest.mark.parametrize("loss", ["softmax", "hinge", "squared"])
@pytest.mark.parametrize("penalty", ["l2", "l1", "elasticnet"])
@pytest.mark.parametrize("tol", [0.3, 0.03, 1e-3])
def test_silence_means_within_tol(loss, penalty, tol):
    best = LinearClassifier(loss, penalty, 0.05, tol=1e-8).fit(X, y).objective_
    for solver in (SGD(), SGD(average=True)):
        model, told = said(LinearClassifier(loss, penalty, 0.05, solver, tol=tol, random_state=0, max_iter=60))
        assert bool(told) == (model.objective_ > (1 + tol) * best), (told, model.objective_ / best - 1)


def test_the_sentence_tells_how_far_and_what_to_do():
    model, (told,) = said(SoftmaxClassifier(solver="sgd", alpha=0.05, random_state=0, tol=1e-6))
    best = SoftmaxClassifier(alpha=0.05, tol=1e-9).fit(X, y).objective_
    excess = float(told.split("at most ")[1].split(" of")[0])
    assert excess == pytest.approx(model.objective_ / best - 1, rel=0.02)
    assert "solver='auto'" in told


def test_more_columns_than_rows_are_checked_in_the_span_of_the_rows():
    wide = np.random.default_rng(0).normal(size=(30, 4000))
    best = LogisticClassifier(alpha=1.0, tol=1e-8).fit(wide, y[:30] > 0).objective_
    model, told = said(LogisticClassifier(solver="sgd", alpha=1.0, random_state=0), wide, y[:30] > 0)
    assert bool(told) == (model.objective_ > (1 + model.tol) * best)
    assert not told or "at most" in told[0]


def test_what_is_too_large_to_check_is_said(monkeypatch):
    monkeypatch.setattr(registry, "is_small", lambda objective, most=None: False)
    _, (told,) = said(SoftmaxClassifier(solver="sgd", alpha=0.05, random_state=0))
    assert "was not checked" in told


def test_where_there_is_no_optimum_or_rows_held_out_end_it_nothing_is_said():
    assert not said(PerceptronClassifier(random_state=0))[1]
    assert not said(SoftmaxClassifier(solver="sgd", early_stopping=True, random_state=0))[1]


def test_gradient_descent_says_where_it_is_far_from_the_optimum():
    """Columns of many scales: ten steps gain next to nothing at 1.03 times the optimum."""
    X, y = make_classification(8000, 100, n_informative=60, n_redundant=20, n_classes=10, random_state=0)
    X = X * 10 ** np.random.default_rng(0).uniform(-1, 1, 100)
    with pytest.warns(ConvergenceWarning, match="above the optimum.*use solver='lbfgs'"):
        LinearClassifier(solver="gradient").fit(X, y)


@pytest.mark.parametrize("loss", ["softmax", "logistic", "squared"])
def test_gradient_descent_is_proved_where_it_is_near(loss):
    X, y = make_blobs(9000, 120, centers=12, cluster_std=20.0, random_state=0)
    X = X / np.abs(X).max()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = LinearClassifier(loss, alpha=1e-2, solver="gradient").fit(X, y)
        best = LinearClassifier(loss, alpha=1e-2, tol=1e-6).fit(X, y)
    assert found.objective_ <= best.objective_ * (1 + found.tol)


@pytest.mark.parametrize("unit", [10.0, 1e5])
@pytest.mark.parametrize("kind", [SoftmaxClassifier, LogisticClassifier])
def test_a_start_of_other_units_is_left_aside(kind, unit):
    X, y = load_iris(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = kind(warm_start=True).fit(X, y).fit(X * unit, y)
    assert found.objective_ == pytest.approx(kind().fit(X * unit, y).objective_, rel=2e-3)
