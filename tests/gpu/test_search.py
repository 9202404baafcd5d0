"""Exact search on a device: ids and distances are the CPU's, ties and all, on sets that break careless searches."""

import numpy as np
import pytest
from tests.helpers.neighbors import assert_same_neighbors

from kway.errors import BudgetError, CombinationError
from kway.neighbors import NeighborsClassifier
from kway.search import Bits, Flat, Int8, Landmarks

from .conftest import HOSTILE, hostile

METRICS = ["euclidean", "cosine", "dot"]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", HOSTILE)
def test_answers_are_those_of_the_cpu(by_device, kind, metric):
    rng = np.random.default_rng(1)
    for n, d, k in ((700, 17, 5), (1, 5, 1), (2500, 64, 11)):
        rows = hostile(kind, n, d)
        near = rows[rng.integers(0, n, 20)]
        queries = np.concatenate([near, near + 0.1 * rng.standard_normal((20, d)).astype(np.float32)])
        assert_same_neighbors(by_device(Flat()).build(rows, metric), Flat().build(rows, metric), queries, k)


@pytest.mark.parametrize("metric", METRICS)
def test_float64_rows_and_queries(by_device, metric):
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((800, 9)) + 50
    given = rows.copy()
    index, oracle = by_device(Flat()).build(rows, metric), Flat().build(given, metric)
    assert_same_neighbors(index, oracle, rows[:50], 4)
    assert_same_neighbors(index, oracle, 1e6 * rng.standard_normal((20, 9)), 4)
    np.testing.assert_array_equal(rows, given)  # torch on the processor shares memory with them


def test_rows_added_and_removed(by_device):
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((600, 8)).astype(np.float32)
    index, oracle = by_device(Flat()).build(rows), Flat().build(rows)
    for live in (index, oracle):
        live.remove([0, 5, 77])
        live.add(rows[:40] + 1)
        live.remove([601])
    assert_same_neighbors(index, oracle, rows[:60], 6)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["copies", "one row", "integers"])
def test_tensors_in_tensors_out(by_device, device, kind, metric):
    torch = device.torch
    rows = hostile(kind, 1200, 12)
    index, oracle = by_device(Flat()).build(device.put(rows), metric), Flat().build(rows, metric)
    queries = rows[:30]
    found, expected = index.nearest(device.put(queries), 5), oracle.nearest(queries, 5)
    assert isinstance(found.ids, torch.Tensor)
    assert found.distances.dtype == torch.float32
    np.testing.assert_array_equal(device.fetch(found.ids), expected.ids)
    np.testing.assert_allclose(device.fetch(found.distances), expected.distances, rtol=1e-6, atol=1e-7)
    scores = index.search(device.put(queries), 5).scores
    np.testing.assert_allclose(device.fetch(scores), oracle.search(queries, 5).scores, rtol=1e-5, atol=1e-6)


def test_a_classifier_votes_the_same_and_its_file_loads_without_a_gpu(by_device, monkeypatch, tmp_path):
    import kway

    rng = np.random.default_rng(4)
    rows, labels = rng.standard_normal((500, 10)).astype(np.float32), rng.integers(0, 7, 500)
    model, oracle = (NeighborsClassifier(device=name).fit(rows, labels) for name in ("cuda", "cpu"))
    assert "device under test" in model.index_.why_
    queries = rng.standard_normal((80, 10)).astype(np.float32)
    np.testing.assert_array_equal(model.predict_proba(queries), oracle.predict_proba(queries))
    model.save(tmp_path / "model.kway")
    monkeypatch.undo()
    again = kway.load(tmp_path / "model.kway")
    np.testing.assert_array_equal(again.kneighbors(queries)[1], oracle.kneighbors(queries)[1])


@pytest.mark.parametrize("index", [Flat(), Flat(Bits(1, miss=1e-9))])
def test_votes_of_tensors_are_tensors_and_queries_never_on_the_host(by_device, device, index, monkeypatch):
    from kway import validation

    rng = np.random.default_rng(4)
    rows, labels = rng.standard_normal((500, 10)).astype(np.float32), rng.integers(0, 7, 500)
    model = NeighborsClassifier(index=index, device="cuda").fit(rows, labels)
    named = NeighborsClassifier(index=index, device="cuda").fit(rows, labels.astype(str))
    queries = rng.standard_normal((80, 10)).astype(np.float32)
    expected = model.predict(queries), model.predict_proba(queries), *model.predict_topk(queries, 2)
    monkeypatch.setattr(validation, "rows", None)  # nothing passes the gate of the host
    there = device.put(queries)
    answers = model.predict(there), model.predict_proba(there), *model.predict_topk(there, 2)
    for answer, given in zip(answers, expected):
        assert isinstance(answer, device.torch.Tensor)
        np.testing.assert_allclose(device.fetch(answer), given, rtol=1e-6)
    assert named.predict(there).tolist() == expected[0].astype(str).tolist()


@pytest.mark.parametrize(
    ("recipe", "metric"), [(Flat(device="cuda"), "manhattan"), (Flat(Int8(), "cuda"), "manhattan")]
)
def test_what_no_device_searches_is_refused_by_name(recipe, metric):
    with pytest.raises(CombinationError, match=r"'euclidean', 'cosine' and 'dot'.*device='cpu'"):
        recipe.build(np.ones((4, 2)), metric)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("rerank", [True, False])
def test_bytes_answer_as_on_the_cpu(by_device, rerank, metric):
    rows, store = hostile("heavy tails", 1500, 20), Int8(rerank=rerank)
    index, oracle = by_device(Flat(store)).build(rows, metric), Flat(store).build(rows, metric)
    assert ("exact" if rerank else "int8 rows, decoded") in index.why_
    assert_same_neighbors(index, oracle, rows[:40] + np.float32(0.01), 6)


@pytest.mark.parametrize("index", ["kdtree", "landmarks", Landmarks(2, 1)])
def test_other_indexes_are_refused_on_a_gpu(index):
    with pytest.raises(CombinationError, match=r"searches on the CPU, got device='cuda'; use index='flat' on the GPU"):
        NeighborsClassifier(device="cuda", index=index).fit(np.ones((4, 2)), [0, 1, 0, 1])


def test_landmarks_search_tensors_on_the_cpu(device):
    rows, labels = hostile("gaussian", 300, 6), np.arange(300) % 3
    here = NeighborsClassifier(3, index=Landmarks(20, 5)).fit(rows, labels)
    there = NeighborsClassifier(3, index=Landmarks(20, 5), device="auto").fit(device.put(rows), device.put(labels))
    found = there.kneighbors(device.put(rows[:20]))[1]
    assert found.device == device.put(rows[:20]).device
    np.testing.assert_array_equal(device.fetch(found), here.kneighbors(rows[:20])[1])


def test_too_little_memory_is_an_error_with_figures_and_nothing_half_built(by_device, monkeypatch):
    from kway.rows.gpu.device import Device

    monkeypatch.setattr(Device, "free_bytes", lambda self: 1000)
    model = NeighborsClassifier(device="cuda")
    with pytest.raises(BudgetError, match=r"500 rows x 10 columns needs .* GiB free"):
        model.fit(np.ones((500, 10)), np.arange(500) % 2)
    assert not hasattr(model, "index_")


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "dot"])
def test_rows_that_are_a_tensor_are_searched_where_they_are_and_read_only_for_a_file(
    by_device, device, metric, tmp_path
):
    import kway
    from kway.search.codecs.stores import GpuStoredRows

    rows, labels = hostile("gaussian", 700, 24), np.arange(700) % 5
    queries = rows[:30] + np.float32(0.1)
    oracle = Flat().build(rows, metric)
    model = NeighborsClassifier(5, metric=metric, device="cuda").fit(device.put(rows), device.put(labels))
    kept = model.index_._scan.kept
    assert isinstance(kept, GpuStoredRows)
    found, expected = model.index_.nearest(device.put(queries), 5), oracle.nearest(queries, 5)
    np.testing.assert_array_equal(device.fetch(found.ids), expected.ids)
    again = model.index_.nearest(queries, 5)
    np.testing.assert_array_equal(again.ids, expected.ids)
    np.testing.assert_array_equal(again.distances, expected.distances)
    arrays = NeighborsClassifier(5, metric=metric).fit(rows, labels)
    np.testing.assert_array_equal(device.fetch(model.predict(device.put(queries))), arrays.predict(queries))
    assert not kept.copied_to_host  # nothing so far has copied the rows
    model.save(tmp_path / "model.kway")
    np.testing.assert_array_equal(kway.load(tmp_path / "model.kway").predict(queries), arrays.predict(queries))
    model.index_.to("cpu")
    np.testing.assert_array_equal(model.index_.nearest(queries, 5).ids, expected.ids)
    model.partial_fit(rows[:40] + 1, labels[:40])
    arrays.partial_fit(rows[:40] + 1, labels[:40])
    np.testing.assert_array_equal(model.kneighbors(queries)[1], arrays.kneighbors(queries)[1])


def test_a_tensor_that_no_device_searches_is_read_here(by_device, device):
    rows, labels = hostile("gaussian", 300, 6), np.arange(300) % 3
    weight = np.ones(300, np.float32)
    weight[::5] = 0
    for params in ({"index": "kdtree"}, {"metric": "manhattan"}, {}):
        wild = rows * (1e30 if not params else 1)
        here = NeighborsClassifier(3, **params).fit(wild, labels, sample_weight=weight)
        there = NeighborsClassifier(3, device="cuda" if not params else "auto", **params)
        there.fit(device.put(wild), device.put(labels), sample_weight=device.put(weight))
        np.testing.assert_array_equal(there.kneighbors(wild[:20])[1], here.kneighbors(wild[:20])[1])


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["integers", "far origin", "copies", "close distances"])
def test_ties_in_float32_go_to_the_lower_position(device, kind, metric, monkeypatch):
    """Compare with a sort of all distances, also if only a few rows are measured at first."""
    from kway.rows.gpu import exact_search

    rng = np.random.default_rng(7)
    data = hostile(kind, 600, 8) if kind != "close distances" else rng.standard_normal((600, 8)).astype(np.float32)
    if kind == "close distances":  # their distances to zero differ in float64, and hardly in float32
        data /= np.linalg.norm(data, axis=1, keepdims=True)
    queries = device.put(data[:10] * np.float32(kind != "close distances"))
    rows = exact_search.ExactRows.build(device, device.put(data), exact_search.METRICS[metric])
    expected = rows.brute(queries.double(), 600, rounded=True)
    for kept in (1, 22):
        monkeypatch.setattr(exact_search, "EXTRA_KEPT", kept)
        found = rows.nearest_in_float32(queries, 6)
        np.testing.assert_array_equal(device.fetch(found.ids), device.fetch(expected.ids)[:, :6])
        np.testing.assert_array_equal(device.fetch(found.distances), device.fetch(expected.distances)[:, :6])


@pytest.mark.parametrize("metric", METRICS)
def test_copies_of_rows_beyond_float32_go_to_the_lower_position(device, metric):
    """Keys are float64 then, and the limit of the proof must not be below the key of a copy."""
    from kway.rows.gpu import exact_search

    data = 1e30 * np.random.default_rng(8).standard_normal((300, 4))
    data[100:200] = 3 * np.abs(data).max()  # the nearest row of its direction, a hundred times
    rows = exact_search.ExactRows.build(device, device.put(data), exact_search.METRICS[metric])
    found = rows.nearest(device.put(data[100:101]), 5)
    assert device.fetch(found.ids).tolist() == [[100, 101, 102, 103, 104]]
