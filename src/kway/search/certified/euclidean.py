"""Euclidean bounds: e(x) = [leading principal coordinates, the norm of what they leave out], and whole rows as bytes.

With z = x - centre, v the coordinates and r the norm of the rest,
    |v(q) - v(x)|^2 + (r(q) - r(x))^2 <= |q - x|^2        (triangle inequality for the rest)
so |e(q) - e(x)| <= |q - x|: that is coarse. Fine are the rows as bytes (kernels/byte_rows).

Rounding, u = 2^-24: coordinates are sums of PIECE products added up piece by piece, each off by at most
(PIECE + pieces + 2) u |v||z|, all together by sqrt(few) times that; the axes are off by their flaw.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kway.kernels.certified.sketch import ROUND, code_bytes, code_l2, tails
from kway.kernels.certified.tiles import QUERIES, CodeRoom, code_room, lifts_l2, prepare_l2
from kway.kernels.jit import frozen
from kway.search.certified.choose import flaw, random_turn
from kway.search.certified.pipeline import CellOrder
from kway.search.certified.sketches import (
    ROUNDING,
    UNDERFLOW,
    AskedCodes,
    BoundSketch,
    Frame,
    empty_sketch,
    packed_words,
    whole_blocks,
)
from kway.threads import pmap, spans

PIECE = 196  # products summed in one go: shorter sums, smaller rounding bound; 128 take 15 % longer (T1f)


def sketch_product(values: NDArray[np.float32], axes: NDArray[np.float32]) -> NDArray[np.float32]:
    """values (b, d) @ axes (d, M), the inner sums cut into pieces."""
    total = values[:, :PIECE] @ axes[:PIECE]
    for a in range(PIECE, len(axes), PIECE):
        total += values[:, a : a + PIECE] @ axes[a : a + PIECE]
    return total


@dataclass(frozen=True)
class EuclideanSpace:
    """Sketches of rows by axes (d, few): coarse centred and turned, fine in bytes of one step."""

    frame: Frame
    axes: NDArray[np.float32]
    turn: NDArray[np.float32]
    middle: NDArray[np.float32]
    error: float  # of the coordinates, relative to |z|
    turn_error: float  # of turning, relative to the vector turned
    step: float

    @property
    def whole(self) -> bool:
        """Whether the coordinates are all there are, so that nothing is left out."""
        return self.axes.shape[0] == self.axes.shape[1]

    @property
    def widths(self) -> tuple[int, int]:
        """Columns of coarse and of fine."""
        d, few = self.axes.shape
        return few + 1, -(-d // ROUND) * ROUND

    @property
    def fine_type(self) -> type[np.int8]:
        """Of a fine column."""
        return np.int8

    def sketch(self, block: NDArray, into: BoundSketch) -> None:
        """BoundSketch of block (b, d), written into arrays of b rows."""
        placed = self.frame.place(block)
        raw = np.empty(into.coarse.shape, np.float32)
        lead = sketch_product(placed.values, self.axes)  # (b, few)
        tails(lead, placed.squares, self.whole, self.error, raw, into.coarse_slack)
        raw -= self.middle
        np.matmul(raw, self.turn, out=into.coarse)
        sizes = np.sqrt(placed.squares)
        length = sizes + float(np.linalg.norm(self.middle))  # bounds |raw|
        into.coarse_slack[:] += 1.01 * self.turn_error * length + 2 * UNDERFLOW
        code_bytes(placed.values, self.step, into.fine, into.slack)
        into.slack[:] *= 1 + 2 * len(self.axes) * ROUNDING  # added up in float32
        into.slack[:] += 4 * ROUNDING * sizes + UNDERFLOW

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.axes.nbytes + self.turn.nbytes + self.middle.nbytes + self.frame.centre.nbytes


def euclidean_space(
    frame: Frame, axes: NDArray[np.float32], sample: NDArray, rng: np.random.Generator
) -> EuclideanSpace:
    """Space of the given axes (d, few), its coarse part centred on the sample (s, d), rows as they are."""
    d, few = axes.shape
    pieces = -(-d // PIECE)
    error = (PIECE + pieces + 2) * ROUNDING * 1.01 * np.sqrt(few) * 1.01 + flaw(axes) + 6 * ROUNDING
    turn = random_turn(few + 1, rng)
    turn_error = (few + 9) * ROUNDING * 1.01 * np.sqrt(few + 1) + flaw(turn) + 8 * ROUNDING
    none, still = np.zeros(few + 1, np.float32), np.eye(few + 1, dtype=np.float32)
    plain = EuclideanSpace(frame, frozen(axes), still, none, error, turn_error, _byte_step(frame, sample))
    out = empty_sketch(len(sample), plain)
    plain.sketch(sample, out)
    return replace(plain, turn=frozen(turn), middle=frozen(out.coarse.mean(0)))


def _byte_step(frame: Frame, sample: NDArray) -> float:
    """Step of whole rows as bytes, a float32; they hold all but the wildest rows of the sample."""
    peaks = np.abs(frame.place(sample).values).max(axis=1)
    return float(np.float32((np.quantile(peaks, 0.99) or peaks.max() or 1.0) / 127))


@dataclass(frozen=True)
class EuclideanCodes:
    """Rows in cell order as byte codes; see the tile for the layout. error: what coding hides of any row."""

    packed: NDArray[np.int32]
    bias: NDArray[np.int32]
    step: float
    error: float
    room: NDArray[np.float64]
    margin: float
    way: int

    @classmethod
    def of(cls, coarse: NDArray[np.float32], cells: CellOrder, space: EuclideanSpace, way: int) -> EuclideanCodes:
        """Codes of coarse (n, w)."""
        n, width = coarse.shape
        room = code_room(way, width)
        step = _step(coarse[:: max(1, n // 8192)], room)
        limits = frozen(np.array(room, np.float64))
        words, errors = -(-width // 4), np.empty(n)
        packed, bias = np.empty((-(-n // 64), words, 64), np.int32), np.empty((-(-n // 64), 64), np.int32)
        coarse = frozen(coarse)

        def work(part: slice) -> None:
            size = part.stop - part.start
            codes, halves = whole_blocks(size, width, np.int8, 4), np.zeros(-(-size // 64) * 64)
            code_l2(coarse, cells.ids[part], step, limits, codes, halves, errors[part])
            blocks = slice(part.start // 64, -(-part.stop // 64))
            packed[blocks] = packed_words(codes.view(np.uint8) ^ 128, np.int32)  # one side of the product is unsigned
            bias[blocks] = np.ceil(-halves).reshape(-1, 64)

        pmap(work, spans(n, 4096))
        margin = (1 + 1e-9) / space.step**2
        return cls(frozen(packed), frozen(bias), step, float(errors.max()), limits, margin, way)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.packed.nbytes + self.bias.nbytes

    def asked(self, coarse: NDArray[np.float32], members: NDArray[np.int32]) -> AskedCodes:
        """Codes of queries coarse[members], filled up to whole tiles."""
        m = len(members)
        codes = np.zeros((-(-m // QUERIES) * QUERIES, 4 * self.packed.shape[1]), np.int8)
        halves, errors = np.empty(m), np.empty(m)
        code_l2(coarse, members, self.step, self.room, codes, halves, errors)
        return AskedCodes(prepare_l2(codes.view(np.int32), self.way), halves + lifts_l2(codes[:m], self.way), errors)


def _step(sample: NDArray[np.float32], room: CodeRoom) -> float:
    """One step for all coordinates: nearly every row of the sample (s, w) lies within 64 steps, and in the room."""
    peaks = np.abs(sample).max(axis=1)
    usual = float(np.quantile(peaks, 0.99)) * room.top / 64
    step = min(float(peaks.max()), usual or np.inf) / room.top
    first = np.arange(sample.shape[1]) & 2 == 0
    norms = [np.quantile(np.linalg.norm(sample[:, half], axis=1), 0.99) for half in (first, ~first)]
    return max(step, float(max(norms)) / room.norm) or 1.0
