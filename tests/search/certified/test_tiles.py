"""The scans of byte codes against whole-number arithmetic, on both code paths."""

import numpy as np
import pytest

from kway.compute.kernels import tile_l1, tile_l2
from kway.search.certified.sketches import packed_words, whole_blocks

PATHS = [True, False]  # with the CPU's own instructions, and portable


def _bits(marks, n):
    return np.unpackbits(marks.view(np.uint8), axis=1, bitorder="little")[:, :n].astype(bool)


def _codes(rng, n, width, low, high, dtype, each):
    codes = whole_blocks(n, width, dtype, each)
    codes[:n, :width] = rng.integers(low, high, (n, width))
    return codes


def _l2_inputs(rng, n, q, width, extreme):
    rows, asked = _codes(rng, n, width, -127, 128, np.int8, 4), _codes(rng, q, width, -127, 128, np.int8, 4)[:q]
    if extreme:  # the largest sums there can be
        rows[:n, :width], asked[:, :width] = 127, 127
        asked[::2, :width] = -127
    wide = rows.astype(np.int64)
    bias = np.ceil(-(wide**2).sum(1) / 2).astype(np.int64)
    sums = bias + asked.astype(np.int64) @ (wide + 128).T
    packed = packed_words(rows.view(np.uint8) ^ 128, np.int32)
    return packed, bias.astype(np.int32).reshape(-1, 64), np.ascontiguousarray(asked).view(np.int32), sums


@pytest.mark.parametrize("fast", PATHS)
@pytest.mark.parametrize(
    ("n", "width", "extreme"), [(100, 4, False), (300, 33, False), (64, 384, True), (640, 128, False)]
)
def test_scan_l2(fast, n, width, extreme):
    if fast and not tile_l2.vnni():
        pytest.skip("this CPU has no VNNI")
    rng, q = np.random.default_rng(width), 12
    packed, bias, asked, sums = _l2_inputs(rng, n, q, width, extreme)
    blocks = len(packed)
    tau = np.partition(sums, -20, axis=1)[:, -20].astype(np.int32)
    tau[3], tau[4] = 2**30, -(2**30)
    marks = np.zeros((q, blocks), np.uint64)
    tile_l2.scan_l2(packed, bias, 0, blocks, asked, tau, marks, fast)
    np.testing.assert_array_equal(_bits(marks, blocks * 64), sums > tau[:, None])
    values = np.empty(64, np.int32)
    tile_l2.weigh_l2(packed, bias, blocks - 1, asked, 5, values, fast)
    np.testing.assert_array_equal(values, sums[5, -64:])


@pytest.mark.parametrize("fast", PATHS)
@pytest.mark.parametrize(
    ("n", "width", "extreme"), [(100, 8, False), (300, 33, False), (64, 1024, True), (640, 98, False)]
)
def test_scan_l1(fast, n, width, extreme):
    if fast and not tile_l1.byte_differences():
        pytest.skip("this CPU has no AVX-512BW")
    rng, q = np.random.default_rng(width), 9
    rows, asked = _codes(rng, n, width, 0, 256, np.uint8, 8), _codes(rng, q, width, 0, 256, np.uint8, 8)[:q]
    if extreme:
        rows[:n, :width], asked[:, :width] = 255, 0
    sums = np.abs(asked.astype(np.int64)[:, None] - rows.astype(np.int64)).sum(2)
    packed, words = packed_words(rows, np.int64), np.ascontiguousarray(asked).view(np.int64)
    blocks = len(packed)
    tau = np.partition(sums, 20, axis=1)[:, 20].astype(np.int64)
    tau[3], tau[4] = -1, 2**41
    marks = np.zeros((q, blocks), np.uint64)
    tile_l1.scan_l1(packed, 0, blocks, words, tau, marks, fast)
    np.testing.assert_array_equal(_bits(marks, blocks * 64), sums < tau[:, None])
    values = np.empty(64, np.int32)
    tile_l1.weigh_l1(packed, blocks - 1, words, 5, values, fast)
    np.testing.assert_array_equal(values, -sums[5, -64:])
