"""Landmarks on a device: the same cells, the same ids; k-means to rounding; files that load without a GPU."""

import numpy as np
import pytest

from kway.errors import BudgetError, CombinationError
from kway.neighbors import NeighborsClassifier
from kway.search import Bits, Flat, Int8, Landmarks
from kway.search.kmeans import kmeans_sample, nearest_centers, place_centers

from .conftest import hostile

METRICS = ["euclidean", "cosine", "dot"]


def again_on_the_cpu(index):
    """The same landmarks and cells, searched by the CPU."""
    return Landmarks.restore(*index.parts())


def same(found, expected):
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.distances, expected.distances)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["gaussian", "heavy tails", "far origin", "copies", "one row", "zeros among them"])
def test_the_same_cells_give_the_same_ids_and_all_cells_the_exact_answer(by_device, kind, metric):
    rows = hostile(kind, 1500, 40)
    queries = np.concatenate([rows[:20], rows[20:40] + np.float32(0.1)])
    index = by_device(Landmarks(n_landmarks=40)).build(rows, metric)
    oracle = again_on_the_cpu(index)
    for probes in (1, 7):
        same(index.nearest(queries, 6, probes=probes), oracle.nearest(queries, 6, probes=probes))
    same(index.nearest(queries, 6, probes=40), Flat().build(rows, metric).nearest(queries, 6))


def test_few_rows_a_cell_float64_and_small_columns(by_device):
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((300, 5))
    index = by_device(Landmarks(n_landmarks=120)).build(rows)
    oracle = again_on_the_cpu(index)
    for k in (1, 9, 50):  # more than a cell holds: probes are widened
        same(index.nearest(rows[:30] + 0.01, k, probes=1), oracle.nearest(rows[:30] + 0.01, k, probes=1))


def test_whoever_is_in_doubt_is_answered_by_the_cpu(by_device, monkeypatch):
    from kway.rows.gpu import ivf_search as search_cells

    rows = hostile("gaussian", 1000, 30)
    index = by_device(Landmarks(n_landmarks=30)).build(rows)
    sure = index.nearest(rows[:50], 5, probes=3)
    asked = []
    here = index._nearest_on_cpu
    monkeypatch.setattr(index, "_nearest_on_cpu", lambda some, *rest: asked.append(len(some)) or here(some, *rest))
    probe = search_cells.CellFinder.probe

    def doubtful(self, placed, probes):
        found = probe(self, placed, probes)
        return found._replace(cells=found.cells * 0, doubt=found.doubt | True)

    monkeypatch.setattr(search_cells.CellFinder, "probe", doubtful)
    same(index.nearest(rows[:50], 5, probes=3), sure)
    assert asked == [50]


def test_landmarks_are_the_cpus_up_to_rounding(by_device):
    rows = hostile("gaussian", 4000, 48)
    index, oracle = by_device(Landmarks()).build(rows), Landmarks().build(rows)
    np.testing.assert_allclose(index.landmarks_, oracle.landmarks_, atol=2e-4)
    assert (index.cells_ != oracle.cells_).mean() < 0.002


@pytest.mark.parametrize("kind", ["gaussian", "copies", "one row"])
def test_kmeans_is_the_cpus_up_to_rounding(device, kind):
    rows = hostile(kind, 3000, 20)

    def placed(where):
        rng = np.random.default_rng(3)
        return place_centers(kmeans_sample(rows, 60, rng), 60, rng, device=where)

    def cost(centers):
        return np.square(rows - centers[nearest_centers(rows, centers).centers]).sum()

    found, expected = placed(device), placed(None)
    np.testing.assert_allclose(cost(found), cost(expected), rtol=0.01, atol=1e-3)
    if kind == "gaussian":
        np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("metric", METRICS)
def test_tensors_in_tensors_out(by_device, device, metric):
    rows = hostile("integers", 1200, 12)  # many ties
    index = by_device(Landmarks(n_landmarks=30, probes=4)).build(device.put(rows), metric, ids=np.arange(1200) + 7)
    queries = rows[:30]
    found, expected = index.nearest(device.put(queries), 5), again_on_the_cpu(index).nearest(queries, 5)
    assert isinstance(found.ids, device.torch.Tensor)
    assert found.distances.dtype == device.torch.float32
    np.testing.assert_array_equal(device.fetch(found.ids), expected.ids)
    np.testing.assert_allclose(device.fetch(found.distances), expected.distances, rtol=1e-6, atol=1e-7)
    scores = index.search(device.put(queries), 5).scores
    np.testing.assert_allclose(device.fetch(scores), index.search(queries, 5).scores, rtol=1e-5, atol=1e-6)


def test_rows_added_and_removed(by_device):
    rows = hostile("gaussian", 900, 30)
    index = by_device(Landmarks(n_landmarks=30)).build(rows[:800])
    oracle = again_on_the_cpu(index)
    for live in (index, oracle):
        live.remove([0, 5, 77])
        live.add(rows[800:])
    same(index.nearest(rows[:50], 6, probes=5), oracle.nearest(rows[:50], 6, probes=5))


def test_a_classifier_and_its_file(by_device, monkeypatch, tmp_path):
    import kway

    rows = hostile("gaussian", 900, 20)
    labels = np.arange(900) % 4
    model = NeighborsClassifier(index=Landmarks(n_landmarks=30, probes=5), device="cuda").fit(rows, labels)
    assert "device under test" in model.index_.why_
    answers = model.predict_proba(rows[:60]), model.kneighbors(rows[:60])
    model.save(tmp_path / "model.kway")
    monkeypatch.undo()
    again = kway.load(tmp_path / "model.kway")
    assert again.index_.recipe.device == "cpu"
    np.testing.assert_array_equal(again.predict_proba(rows[:60]), answers[0])
    for mine, theirs in zip(again.kneighbors(rows[:60]), answers[1]):
        np.testing.assert_array_equal(mine, theirs)


def test_an_index_moves_there_and_back(by_device):
    rows = hostile("gaussian", 600, 20)
    index = Landmarks(n_landmarks=20, probes=3).build(rows)
    expected = index.nearest(rows[:40], 4)
    index.to("cuda")
    assert index._on_gpu is not None
    same(index.nearest(rows[:40], 4), expected)
    index.to("cpu")
    assert index._on_gpu is None


def test_landmarks_are_tuned_on_a_device_and_the_exact_index_stays_there(by_device):
    rows = hostile("gaussian", 500, 20)  # too few to guarantee anything
    model = NeighborsClassifier(index="landmarks", device="cuda").fit(rows, np.arange(500) % 3)
    assert model.agreement_.exact
    assert model.index_.recipe == Flat(device="cuda")


def test_what_no_device_searches_is_refused_by_name():
    with pytest.raises(CombinationError, match=r"'euclidean', 'cosine' and 'dot'.*device='cpu'"):
        Landmarks(device="cuda").build(np.ones((4, 2)), "haversine")


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("store", [Int8(), Bits(1), Bits(2, miss=1e-9)])
def test_stores_with_full_rows_are_searched_there_and_lose_nobody(by_device, device, store, metric):
    rows = hostile("gaussian", 1500, 40)
    queries = rows[:60] + np.float32(0.1)
    index = by_device(Landmarks(n_landmarks=40, store=store)).build(rows, metric)
    assert "searches full rows" in index.why_
    assert index._on_gpu is not None
    bare = Landmarks.restore(*index.parts())  # by the CPU, over the same cells
    found, here = index.nearest(queries, 6, probes=7), bare.nearest(queries, 6, probes=7)
    assert (found.distances <= here.distances).all()
    assert (found.ids == here.ids).all() if store != Bits(1) else (found.ids == here.ids).mean() > 0.97
    same(index.nearest(queries, 6, probes=40), Flat().build(rows, metric).nearest(queries, 6))
    tensors = index.nearest(device.put(queries), 6, probes=7)
    np.testing.assert_array_equal(device.fetch(tensors.ids), found.ids)


@pytest.mark.parametrize("store", [Int8(rerank=False), Bits(1, rerank=False)])
def test_codes_alone_are_searched_by_the_cpu_which_is_said(by_device, store):
    rows = hostile("gaussian", 900, 40)
    index = by_device(Landmarks(n_landmarks=30, store=store)).build(rows)
    assert "the CPU searches the codes" in index.why_
    same(index.nearest(rows[:40], 5), Landmarks.restore(*index.parts()).nearest(rows[:40], 5))
    model = NeighborsClassifier(3, index=Landmarks(30, 5, store=store), device="cuda").fit(rows, np.arange(900) % 3)
    assert "the CPU searches the codes" in model.index_.why_
    if isinstance(store, Bits):
        streamed = by_device(Landmarks(30, store=store)).build_blocks([rows[:500], rows[500:]])
        assert "on the CPU: rows that come in blocks" in streamed.why_


def test_auto_says_why():
    rows = hostile("gaussian", 100, 5)
    assert "on the CPU: too small" in Landmarks(device="auto").build(rows).why_
    assert "on the CPU: a GPU searches cells of rows" in Landmarks(device="auto").build(rows[:, :2], "haversine").why_


def test_too_little_memory_is_an_error_with_figures_and_nothing_half_built(by_device, monkeypatch):
    from kway.rows.gpu.device import Device

    monkeypatch.setattr(Device, "free_bytes", lambda self: 1000)
    model = NeighborsClassifier(index="landmarks", device="cuda")
    with pytest.raises(BudgetError, match=r"k-means of .* rows x .* needs .* GiB free"):
        model.fit(np.ones((500, 10)), np.arange(500) % 2)
    assert not hasattr(model, "index_")
