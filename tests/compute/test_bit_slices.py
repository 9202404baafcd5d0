"""Bits counted in slices: the same rows pass as one by one."""

import numpy as np
import pytest

from kway.compute.kernels.bit_slices import near_slices, slice_picks


@pytest.mark.parametrize("planes", [3, 4])
def test_the_same_rows_pass_as_one_by_one(planes):
    rng = np.random.default_rng(0)
    head = rng.integers(0, 2**64, (planes, 900), dtype=np.uint64)
    words = rng.integers(0, 2**64, (7, 8), dtype=np.uint64)
    head[:, 300] = words[0, :planes]  # no bit differs
    head[:, 301] = ~words[0, :planes]  # all do
    mosts = np.array([0, 191, 96, 95, 90, 100, 192])
    picks, masks = np.empty((7, 64), np.int64), np.empty((7, 8), np.uint64)
    slice_picks(words, picks)
    near_slices(head, 200, picks, mosts, np.empty((192, 4), np.uint64), np.empty(64 * 64, np.uint64), masks)
    differ = np.bitwise_count(head[None, :3, 200:712] ^ words[:, :3, None]).sum(axis=1)  # (q, 512)
    passed = np.unpackbits(masks.view(np.uint8), axis=1, bitorder="little")
    np.testing.assert_array_equal(passed, differ <= mosts[:, None])
