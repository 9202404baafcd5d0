"""Answers of linear models on a device, held against the CPU's: arrays in and out, tensors in and out."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.helpers.rows import blobs  # noqa: E402

import kway  # noqa: E402
from kway.errors import BudgetError, InputError  # noqa: E402
from kway.linear import LinearClassifier  # noqa: E402
from kway.linear import plan as planning  # noqa: E402
from kway.linear.losses import LOSSES  # noqa: E402
from kway.probabilities import Shares  # noqa: E402
from kway.rows.gpu import class_scores as class_rows  # noqa: E402
from kway.rows.gpu.class_scores import DeviceClasses, largest_columns, probabilities  # noqa: E402
from kway.rows.gpu.device import ChosenDevice, Device  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")]

NAME = "cuda" if torch.cuda.is_available() else "cpu"
DEVICE = Device(NAME)


@pytest.fixture(autouse=True)
def _some_device(monkeypatch):
    def resolve(device, pays=True):
        return ChosenDevice(None, "") if device == "cpu" else ChosenDevice(DEVICE, "on the GPU")

    monkeypatch.setattr(planning, "resolve", resolve)
    monkeypatch.setattr(planning, "prediction_device", lambda device, n, coef: None if device == "cpu" else DEVICE)


def send(array):
    return torch.from_numpy(np.ascontiguousarray(array)).to(NAME)


@pytest.mark.parametrize("kind", ["normal", "ties", "one value", "infinite"])
def test_the_largest_columns_are_those_of_a_stable_sort(kind):
    rng = np.random.default_rng(0)
    for c in (2, 63, 64, 65, 700, 5000):
        table = rng.standard_normal((20, c)).astype(np.float32)
        if kind == "ties":
            table = rng.integers(0, 4, (20, c)).astype(np.float32)
        if kind == "one value":
            table[:] = 1
        if kind == "infinite":
            table[rng.random(table.shape) < 0.3] = -np.inf
        for k in {1, 2, 5, min(c, 40), c}:
            expected = np.argsort(-table, axis=1, kind="stable")[:, :k]
            np.testing.assert_array_equal(largest_columns(send(table), k).cpu().numpy(), expected)


@pytest.mark.parametrize(("wide", "block"), [(64, 1 << 13), (100, 1 << 16), (7, 1), (16_384, 1 << 29)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_best_of_blocks_are_the_best(wide, block, dtype, monkeypatch):
    monkeypatch.setattr(class_rows, "MANY_CLASSES", wide)
    monkeypatch.setattr("kway.rows.gpu.device.GPU_BLOCK_BYTES", block)
    rng = np.random.default_rng(1)
    X, W, b = (rng.integers(-3, 4, shape).astype(dtype) for shape in ((37, 5), (431, 5), 431))  # exact, many ties
    f = X @ W.T + b
    for k in (1, 3, 20, 431):
        found = DeviceClasses.copy(DEVICE, W, b).best(send(X), k, Shares(0.5))
        expected = np.argsort(-f, axis=1, kind="stable")[:, :k]
        np.testing.assert_array_equal(found.codes.cpu().numpy(), expected)
        np.testing.assert_array_equal(found.scores.cpu().numpy(), np.take_along_axis(f, expected, axis=1))
        total = np.exp((f.astype(np.float64) - f.max(axis=1, keepdims=True)) / 2).sum(axis=1)
        np.testing.assert_allclose(found.total.cpu().numpy(), total, rtol=1e-5)
        assert not found.overflows.any()


FORMS = [(loss, K, form) for loss in LOSSES for K in (2, 5) for form in ("joint", "one-vs-all")]


@pytest.mark.parametrize(("loss", "K", "form"), FORMS)
def test_answers_are_those_of_the_cpu(loss, K, form):
    X, y = blobs(300, K=K)
    here = LinearClassifier(loss, multiclass=form, alpha=1e-2, max_iter=30, temperature=1.7).fit(X, y * 10 + 3)
    there = LinearClassifier(loss, multiclass=form, temperature=1.7, device="cuda")
    there.__dict__.update({name: value for name, value in vars(here).items() if name.endswith("_")})
    close = {"rtol": 2e-4, "atol": 2e-5}
    for rows, back in ((X, lambda a: a), (send(X), lambda t: t.cpu().numpy())):
        np.testing.assert_array_equal(back(there.predict(rows)), here.predict(X))
        np.testing.assert_allclose(back(there.decision_function(rows)), here.decision_function(X), **close)
        found, expected = there.predict_topk(rows, 3), here.predict_topk(X, 3)
        np.testing.assert_allclose(back(found.scores), expected.scores, **close)
        assert (back(found.ids) == expected.ids).mean() > 0.99
        if here._form().probabilities:
            np.testing.assert_allclose(back(there.predict_proba(rows)), here.predict_proba(X), **close)
            np.testing.assert_allclose(
                back(there.predict_log_proba(rows)), here.predict_log_proba(X), rtol=1e-3, atol=1e-3
            )
        assert there.score(rows, y * 10 + 3) == here.score(X, y * 10 + 3)
    tensors = (there.predict(send(X)), *there.predict_topk(send(X)), there.decision_function(send(X)))
    assert all(torch.is_tensor(t) and t.device.type == NAME for t in tensors)


def test_least_squares_on_numbers_answers_here():
    X, y = blobs(300, K=5)
    model = kway.LeastSquaresClassifier("number", device="cuda").fit(X, y)
    assert isinstance(model.predict(X), np.ndarray)
    there = model.predict(send(X))
    assert torch.is_tensor(there)
    np.testing.assert_array_equal(there.cpu(), model.predict(X))


def test_probabilities_name_the_class_that_predict_names():
    f = send(np.array([[0.0, 1e-9, -40.0], [200.0, 200.1, 200.1]], np.float32))
    np.testing.assert_array_equal(probabilities(f, Shares(1e-6)).argmax(1).cpu(), f.argmax(1).cpu())


def test_other_number_types_and_labels():
    X, y = blobs(300, K=5)
    names = np.array(["a", "b", "c", "d", "e"])[y]
    model = kway.SoftmaxClassifier(device="cuda").fit(X, names)
    for given in (send(X).double(), send(X).requires_grad_(True)):
        assert (model.predict(given) == model.predict(X)).mean() > 0.99  # words are no tensor
        assert model.predict_proba(given).dtype == given.dtype
    assert model.predict_proba(send(X).half()).dtype == torch.float32
    assert model.predict_proba(send(X.astype(np.int64))).dtype == torch.float32


def test_a_tensor_is_answered_where_it_is_whatever_the_models_device():
    X, y = blobs(300, K=5)
    model = kway.SoftmaxClassifier().fit(X, y)
    np.testing.assert_allclose(model.predict_proba(torch.from_numpy(X)), model.predict_proba(X), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (lambda X: X[:, :3], "3 features, but SoftmaxClassifier is expecting 6"),
        (lambda X: X[0], "shape"),
        (lambda X: X[:0], "0 sample"),
        (lambda X: X * float("nan"), "NaN"),
        (lambda X: X * 0 + 1e38, "overflow float32"),
    ],
)
def test_tensors_that_are_no_rows_are_refused(bad, words):
    X, y = blobs(300, K=5)
    model = kway.SoftmaxClassifier().fit(X, y)
    model.coef_ = model.coef_ + 10
    for ask in (model.predict, model.predict_proba, model.decision_function, model.predict_topk):
        with pytest.raises(InputError, match=words):
            ask(bad(send(X)))


def test_weights_that_are_large_are_sent_once_and_again_after_a_change(monkeypatch):
    monkeypatch.setattr(class_rows, "BLOCK_BYTES", 1)
    sent = []
    real = DeviceClasses.copy
    monkeypatch.setattr(DeviceClasses, "copy", staticmethod(lambda *given: sent.append(1) or real(*given)))
    X, y = blobs(300, K=5)
    model = kway.SoftmaxClassifier(device="cuda").fit(X, y)
    first = model.predict(X)
    np.testing.assert_array_equal(model.predict(X), first)
    assert len(sent) == 1
    model.fit(X, 4 - y)
    np.testing.assert_array_equal(model.predict(X), kway.SoftmaxClassifier().fit(X, 4 - y).predict(X))
    assert len(sent) == 2
    model.intercept_ = model.intercept_ + 100 * np.eye(5, dtype=model.intercept_.dtype)[3]
    assert (model.predict(X) == 3).all()


def test_a_table_that_does_not_fit_is_refused_and_the_best_are_not(monkeypatch):
    X, y = blobs(300, K=5)
    model = kway.SoftmaxClassifier(device="cuda").fit(X, y)
    monkeypatch.setattr(Device, "free_bytes", lambda self: 5000)
    monkeypatch.setattr(class_rows, "GPU_BLOCK_BYTES", 100)
    for ask in (model.predict_proba, model.decision_function):
        with pytest.raises(BudgetError, match="300 rows x 5 classes needs"):
            ask(send(X))
    assert len(model.predict_topk(send(X), 2).ids) == 300


def test_a_model_of_a_gpu_answers_here_where_there_is_none(monkeypatch, tmp_path):
    X, y = blobs(300, K=5)
    model = kway.SoftmaxClassifier(device="cuda").fit(X, y)
    expected = model.predict_proba(X)
    model.save(tmp_path / "m.kway")
    monkeypatch.undo()
    monkeypatch.setattr(planning, "has_gpu", lambda name: False)
    np.testing.assert_allclose(kway.load(tmp_path / "m.kway").predict_proba(X), expected, rtol=1e-4, atol=1e-6)


def test_auto_answers_there_where_a_block_takes_long(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(planning, "has_gpu", lambda name: True)
    assert planning.prediction_device("auto", 100, np.empty((10, 20), np.float32)) is None
    assert planning.prediction_device("auto", 8192, np.empty((1_000_000, 64), np.float32)) == Device("cuda")
    assert planning.prediction_device("cuda", 1, np.empty((10, 20), np.float32)) == Device("cuda")


@pytest.mark.parametrize("kind", ["TemperatureScaledClassifier", "ConformalClassifier", "OpenSetClassifier"])
def test_what_is_around_a_model_takes_tensors_as_arrays(kind):
    X, y = blobs(600, K=5)
    model = getattr(kway, kind)(kway.SoftmaxClassifier(device="cuda"), random_state=0).fit(send(X), send(y))
    np.testing.assert_array_equal(model.predict(send(X)), model.predict(X))
    if kind == "ConformalClassifier":
        assert (model.predict_set(send(X)).sizes == model.predict_set(X).sizes).all()
    else:
        probabilities_of_tensor = model.predict_proba(send(X))
        assert isinstance(probabilities_of_tensor, np.ndarray)
        np.testing.assert_array_equal(probabilities_of_tensor, model.predict_proba(X))
