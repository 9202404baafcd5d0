"""Codes on a device: the best by Hamming are those of brute force, ties to the lower position, full lists too."""

import itertools

import numpy as np
import pytest

pytest.importorskip("torch")

from kway.rows.gpu import sign_codes as module
from kway.rows.gpu.generated_rows import CounterRows, counter_rows
from kway.rows.gpu.sign_codes import SignCodes, device_sign_words


def by_brute_force(words, queries, keep):
    """Positions (q, keep) by (bits that differ, position), then sorted; words (n, 16) int32."""
    own = (queries > 0).reshape(len(queries), 16, 32)
    asked = (own.astype(np.uint64) << np.arange(32, dtype=np.uint64)).sum(2).astype(np.uint32)
    differ = np.stack([np.bitwise_count(words.view(np.uint32) ^ q).sum(1) for q in asked])
    return np.sort(np.lexsort((np.tile(np.arange(len(words)), (len(queries), 1)), differ), axis=1)[:, :keep], axis=1)


def some_codes(device, n, seed=0, distinct=None):
    rng = np.random.default_rng(seed)
    words = rng.integers(-(2**31), 2**31, (n, 16)).astype(np.int32)
    if distinct is not None:
        words = words[rng.integers(0, distinct, n)]
    return SignCodes.build(device, device.put(words)), words, rng


@pytest.mark.parametrize("distinct", [None, 5])
def test_the_best_are_those_of_brute_force(device, distinct, monkeypatch):
    codes, words, rng = some_codes(device, 64 * 50, distinct=distinct)
    queries = rng.standard_normal((9, 512)).astype(np.float32)
    kept = device.fetch(codes.best_matches(device.put(queries), 20))
    np.testing.assert_array_equal(kept, by_brute_force(words, queries, 20))
    monkeypatch.setattr(module, "GROWTH", 1)
    found = codes.nearest(device.put(queries), 3, keep=20)
    signs = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").astype(np.float64) * 2 - 1
    products = np.take_along_axis(queries.astype(np.float64) @ signs.T, kept, axis=1)
    expected = np.take_along_axis(kept, np.argsort(-products, axis=1, kind="stable")[:, :3], axis=1)
    np.testing.assert_array_equal(device.fetch(found.ids), expected)
    np.testing.assert_allclose(-device.fetch(found.distances), -np.sort(-products, axis=1)[:, :3], rtol=1e-5)


@pytest.mark.parametrize("q", [1, 8, 30, 200])
def test_lists_on_a_gpu_keep_the_same(device, q, monkeypatch):
    if not (device.is_gpu and module.cuda_kernels.can_compile()):
        pytest.skip("needs a Hopper GPU")
    monkeypatch.setattr(module, "BLOCK_CODES", 2**15)
    codes, words, rng = some_codes(device, 2**20 + 2**16)
    queries = rng.standard_normal((q, 512)).astype(np.float32)
    lists = module.CodeLists(codes, device.put(queries), 64)
    lists.fill()
    best = by_brute_force(words, queries[:8], 64)
    for ids, count, own in zip(device.fetch(lists.ids), device.fetch(lists.counts), best):
        assert set(own) <= set(ids[:count])
        assert count <= module.CODE_LIST_SIZE
    agree, products = (device.fetch(values) for values in lists.measure())
    signs = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").astype(np.float32) * 2 - 1
    ids, count = device.fetch(lists.ids)[0], int(lists.counts[0])
    np.testing.assert_allclose(products[0, :count], signs[ids[:count]] @ queries[0], rtol=1e-3, atol=1e-2)
    np.testing.assert_array_equal(agree[0, :count], (signs[ids[:count]] == np.where(queries[0] > 0, 1, -1)).sum(1))
    found = codes.nearest(device.put(queries), 2)
    at = np.where(np.arange(module.CODE_LIST_SIZE) < device.fetch(lists.counts)[:, None], products, -np.inf)
    np.testing.assert_allclose(-device.fetch(found.distances)[:, 0], at.max(1), rtol=1e-4)


@pytest.mark.parametrize("n", [64, 2**15, 2**23, 2**30, 1_000_000_000, 1_400_000_000, 2**31 - 64])
def test_the_last_pass_lists_the_same_share_of_its_codes_at_any_number(n):
    ends = module.pass_ends(n)
    assert ends[-1] == n
    assert ends == sorted(set(ends))
    assert all(end % module.CODE_TILE == 0 for end in ends)
    assert ends[0] <= module.GROWTH * module.BLOCK_CODES  # the sample sets the least agreement of the first pass
    assert len(ends) == 1 or ends[0] >= module.BLOCK_CODES
    for before, after in itertools.pairwise(ends):
        assert module.GROWTH / 2 < after / before <= module.GROWTH


def test_a_list_that_overflows_loses_nobody(device):
    if not (device.is_gpu and module.cuda_kernels.can_compile()):
        pytest.skip("needs a Hopper GPU")
    codes, _, rng = some_codes(device, 2**20, distinct=40)
    queries = rng.standard_normal((3, 512)).astype(np.float32)
    lists = module.CodeLists(codes, device.put(queries), 64)
    found, expected = lists.nearest(3), codes.by_products(device.put(queries), 3, 64)
    assert bool((lists.counts > module.CODE_LIST_SIZE).all())
    np.testing.assert_array_equal(device.fetch(found.ids), device.fetch(expected.ids))


def test_rows_of_the_counter_are_the_same_everywhere_and_known_again(device):
    made = CounterRows(device.name)
    classes = np.array([0, 1, 77, 2999])
    rows = counter_rows(classes)
    assert np.abs(rows).max() == 127.5
    assert abs(np.corrcoef(rows)[0, 1]) < 0.2
    np.testing.assert_array_equal(device.fetch(made.rows(device.put(classes))), rows)
    codes = made.codes(3000)
    exact = device.fetch(device_sign_words(device.put(rows) @ made.turn.float()))
    assert np.bitwise_count((exact ^ device.fetch(codes.words)[classes]).view(np.uint32)).sum() <= 4  # rounding at 0
    asked = np.random.default_rng(0).integers(0, 3000, 100)
    found = codes.nearest(made.queries(device.put(asked), 0.6))
    assert (device.fetch(found.ids)[:, 0] == asked).all()
