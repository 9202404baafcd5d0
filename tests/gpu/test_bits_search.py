"""Codes of a few bits on a device: the CPU's ids and digits where nobody is lost, nobody lost within an error bar."""

import os
import subprocess
import sys

import numpy as np
import pytest
from tests.helpers.neighbors import assert_same_neighbors

pytest.importorskip("torch")

from kway.errors import BudgetError
from kway.neighbors import NeighborsClassifier
from kway.rows.gpu import sign_codes as module
from kway.search import Bits, Flat

from .conftest import hostile

METRICS = ["euclidean", "cosine", "dot"]
SURE = 1e-9  # of a miss: the CPU then loses nobody either


def clustered(n, d, seed=0):
    rng = np.random.default_rng(seed)
    middles = 3 * rng.standard_normal((20, d))
    rows = middles[rng.integers(0, 20, n)] + rng.standard_normal((n, d))
    return rows.astype(np.float32), (rows[:40] + 0.3 * rng.standard_normal((40, d))).astype(np.float32)


@pytest.mark.parametrize("where", ["on the GPU", "on the CPU"])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("bits", [1, 2, 4])
def test_where_nobody_is_lost_answers_are_those_of_the_cpu(by_device, monkeypatch, bits, metric, where):
    from kway.rows.gpu import flat_search

    if where == "on the CPU":
        monkeypatch.setattr(flat_search, "GPU_BLOCK_BYTES", 2**61)
    store = Bits(bits, miss=SURE)
    rows, queries = clustered(3000, 100)
    index, oracle = by_device(Flat(store)).build(rows, metric), Flat(store).build(rows, metric)
    assert f"full rows measured {where}" in index.why_
    assert_same_neighbors(index, oracle, queries, 7)
    np.testing.assert_array_equal(index.nearest(queries, 7).ids, Flat().build(rows, metric).nearest(queries, 7).ids)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("bits", [1, 2, 4])
def test_codes_alone_give_the_cpus_estimates_to_the_digit(by_device, bits, metric):
    store = Bits(bits, rerank=False, miss=SURE)
    rows, queries = clustered(2500, 70, seed=1)
    assert_same_neighbors(by_device(Flat(store)).build(rows, metric), Flat(store).build(rows, metric), queries, 5)


@pytest.mark.parametrize("kind", ["gaussian", "copies", "one huge row", "zeros among them", "far origin"])
def test_nobody_is_lost_whose_estimate_lies_within_its_error_bar(by_device, kind):
    rows, k = hostile(kind, 2000, 64), 5
    queries = rows[:30] + np.float32(0.01)
    for metric in METRICS:
        index = by_device(Flat(Bits(1))).build(rows, metric)
        found, exact = index.nearest(queries, k), Flat().build(rows, metric).nearest(queries, k)
        scan, lost = index._scan, np.flatnonzero((found.distances > exact.distances).any(axis=1))
        everyone = Flat(Bits(1, rerank=False)).build(rows, metric)._main
        codes, z = everyone.codes, scan.z * float(scan.codes.widest[0])
        from kway.search.codecs.bit_scan import bit_queries

        asked = bit_queries(queries.astype(np.float64), codes.frame)
        for i in lost:  # each row that was nearer: its estimate, less its bar, lies beyond the k-th distance found
            keys = -codes.factors() * (codes.grid() @ asked.rotated[i])
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
    assert_same_neighbors(index, oracle, queries, 6)
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
    from kway.rows.gpu.device import Device

    monkeypatch.setattr(Device, "free_bytes", lambda self: 1000)
    model = NeighborsClassifier(index=Flat(Bits(1)), device="cuda")
    with pytest.raises(BudgetError, match=r"500 rows x 10 columns as codes needs .* GiB free"):
        model.fit(np.ones((500, 10)), np.arange(500) % 2)
    assert not hasattr(model, "index_")


def test_auto_says_why():
    index = Flat(Bits(1), device="auto").build(clustered(100, 5)[0])
    assert "codes of 1 bits" in index.why_
    assert "on the CPU: too small" in index.why_


@pytest.mark.parametrize("c", [64, 4096, 4100])
def test_the_smallest_of_many_keys(device, c):
    from kway.rows.gpu.exact_search import smallest_keys

    keys = np.random.default_rng(0).integers(0, 500, (9, c)).astype(np.float32)
    found = smallest_keys(device.put(keys), 11)
    ids, values = device.fetch(found.ids), device.fetch(found.distances)
    np.testing.assert_array_equal(np.sort(values, axis=1), np.sort(keys, axis=1)[:, :11])
    np.testing.assert_array_equal(np.take_along_axis(keys, ids, axis=1), values)
    assert all(len(set(row)) == 11 for row in ids)


class _ByProducts:
    """Lists as a Hopper GPU fills them, by torch: the best by Hamming, all of them up to one bit below the last."""

    def __init__(self, codes, queries, keep):
        torch = codes.device.torch
        self.q = len(queries)
        self.ids = codes.best_matches(queries, keep)
        own = module.unpack_codes(codes.words[self.ids.reshape(-1)], 1, torch.float32).view(*self.ids.shape, -1)
        self.found = module.ListedCodes(
            ((own * module._sign(queries)[:, None]).sum(2) / 2 + 256).int(), (own * queries[:, None]).sum(2)
        )
        self.least_agreement = self.found.agree.amin(1) + 1  # some codes with one bit less may be missing
        self.counts = torch.full_like(self.least_agreement, keep)

    def fill(self):
        pass

    def measure(self):
        return self.found


@pytest.mark.parametrize("rerank", [True, False])
@pytest.mark.parametrize("metric", METRICS)
def test_signs_filter_first_where_a_gpu_has_the_unit_for_it(by_device, device, metric, rerank, monkeypatch):
    from kway.rows.gpu import sign_codes as sign_filter

    n = sign_filter.BLOCK_CODES + 100 if device.is_gpu and module.cuda_kernels.can_compile() else 5000
    rng = np.random.default_rng(4)
    rows = rng.standard_normal((n, 500), dtype=np.float32)
    queries = rng.standard_normal((40, 500), dtype=np.float32)
    queries[20:] = rows[n - 20 :] + 0.5 * queries[20:]  # some that are near, some that are not
    if n == 5000:
        monkeypatch.setattr(sign_filter.SignFilter, "is_worthwhile", staticmethod(lambda *what: True))
        monkeypatch.setattr(sign_filter, "CodeLists", _ByProducts)
    store = Bits(1, rerank=rerank, miss=1e-6)
    index, oracle = by_device(Flat(store)).build(rows, metric), Flat(store).build(rows, metric)
    assert index._main.codes.filter is not None
    undecided, multiply = [], type(index._main.codes)._filter
    monkeypatch.setattr(
        type(index._main.codes),
        "_filter",
        lambda self, asked, *rest: undecided.append(len(asked.norms)) or multiply(self, asked, *rest),
    )
    assert_same_neighbors(index, oracle, queries, 1)
    assert sum(undecided[:1]) <= 20 or metric == "dot"  # the filter decides the near ones
    assert sum(undecided[:1]) < len(queries)


def test_how_many_bits_may_differ_is_the_quantile_of_a_binomial(device):
    from kway.kernels.codes.bit_scan import least_cosine
    from kway.rows.gpu.sign_codes import SignFilter

    rng = np.random.default_rng(0)
    norms, most = rng.random(200) * 3 + 0.01, rng.integers(100, 300, 200)
    for squared in (True, False):
        worst = rng.random(200) * 2
        base = norms**2 if squared else np.ones(200)
        keys = 0.5 * (worst**2 - base) if squared else worst - base
        lengths = np.float32(0.5), np.float32(2)
        cosines = [least_cosine(squared, key, norm, *lengths) for key, norm in zip(keys, norms)]
        shares = np.arccos(np.minimum(cosines, 1.0)) / np.pi  # of bits that differ
        expected = 512.0 * shares + 3.0 * np.sqrt(512.0 * shares * (1.0 - shares)) + 0.5 < most + 1
        found = SignFilter(None, 3.0, 0.5, 2.0).covers(*map(device.put, (keys, norms)), squared, device.put(most))
        np.testing.assert_array_equal(device.fetch(found), expected)
        assert 0 < expected.sum() < 200


UNPACKED = """
import numpy as np, torch
from kway.rows.gpu.sign_codes import unpack_by_kernel, unpack_codes
from tests.helpers.neighbors import assert_same_neighbors
words = torch.from_numpy(np.random.default_rng(0).integers(-2**31, 2**31, (70, 12)).astype(np.int32))
for bits in (1, 2, 4):
    expected = unpack_codes(words, bits, torch.float32)
    out = torch.empty((70, 32 * 12 // bits))
    unpack_by_kernel(words, out, bits)
    assert torch.equal(out, expected)
    assert sorted(out.unique().tolist()) == list(range(1 - 2**bits, 2**bits, 2))
"""


def test_the_kernel_that_unpacks_codes_by_tritons_interpreter():
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, "-c", UNPACKED],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_kernel_that_unpacks_codes(device):
    torch = device.torch
    words = device.put(np.random.default_rng(0).integers(-(2**31), 2**31, (70, 12)).astype(np.int32))
    for bits in (1, 2, 4):
        found = module.unpack_codes(words, bits, torch.float32)
        planes = (words[:, :, None] >> torch.arange(32, device=device.name)) & 1
        signs = (planes.view(70, bits, -1) * 2 - 1).float()
        weights = 2.0 ** torch.arange(bits - 1, -1, -1, device=device.name)
        assert torch.equal(found, (signs * weights[:, None]).sum(1))


def test_tensors_whose_rows_differ_by_many_orders_are_coded_on_the_cpu(by_device):
    """The CPU scales and encodes such rows, and copies the codes to the device."""
    import torch

    source = torch.Generator().manual_seed(0)
    rows = torch.randn((2000, 64), generator=source)
    rows *= 1e4 * torch.rand((2000, 1), generator=source).clamp(min=1e-3) ** -1.0
    found = by_device(Flat(store=Bits(1))).build(rows).nearest(rows[:20], 5)
    assert found.ids[:, 0].tolist() == list(range(20))
