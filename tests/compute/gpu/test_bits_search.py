"""Codes of a few bits on a device: the CPU's ids and digits where nobody is lost, nobody lost within an error bar."""

import numpy as np
import pytest

from kway.errors import BudgetError
from kway.neighbors import NeighborsClassifier
from kway.search import Bits, Flat

from .conftest import hostile

METRICS = ["euclidean", "cosine", "dot"]
SURE = 1e-9  # of a miss: the CPU then loses nobody either


def clustered(n, d, seed=0):
    rng = np.random.default_rng(seed)
    middles = 3 * rng.standard_normal((20, d))
    rows = middles[rng.integers(0, 20, n)] + rng.standard_normal((n, d))
    return rows.astype(np.float32), (rows[:40] + 0.3 * rng.standard_normal((40, d))).astype(np.float32)


def same(index, oracle, queries, k):
    found, expected = index.nearest(queries, k), oracle.nearest(queries, k)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.distances, expected.distances)


@pytest.mark.parametrize("where", ["there", "on the host"])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("bits", [1, 2, 4])
def test_where_nobody_is_lost_answers_are_those_of_the_cpu(by_device, monkeypatch, bits, metric, where):
    from kway.search import bits_on_device

    if where == "on the host":
        monkeypatch.setattr(bits_on_device, "_SPARE", 2**63)
    store = Bits(bits, miss=SURE)
    rows, queries = clustered(3000, 100)
    index, oracle = by_device(Flat(store)).build(rows, metric), Flat(store).build(rows, metric)
    assert f"full rows measured {where}" in index.why_
    same(index, oracle, queries, 7)
    np.testing.assert_array_equal(index.nearest(queries, 7).ids, Flat().build(rows, metric).nearest(queries, 7).ids)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("bits", [1, 2, 4])
def test_codes_alone_give_the_cpus_estimates_to_the_digit(by_device, bits, metric):
    store = Bits(bits, rerank=False, miss=SURE)
    rows, queries = clustered(2500, 70, seed=1)
    same(by_device(Flat(store)).build(rows, metric), Flat(store).build(rows, metric), queries, 5)


@pytest.mark.parametrize("kind", ["gaussian", "copies", "one huge row", "zeros among them", "far origin"])
def test_nobody_is_lost_whose_estimate_lies_within_its_error_bar(by_device, kind):
    rows, k = hostile(kind, 2000, 64), 5
    queries = rows[:30] + np.float32(0.01)
    for metric in METRICS:
        index = by_device(Flat(Bits(1))).build(rows, metric)
        found, exact = index.nearest(queries, k), Flat().build(rows, metric).nearest(queries, k)
        scan, lost = index._main, np.flatnonzero((found.distances > exact.distances).any(axis=1))
        everyone = Flat(Bits(1, rerank=False)).build(rows, metric)._main
        codes, z = everyone.codes, scan.z * float(scan.codes.widest[0])
        from kway.search.bit_scan import BitQueries

        asked = BitQueries.of(queries.astype(np.float64), codes.frame)
        for i in lost:  # each row that was nearer: its estimate, less its bar, lies beyond the k-th distance found
            keys = -codes.factors() * (codes.grid() @ asked.turned[i])
            keys += codes.halves() if metric == "euclidean" else 0
            low = keys - z * codes.factors() * asked.norms[i]
            worst = float(found.distances[i, -1])
            limit = 0.5 * (worst**2 - asked.base[i]) if metric == "euclidean" else worst - asked.base[i]
            for nearer in set(exact.ids[i]) - set(found.ids[i]):
                assert low[nearer] >= limit - 1e-4 * abs(limit)
        assert len(lost) <= 2


def test_rows_added_and_removed_and_a_file(by_device, tmp_path, monkeypatch):
    import kway

    store = Bits(1, miss=SURE)
    rows, queries = clustered(800, 40, seed=2)
    index, oracle = by_device(Flat(store)).build(rows), Flat(store).build(rows)
    for live in (index, oracle):
        live.remove([0, 5, 77])
        live.add(rows[:40] + 1)
    same(index, oracle, queries, 6)
    labels = np.arange(800) % 5
    model, other = (NeighborsClassifier(index=Flat(store), device=name).fit(rows, labels) for name in ("cuda", "cpu"))
    assert "device under test" in model.index_.why_
    np.testing.assert_array_equal(model.predict_proba(queries), other.predict_proba(queries))
    model.save(tmp_path / "model.kway")
    monkeypatch.undo()
    again = kway.load(tmp_path / "model.kway")
    np.testing.assert_array_equal(again.kneighbors(queries)[1], other.kneighbors(queries)[1])


@pytest.mark.parametrize("rerank", [True, False])
@pytest.mark.parametrize("metric", METRICS)
def test_tensors_in_tensors_out(by_device, device, metric, rerank):
    store = Bits(1, rerank=rerank, miss=SURE)
    rows, queries = clustered(2000, 100, seed=3)
    rows[50:60] = rows[50]  # ties
    queries[0] = rows[50]
    index, oracle = by_device(Flat(store)).build(device.put(rows), metric), Flat(store).build(rows, metric)
    found, expected = index.nearest(device.put(queries), 5), oracle.nearest(queries, 5)
    assert isinstance(found.ids, device.torch.Tensor)
    near_zero = 1e-4 if rerank else 0.02  # an estimate near 0 is the root of a difference
    np.testing.assert_allclose(device.fetch(found.distances), expected.distances, rtol=1e-4, atol=near_zero)
    agree = device.fetch(found.ids) == expected.ids
    assert agree.all() if rerank else agree.mean() > 0.98  # estimates in float32 tie to a digit or two


def test_too_little_memory_is_an_error_with_figures_and_nothing_half_built(by_device, monkeypatch):
    from kway.compute.gpu.device import Device

    monkeypatch.setattr(Device, "free_bytes", lambda self: 1000)
    model = NeighborsClassifier(index=Flat(Bits(1)), device="cuda")
    with pytest.raises(BudgetError, match=r"500 rows x 10 columns as codes needs .* GiB free"):
        model.fit(np.ones((500, 10)), np.arange(500) % 2)
    assert not hasattr(model, "index_")


@pytest.mark.parametrize("c", [64, 4096, 4100])
def test_the_smallest_of_many_keys(device, c):
    from kway.compute.gpu.exact import least_few

    keys = np.random.default_rng(0).integers(0, 500, (9, c)).astype(np.float32)
    found = least_few(device.put(keys), 11)
    ids, values = device.fetch(found.ids), device.fetch(found.distances)
    np.testing.assert_array_equal(np.sort(values, axis=1), np.sort(keys, axis=1)[:, :11])
    np.testing.assert_array_equal(np.take_along_axis(keys, ids, axis=1), values)
    assert all(len(set(row)) == 11 for row in ids)
