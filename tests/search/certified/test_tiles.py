"""The scans of byte codes against whole-number arithmetic, every variant."""

import numpy as np
import pytest

from kway.kernels.certified import tiles
from kway.kernels.certified.sketch import byte_squares, code_bytes, code_l2
from kway.kernels.certified.tiles import scan_codes, weigh_codes
from kway.kernels.lanes import cpu_has
from kway.search.certified.sketches import packed_words, whole_blocks


def _variants(variants):
    return [
        pytest.param(number, marks=pytest.mark.skipif(not cpu_has(*variant.features), reason="not on this CPU"))
        for number, variant in enumerate(variants)
    ]


def _bits(marks, n):
    return np.unpackbits(marks.view(np.uint8), axis=1, bitorder="little")[:, :n].astype(bool)


def _codes(rng, n, width, low, high, dtype, each):
    codes = whole_blocks(n, width, dtype, each)
    codes[:n, :width] = rng.integers(low, high, (n, width))
    return codes


def _l2_inputs(rng, n, q, width, extreme, variant):
    limits = tiles.code_limits(variant, width)
    rows, asked = whole_blocks(n, width, np.int8, 4), whole_blocks(q, width, np.int8, 4)[:q]
    for codes, count in ((rows, n), (asked, q)):
        points = rng.integers(-150, 151, (count, width)).astype(
            np.float32
        )  # beyond the limits: as large as codes can be
        if extreme:
            points[:] = 1000 * (-1) ** (np.arange(count) % 2)[:, None]
            points[::3, 1:] = 0
        code_l2(points, np.arange(count), 1.0, np.array(limits), codes[:count], np.empty(count), np.empty(count))
        assert np.abs(codes).max() <= limits.max_code
    wide = rows.astype(np.int64)
    bias = np.ceil(-(wide**2).sum(1) / 2).astype(np.int64)
    lift = 0 if variant == tiles.PAIRS else 128
    sums = bias + asked.astype(np.int64) @ (wide + lift).T
    packed = packed_words(rows.view(np.uint8) ^ 128, np.int32)
    return packed, bias.astype(np.int32).reshape(-1, 64), np.ascontiguousarray(asked).view(np.int32), sums


@pytest.mark.parametrize("variant", _variants(tiles.L2_VARIANTS))
@pytest.mark.parametrize(
    ("n", "width", "extreme"), [(100, 4, False), (300, 33, False), (64, 384, True), (640, 128, False)]
)
def test_scan_l2(variant, n, width, extreme):
    rng, q = np.random.default_rng(width), 12
    packed, bias, asked, sums = _l2_inputs(rng, n, q, width, extreme, variant)
    asked = tiles.prepare_l2(asked, variant)
    blocks = len(packed)
    tau = np.partition(sums, -20, axis=1)[:, -20].astype(np.int32)
    tau[3], tau[4] = 2**30, -(2**30)
    marks = np.zeros((q, blocks), np.uint64)
    scan_codes(packed, bias, 0, blocks, asked, tau, marks, variant)
    np.testing.assert_array_equal(_bits(marks, blocks * 64), sums > tau[:, None])
    values = np.empty(64, np.int32)
    weigh_codes(packed, bias, blocks - 1, asked, 5, values, variant)
    np.testing.assert_array_equal(values, sums[5, -64:])


@pytest.mark.parametrize("d", [8, 32, 33, 784, 2**17])
def test_byte_rows(d):
    """Codes and errors against float64; sums of squares exact, the largest ones too."""
    rng, step = np.random.default_rng(d), 0.5
    values = rng.normal(0, 40, (6, d)).astype(np.float32)
    values[0], values[1] = 1000, -1000
    codes, errors = np.empty((6, -(-d // 32) * 32), np.int8), np.empty(6)
    code_bytes(values, step, codes, errors)
    kept = np.clip(values.astype(np.float64), -127 * step, 127 * step)
    np.testing.assert_allclose(errors, np.linalg.norm(kept - step * codes[:, :d], axis=1), rtol=1e-4, atol=1e-9)
    assert np.abs(kept - step * codes[:, :d]).max() <= step * 0.50001
    assert not codes[:, d:].any()
    wide = codes.astype(np.int64)
    for i, j in ((0, 1), (2, 3), (4, 4), (5, 0)):
        assert byte_squares(codes, i, codes, j) == ((wide[i] - wide[j]) ** 2).sum()


@pytest.mark.parametrize("variant", _variants(tiles.L1_VARIANTS))
@pytest.mark.parametrize(
    ("n", "width", "extreme"), [(100, 8, False), (300, 33, False), (64, 1024, True), (640, 98, False)]
)
def test_scan_l1(variant, n, width, extreme):
    rng, q = np.random.default_rng(width), 9
    rows, asked = _codes(rng, n, width, 0, 256, np.uint8, 8), _codes(rng, q, width, 0, 256, np.uint8, 8)[:q]
    if extreme:
        rows[:n, :width], asked[:, :width] = 255, 0
    sums = -np.abs(asked.astype(np.int64)[:, None] - rows.astype(np.int64)).sum(2)
    packed, words = packed_words(rows, np.int64), np.ascontiguousarray(asked).view(np.int64)
    blocks = len(packed)
    tau = np.partition(sums, -20, axis=1)[:, -20].astype(np.int32)
    tau[3], tau[4] = 2**30, -(2**30)
    marks = np.zeros((q, blocks), np.uint64)
    scan_codes(packed, None, 0, blocks, words, tau, marks, variant)
    np.testing.assert_array_equal(_bits(marks, blocks * 64), sums > tau[:, None])
    values = np.empty(64, np.int32)
    weigh_codes(packed, None, blocks - 1, words, 5, values, variant)
    np.testing.assert_array_equal(values, sums[5, -64:])
