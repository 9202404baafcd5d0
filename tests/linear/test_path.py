"""The path's scores are those of separate fits."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss

from kway.linear.classifier import LinearClassifier
from kway.linear.losses import LOSSES
from kway.linear.path import alpha_path
from kway.linear.solvers.preconditioners import Moments

ALPHAS = (1e-3, 1e-1, 1e-2)  # in no order


@pytest.mark.parametrize("loss", ["softmax", "hinge", "squared"])
def test_equals_separate_fits(loss):
    X, y = load_digits(return_X_y=True)
    X, y, n = X[:500] / 16, y[:500], 330
    form = LOSSES[loss].columns if loss == "hinge" else LOSSES[loss].joint
    found = alpha_path(X, y, form, ALPHAS, n, tol=1e-5)
    assert found.objective.shape == (3,)
    assert found.predicted.shape == found.losses.shape == (170, 3)
    for a, alpha in enumerate(ALPHAS):
        multiclass = "joint" if form.joint else "one-vs-all"
        model = LinearClassifier(loss, alpha=alpha, tol=1e-5, multiclass=multiclass).fit(X[:n], y[:n])
        assert found.objective[a] == pytest.approx(model.objective_, rel=1e-3)
        assert (found.predicted[:, a] == y[n:]).mean() == pytest.approx(model.score(X[n:], y[n:]), abs=0.015)
        if loss == "softmax":
            theirs = log_loss(y[n:], model.predict_proba(X[n:]), labels=np.arange(10))
            assert found.losses[:, a].mean() == pytest.approx(theirs, rel=0.02)
        else:
            assert np.isnan(found.losses[:, a]).all()


def test_stopping():
    X, y = load_digits(return_X_y=True)
    asked = iter([False, True])
    cut = alpha_path(X[:300] / 16, y[:300], LOSSES["softmax"].joint, [1e-3, 1e-2], 225, stop=lambda: next(asked))
    np.testing.assert_array_equal(np.isfinite(cut.objective), [False, True])
    assert (cut.predicted[:, 0] == -1).all()
    assert np.isfinite(cut.losses).all(axis=0).tolist() == [False, True]


def test_two_classes():
    X, y = load_digits(n_class=2, return_X_y=True)
    n = len(y) // 2
    found = alpha_path(X / 16, y, LOSSES["logistic"].columns, [1e-3], n)
    assert (found.predicted[:, 0] == y[n:]).mean() > 0.98


def test_a_weak_alpha_of_wide_rows_is_reached_from_nothing_too():
    """Few long texts: where the path begins at a weak alpha it ends where one from strong to weak does."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(8), 12)
    usual = 1 / np.arange(1, 3001) * np.exp(0.35 * rng.standard_normal((8, 3000)))
    counts = np.stack([rng.multinomial(400, usual[c] / usual[c].sum()) for c in y]).astype(np.float32)
    X = sp.csr_matrix(np.log1p(counts) / np.linalg.norm(np.log1p(counts), axis=1, keepdims=True))
    for fold in (1, 2):
        rows, loss = np.argsort(np.arange(len(y)) % 4 == fold, kind="stable"), LOSSES["softmax"].joint
        whole = alpha_path(X[rows], y[rows], loss, np.logspace(-2, -7, 11), 72)
        alone = alpha_path(X[rows], y[rows], loss, [1e-7], 72)
        assert alone.objective[0] == pytest.approx(whole.objective[-1], rel=0.05)


def test_factors_per_class_are_kept_from_alpha_to_alpha(monkeypatch):
    computed, per_class = [], Moments.per_class
    monkeypatch.setattr(Moments, "per_class", lambda *args, **kwargs: computed.append(1) or per_class(*args, **kwargs))
    X, y = load_digits(return_X_y=True)
    alphas = np.logspace(-2, -7, 12)
    found = alpha_path(np.hstack([X, X**2 / 16]).astype(np.float32) / 16, y, LOSSES["softmax"].joint, alphas, 1500)
    assert np.isfinite(found.objective).all()
    assert (np.diff(found.objective) <= 0).all()
    assert 0 < len(computed) < len(alphas)  # after as many iterations as they cost, over all alphas
