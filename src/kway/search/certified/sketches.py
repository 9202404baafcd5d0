"""Sketches: a few numbers per row whose distances are lower bounds of the distances of rows.

Frame: z = clip((x - center) * unit, +-limit), float32, |z_i| <= 1. Centering keeps the digits if rows have a large
offset. The unit is a power of two, so scaling is exact, and no square overflows. Projection on a box never increases a
distance (Euclidean or Manhattan), so clipping only weakens the bounds of outliers and extreme queries.

A sketch never overestimates a distance. For any row x and query q, in units of the frame,

    |coarse(q) - coarse(x)| <= |q - x| + coarse_slack(q) + coarse_slack(x)
    |fine(q) - fine(x)|     <= |q - x| + slack(q) + slack(x)

The norm and the distance are both Euclidean or both Manhattan. The slacks include all rounding to float32.

**Euclidean.** Let v(x) be the first few principal coordinates of z, and r(x) the length of the remaining part. By the
triangle inequality for the remaining parts,

    |v(q) - v(x)|^2 + (r(q) - r(x))^2 <= |q - x|^2,

so e(x) = [v(x), r(x)] satisfies |e(q) - e(x)| <= |q - x|. The coarse sketch is e(x), centered and rotated at random.
The fine sketch is all values of the row, rounded to bytes (`code_bytes`).

Rounding errors, with u = 2^-24: a coordinate is computed as sums of PIECE products, which are then added. Its error is
at most (PIECE + pieces + 2) u |axis| |z|, and the error of m coordinates is at most sqrt(m) times that. The error from
axes that are not exactly orthogonal is their `orthogonality_error`. The factors 1.01 in the code are larger than
1 + k u for every number k of roundings that they cover, so that terms of second order need no bound.

**Manhattan.** The sketches are signed sums over groups of correlated features:

    sum_g |sum_{i in g} s_i (q_i - x_i)| <= sum_i |q_i - x_i|         for any groups and signs s = +-1

Features are paired greedily by the |correlation| of their differences, level by level, so pairs form groups of four,
eight and sixteen. In such groups |sum of signed differences| is close to the sum of |differences|. The coarse sketch
sums groups of `size` features, and the fine sketch groups of a quarter of it. If that is one feature, there is no fine
sketch, and rows are measured. Sums are float64, so only values and sums are rounded to float32.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.kernels.certified.sketch import (
    ROUND,
    code_bytes,
    code_l1,
    code_l2,
    pair_up,
    place,
    signed_sums,
    tails,
)
from kway.kernels.certified.tiles import L1_QUERIES, QUERIES, CodeLimits, code_limits, lifts_l2, prepare_l2
from kway.kernels.jit import frozen
from kway.memory import CACHE_BYTES, rows_per_block
from kway.threads import pmap, single_blas, spans

ROUNDING = float(np.finfo(np.float32).eps) / 2  # largest relative rounding error of float32
UNDERFLOW = ROUNDING**2  # 4e-15, above the root of a sum of up to 2^17 squares that underflow (each below 1e-38)


class FramedRows(NamedTuple):
    """values (b, d) float32 in the frame, squares (b,) = |z|^2, sizes (b,) = |z|_1."""

    values: NDArray[np.float32]
    squares: NDArray[np.float64]
    sizes: NDArray[np.float64]


@dataclass(frozen=True)
class Frame:
    """Center (d,) float64, unit (a power of two), and limit of every coordinate after scaling."""

    center: NDArray[np.float64]
    unit: float
    limit: float

    def place(self, block: NDArray) -> FramedRows:
        """Return rows (b, d), float32 or float64, in this frame."""
        values = np.empty(block.shape, np.float32)
        squares, sizes = np.empty(len(block)), np.empty(len(block))
        place(frozen(block), self.center, self.unit, self.limit, values, squares, sizes)
        return FramedRows(values, squares, sizes)


def measure_frame(sample: NDArray) -> Frame | None:
    """Return a frame that contains nearly all rows of the sample (s, d); None if their spread is 0 or out of range."""
    with np.errstate(over="ignore", invalid="ignore"):
        center = sample.mean(axis=0, dtype=np.float64)
        parts = spans(len(sample), rows_per_block(8 * sample.shape[1], CACHE_BYTES))
        peaks = np.concatenate([np.abs(sample[part] - center).max(axis=1) for part in parts])
    typical = 4 * float(np.quantile(peaks, 0.99))
    limit = min(float(peaks.max()), typical) if typical > 0 else float(peaks.max())
    if not 1e-60 < limit < 1e60:  # also false for nan and inf; other units are out of the range of float64
        return None
    unit = 2.0 ** -np.ceil(np.log2(limit))
    return Frame(frozen(center), float(unit), float(limit * unit))


class QueryCodes(NamedTuple):
    """Codes of m queries as the variant reads them, a constant of the sums per query, and the rounding errors."""

    words: NDArray  # (m padded, w)
    base: NDArray[np.float64] | None  # (m,) |q|^2 / 2 + 128 sum(q); None for Manhattan
    errors: NDArray[np.float64]  # (m,)


@dataclass(frozen=True)
class SketchCodes:
    """Coarse sketches of rows as bytes; kernels/certified/tiles.py defines `packed`, `variant` and `bias`."""

    packed: NDArray  # (blocks, words, 64)
    limits: NDArray[np.float64]  # range of the codes, as the kernel that encodes them reads it
    step: float  # step of the codes, in units of the frame
    error: float  # the largest rounding error of a row
    margin: float  # factor from a bound (squared if Euclidean) to a fine sum; it covers the rounding of the sum
    variant: int  # instructions that scan the codes, 0 on any CPU
    bias: NDArray[np.int32] | None = None  # (blocks, 64); None for Manhattan

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.packed.nbytes + self.limits.nbytes + (0 if self.bias is None else self.bias.nbytes)


class BoundSketch(NamedTuple):
    """Coarse and fine sketches of b rows, and bounds of their errors."""

    coarse: NDArray[np.float32]  # (b, w)
    fine: NDArray  # (b, W) int8 or float32
    slack: NDArray[np.float64]  # (b,) of fine
    coarse_slack: NDArray[np.float64]  # (b,)

    def part(self, rows: slice) -> BoundSketch:
        """Return a view of these rows."""
        return BoundSketch(self.coarse[rows], self.fine[rows], self.slack[rows], self.coarse_slack[rows])


def empty_sketch(n: int, space: Space) -> BoundSketch:
    """Allocate the sketches of n rows."""
    coarse, fine = space.widths
    return BoundSketch(aligned(n, coarse), aligned(n, fine, space.fine_type), np.empty(n), np.empty(n))


def sketch_all(rows: NDArray, space: Space) -> BoundSketch:
    """Return the sketch of every row."""
    out = empty_sketch(len(rows), space)

    def work(part: slice) -> None:
        space.sketch(rows[part], out.part(part))

    pmap(work, spans(len(rows), rows_per_block(4 * rows.shape[1], CACHE_BYTES)))
    return out


def aligned(n: int, width: int, dtype: type = np.float32) -> NDArray:
    """Allocate (n, width) at a multiple of 64 bytes, so that a row of 16 float32 is one cache line."""
    size = np.dtype(dtype).itemsize
    raw: NDArray = np.empty(n * width + 64 // size, dtype)
    first = (-raw.ctypes.data % 64) // size
    return raw[first : first + n * width].reshape(n, width)


def take_rows(matrix: NDArray, ids: NDArray) -> NDArray:
    """Return matrix[ids] as an aligned array, copied by all threads."""
    out = aligned(len(ids), matrix.shape[1], matrix.dtype.type)

    def work(part: slice) -> None:
        np.take(matrix, ids[part], axis=0, out=out[part], mode="clip")

    pmap(work, spans(len(ids), 8192))
    return out


def whole_blocks(n: int, width: int, dtype: type, each: int) -> NDArray:
    """Return zeros for n rows of codes, padded to blocks of 64 rows and to words of `each` codes."""
    return np.zeros((-(-n // 64) * 64, -(-width // each) * each), dtype)


def packed_words(codes: NDArray, word: type) -> NDArray:
    """Reorder bytes (64 blocks, w) to (blocks, words, 64): the same word of 64 rows is contiguous."""
    words: NDArray = codes.view(word)
    return np.ascontiguousarray(words.reshape(-1, 64, words.shape[1]).transpose(0, 2, 1))


# ---- Euclidean


def orthogonality_error(axes: NDArray[np.float32]) -> float:
    """Return a bound of the distance (2-norm) from the axes V to the nearest orthonormal ones: |V'V - I|.

    A singular value s of V is wrong by |s - 1| <= |s^2 - 1|. 1e-12 covers the float64 rounding of the product.
    """
    exact = axes.astype(np.float64)
    with single_blas():
        return float(np.linalg.norm(exact.T @ exact - np.eye(exact.shape[1]))) + 1e-12


def random_rotation(width: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return a random rotation (width, width); rotated coordinates have similar ranges, so one step fits all."""
    return np.ascontiguousarray(np.linalg.qr(rng.standard_normal((width, width)))[0], np.float32)


# Products per sum: shorter sums have a smaller bound of the rounding error, but take longer.
PIECE = 196  # decided by the benchmark of a fit (T1f)


def sketch_product(values: NDArray[np.float32], axes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return values (b, d) @ axes (d, M), with each inner sum split into sums of PIECE products."""
    total = values[:, :PIECE] @ axes[:PIECE]
    for a in range(PIECE, len(axes), PIECE):
        total += values[:, a : a + PIECE] @ axes[a : a + PIECE]
    return total


@dataclass(frozen=True)
class EuclideanSpace:
    """Computes the sketches of rows, from the principal axes (d, n_axes), a rotation and the step of the bytes."""

    frame: Frame
    axes: NDArray[np.float32]
    rotation: NDArray[np.float32]
    coarse_mean: NDArray[np.float32]
    error: float  # error of the coordinates, relative to |z|
    rotation_error: float  # error of the rotation, relative to the rotated vector
    step: float  # difference between neighboring bytes of the fine sketch

    @property
    def is_complete(self) -> bool:
        """Whether there are as many axes as columns, so that the remaining part is 0."""
        return self.axes.shape[0] == self.axes.shape[1]

    @property
    def widths(self) -> tuple[int, int]:
        """Number of columns of the coarse and of the fine sketch."""
        d, n_axes = self.axes.shape
        return n_axes + 1, -(-d // ROUND) * ROUND

    @property
    def fine_type(self) -> type[np.int8]:
        """Type of the fine sketch."""
        return np.int8

    def sketch(self, block: NDArray, into: BoundSketch) -> None:
        """Write the sketches of block (b, d), and the bounds of their errors, into arrays of b rows."""
        framed = self.frame.place(block)
        unrotated = np.empty(into.coarse.shape, np.float32)
        lead = sketch_product(framed.values, self.axes)  # (b, n_axes)
        tails(lead, framed.squares, self.is_complete, self.error, unrotated, into.coarse_slack)
        unrotated -= self.coarse_mean
        np.matmul(unrotated, self.rotation, out=into.coarse)
        norms = np.sqrt(framed.squares)
        length = norms + float(np.linalg.norm(self.coarse_mean))  # at least |unrotated|, because |e(x)| <= |z|
        into.coarse_slack[:] += 1.01 * self.rotation_error * length + 2 * UNDERFLOW
        code_bytes(framed.values, self.step, into.fine, into.slack)
        # The kernel adds d squares in float32: the sum is wrong by a factor of at most 1 + (d + 2) u, its root by half
        # of that. Values are rounded when they enter the frame, and so is the product of code and step: below 4 u |z|.
        into.slack[:] *= 1 + 2 * len(self.axes) * ROUNDING
        into.slack[:] += 4 * ROUNDING * norms + UNDERFLOW

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.axes.nbytes + self.rotation.nbytes + self.coarse_mean.nbytes + self.frame.center.nbytes

    def encode(self, coarse: NDArray[np.float32], ids: NDArray[np.int32], variant: int) -> SketchCodes:
        """Encode coarse sketches (n, w) of rows as signed bytes, in the order of ids; their limits are a CodeLimits."""
        n, width = coarse.shape
        code_range = code_limits(variant, width)
        step = _step(coarse[:: max(1, n // 8192)], code_range)
        limits = frozen(np.array(code_range, np.float64))
        words, errors = -(-width // 4), np.empty(n)
        packed = np.empty((-(-n // 64), words, 64), np.int32)
        bias = np.empty((-(-n // 64), 64), np.int32)
        coarse = frozen(coarse)

        def work(part: slice) -> None:
            size = part.stop - part.start
            codes, halves = whole_blocks(size, width, np.int8, 4), np.zeros(-(-size // 64) * 64)
            code_l2(coarse, ids[part], step, limits, codes, halves, errors[part])
            blocks = slice(part.start // 64, -(-part.stop // 64))
            unsigned = codes.view(np.uint8) ^ 128  # one operand of the product is unsigned
            packed[blocks] = packed_words(unsigned, np.int32)
            bias[blocks] = np.ceil(-halves).reshape(-1, 64)

        pmap(work, spans(n, 4096))
        margin = (1 + 1e-9) / self.step**2  # byte_squares is exact; 1e-9 covers the rounding of the distances in t
        return SketchCodes(frozen(packed), limits, step, float(errors.max()), margin, variant, frozen(bias))

    def encode_queries(self, codes: SketchCodes, coarse: NDArray[np.float32], members: NDArray[np.int32]) -> QueryCodes:
        """Encode queries coarse[members], padded to whole tiles."""
        m = len(members)
        query_codes = np.zeros((-(-m // QUERIES) * QUERIES, 4 * codes.packed.shape[1]), np.int8)
        halves, errors = np.empty(m), np.empty(m)
        code_l2(coarse, members, codes.step, codes.limits, query_codes, halves, errors)
        base = halves + lifts_l2(query_codes[:m], codes.variant)
        return QueryCodes(prepare_l2(query_codes.view(np.int32), codes.variant), base, errors)


def euclidean_space(
    frame: Frame, axes: NDArray[np.float32], sample: NDArray, rng: np.random.Generator
) -> EuclideanSpace:
    """Return the space of the axes (d, n_axes); the coarse sketch is centered on its mean over the sample (s, d)."""
    d, n_axes = axes.shape
    pieces = -(-d // PIECE)
    rotation = random_rotation(n_axes + 1, rng)
    # sums of products, axes that are not orthogonal, and the roundings of values to the frame and of sums to float32
    error = (PIECE + pieces + 2) * ROUNDING * 1.01 * np.sqrt(n_axes) * 1.01 + orthogonality_error(axes) + 6 * ROUNDING
    rotation_error = (n_axes + 9) * ROUNDING * 1.01 * np.sqrt(n_axes + 1) + orthogonality_error(rotation) + 8 * ROUNDING
    zero, identity = np.zeros(n_axes + 1, np.float32), np.eye(n_axes + 1, dtype=np.float32)
    unrotated = EuclideanSpace(frame, frozen(axes), identity, zero, error, rotation_error, _byte_step(frame, sample))
    out = empty_sketch(len(sample), unrotated)
    unrotated.sketch(sample, out)
    return replace(unrotated, rotation=frozen(rotation), coarse_mean=frozen(out.coarse.mean(0)))


def _byte_step(frame: Frame, sample: NDArray) -> float:
    """Return the step of the bytes, a float32 value, such that 99% of the rows of the sample are within range."""
    peaks = np.abs(frame.place(sample).values).max(axis=1)
    return float(np.float32((np.quantile(peaks, 0.99) or peaks.max() or 1.0) / 127))


def _step(sample: NDArray[np.float32], limits: CodeLimits) -> float:
    """Return one step for all coordinates, such that nearly all rows of the sample (s, w) are within the limits.

    The largest value of the sample gets the largest code, but outliers do not coarsen the codes of the other rows: the
    99% quantile of the rows' largest values gets at least the code 64. The PAIRS variant adds the products of columns
    0, 1, 4, 5, ... and those of columns 2, 3, 6, 7, ... in 16 bits each. The norm of each of these halves is therefore
    limited too (`CodeLimits`), which can require a larger step.
    """
    peaks = np.abs(sample).max(axis=1)
    typical = float(np.quantile(peaks, 0.99)) * limits.max_code / 64
    step = min(float(peaks.max()), typical or np.inf) / limits.max_code
    first = np.arange(sample.shape[1]) & 2 == 0
    norms = [np.quantile(np.linalg.norm(sample[:, half], axis=1), 0.99) for half in (first, ~first)]
    return max(step, float(max(norms)) / limits.max_norm) or 1.0


# ---- Manhattan


class FeatureGroups(NamedTuple):
    """columns (d,): an order of the features; signs (d,) +-1 float32, in that order."""

    columns: NDArray[np.int64]
    signs: NDArray[np.float32]


def correlated_groups(differences: NDArray[np.float32], levels: int) -> FeatureGroups:
    """Return groups of up to 2^levels columns, learned from differences (s, d) of random pairs of rows."""
    d = differences.shape[1]
    members = [np.array([i]) for i in range(d)]
    signs, sums = np.ones(d, np.float32), differences
    for _ in range(levels):
        partner, inverse = _pair_columns(sums)
        joined, columns = [], []
        for i, j in enumerate(partner):
            if j < 0:
                joined.append(members[i])
                columns.append(sums[:, i])
            elif i < j:
                flip = np.float32(-1 if inverse[i] else 1)
                signs[members[j]] *= flip
                joined.append(np.concatenate([members[i], members[j]]))
                columns.append(sums[:, i] + flip * sums[:, j])
        members, sums = joined, np.stack(columns, axis=1)
    columns_order = np.concatenate(members)
    return FeatureGroups(columns_order, signs[columns_order])


def _pair_columns(sums: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the partner of each column (-1: none), and whether their correlation is negative."""
    n = sums.shape[1]
    units = sums / (np.sqrt(np.einsum("ij,ij->j", sums, sums)) + 1e-30)
    correlation = units.T @ units
    left, right = np.triu_indices(n, 1)
    strength = np.abs(correlation[left, right])
    partner = pair_up(np.argsort(-strength, kind="stable"), left, right, n)
    return partner, correlation[np.arange(n), partner] < 0


@dataclass(frozen=True)
class ManhattanSpace:
    """Computes sketches: sums over runs of `size` of the ordered columns."""

    frame: Frame
    groups: FeatureGroups
    size: int

    @property
    def widths(self) -> tuple[int, int]:
        """Number of columns of coarse and of fine (whole cache lines)."""
        d, finer = len(self.groups.columns), self.size // 4
        return -(-d // self.size), -(-d // (16 * finer)) * 16 if finer > 1 else 0

    @property
    def fine_type(self) -> type[np.float32]:
        """Type of fine."""
        return np.float32

    def sketch(self, block: NDArray, into: BoundSketch) -> None:
        """Write the sketches of block (b, d), and the bounds of their errors, into arrays of b rows.

        Values and sums are rounded to float32 once each: 2 u times the sum of absolute values, with 2.1 instead of 2
        for terms of second order.
        """
        framed = self.frame.place(block)
        signed_sums(framed.values, *self.groups, self.size, into.coarse)
        if self.widths[1]:
            signed_sums(framed.values, *self.groups, self.size // 4, into.fine)
        into.slack[:] = 2.1 * ROUNDING * framed.sizes + UNDERFLOW
        into.coarse_slack[:] = into.slack

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.groups.columns.nbytes + self.groups.signs.nbytes + self.frame.center.nbytes

    def encode(self, coarse: NDArray[np.float32], ids: NDArray[np.int32], variant: int) -> SketchCodes:
        """Encode coarse sketches (n, w) as unsigned bytes; their limits are the smallest value of each column."""
        n, width = coarse.shape
        low, step = _column_range(coarse)
        codes, errors = whole_blocks(n, width, np.uint8, 8), np.empty(n)
        coarse = frozen(coarse)

        def work(part: slice) -> None:
            code_l1(coarse, ids[part], low, step, codes[part], errors[part])

        pmap(work, spans(n, 8192))
        margin = 1 + (self.widths[1] + 16) * 4 * ROUNDING  # the kernel adds the differences in float32
        return SketchCodes(frozen(packed_words(codes, np.int64)), low, step, float(errors.max()), margin, variant)

    def encode_queries(self, codes: SketchCodes, coarse: NDArray[np.float32], members: NDArray[np.int32]) -> QueryCodes:
        """Encode queries coarse[members], padded to whole tiles."""
        m = len(members)
        query_codes = np.zeros((-(-m // L1_QUERIES) * L1_QUERIES, 8 * codes.packed.shape[1]), np.uint8)
        errors = np.empty(m)
        code_l1(coarse, members, codes.limits, codes.step, query_codes, errors)
        return QueryCodes(query_codes.view(np.int64), None, errors)


def _column_range(coarse: NDArray[np.float32]) -> tuple[NDArray[np.float64], float]:
    """Return low (w,) and one step for all columns: 255 steps contain all values of a sample of the widest column."""
    sample = coarse[:: max(1, len(coarse) // 8192)].astype(np.float64)
    low, high = sample.min(axis=0), sample.max(axis=0)
    return frozen(low), float((high - low).max() or 1.0) / 255


Space = EuclideanSpace | ManhattanSpace  # computes sketches, and encodes the coarse ones
