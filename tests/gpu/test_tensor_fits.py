"""Fits of tensors: the fit of the same rows as arrays, and the rows never on the host, unless the problem is small.

Without a GPU "cuda" is made to mean torch on the CPU: the same code, one word apart.
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import kway  # noqa: E402
from kway.errors import InputError  # noqa: E402
from kway.linear import plan as planning  # noqa: E402
from kway.linear.solvers.sgd import SGD  # noqa: E402
from kway.rows.gpu.device import ChosenDevice, Device  # noqa: E402
from kway.rows.gpu.tensor_rows import TensorRows  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")]

NAME = "cuda" if torch.cuda.is_available() else "cpu"
SMALL_ON_THE_HOST = ("softmax, L1", "svm", "svm, one by one")  # the last resort of small problems with kinks
STEPS = {"batch_size": 32, "max_iter": 15, "random_state": 0}
FITS = {
    "softmax": (kway.SoftmaxClassifier, {}),
    "softmax, L1": (kway.SoftmaxClassifier, {"penalty": "l1", "alpha": 1e-3}),
    "softmax, gradient": (kway.SoftmaxClassifier, {"solver": "gradient", "alpha": 1e-2}),
    "softmax, early stopping": (kway.SoftmaxClassifier, {"early_stopping": True, "random_state": 0}),
    "softmax, sgd": (kway.SoftmaxClassifier, {"solver": SGD(), **STEPS}),
    "softmax, row Adagrad": (kway.SoftmaxClassifier, {"solver": SGD(adagrad=True), **STEPS}),
    "softmax, sampled": (kway.SoftmaxClassifier, {"solver": "sampled", "max_iter": 4, "random_state": 0}),
    "logistic": (kway.LogisticClassifier, {"class_weight": "balanced"}),
    "svm": (kway.SVMClassifier, {"alpha": 1e-2}),
    "svm, one by one": (kway.SVMClassifier, {"multiclass": "one-vs-all", "alpha": 1e-2}),
    "least squares": (kway.LeastSquaresClassifier, {}),
    "perceptron": (kway.LinearClassifier, {"loss": "perceptron", "penalty": "none", "max_iter": 20}),
}


@pytest.fixture(autouse=True)
def _some_device(monkeypatch):
    monkeypatch.setattr(
        planning,
        "resolve",
        lambda word, pays=True: ChosenDevice(None, "") if word == "cpu" else ChosenDevice(Device(NAME), "on the GPU"),
    )


def rows_of(n=1500, d=37, K=4, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, n)
    X = rng.standard_normal((K, d))[y] * 0.4 + rng.standard_normal((n, d))
    X[: n // 10] = X[n // 10 : 2 * (n // 10)]  # some rows twice
    y[: n // 10] = y[n // 10 : 2 * (n // 10)]
    return X.astype(np.float32), y


def sent(*arrays):
    return [torch.from_numpy(a).to(NAME) for a in arrays]


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("K", [2, 4])
def test_a_fit_of_tensors_is_that_of_arrays_and_rows_stay_there(name, K, fetched):
    kind, params = FITS[name]
    if K == 2 and name == "softmax, sampled":
        pytest.skip("sampling takes three classes")
    X, y = rows_of(K=K)
    arrays = kind(device="cuda", **params).fit(X, y)
    fetched.clear()
    tensors = kind(device="cuda", **params).fit(*sent(X, y))
    d = X.shape[1]
    if name not in SMALL_ON_THE_HOST:
        assert not [shape for shape in fetched if len(shape) == 2 and d in shape and max(shape) > d + 1]
    assert tensors.objective_ == pytest.approx(arrays.objective_, rel=3e-3, abs=1e-9)
    assert isinstance(tensors.coef_, np.ndarray)
    assert tensors.coef_.dtype == np.float32
    assert (tensors.predict(X) == arrays.predict(X)).mean() > 0.98
    np.testing.assert_array_equal(tensors.classes_, arrays.classes_)
    assert tensors.n_features_in_ == d


@pytest.mark.parametrize("shape", [(60, 200), (40, 3)])
def test_few_rows_and_weights(shape, fetched):
    X, y = rows_of(*shape, K=3)
    weight = np.random.default_rng(0).exponential(size=len(X)).astype(np.float32)
    weight[::7] = 0
    here = kway.SoftmaxClassifier().fit(X, y, sample_weight=weight)
    X_there, y_there, w_there = sent(X, y, weight)
    fetched.clear()
    there = kway.SoftmaxClassifier(device="cuda").fit(X_there, y_there, sample_weight=w_there)
    assert X.shape not in fetched
    assert there.objective_ == pytest.approx(here.objective_, rel=2e-3)
    some = kway.SoftmaxClassifier(device="cuda", random_state=0)
    for _ in range(3):
        some.partial_fit(X_there, y_there)
    assert X.shape not in fetched
    assert some.score(X, y) > 0.5


def test_types_labels_and_what_is_refused():
    X, y = rows_of(300, 6)
    for given, kind in (
        (torch.from_numpy(X).double(), np.float64),
        (torch.from_numpy(X).bfloat16(), np.float32),
        (torch.from_numpy(X).mul(100).int(), np.float32),
        (torch.from_numpy(X).mul(1e8).long(), np.float64),
    ):
        model = kway.SoftmaxClassifier(device="cuda", max_iter=5).fit(given.to(NAME), (y * 2.0 + 1).tolist())
        assert model.coef_.dtype == kind
        np.testing.assert_array_equal(model.classes_, [1, 3, 5, 7])
    bad = X.copy()
    bad[3, 2] = np.nan
    huge = X.copy()
    huge[5, 1] = 1e20
    model = kway.SoftmaxClassifier(device="cuda")
    for rows, labels, words in (
        (bad, y, "NaN"),
        (huge, y, "X holds 1e.20, more than 4e.14"),
        (X[:, 0], y, "2D"),
        (X[:0], y[:0], "0 sample"),
        (X, y[:-1], "inconsistent numbers of samples"),
        (X, y + 0.5, "continuous"),
        (X, 0 * y, "one class"),
    ):
        with pytest.raises(InputError, match=words):
            model.fit(*sent(rows, labels))
    assert not hasattr(model, "coef_")


def test_rows_that_are_far_multiply_cut_and_add_up_as_arrays(device, monkeypatch):
    monkeypatch.setattr("kway.rows.gpu.device.GPU_BLOCK_BYTES", 480)  # several blocks
    rng = np.random.default_rng(1)
    X = rng.standard_normal((50, 6))
    X[7], X[:, 4] = X[3], 0
    far, h = TensorRows(device.put(X)), rng.random((3, 50))
    v, w = rng.standard_normal(6), rng.standard_normal(50)
    np.testing.assert_allclose(far @ v, X @ v)
    np.testing.assert_allclose(far.T @ w, X.T @ w)
    np.testing.assert_array_equal(np.asarray(far[np.array([3, 1])]), X[[3, 1]])
    np.testing.assert_allclose(far.squares(h), h @ X**2)
    np.testing.assert_allclose(far.squares(None)[0], (X**2).sum(0))
    Z = np.hstack([X, np.ones((50, 1))]) * np.sqrt(h[0])[:, None]
    np.testing.assert_allclose(far.gram(h[0], True, np.dtype(float)), Z.T @ Z / 50)
    np.testing.assert_allclose(far.gram(None, False, np.dtype(float)), X.T @ X / 50)
    np.testing.assert_allclose(far.row_squares(), (X**2).sum(1))
    assert far.mean_square() == pytest.approx((X**2).mean())
    assert far.peak() == np.abs(X).max()
    keys = far.keys(v)
    np.testing.assert_allclose(keys, X @ v)
    assert keys[3] == keys[7]
    np.testing.assert_array_equal(far.equal(np.array([3, 3]), np.array([7, 8])), [True, False])
    units = far.units()
    np.testing.assert_allclose(units, np.where((X != 0).any(0), np.sqrt((X**2).mean(0)), 1))
    np.testing.assert_allclose(np.asarray(far.scale_columns(units)), X / units)


def test_tensor_rows_have_means_of_columns_only():
    rows = TensorRows(torch.tensor([[1.0, 2.0], [3.0, 6.0]], device=NAME))
    assert rows.mean(axis=0).tolist() == [2.0, 4.0]
    with pytest.raises(ValueError, match="columns only, got axis=1"):
        rows.mean(axis=1)
