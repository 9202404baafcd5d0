"""KernelSoftmaxClassifier against dense kernel matrices, a symmetric Nystroem map, and an RBF-SVM."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.datasets import make_classification, make_moons
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import kway
from kway.errors import BudgetError, InputError
from kway.linear import kernel_softmax
from kway.linear.kernel_softmax import landmark_map
from kway.linear.losses import LOSSES
from kway.linear.path import alpha_path


def problem(n=300, d=5, n_classes=3, seed=0, dtype=np.float64):
    X, y = make_classification(n, d, n_informative=4, n_redundant=0, n_classes=n_classes, random_state=seed)
    return X.astype(dtype), y


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_of_mapped_rows_are_the_nystroem_kernel(scale, dtype):
    X, _ = problem(dtype=dtype)
    X = (X * scale + 10 * scale).astype(dtype)
    found = landmark_map(X, 40)
    gamma = 1 / (X.shape[1] * X.astype(float).var())
    assert found.gamma == pytest.approx(gamma, rel=1e-5)
    L, wide = found.landmarks.astype(float), X.astype(float)
    assert {tuple(row) for row in found.landmarks} <= {tuple(row) for row in X}
    across = np.exp(-found.gamma * cdist(wide, L, "sqeuclidean"))
    kernel = across @ np.linalg.pinv(np.exp(-found.gamma * cdist(L, L, "sqeuclidean")), rcond=1e-13) @ across.T
    mapped = found.apply(X)
    assert mapped.dtype == dtype
    np.testing.assert_allclose(mapped.astype(float) @ mapped.T.astype(float), kernel, atol=2e-3)
    at = found.apply(found.landmarks).astype(float)
    np.testing.assert_allclose(at @ at.T, np.exp(-found.gamma * cdist(L, L, "sqeuclidean")), atol=1e-4)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_symmetric_map_gives_the_same_probabilities(n_classes):
    """A penalty on |W|^2 does not depend on the rotation of the mapped rows."""
    X, y = problem(n_classes=n_classes)
    model = kway.KernelSoftmaxClassifier(50, alpha=1e-3, tol=1e-9).fit(X, y)
    L = model.map_.landmarks
    sizes, axes = np.linalg.eigh(np.exp(-model.gamma_ * cdist(L, L, "sqeuclidean")))
    mapped = np.exp(-model.gamma_ * cdist(X, L, "sqeuclidean")) @ (axes / np.sqrt(sizes)) @ axes.T
    plain = kway.SoftmaxClassifier(alpha=1e-3, tol=1e-9).fit(mapped, y)
    np.testing.assert_allclose(model.predict_proba(X), plain.predict_proba(mapped), atol=1e-5)


def test_it_is_as_good_as_a_kernel_machine():
    for seed in range(3):
        X, y = make_moons(600, noise=0.25, random_state=seed)
        X, fresh = StandardScaler().fit(X[:300]).transform(X), slice(300, None)
        ours = kway.KernelSoftmaxClassifier(random_state=seed).fit(X[:300], y[:300]).score(X[fresh], y[fresh])
        assert ours > SVC(gamma="scale").fit(X[:300], y[:300]).score(X[fresh], y[fresh]) - 0.03
        assert ours > kway.SoftmaxClassifier().fit(X[:300], y[:300]).score(X[fresh], y[fresh]) + 0.02


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_model_file_gives_the_same_answers(n_classes, dtype, tmp_path):
    X, y = problem(n_classes=n_classes, dtype=dtype)
    model = kway.KernelSoftmaxClassifier(60, gamma=0.3).fit(X, np.array(["a", "b", "c"])[y])
    model.save(tmp_path / "m.kway")
    again = kway.load(tmp_path / "m.kway", verify=True)
    assert again.gamma_ == 0.3
    assert again.decision_function(X).dtype == again.predict_proba(X).dtype == dtype
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(again.explain(X[:3]).values, model.explain(X[:3]).values)


def test_rows_are_mapped_in_blocks(monkeypatch):
    X, y = problem()
    model = kway.KernelSoftmaxClassifier(50).fit(X, y)
    whole, sizes = model.predict_proba(X), []
    measure = kernel_softmax.pairwise
    monkeypatch.setattr(kernel_softmax, "pairwise", lambda A, *rest: sizes.append(len(A.rows)) or measure(A, *rest))
    monkeypatch.setattr(type(model), "_most_rows", staticmethod(lambda entries: 7))
    np.testing.assert_allclose(model.predict_proba(X), whole, rtol=1e-10)
    np.testing.assert_array_equal(model.predict(X), model.classes_[whole.argmax(axis=1)])
    model.decision_function(X)
    assert max(sizes) == 7


def test_similarities_that_do_not_fit_raise_first(monkeypatch):
    X, y = problem()
    monkeypatch.setenv("KWAY_MEMORY", "50KB")
    with pytest.raises(BudgetError, match="similarities of 300 rows to 300 landmarks"):
        kway.KernelSoftmaxClassifier().fit(X, y)


def test_weights_count_rows():
    """A weight of 2 is a row twice, and a weight of 0 is no row, also for the landmarks and the width."""
    X, y = problem(120)
    weight = np.random.default_rng(0).integers(0, 3, 120)
    weighted = kway.KernelSoftmaxClassifier(tol=1e-6).fit(X, y, weight)
    repeated = kway.KernelSoftmaxClassifier(tol=1e-6).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert weighted.gamma_ == pytest.approx(repeated.gamma_)
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-4)
    rare = kway.KernelSoftmaxClassifier(class_weight={0: 100.0, 1: 1.0, 2: 1.0}).fit(X, y)
    assert (rare.predict(X) == 0).sum() > (kway.KernelSoftmaxClassifier().fit(X, y).predict(X) == 0).sum()


def test_the_same_seed_gives_the_same_model():
    X, y = problem()
    a, b, c = (kway.KernelSoftmaxClassifier(30, random_state=seed).fit(X, y) for seed in (1, 1, 2))
    np.testing.assert_array_equal(a.predict_proba(X), b.predict_proba(X))
    assert not np.array_equal(a.map_.landmarks, c.map_.landmarks)


def test_contributions_add_up_to_the_score():
    for n_classes in (2, 4):
        X, y = problem(n_classes=n_classes)
        model = kway.KernelSoftmaxClassifier(50).fit(X, y)
        for labels in (None, 1, y[:8]):
            found = model.explain(X[:8], labels)
            wanted = model.predict(X[:8]) if labels is None else np.broadcast_to(labels, 8)
            np.testing.assert_array_equal(found.labels, wanted)
            f = model.decision_function(X[:8])
            own = np.where(wanted == 1, f, -f) if n_classes == 2 else f[np.arange(8), wanted]
            np.testing.assert_allclose(found.scores, own, atol=1e-8)


def test_constant_and_repeated_columns_and_far_rows():
    X, y = problem()
    X = np.hstack([X, np.full((300, 1), 7.0), X[:, :1]])
    model = kway.KernelSoftmaxClassifier().fit(X, y)
    assert model.score(X, y) > 0.8
    far = np.full((1, X.shape[1]), 1e200)
    np.testing.assert_allclose(model.decision_function(far)[0], model.softmax_.intercept_, atol=1e-12)
    same = kway.KernelSoftmaxClassifier().fit(np.ones((20, 2)), np.arange(20) % 2)
    assert same.gamma_ == 1.0
    assert same.map_.landmarks.shape == (1, 2)


@pytest.mark.parametrize("wrong", [{"gamma": 0}, {"gamma": "auto"}, {"n_landmarks": 0}, {"alpha": -1}])
def test_bad_parameters_are_refused(wrong):
    with pytest.raises(InputError, match=f"{next(iter(wrong))} must be"):
        kway.KernelSoftmaxClassifier(**wrong).fit(*problem())


def test_several_alphas_on_rows_that_are_mapped_once():
    X, y = problem()
    mapped = landmark_map(X, 100, "scale", 0).apply(X)
    path = alpha_path(mapped, y, LOSSES["softmax"].joint, [1e-2, 1e-4, 1e-6], 200)
    assert path.predicted.shape == (100, 3)
    held = kway.SoftmaxClassifier(alpha=1e-4).fit(mapped[:200], y[:200])
    assert (path.predicted[:, 1] == y[200:]).mean() == pytest.approx(held.score(mapped[200:], y[200:]), abs=0.02)
