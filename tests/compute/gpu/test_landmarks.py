"""Landmarks on a device: the same cells, the same ids; k-means to rounding; files that load without a GPU."""

import numpy as np
import pytest

from kway.errors import BudgetError, CombinationError
from kway.neighbors import NeighborsClassifier
from kway.search import Bits, Flat, Int8, Landmarks
from kway.search.kmeans import kmeans

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
    from kway.compute.gpu import cells

    rows = hostile("gaussian", 1000, 30)
    index = by_device(Landmarks(n_landmarks=30)).build(rows)
    sure = index.nearest(rows[:50], 5, probes=3)
    asked = []
    here = index._nearest_here
    monkeypatch.setattr(index, "_nearest_here", lambda some, *rest: asked.append(len(some)) or here(some, *rest))
    probe = cells.Landing.probe

    def doubtful(self, placed, probes):
        found = probe(self, placed, probes)
        return found._replace(cells=found.cells * 0, doubt=found.doubt | True)

    monkeypatch.setattr(cells.Landing, "probe", doubtful)
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
    found, expected = (kmeans(rows, 60, np.random.default_rng(3), device=where) for where in (device, None))

    def cost(clustering):
        return np.square(rows - clustering.centres[clustering.nearest]).sum()

    np.testing.assert_allclose(cost(found), cost(expected), rtol=0.01, atol=1e-3)
    if kind == "gaussian":
        np.testing.assert_allclose(found.centres, expected.centres, atol=1e-4)
        assert (found.nearest == expected.nearest).mean() > 0.999


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
    assert index._there is not None
    same(index.nearest(rows[:40], 4), expected)
    index.to("cpu")
    assert index._there is None


def test_a_promise_is_made_on_a_device_and_the_exact_index_stays_there(by_device):
    rows = hostile("gaussian", 500, 20)  # too few to promise anything
    model = NeighborsClassifier(index="landmarks", device="cuda").fit(rows, np.arange(500) % 3)
    assert model.promise_.exact
    assert model.index_.recipe == Flat(device="cuda")


@pytest.mark.parametrize(
    ("recipe", "metric"),
    [
        (Landmarks(device="cuda"), "manhattan"),
        (Landmarks(store=Int8(), device="cuda"), "euclidean"),
        (Landmarks(store=Bits(1), device="cuda"), "euclidean"),
    ],
)
def test_what_no_device_searches_is_refused_by_name(recipe, metric):
    with pytest.raises(CombinationError, match=r"'euclidean', 'cosine' and 'dot'.*Bits.*device='cpu'"):
        recipe.build(np.ones((4, 2)), metric)


def test_auto_says_why():
    rows = hostile("gaussian", 100, 5)
    assert "on the CPU: too small" in Landmarks(device="auto").build(rows).why_
    assert "on the CPU: a GPU searches cells of full rows" in Landmarks(device="auto").build(rows, "manhattan").why_


def test_too_little_memory_is_an_error_with_figures_and_nothing_half_built(by_device, monkeypatch):
    from kway.compute.gpu.device import Device

    monkeypatch.setattr(Device, "free_bytes", lambda self: 1000)
    model = NeighborsClassifier(index="landmarks", device="cuda")
    with pytest.raises(BudgetError, match=r"k-means of .* rows x .* needs .* GiB free"):
        model.fit(np.ones((500, 10)), np.arange(500) % 2)
    assert not hasattr(model, "index_")
