import numpy as np
import pytest

from kway.kernels.cells import CellQueries, find_cells
from kway.kernels.jit import frozen
from kway.search import Bits, Flat, Int8, Landmarks, restore
from kway.search.cells import learn_projection
from kway.search.results import empty_heaps


def images(n, seed=0, d=300):
    """Rows near a curved surface of few dimensions, in many columns."""
    rng = np.random.default_rng(seed)
    basis = np.random.default_rng(5).normal(size=(12, d))
    z = rng.normal(size=(n, 12)) * np.linspace(4, 0.5, 12)
    return (np.tanh(z @ basis / 8) + 0.05 * rng.normal(size=(n, d))).astype(np.float32)


def recall(found, exact):
    return np.mean([len(set(a) & set(b)) / exact.ids.shape[1] for a, b in zip(found.ids, exact.ids)])


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "dot"])
def test_recall_grows_with_probes_to_everything(metric):
    rows, queries = images(4000), images(200, seed=1)
    index, exact = Landmarks(seed=1).build(rows, metric), Flat().build(rows, metric).nearest(queries, 5)
    recalls = [recall(index.nearest(queries, 5, probes=p), exact) for p in (1, 4, 16, index.n_landmarks)]
    assert recalls == sorted(recalls)
    assert recalls[2] > 0.95
    assert recalls[3] == 1.0  # every cell probed: the filters may not lose a single neighbor


def test_filters_spare_most_rows():
    rows, queries = images(4000), images(100, seed=1)
    index = Landmarks().build(rows)
    index.nearest(queries, 5, probes=index.n_landmarks)
    assert index.touched_ < 40


def test_cells_partition_the_rows():
    rows = images(1000)
    index = Landmarks(n_landmarks=20).build(rows)
    assert index.cells_.shape == (1000,)
    assert index.landmarks_.shape == (20, 300)
    near = ((rows[:50, None] - index.landmarks_[None]) ** 2).sum(-1).argmin(1)
    assert (near == index.cells_[:50]).mean() > 0.9  # assigned among the leading coordinates


def test_probes_may_be_set_on_the_live_index():
    rows, queries = images(2000), images(50, seed=1)
    index = Landmarks(probes=1).build(rows)
    assert index.probes == 1
    few = index.nearest(queries, 5, probes=9).ids
    index.probes = 9
    np.testing.assert_array_equal(index.nearest(queries, 5).ids, few)
    facts, arrays = index.parts()
    assert Landmarks.restore(facts, arrays).probes == 9


def test_one_probe_widens_until_k_rows_are_found():
    rows, queries = images(500), images(30, seed=1)
    index = Landmarks(n_landmarks=100, probes=1).build(rows)
    found = index.nearest(queries, 60)
    assert (found.ids >= 0).all()
    assert all(len(set(ids)) == 60 for ids in found.ids)


def test_growing_places_the_landmarks_anew():
    rows = images(3000)
    index = Landmarks().build(rows[:500])
    before = index.n_landmarks
    index.add(rows[500:])
    assert index.n_landmarks > before
    assert recall(index.nearest(rows[:100], 5), Flat().build(rows).nearest(rows[:100], 5)) > 0.98


@pytest.mark.parametrize("d", [20, 100, 300])
def test_projections_never_overstate(d):
    rows = images(600, d=d) + 3.0
    projection = learn_projection(rows, centered=True, seed=0)
    short, long, norms = projection.project(rows)
    pairs = np.random.default_rng(0).integers(600, size=(2, 500))
    true = np.linalg.norm(rows[pairs[0]].astype(float) - rows[pairs[1]], axis=1)
    for e in (short, np.hstack([short[:, :-1], long])) if long.shape[1] else (short,):
        assert (np.linalg.norm(e[pairs[0]] - e[pairs[1]], axis=1) <= true * (1 + 1e-4) + 1e-4).all()
    np.testing.assert_allclose(norms, np.linalg.norm(rows - projection.mean, axis=1), rtol=1e-6)


def test_far_from_the_origin():
    rows, queries = images(2000) + 1000.0, images(100, seed=1) + 1000.0
    index, exact = Landmarks().build(rows), Flat().build(rows).nearest(queries, 5)
    assert recall(index.nearest(queries, 5), exact) > 0.99
    assert (index.nearest(rows[:200], 1).distances == 0).all()


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "dot"])
def test_codes_are_stored_searched_and_reranked(metric):
    """Full rows beside codes: the answers of full rows, most of which are not read; codes alone: those of the codes."""
    rows, queries = images(3000) + 0.3, images(150, seed=1) + 0.3
    plain, both, codes = (Landmarks(store=s).build(rows, metric) for s in (None, Int8(), Int8(rerank=False)))
    assert both._table.kept.codes is not None
    assert codes._table.kept.full is None
    for probes in (2, 24, plain.n_landmarks):
        expected, found = plain.nearest(queries, 5, probes=probes), both.nearest(queries, 5, probes=probes)
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_array_equal(found.distances, expected.distances)
    assert both.touched_ < 60  # of 3,000 rows in all cells
    decoded = Flat().build(codes.rows[:], metric).nearest(queries, 5)
    np.testing.assert_array_equal(codes.nearest(queries, 5, probes=codes.n_landmarks).ids, decoded.ids)
    assert recall(codes.nearest(queries, 5), plain.nearest(queries, 5)) > 0.98


def test_codes_take_less_memory():
    rows = images(3000)
    plain, codes = Landmarks().build(rows), Landmarks(store=Int8(rerank=False)).build(rows)
    assert codes.nbytes < 0.4 * plain.nbytes
    assert codes.nbytes < 0.55 * rows.nbytes


@pytest.mark.parametrize("store", [Int8(), Int8(rerank=False)], ids=str)
def test_codes_survive_files_and_changes(store):
    rows, queries = images(2500), images(60, seed=1)
    index = Landmarks(store=store).build(rows[:2000])
    index.add(rows[2000:])
    assert index.remove(np.arange(0, 2500, 7)) == 358
    facts, arrays = index.parts()
    assert arrays["codes"].shape == (2142, 300)
    assert ("rows" in arrays) == store.rerank
    again = restore(facts, arrays)
    left = np.delete(np.arange(2500), np.arange(0, 2500, 7))
    every = index.n_landmarks
    found = index.nearest(queries, 5, probes=every)
    np.testing.assert_array_equal(again.nearest(queries, 5, probes=every).ids, found.ids)
    exact = left[Flat().build(rows[left]).nearest(queries, 5).ids]
    share = np.mean([len(set(a) & set(b)) / 5 for a, b in zip(found.ids, exact)])
    assert share == 1.0 if store.rerank else share > 0.9


def test_a_file_without_codes_gets_them():
    index = Landmarks(store=Int8()).build(images(500))
    facts, arrays = index.parts()
    again = restore(facts, {name: array for name, array in arrays.items() if not name.startswith("codes")})
    assert again.recipe == index.recipe
    np.testing.assert_array_equal(again._table.kept.codes[:], index._table.kept.codes[:])


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "dot"])
def test_the_last_of_bits_alone_is_not_ruled_out_by_its_own_bound(metric):
    rng = np.random.default_rng(0)
    rows = 3 * rng.standard_normal((20, 40))[rng.integers(0, 20, 3000)] + rng.standard_normal((3000, 40))
    queries = (rows[:60] + 0.3 * rng.standard_normal((60, 40))).astype(np.float32)
    index = Landmarks(30, 5, store=Bits(1, rerank=False, miss=1e-9)).build(rows.astype(np.float32), metric)
    few, more = index.nearest(queries, 5), index.nearest(queries, 8)
    np.testing.assert_array_equal(few.ids, more.ids[:, :5])


_STORED = [
    (metric, s) for metric in ("euclidean", "cosine", "dot") for s in (None, Int8(), Int8(rerank=False), Bits(4))
]


@pytest.mark.parametrize(("metric", "store"), _STORED, ids=str)
@pytest.mark.parametrize("d", [3, 30, 300])
def test_one_query_finds_what_a_batch_finds(d, metric, store):
    """Alone a query goes through a kernel of its own, of up to eight too; nine and more are grouped by cell."""
    rows, queries = images(1500, d=d) + 0.3, images(40, seed=1, d=d) + 0.3
    index = Landmarks(n_landmarks=60, store=store).build(rows, metric)
    for probes in (1, 7, 60):
        many = index.nearest(queries, 5, probes=probes)
        for few in (1, 3, 8):
            found = [index.nearest(queries[i : i + few], 5, probes=probes) for i in range(0, 40, few)]
            np.testing.assert_array_equal(np.concatenate([part.ids for part in found]), many.ids)
            np.testing.assert_array_equal(np.concatenate([part.distances for part in found]), many.distances)


def test_one_query_passes_over_cells_that_hold_nothing_near():
    """All cells probed, the answer is exact, also where clusters lie so far apart that most cells are not read."""
    rng = np.random.default_rng(3)
    centers = 20.0 * rng.normal(size=(40, 50))
    rows = np.repeat(centers, 50, axis=0) + rng.normal(size=(2000, 50))
    index, exact = Landmarks(n_landmarks=40).build(rows), Flat().build(rows)
    for query in rows[::97] + 0.1:
        found, true = index.nearest(query[None], 5, probes=40), exact.nearest(query[None], 5)
        np.testing.assert_array_equal(found.ids, true.ids)
        np.testing.assert_array_equal(found.distances, true.distances)


@pytest.mark.parametrize("share", [0.05, 0.4, 0.6, 1.0])
@pytest.mark.parametrize("size", [1.0, 1e4])
def test_one_query_is_projected_as_a_batch_is(share, size):
    """By its columns that are not zero where these are few, though some be large in all rows."""
    rng = np.random.default_rng(0)
    rows = np.where(rng.random((2000, 300)) < share, images(2000, seed=1), 0.0)
    rows[:, 7] = size
    index = Landmarks(n_landmarks=20).build(rows)
    placed = frozen(rows[:8])
    expected, found, near = index._projection.project(placed), index._projection.allocate(8), empty_heaps(8, 3)
    find_cells(placed, index._finder, CellQueries(found.short, found.long, placed, found.norms), *near)
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, atol=2e-5 * expected.norms.max())
    keys = index._finder.marks - expected.leading @ index._landmarks.T
    np.testing.assert_array_equal(near.ids, np.argsort(keys, axis=1)[:, :3])


@pytest.mark.parametrize("bits", [1, 4])
def test_bits_of_cells_far_from_the_origin_lose_no_more_than_they_say(bits):
    """Cosines that differ in the eighth digit: the rounding of a length was more, and 9 in 10 were lost."""
    rng = np.random.default_rng(0)
    rows, queries = ((rng.integers(-1, 2, (n, 128)) + 4096).astype(np.float32) for n in (1500, 30))
    found = Landmarks(n_landmarks=9, probes=9, store=Bits(bits)).build(rows, "cosine").nearest(queries, 10)
    assert recall(found, Flat().build(rows, "cosine").nearest(queries, 10)) > 0.99
