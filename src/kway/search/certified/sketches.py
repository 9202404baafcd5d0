"""The space in which bounds are computed, and sketches of rows or queries, for both distances.

Frame: z = clip((x - center) * unit, +-limit), float32, |z_i| <= 1. Centering keeps the digits if rows have a large
offset. The unit is a power of two, so scaling is exact, and no square overflows. Projection on a box never increases a
distance (Euclidean or Manhattan), so clipping only weakens the bounds of outliers and extreme queries.

A sketch never overestimates a distance. For any row x and query q, in units of the frame,
    |coarse(q) - coarse(x)| <= |q - x| + coarse_slack(q) + coarse_slack(x)
    |fine(q) - fine(x)|     <= |q - x| + slack(q) + slack(x)
The norm and the distance are both Euclidean or both Manhattan. The slacks include all rounding to float32.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.kernels.certified.sketch import peaks_of, place
from kway.kernels.jit import frozen
from kway.memory import CACHE_BYTES, rows_per_block
from kway.threads import pmap, spans

if TYPE_CHECKING:
    from kway.search.certified.euclidean import EuclideanSpace
    from kway.search.certified.manhattan import ManhattanSpace

ROUNDING = float(np.finfo(np.float32).eps) / 2  # largest relative rounding error of float32
UNDERFLOW = ROUNDING**2  # more than the root of a sum of squares below 1e-38, which may underflow


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
    peaks = np.empty(len(sample))
    peaks_of(frozen(sample), center, peaks)
    usual = 4 * float(np.quantile(peaks, 0.99))
    reach = min(float(peaks.max()), usual) if usual > 0 else float(peaks.max())
    if not 1e-60 < reach < 1e60:  # also false for nan and inf; other units are out of the range of float64
        return None
    unit = 2.0 ** -np.ceil(np.log2(reach))
    return Frame(frozen(center), float(unit), float(reach * unit))


CHUNK = 16  # blocks of 64 rows between two updates of the thresholds (T1)


class BoundSketch(NamedTuple):
    """Sketches: coarse (b, w) float32, fine (b, W) of the space's fine_type, slack (b,), coarse_slack (b,)."""

    coarse: NDArray[np.float32]
    fine: NDArray
    slack: NDArray[np.float64]
    coarse_slack: NDArray[np.float64]

    def part(self, rows: slice) -> BoundSketch:
        """Return a view of these rows."""
        return BoundSketch(self.coarse[rows], self.fine[rows], self.slack[rows], self.coarse_slack[rows])


def empty_sketch(n: int, space: EuclideanSpace | ManhattanSpace) -> BoundSketch:
    """Allocate the sketches of n rows."""
    coarse, fine = space.widths
    return BoundSketch(aligned(n, coarse), aligned(n, fine, space.fine_type), np.empty(n), np.empty(n))


def sketch_all(rows: NDArray, space: EuclideanSpace | ManhattanSpace) -> BoundSketch:
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


def codes_taken(matrix: NDArray, ids: NDArray) -> NDArray:
    """Return matrix[ids], aligned."""
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


class Panel(NamedTuple):
    """Queries that are searched together. members selects them; all other arrays are those of all queries.

    order: chunks, nearest first. near (q, probes): nearest cells. slack, reach (q,): slack of query and rows together,
    for fine and for coarse. keep: number of rows measured for the first radius. best, found: the lists.
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
    """Number of rows that passed the scan of codes, and number of rows measured in full."""

    marked: int
    visited: int


class QueryCodes(NamedTuple):
    """Codes of queries: words (m padded, w) as the variant reads them; base (m,), a constant of the sums per query."""

    words: NDArray
    base: NDArray[np.float64] | None
    errors: NDArray[np.float64]  # (m,) rounding error of each


@dataclass(frozen=True)
class SketchCodes(ABC):
    """Byte codes of rows, which encode queries too.

    packed (blocks, words, 64) and variant (instructions that scan them, 0 on any CPU): see kernels/certified/tiles.py.
    limits: range of the codes, as their kernel reads it. step: of the codes, in units of the frame. error: the largest
    rounding error of a row. margin: factor from a bound (squared if Euclidean) to a fine sum. bias (blocks, 64):
    initial values of the rows' sums; None for Manhattan.
    """

    packed: NDArray
    limits: NDArray[np.float64]
    step: float
    error: float
    margin: float
    variant: int
    bias: NDArray[np.int32] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.packed.nbytes + self.limits.nbytes + (0 if self.bias is None else self.bias.nbytes)

    @abstractmethod
    def encode_queries(self, coarse: NDArray[np.float32], members: NDArray[np.int32]) -> QueryCodes:
        """Encode queries coarse[members], padded to whole tiles."""
