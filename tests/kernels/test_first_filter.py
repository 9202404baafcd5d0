"""The first filter and the look-up tables: sums equal those of single bits, and pass rates those of the model."""

import numpy as np
import pytest

from kway.kernels.codes.bits import encode_rows
from kway.kernels.codes.first_filter import HIT_STEP, FirstFilter, fill_tables, filter_block, max_weight, weigh_bits
from kway.kernels.codes.row_tiles import TABLE_FEATURES, TILE_ROWS, fill_sum_tables, sum_rows, transpose_rows
from kway.kernels.lanes import cpu_has
from kway.search.codecs.bit_scan import bit_planes, sign_words


def bits_of(words):
    """(n, 64 P) of words (P, n)."""
    return np.unpackbits(np.ascontiguousarray(words.T).view(np.uint8), axis=1, bitorder="little")


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("planes", [1, 3, 4])
def test_the_same_rows_pass_as_one_by_one(planes, fast):
    rng = np.random.default_rng(planes)
    head = rng.integers(0, 2**64, (planes, 900), dtype=np.uint64)
    words = rng.integers(0, 2**64, (7, 8), dtype=np.uint64)
    head[:, 300] = words[0, :planes]  # no bit differs
    head[:, 301] = ~words[0, :planes]  # all do: the sum saturates
    weights = rng.integers(0, [[2], [3], [5], [8], [20], [64], [64]], (7, 64 * planes)).astype(np.uint8)
    groups = np.sort(rng.permuted(np.tile(np.arange(16 * planes), (7, 1)), axis=1)[:, : 9 * planes], axis=1)
    groups, tables = groups.astype(np.uint8), np.empty((7, 9 * planes, 16), np.uint8)
    fill_tables(weights, words, groups, tables)
    differ = bits_of(head)[None] != bits_of(words[:, :planes].T)[:, None]
    asked = np.zeros((7, 16 * planes), dtype=bool)
    np.put_along_axis(asked, groups.astype(np.int64), True, axis=1)
    heavy = weights * np.repeat(asked, 4, axis=1)
    sums = np.einsum("qnj,qj->qn", differ, heavy.astype(np.int64))  # (q, n)
    mosts = np.minimum(np.quantile(sums, 0.1, axis=1).astype(np.int64), 254)
    mosts[6], masks, hits = -1, np.full((7, 12), 2**63 + 1, np.uint64), np.empty(22, np.int64)
    room, split = np.empty((16 * planes, 256), np.uint8), bit_planes(np.stack([heavy, weights], axis=1))
    which = FirstFilter(planes, tables, groups, split, mosts, mosts, mosts)
    m = filter_block(head, 200, 890, which, words, mosts, room, masks, hits, fast)  # two tiles and the rows behind
    quiet = np.ones((7, 3), dtype=bool)
    quiet[hits[:m] % HIT_STEP, hits[:m] // HIT_STEP] = False
    masks.reshape(7, 3, 4)[quiet] = 0
    passed = np.unpackbits(masks.view(np.uint8), axis=1, bitorder="little")
    np.testing.assert_array_equal(passed[:, :690], sums[:, 200:890] <= mosts[:, None])
    assert not passed[:, 690:].any()
    assert 0 < passed[:4].mean() < 0.5
    for row in (300, 301, 777):
        assert weigh_bits(head, row, words[3], split[3, 0]) == sums[3, row]
        assert weigh_bits(head, row, words[3], split[3, 1]) == weights[3].astype(int) @ differ[3, row]


@pytest.mark.parametrize("cosine", [-0.3, 0.0, 0.4, 0.6, 0.95])
@pytest.mark.parametrize("z", [1.0, 2.326])
def test_rows_at_a_cosine_weigh_more_as_seldom_as_is_said(cosine, z):
    """Against rows drawn at the cosine to one query whose coordinates differ widely."""
    rng = np.random.default_rng(0)
    wide, n = 512, 10_000
    query = rng.standard_normal(wide) * np.exp(0.3 * rng.standard_normal(wide))
    query /= np.linalg.norm(query)
    away = rng.standard_normal((n, wide), dtype=np.float32)
    away -= (away @ query)[:, None] * query
    rows = cosine * query + np.sqrt(1 - cosine**2) * away / np.linalg.norm(away, axis=1, keepdims=True)
    unit = 0.02
    weights = np.minimum(np.rint(2 * np.abs(query[:192]) / unit), 63)
    sums = ((rows[:, :192] > 0) != (query[:192] > 0)) @ weights
    counts = np.bincount(weights.astype(np.int64), minlength=64)
    beyond = (sums > max_weight(cosine, z, counts, 0.5 * unit, wide)).mean()
    chance = {1.0: 0.1587, 2.326: 0.01}[z]
    assert beyond < 1.1 * chance + 3 * np.sqrt(chance / n)
    assert beyond > 0.4 * chance


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_signs_of_queries_are_those_of_the_codes(bits):
    """Also for coordinates that are zero: a query and an equal row differ in no bit."""
    z = np.random.default_rng(0).standard_normal((5, 128)).astype(np.float32)
    z[:, ::3], z[4, ::6] = 0, -0.0
    head = np.empty((2, 5), np.uint64)
    rest, factor, half = np.empty((5, 2 * bits - 2), np.uint64), np.empty(5, np.float32), np.empty(5, np.float32)
    encode_rows(z, bits, np.float32(1), head, rest, factor, half, np.zeros(1, np.float32))
    words = sign_words(z)
    np.testing.assert_array_equal(head.T, words)
    ones = bit_planes(np.ones((5, 1, 128)))
    for i in range(5):
        assert weigh_bits(words.T.copy(), i, words[i], ones[i, 0]) == 0
        assert weigh_bits(~words.T, i, words[i], ones[i, 0]) == 128


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(("dim", "bits"), [(64, 1), (320, 2), (1152, 1)])
def test_sums_of_tables_are_products_with_the_bits(dim, bits, fast):
    """1152 columns have 288 tables, whose entries are limited so that a sum of 16 bits does not overflow."""
    if fast and not cpu_has(*TABLE_FEATURES):
        pytest.skip("needs AVX2")
    rng = np.random.default_rng(dim)
    n, planes, n_words = 130, min(4, dim // 64), dim // 64
    codes = rng.integers(0, 2**64, (n, bits * n_words), dtype=np.uint64)
    codes[7] = np.uint64(2**64 - 1)
    head, rest = codes[:, :planes].T.copy(), codes[:, planes:].copy()
    query = np.ones(dim, np.float32) if bits == 1 else rng.standard_normal(dim).astype(np.float32)
    tables, words = np.empty((dim // 4, 16), np.uint8), np.empty(TILE_ROWS, np.uint64)
    unit, low = fill_sum_tables(query, tables)
    nibbles, sums = np.empty((bits * dim // 4, TILE_ROWS), np.uint8), np.empty((bits, TILE_ROWS), np.uint16)
    transpose_rows(head, rest, 0, n, words, nibbles, fast)
    sum_rows(tables, nibbles, n, sums, fast)
    values = np.unpackbits(codes.view(np.uint8), axis=1, bitorder="little").reshape(n, bits, dim)
    products = values @ query.astype(np.float64)
    estimates = unit * sums[:, :n].T.astype(np.float64) + low
    assert np.abs(estimates - products).max() <= unit * (dim // 8 + 1)
    patterns = values.reshape(n, bits, -1, 4) @ np.array([1, 2, 4, 8])
    entries = tables.astype(np.int64)[np.arange(dim // 4), patterns]
    np.testing.assert_array_equal(sums[:, :n].T, entries.sum(axis=2))
