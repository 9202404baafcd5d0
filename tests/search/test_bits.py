"""Rows as bits: estimates against their error bars, neighbors against brute force, before and after a save."""

import os

import numpy as np
import pytest

import kway
from kway.errors import CombinationError, InputError
from kway.search import Bits, Flat, Landmarks, Neighbors, restore
from kway.search.codecs.bit_scan import bit_queries, make_filter, sample_signs
from kway.search.distances import COSINE, DOT, EUCLIDEAN, HAMMING, MANHATTAN

METRICS = ("cosine", "dot", "euclidean")


def recall(found: Neighbors, true: Neighbors) -> float:
    return float(np.mean([len(np.intersect1d(a, b)) / len(b) for a, b in zip(found.ids, true.ids)]))


def units(rng, n, d):
    rows = rng.standard_normal((n, d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def at_cosine(rng, rows, cosine):
    """Queries at this cosine to the rows, otherwise at random."""
    away = rng.standard_normal(rows.shape)
    away -= np.einsum("ij,ij->i", away, rows)[:, None] * rows
    return cosine * rows + np.sqrt(1 - cosine**2) * away / np.linalg.norm(away, axis=1, keepdims=True)


def clustered(n=3000, d=96, seed=0):
    """Clouds of different sizes, far from the origin, lengths over a factor of ten."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(40, d)) * rng.uniform(0.5, 3, (40, 1)) + 2.0
    rows = centers[rng.integers(0, 40, n + 100)] + rng.normal(size=(n + 100, d)) * rng.uniform(0.2, 1, (n + 100, 1))
    return rows[:n].astype(np.float32), rows[n:].astype(np.float32)


@pytest.mark.parametrize("d", [5, 64, 100, 784])
def test_the_rotation_keeps_lengths_and_turns_back(d):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(7, d))
    frame = Bits(4).frame(rows, DOT)
    turned = frame.rotate(rows)
    assert turned.shape[1] % 64 == 0
    np.testing.assert_allclose(turned @ turned.T, rows @ rows.T, atol=1e-3)
    decoded = Bits(4).encode(rows, DOT)[:]
    assert np.linalg.norm(decoded - rows) < 0.15 * np.linalg.norm(rows)


@pytest.mark.parametrize(("bits", "lost"), [(1, 0.3634), (2, 0.1188), (4, 0.01154)])
def test_estimates_are_unbiased_and_as_far_off_as_their_bars_say(bits, lost):
    """`lost`: mean squared error of the best uniform quantiser of a normal with 2^bits levels (Max, 1960)."""
    rng = np.random.default_rng(2)
    rows = units(rng, 4000, 512)
    queries = at_cosine(rng, rows, 0.6)
    codes = Bits(bits).encode(rows, COSINE)
    turned = codes.frame.rotate(queries)
    y = codes.grid()
    estimates = codes.factors() * np.einsum("ij,ij->i", turned, y)
    orthogonal = codes.factors() ** 2 * np.einsum("ij,ij->i", y, y) - 2.0 * codes.halves()
    errors, bars = estimates - 0.6, 0.8 * np.sqrt(np.maximum(orthogonal, 0.0) / (codes.frame.wide - 1))
    assert abs(errors.mean()) < 4 * errors.std() / np.sqrt(len(errors))
    assert abs((errors / bars).std() - 1) < 0.05
    deviation = 0.8 * np.sqrt(lost / (1 - lost) / 511)  # 0.027 for one bit
    assert 0.9 * deviation < errors.std() < 1.03 * deviation


def test_one_factor_of_two_bytes_for_unit_rows_about_the_origin():
    rng = np.random.default_rng(3)
    rows = units(rng, 2000, 512).astype(np.float32)
    index = Flat(store=Bits(1, rerank=False)).build(rows, "cosine")
    assert index.nbytes < 2000 * (64 + 2) + 8000
    codes = index.rows
    assert codes.factor.dtype == np.uint16
    assert not len(codes.half)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("bits", [1, 2, 4])
def test_neighbors_before_and_after_parts(metric, bits):
    rows, queries = clustered()
    true = Flat().build(rows, metric).nearest(queries, 10)
    index = Flat(store=Bits(bits)).build(rows, metric)
    found = index.nearest(queries, 10)
    assert recall(found, true) >= 0.99
    np.testing.assert_array_less(0, 1 + index.touched_)
    facts, arrays = index.parts()
    again = restore(facts, {name: _read_only(array) for name, array in arrays.items()}).nearest(queries, 10)
    np.testing.assert_array_equal(again.ids, found.ids)
    np.testing.assert_array_equal(again.distances, found.distances)


def _read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("metric", METRICS)
def test_digits(metric):
    data = kway.datasets.load("digits")
    rows, queries = data.x_train[:4000].astype(np.float32), data.x_test[:200].astype(np.float32)
    true = Flat().build(rows, metric).nearest(queries, 10)
    assert recall(Flat(store=Bits(1)).build(rows, metric).nearest(queries, 10), true) >= 0.99
    by_bits = [
        recall(Flat(store=Bits(b, rerank=False)).build(rows, metric).nearest(queries, 10), true) for b in (1, 2, 4)
    ]
    assert by_bits == sorted(by_bits)
    assert by_bits[-1] > 0.9


@pytest.mark.parametrize("metric", METRICS)
def test_without_rows_distances_are_those_of_the_estimate(metric):
    rows, queries = clustered(500)
    index = Flat(store=Bits(2, rerank=False)).build(rows, metric)
    found = index.nearest(queries.astype(np.float64), 500)
    codes = index.rows
    asked = bit_queries(queries.astype(np.float64), codes.frame)
    products = (asked.rotated @ codes.grid().T) * codes.factors()
    keys = codes.halves() - products if metric == "euclidean" else -products
    expected = asked.base[:, None] + (2 if metric == "euclidean" else 1) * keys
    expected = np.sqrt(np.maximum(expected, 0)) if metric == "euclidean" else expected
    expected = expected if metric == "dot" else np.maximum(expected, 0)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found.distances, np.sort(expected, axis=1), atol=2e-3 * scale)


def test_the_filter_passes_few_rows_and_loses_as_few_as_was_promised():
    rng = np.random.default_rng(4)
    rows = units(rng, 20_000, 256).astype(np.float32)
    truth = rng.integers(0, len(rows), 400)
    queries = at_cosine(rng, rows[truth].astype(float), 0.7).astype(np.float32)
    for miss, least in ((0.002, 0.99), (0.2, 0.7)):
        index = Flat(store=Bits(1, rerank=False, miss=miss)).build(rows, "cosine")
        assert (index.search(queries, 1).ids[:, 0] == truth).mean() >= least
        assert index.touched_ < 0.2 * len(rows)


def test_rows_come_and_go():
    rows, queries = clustered()
    index = Flat(store=Bits(4)).build(rows[:2000])
    index.add(rows[2000:])
    assert index.remove(np.arange(0, 3000, 7)) == 429
    left = np.setdiff1d(np.arange(3000), np.arange(0, 3000, 7))
    true = Flat().build(rows[left], ids=left).nearest(queries, 10)
    assert recall(index.nearest(queries, 10), true) >= 0.99


def test_equal_rows_zero_rows_and_few_rows():
    for metric in METRICS:
        index = Flat(store=Bits(1)).build(np.zeros((3, 2)), metric)
        assert index.nearest(np.ones((1, 2)), 5).ids.tolist() == [[0, 1, 2, -1, -1]]
        only = Flat(store=Bits(1, rerank=False)).build(np.ones((40, 3)), metric)
        assert np.isfinite(only.nearest(np.ones((2, 3)), 40).distances).all()


def test_answers_are_approximate_and_say_so():
    assert not Flat(store=Bits()).exact
    assert Flat().exact
    assert "approximate" in Flat(store=Bits()).build(np.eye(4)).why_
    with pytest.raises(InputError, match="1, 2 or 4"):
        Bits(3)
    with pytest.raises(InputError, match="miss"):
        Bits(miss=0.0)
    for distance in (MANHATTAN, HAMMING):
        with pytest.raises(CombinationError, match=distance.name):
            Bits().check(distance, sparse=False)
    with pytest.raises(CombinationError, match="sparse"):
        Bits().check(EUCLIDEAN, sparse=True)


@pytest.mark.parametrize("store", [Bits(1), Bits(2, rerank=False)], ids=str)
def test_classifiers_search_bits_before_and_after_a_save(store, tmp_path):
    data = kway.datasets.load("digits")
    model = kway.NeighborsClassifier(3, metric="cosine", index=Flat(store=store)).fit(
        data.x_train[:2000], data.y_train[:2000]
    )
    answers = model.predict(data.x_test[:300])
    assert (answers == data.y_test[:300]).mean() > 0.92
    model.save(tmp_path / "m.kway")
    np.testing.assert_array_equal(kway.load(tmp_path / "m.kway").predict(data.x_test[:300]), answers)


@pytest.mark.slow
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", ["fashion_mnist", "clinc150_minilm", "banking77_minilm", "glove100_25k"])
def test_real_data_before_and_after_a_save(name, metric):
    if not os.path.isdir(os.environ.get("KWAY_DATA", "")):
        pytest.skip("set KWAY_DATA")
    rows, queries = _real(name)
    true = Flat().build(rows, metric).nearest(queries, 10)
    for bits in (1, 4):
        index = Flat(store=Bits(bits)).build(rows, metric)
        found = index.nearest(queries, 10)
        assert recall(found, true) >= 0.99
        np.testing.assert_array_equal(restore(*index.parts()).nearest(queries, 10).ids, found.ids)
    alone = Flat(store=Bits(4, rerank=False)).build(rows, metric)
    assert recall(alone.nearest(queries, 10), true) > 0.75
    assert alone.nbytes < rows.nbytes / 5


def _real(name):
    with np.load(os.path.join(os.environ["KWAY_DATA"], f"{name}.npz")) as held:
        arrays = sorted((held[key] for key in held.files if held[key].ndim >= 2), key=len)
    rows = arrays[-1].reshape(len(arrays[-1]), -1).astype(np.float32)
    queries = arrays[0].reshape(len(arrays[0]), -1).astype(np.float32) if len(arrays) > 1 else rows[-500:]
    return (rows if len(arrays) > 1 else rows[:-500]), queries[:300]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("bits", [1, 2, 4])
def test_cells_find_what_brute_force_does(metric, bits):
    """All cells, and what codes about landmarks lose against codes about one center."""
    rows, queries = clustered()
    true = Flat().build(rows, metric).nearest(queries, 10)
    index = Landmarks(store=Bits(bits)).build(rows, metric)
    found = index.nearest(queries, 10, probes=index.n_landmarks)
    assert recall(found, true) >= 0.99
    assert index.touched_ < 0.5 * len(rows)
    np.testing.assert_allclose(np.sort(found.distances), found.distances)
    facts, arrays = index.parts()
    again = restore(facts, {name: _read_only(array) for name, array in arrays.items()})
    for a, b in zip(again.nearest(queries, 10), index.nearest(queries, 10)):
        np.testing.assert_array_equal(a, b)
    alone = Landmarks(store=Bits(bits, rerank=False)).build(rows, metric)
    about_one = Flat(store=Bits(bits, rerank=False)).build(rows, metric)
    by_cells = recall(alone.nearest(queries, 10, probes=alone.n_landmarks), true)
    assert by_cells > recall(about_one.nearest(queries, 10), true) - 0.02
    assert by_cells > {1: 0.3, 2: 0.5, 4: 0.75}[bits]
    assert alone.nbytes < about_one.nbytes + alone.n_landmarks * 4 * (96 + 128 + 64 + 8) + 16 * len(rows)


@pytest.mark.parametrize("metric", METRICS)
def test_distances_of_cells_are_those_of_the_estimate(metric):
    rows, queries = clustered(500)
    index = Landmarks(n_landmarks=7, store=Bits(4, rerank=False)).build(rows, metric)
    found = index.nearest(queries, 500, probes=7)
    codes = index.rows
    y, f = codes.grid(), codes.factors()
    centers, frame = codes.landmarks[codes.cells].astype(np.float64), codes.frame
    placed = np.asarray(index.metric.distance.place(queries.astype(np.float64)))
    estimated = np.array([  # <q - m, x - m> of every row, but <q, x - m> under dot
        f * np.einsum("ij,ij->i", frame.rotate(q - (0 if metric == "dot" else centers)).astype(float), y)
        if metric != "dot"
        else f * (frame.rotate(q[None]).astype(float) @ y.T)[0]
        for q in placed
    ])  # fmt: skip
    gaps = np.square(placed[:, None] - centers).sum(axis=2)  # (q, n)
    squared = gaps + 2 * codes.halves() - 2 * estimated
    expected = {
        "euclidean": np.sqrt(np.maximum(squared, 0)),
        "cosine": np.maximum(0.5 * squared, 0),
        "dot": -np.einsum("qd,nd->qn", placed, centers) - estimated,
    }[metric]
    given = np.take_along_axis(expected, found.ids, axis=1)
    np.testing.assert_allclose(found.distances, given, atol=2e-3 * np.abs(expected).max())


def test_rows_come_and_go_from_cells():
    rows, queries = clustered()
    for store in (Bits(4), Bits(4, rerank=False)):
        index = Landmarks(store=store).build(rows[:1000])
        index.add(rows[1000:])
        assert index.remove(np.arange(0, 3000, 7)) == 429
        left = np.setdiff1d(np.arange(3000), np.arange(0, 3000, 7))
        true = Flat().build(rows[left], ids=left).nearest(queries, 10)
        found = index.nearest(queries, 10, probes=index.n_landmarks)
        assert recall(found, true) >= (0.99 if store.rerank else 0.75)


def test_zero_rows_and_few_rows_in_cells():
    for metric in METRICS:
        index = Landmarks(store=Bits(1)).build(np.zeros((3, 2)), metric)
        assert index.nearest(np.ones((1, 2)), 5).ids.tolist() == [[0, 1, 2, -1, -1]]
        only = Landmarks(store=Bits(1, rerank=False)).build(np.ones((40, 3)), metric)
        assert np.isfinite(only.nearest(np.ones((2, 3)), 40).distances).all()
    rows = np.random.default_rng(0).normal(size=(300, 64)) + 1
    rows[5] = 0
    index = Landmarks(n_landmarks=5, probes=5, store=Bits(4, rerank=False)).build(rows, "cosine")
    found = index.nearest(np.concatenate([rows[:20], np.zeros((1, 64))]), 300)
    np.testing.assert_allclose(found.distances[found.ids == 5], 1.0, atol=0.1)
    np.testing.assert_allclose(found.distances[20], 1.0, atol=0.1)


def test_a_filter_is_not_enough_where_nothing_bounds_the_cosine():
    """At a cosine of -1 all bits may differ; fastmath once made a root of less than nothing of it."""
    from kway.kernels.codes.bit_scan import CodedQueries, Estimator
    from kway.kernels.codes.first_filter import FirstFilter, enough

    norms, out = np.linspace(0.01, 3, 200), np.empty(200, dtype=bool)
    counts = np.tile(np.array([0, 100, 100]), (200, 2, 1))
    most, step = np.full((200, 2), 299), np.full(200, 0.03)
    short, long = np.float32(0.5), np.float32(2)
    how, turned, none = Estimator(0, True, True, 0.0, 3.0, 0.0), np.zeros((200, 512), np.float32), np.zeros((200, 0))
    asked = CodedQueries(np.zeros((200, 8), np.uint64), turned, norms, norms, norms**2, none)
    which = FirstFilter(0, none, none, none, most, counts, step)
    enough(how, norms + 5, asked, short, long, which, out)
    assert not out.any()
    enough(how, norms * 0.01, asked, short, long, which, out)
    assert out.any()


@pytest.mark.parametrize("q", [1, 20])
def test_a_first_filter_passes_about_the_share_that_it_should(q):
    """One query reads all groups of the first words, a batch reads the groups of large coordinates of all words."""
    rng = np.random.default_rng(0)
    codes = Bits(1).encode(units(rng, 20_000, 256), COSINE)
    queries = np.concatenate([units(rng, max(1, q - 1), 256), np.zeros((1, 256))])[:q]
    asked = bit_queries(queries, codes.frame)
    found = make_filter(asked, sample_signs(codes), 10**8, 1)
    assert found.groups.shape == ((q, 48) if q == 1 else (q, 36))
    assert found.n_words == (3 if q == 1 else 4)
    y = codes.grid()
    for i in range(min(q, 2)):
        some, every = _weights(found.planes[i])  # (D,) of the groups, of all
        asked_for = np.isin(np.arange(256) // 4, found.groups[i])
        np.testing.assert_array_equal(some, np.where(asked_for, every, 0))
        np.testing.assert_array_equal(found.tables[i].max(axis=1), every[asked_for].reshape(-1, 4).sum(axis=1))
        differ = (y > 0) != (asked.rotated[i] > 0)
        shares = (differ @ some <= found.limits[i, 0]).mean(), (differ @ every <= found.limits[i, 1]).mean()
        assert 0.1 < shares[0] * (600 if q == 1 else 1500) < 6
        assert shares[1] * 20_000 < 10
        loose = make_filter(asked, sample_signs(codes), 10**8, 1, share=1 / 500)
        every = _weights(loose.planes[i])[1]
        assert 0.1 < (differ @ every <= loose.limits[i, 1]).mean() * 500 < 6
    assert make_filter(asked, sample_signs(codes), 500, 1) is None


def _weights(planes):
    """(2, D) of the bits (2, P, 6) of weights."""
    bits = np.unpackbits(np.ascontiguousarray(planes.swapaxes(1, 2)).view(np.uint8), axis=2, bitorder="little")
    return np.einsum("abd,b->ad", bits.astype(np.int64), 1 << np.arange(6))


@pytest.mark.parametrize("metric", METRICS)
def test_a_portable_filter_answers_the_same(metric, monkeypatch):
    rows, queries = clustered(9000)
    for recipe in (Flat(store=Bits(1, rerank=False)), Flat(store=Bits(2)), Landmarks(store=Bits(1, rerank=False))):
        index = recipe.build(rows, metric)
        for some in (queries[:5], queries):
            monkeypatch.delenv("KWAY_PORTABLE", raising=False)
            here = index.nearest(some, 2)
            monkeypatch.setenv("KWAY_PORTABLE", "1")
            for a, b in zip(index.nearest(some, 2), here):
                np.testing.assert_array_equal(a, b)


def test_threads_that_share_the_cells_of_a_query_find_what_one_finds():
    rng = np.random.default_rng(0)
    rows = units(rng, 3, 64)[rng.integers(0, 3, 90_000)] + 0.1 * rng.standard_normal((90_000, 64)).astype(np.float32)
    index = Landmarks(3, 3, store=Bits(2, rerank=False)).build(rows, "euclidean")
    queries = rows[::9000] + 0.05 * rng.standard_normal((10, 64)).astype(np.float32)
    for query in queries:
        alone, shared = (index.search(query[None], 4, n_jobs=n_jobs) for n_jobs in (1, 2))
        np.testing.assert_array_equal(shared.ids, alone.ids)
        np.testing.assert_array_equal(shared.scores, alone.scores)


@pytest.mark.parametrize("q", [1, 30])
def test_the_first_filter_changes_no_result(q, monkeypatch):
    """Queries in random directions need both scans; rows that both find appear once."""
    from kway.search.codecs import bit_scan

    rng = np.random.default_rng(5)
    rows, queries = units(rng, 9000, 128).astype(np.float32), units(rng, q, 128).astype(np.float32)
    for store in (Bits(1, rerank=False), Bits(1, miss=1e-6)):
        index = Flat(store=store).build(rows, "cosine")
        filtered = index.nearest(queries, 10)
        assert all(len(np.unique(ids)) == 10 for ids in filtered.ids)
        with monkeypatch.context() as patch:
            patch.setattr(bit_scan, "make_filter", lambda *_: None)
            scanned = index.nearest(queries, 10)
        np.testing.assert_array_equal(filtered.ids, scanned.ids)
        np.testing.assert_array_equal(filtered.distances, scanned.distances)
