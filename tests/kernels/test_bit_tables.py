"""Bits that weigh: the same rows pass as one by one, and as many as chance lets expect."""

import numpy as np
import pytest

from kway.kernels.codes.bit_scan import FirstFilter
from kway.kernels.codes.bit_tables import TILE_STEP, fill_tables, most_weight, near_tables, weigh_bits
from kway.kernels.codes.bits import sign_words
from kway.search.codecs.bit_scan import bit_planes


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
    m = near_tables(head, 200, 890, which, words, mosts, room, masks, hits, fast)  # two tiles and the rows behind
    quiet = np.ones((7, 3), dtype=bool)
    quiet[hits[:m] % TILE_STEP, hits[:m] // TILE_STEP] = False
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
    beyond = (sums > most_weight(cosine, z, counts, 0.5 * unit, wide)).mean()
    chance = {1.0: 0.1587, 2.326: 0.01}[z]
    assert beyond < 1.1 * chance + 3 * np.sqrt(chance / n)
    assert beyond > 0.4 * chance


def test_signs_are_those_of_the_codes():
    z = np.random.default_rng(0).standard_normal((5, 128)).astype(np.float32)
    words = np.empty((5, 2), np.uint64)
    sign_words(z, words)
    ones = bit_planes(np.ones((5, 1, 128)))
    for i in range(5):
        assert weigh_bits(words.T.copy(), i, words[i], ones[i, 0]) == 0
        assert weigh_bits(~words.T, i, words[i], ones[i, 0]) == 128
