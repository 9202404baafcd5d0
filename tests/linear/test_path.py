"""The path's scores are those of separate fits."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss

from kway.auto.race.folds import fold_numbers
from kway.linear.classifier import LinearClassifier
from kway.linear.losses import LOSSES
from kway.linear.path import Path, alpha_path

ALPHAS = (1e-3, 1e-1, 1e-2)  # in no order


@pytest.mark.parametrize("loss", ["softmax", "hinge", "squared"])
def test_equals_separate_fits(loss):
    X, y = load_digits(return_X_y=True)
    X, y = X[:500] / 16, y[:500]
    folds = fold_numbers(y, 3)
    form = LOSSES[loss].columns if loss == "hinge" else LOSSES[loss].joint
    found = alpha_path(X, y, form, ALPHAS, folds, tol=1e-5)
    assert found.accuracy.shape == found.objective.shape == (3, 3)
    for f in range(3):
        for a, alpha in enumerate(ALPHAS):
            inside = folds == f
            multiclass = "joint" if form.joint else "one-vs-all"
            model = LinearClassifier(loss, alpha=alpha, tol=1e-5, multiclass=multiclass).fit(X[~inside], y[~inside])
            assert found.objective[f, a] == pytest.approx(model.objective_, rel=1e-3)
            assert found.accuracy[f, a] == pytest.approx(model.score(X[inside], y[inside]), abs=0.015)
            if loss == "softmax":
                theirs = log_loss(y[inside], model.predict_proba(X[inside]), labels=np.arange(10))
                assert found.log_loss[f, a] == pytest.approx(theirs, rel=0.02)
            else:
                assert np.isnan(found.log_loss[f, a])
    assert found.best in ALPHAS


def test_some_folds_only_and_stopping():
    X, y = load_digits(return_X_y=True)
    X, y = X[:300] / 16, y[:300]
    folds = fold_numbers(y, 4)
    part = alpha_path(X, y, LOSSES["softmax"].joint, [1e-2], folds, which=[2])
    assert part.folds == (2,)
    assert part.accuracy.shape == (1, 1)
    asked = iter([False, True])
    cut = alpha_path(X, y, LOSSES["softmax"].joint, [1e-2, 1e-3], folds, stop=lambda: next(asked))
    assert np.isfinite(cut.accuracy).sum() == 1
    assert np.isfinite(cut.accuracy[0, 0])


def test_best_ignores_unfitted_alphas_and_takes_the_strongest_of_equal_ones():
    scores = np.array([[0.9, 0.9, 0.5, np.nan]])
    path = Path(np.array([1e-3, 1e-2, 1e-1, 1.0]), (0,), scores, scores, scores, scores, (), ())
    assert path.best == 1e-2
    assert np.isnan(replace(path, accuracy=np.full((1, 4), np.nan)).best)


def test_two_classes_and_rows_only_learned_from():
    X, y = load_digits(n_class=2, return_X_y=True)
    folds = np.where(np.arange(len(y)) < len(y) // 2, -1, 0)
    found = alpha_path(X / 16, y, LOSSES["logistic"].columns, [1e-3], folds)
    assert found.accuracy[0, 0] > 0.98


def test_a_weak_alpha_of_wide_rows_is_reached_from_nothing_too():
    """Few long texts: where the path begins at a weak alpha it ends where one from strong to weak does."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(8), 12)
    usual = 1 / np.arange(1, 3001) * np.exp(0.35 * rng.standard_normal((8, 3000)))
    counts = np.stack([rng.multinomial(400, usual[c] / usual[c].sum()) for c in y]).astype(np.float32)
    X = sp.csr_matrix(np.log1p(counts) / np.linalg.norm(np.log1p(counts), axis=1, keepdims=True))
    folds, loss = np.arange(len(y)) % 4, LOSSES["softmax"].joint
    whole = alpha_path(X, y, loss, np.logspace(-2, -7, 11), folds, [1, 2])
    alone = alpha_path(X, y, loss, [1e-7], folds, [1, 2])
    np.testing.assert_allclose(alone.objective[:, 0], whole.objective[:, -1], rtol=0.05)
