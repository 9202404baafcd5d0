"""The space that bounds are computed in, and sketches of rows or queries, which both distances share.

Frame: z = clip((x - center) * unit, +-limit), float32, |z_i| <= 1. Centered, so that a large offset costs no digits; a
power of two as unit, so that scaling is exact and no square overflows; clipped, because a projection on a box never
lengthens a distance (Euclidean or Manhattan), so that outliers and extreme queries only weaken their own bound.

A sketch never overstates: for any row x and query q, in units of the frame,
    |coarse(q) - coarse(x)| <= |q - x| + coarse_slack(q) + coarse_slack(x)
    |fine(q) - fine(x)|     <= |q - x| + slack(q) + slack(x)
(norm and distance are both Euclidean or both Manhattan; the slacks hold every rounding in float32).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kway.kernels.certified.sketch import peaks_of, place
from kway.kernels.jit import frozen
from kway.threads import pmap, spans

ROUNDING = float(np.finfo(np.float32).eps) / 2  # half the distance of 1 to the next float32
UNDERFLOW = ROUNDING**2  # more than the root of all squares below 1e-38 that underflow may hide


class FramedRows(NamedTuple):
    """values (b, d) float32 in the frame, squares (b,) = |z|^2, sizes (b,) = |z|_1."""

    values: NDArray[np.float32]
    squares: NDArray[np.float64]
    sizes: NDArray[np.float64]


@dataclass(frozen=True)
class Frame:
    """centre (d,) float64, unit (a power of two), limit of every coordinate after scaling."""

    centre: NDArray[np.float64]
    unit: float
    limit: float

    def place(self, block: NDArray) -> FramedRows:
        """Rows (b, d) of either float type, in this frame."""
        values = np.empty(block.shape, np.float32)
        squares, sizes = np.empty(len(block)), np.empty(len(block))
        place(frozen(block), self.centre, self.unit, self.limit, values, squares, sizes)
        return FramedRows(values, squares, sizes)


def measure_frame(sample: NDArray) -> Frame | None:
    """Frame that holds nearly all rows of the sample (s, d); None where there is no spread, or one out of all range."""
    with np.errstate(over="ignore", invalid="ignore"):
        centre = sample.mean(axis=0, dtype=np.float64)
    peaks = np.empty(len(sample))
    peaks_of(frozen(sample), centre, peaks)
    usual = 4 * float(np.quantile(peaks, 0.99))
    reach = min(float(peaks.max()), usual) if usual > 0 else float(peaks.max())
    if not 1e-60 < reach < 1e60:  # also nan and inf; beyond, the units would leave float64
        return None
    unit = 2.0 ** -np.ceil(np.log2(reach))
    return Frame(frozen(centre), float(unit), float(reach * unit))


CHUNK = 16  # blocks of 64 rows between two renewals of the thresholds (T1)
BLOCK = 512  # rows sketched at a time: 512 x 784 floats fill the L2 cache (T1f)


class BoundSketch(NamedTuple):
    """coarse (b, w) float32, fine (b, W) of the space's fine_type, slack (b,), coarse_slack (b,)."""

    coarse: NDArray[np.float32]
    fine: NDArray
    slack: NDArray[np.float64]
    coarse_slack: NDArray[np.float64]

    def part(self, rows: slice) -> BoundSketch:
        """These rows of it, the same memory."""
        return BoundSketch(self.coarse[rows], self.fine[rows], self.slack[rows], self.coarse_slack[rows])


class Space(Protocol):
    """Turns rows or queries into sketches."""

    @property
    def widths(self) -> tuple[int, int]:
        """Columns of coarse and of fine."""

    @property
    def fine_type(self) -> type[np.float32] | type[np.int8]:
        """Of a fine column."""

    @property
    def nbytes(self) -> int:
        """Bytes held."""

    def sketch(self, block: NDArray, into: BoundSketch) -> None:
        """BoundSketch of block (b, d), written into arrays of b rows."""


def empty_sketch(n: int, space: Space) -> BoundSketch:
    """Room for the sketches of n rows."""
    coarse, fine = space.widths
    return BoundSketch(aligned(n, coarse), aligned(n, fine, space.fine_type), np.empty(n), np.empty(n))


def sketch_all(rows: NDArray, space: Space) -> BoundSketch:
    """BoundSketch of every row."""
    out = empty_sketch(len(rows), space)

    def work(part: slice) -> None:
        space.sketch(rows[part], out.part(part))

    pmap(work, spans(len(rows), BLOCK))
    return out


def aligned(n: int, width: int, dtype: type = np.float32) -> NDArray:
    """Empty (n, width) at a multiple of 64 bytes, so that a row of 16 float32 is one cache line."""
    size = np.dtype(dtype).itemsize
    raw: NDArray = np.empty(n * width + 64 // size, dtype)
    first = (-raw.ctypes.data % 64) // size
    return raw[first : first + n * width].reshape(n, width)


def codes_taken(matrix: NDArray, ids: NDArray) -> NDArray:
    """matrix[ids], aligned."""
    out = aligned(len(ids), matrix.shape[1], matrix.dtype.type)

    def work(part: slice) -> None:
        np.take(matrix, ids[part], axis=0, out=out[part], mode="clip")

    pmap(work, spans(len(ids), 8192))
    return out


def whole_blocks(n: int, width: int, dtype: type, each: int) -> NDArray:
    """Zeros for n code rows, filled up to whole blocks of 64 rows and to whole words of `each` codes."""
    return np.zeros((-(-n // 64) * 64, -(-width // each) * each), dtype)


def packed_words(codes: NDArray, word: type) -> NDArray:
    """(64 blocks, w) bytes -> (blocks, words, 64): the same word of 64 rows side by side."""
    words: NDArray = codes.view(word)
    return np.ascontiguousarray(words.reshape(-1, 64, words.shape[1]).transpose(0, 2, 1))


class Shelf(NamedTuple):
    """The index: rows (n, d) as given; ids (n,), start (c + 1,), fine (n, W) in cell order; unit of the frame."""

    rows: NDArray
    ids: NDArray[np.int32]
    start: NDArray[np.int64]
    fine: NDArray
    unit: float


class Panel(NamedTuple):
    """Some queries that are searched together, and the lists of all; `near` (q, probes) are cells, `order` chunks.

    slack, reach (q,): of query and rows together, for fine and for coarse; keep: rows visited to warm up.
    """

    members: NDArray[np.int32]
    order: NDArray[np.int64]
    near: NDArray[np.int32]
    coarse: NDArray[np.float32]
    fine: NDArray
    slack: NDArray[np.float64]
    reach: NDArray[np.float64]
    queries: NDArray
    keep: int
    best: NDArray[np.float64]
    found: NDArray[np.int64]


class SweepTally(NamedTuple):
    """Rows that passed the scan of codes, and rows whose full distance was computed."""

    marked: int
    visited: int


class AskedCodes(NamedTuple):
    """Queries as codes: words (m padded, w) as the way reads them; base (m,), what sums hold that distances do not."""

    words: NDArray
    base: NDArray[np.float64] | None
    errors: NDArray[np.float64]  # (m,): what coding hides of each


class SketchCodes(Protocol):
    """Rows as byte codes, and queries as what is compared with them."""

    @property
    def packed(self) -> NDArray:
        """(blocks, words, 64); see the tiles."""

    @property
    def bias(self) -> NDArray[np.int32] | None:
        """(blocks, 64), where the rows' sums start; None under Manhattan."""

    @property
    def way(self) -> int:
        """By which instructions they are scanned, 0 on any CPU; see the tiles."""

    @property
    def step(self) -> float:
        """Of a code, in units of the frame."""

    @property
    def error(self) -> float:
        """What coding hides of any row."""

    @property
    def margin(self) -> float:
        """From a bound, squared under Euclidean, to a fine sum."""

    @property
    def nbytes(self) -> int:
        """Bytes held."""

    def asked(self, coarse: NDArray[np.float32], members: NDArray[np.int32]) -> AskedCodes:
        """Codes of queries coarse[members], filled up to whole tiles."""
