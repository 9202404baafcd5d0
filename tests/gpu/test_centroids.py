"""Class means on a device: those of the CPU, the same answers, tensors in and out, files that load without a GPU."""

import numpy as np
import pytest

import kway
from kway.errors import BudgetError, InputError
from kway.neighbors import CentroidClassifier, centroid

METRICS = ["euclidean", "cosine"]


@pytest.fixture
def there(device, monkeypatch):
    """device="cuda" is the device under test."""
    from kway.rows.gpu.device import ChosenDevice

    chosen = lambda word, pays=True: ChosenDevice(device, "on the device under test")  # noqa: E731
    monkeypatch.setattr(
        centroid, "resolve", lambda word, pays=True: ChosenDevice(None, "") if word == "cpu" else chosen(word)
    )
    monkeypatch.setattr(centroid, "has_gpu", lambda: True)
    return device


def labeled_rows(kind=np.float32, n=600, d=20, K=7, seed=0):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, K, n)
    rows = 2 * rng.standard_normal((K, d))[codes] + rng.standard_normal((n, d)) + 5
    return rows.astype(kind), codes


def alike(model, oracle, tol=1e-5):
    np.testing.assert_allclose(model.centroids_, oracle.centroids_, rtol=1e-6)
    np.testing.assert_array_equal(model.weights_, oracle.weights_)
    np.testing.assert_allclose(model.scale_, oracle.scale_, rtol=tol)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("metric", METRICS)
def test_means_and_answers_are_those_of_the_cpu(there, metric, kind):
    X, y = labeled_rows(kind)
    w = np.random.default_rng(1).random(len(y)).astype(kind)
    model, oracle = (CentroidClassifier(metric, device=name).fit(X, y, w) for name in ("cuda", "cpu"))
    assert model.why_ == "on the device under test"
    np.testing.assert_allclose(model.weights_, oracle.weights_, rtol=1e-6)
    np.testing.assert_allclose(model.centroids_, oracle.centroids_, rtol=1e-6)
    np.testing.assert_array_equal(model.predict(X), oracle.predict(X))
    np.testing.assert_allclose(model.predict_proba(X), oracle.predict_proba(X), rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(model.decision_function(X), oracle.decision_function(X), rtol=1e-3, atol=1e-3)
    found, expected = model.predict_topk(X, 3), oracle.predict_topk(X, 3)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("metric", METRICS)
def test_in_parts_and_in_many_classes(there, metric, monkeypatch):
    from kway.rows.gpu import class_scores as class_rows

    monkeypatch.setattr(class_rows, "MANY_CLASSES", 8)
    monkeypatch.setattr("kway.rows.gpu.device.GPU_BLOCK_BYTES", 8 * 20 * 50)
    X, y = labeled_rows(K=30)
    model, oracle = (CentroidClassifier(metric, device=name) for name in ("cuda", "cpu"))
    for part in (slice(0, 100), slice(100, 600)):
        model.partial_fit(X[part], y[part])
        oracle.partial_fit(X[part], y[part])
    alike(model, oracle)
    found, expected = model.predict_topk(X, 5), oracle.predict_topk(X, 5)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-3, atol=1e-6)


def test_values_far_from_one_and_equal_scores(there):
    X, y = labeled_rows(np.float64)
    for scale in (1e-30, 1e30):
        model, oracle = (CentroidClassifier(device=name).fit(scale * X, y) for name in ("cuda", "cpu"))
        np.testing.assert_array_equal(model.predict(scale * X), oracle.predict(scale * X))
    twins = CentroidClassifier(device="cuda").fit([[0.0], [0.0], [9.0]], [2, 1, 3])
    assert twins.predict([[0.1]]) == [1]
    assert twins.predict_topk([[0.1]], 2).ids.tolist() == [[1, 2]]


@pytest.mark.parametrize("metric", METRICS)
def test_tensors_in_tensors_out_and_never_on_the_host(there, metric, fetched):
    X, y = labeled_rows()
    oracle = CentroidClassifier(metric).fit(X, y + 10)
    rows, labels = there.put(X), there.put(y + 10)
    expected = oracle.predict(X), oracle.predict_proba(X), oracle.decision_function(X), oracle.predict_topk(X, 3)
    fetched.clear()
    model = CentroidClassifier(metric, device="cuda").fit(rows, labels)
    alike(model, oracle)
    answers = (
        model.predict(rows),
        model.predict_proba(rows),
        model.decision_function(rows),
        *model.predict_topk(rows, 3),
    )
    assert fetched  # the means
    assert X.shape not in fetched
    assert all(isinstance(answer, there.torch.Tensor) for answer in answers)
    np.testing.assert_array_equal(there.fetch(answers[0]), expected[0])
    for found, given in zip(answers[1:3], expected[1:3]):
        np.testing.assert_allclose(there.fetch(found), given, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(there.fetch(answers[3]), expected[3].ids)


@pytest.mark.parametrize("metric", METRICS)
def test_means_in_an_index_are_searched_there(by_device, there, metric, fetched):
    X, y = labeled_rows(n=2000, K=200)
    model, oracle = (CentroidClassifier(metric, index="flat", device=name).fit(X, y) for name in ("cuda", "cpu"))
    expected = oracle.predict(X), oracle.predict_topk(X, 3)
    np.testing.assert_array_equal(model.predict(X), expected[0])
    assert "device under test" in model.index_.why_
    rows = there.put(X)
    np.testing.assert_array_equal(there.fetch(model.predict(rows)), expected[0])
    found = model.predict_topk(rows, 3)
    np.testing.assert_array_equal(there.fetch(found.ids), expected[1].ids)
    np.testing.assert_allclose(there.fetch(found.scores), expected[1].scores, rtol=1e-3, atol=1e-6)
    assert X.shape not in fetched


def test_labels_that_are_no_numbers_two_classes_and_tensors_that_the_host_answers(there):
    X, y = labeled_rows(K=2)
    names = np.array(["a", "b"])[y]
    model, oracle = CentroidClassifier(device="cuda").fit(there.put(X), names), CentroidClassifier().fit(X, names)
    assert model.predict(there.put(X)).tolist() == oracle.predict(X).tolist()
    scores = model.decision_function(there.put(X))
    np.testing.assert_allclose(there.fetch(scores), oracle.decision_function(X), rtol=1e-3, atol=1e-3)
    whole = there.put(np.rint(X).astype(np.int64))  # no floats
    assert model.predict(whole).tolist() == oracle.predict(np.rint(X)).tolist()
    with pytest.raises(ValueError, match="NaN"):
        model.predict(there.put(X * np.float32("nan")))
    with pytest.raises(ValueError, match="features"):
        model.predict(there.put(X[:, :3]))


def test_a_file_loads_without_a_gpu(there, tmp_path, monkeypatch):
    X, y = labeled_rows()
    model = CentroidClassifier(device="cuda").fit(X, y)
    expected = model.predict(X)
    model.save(tmp_path / "model.kway")
    monkeypatch.undo()
    monkeypatch.setattr(centroid, "has_gpu", lambda: False)
    again = kway.load(tmp_path / "model.kway")
    np.testing.assert_array_equal(again.predict(X), expected)


def test_too_little_memory_is_an_error_with_figures_and_nothing_half_fitted(there, monkeypatch):
    from kway.rows.gpu.device import Device

    X, y = labeled_rows()
    model = CentroidClassifier(device="cuda").fit(X[:100], y[:100])
    before = model.centroids_.copy()
    monkeypatch.setattr(Device, "free_bytes", lambda self: 1000)
    with pytest.raises(BudgetError, match=r"the means of 7 classes x 20 columns needs .* GiB free"):
        model.partial_fit(X, y)
    np.testing.assert_array_equal(model.centroids_, before)
    fresh = CentroidClassifier(device="cuda")
    with pytest.raises(BudgetError):
        fresh.fit(X, y)
    assert not hasattr(fresh, "weights_")


def test_sparse_rows_are_refused_and_auto_says_why(there):
    import scipy.sparse as sp

    X, y = labeled_rows()
    with pytest.raises(InputError, match=r"toarray.*device='cpu'"):
        CentroidClassifier(device="cuda").fit(sp.csr_matrix(X), y)
    assert "on the CPU" in CentroidClassifier(device="auto").fit(sp.csr_matrix(X), y).why_


def test_auto_is_the_cpu_where_it_does_not_pay():
    X, y = labeled_rows()
    model = CentroidClassifier(device="auto").fit(X, y)
    assert "too small" in model.why_
    assert not hasattr(CentroidClassifier().fit(X, y), "why_")
