"""Euclidean sketches, whose distances are lower bounds of the distances of rows.

Let z = x - center, v(x) the first few principal coordinates of z, and r(x) the length of the remaining part. By the
triangle inequality for the remaining parts,

    |v(q) - v(x)|^2 + (r(q) - r(x))^2 <= |q - x|^2,

so e(x) = [v(x), r(x)] satisfies |e(q) - e(x)| <= |q - x|. There are two sketches:

    coarse   e(x), centered and rotated at random
    fine     the whole row, rounded to bytes (`code_bytes`)

Rounding errors, with u = 2^-24: a coordinate is computed as sums of PIECE products, which are then added. Its error is
at most (PIECE + pieces + 2) u |axis| |z|, and the error of all `few` coordinates is at most sqrt(few) times that. The
error from axes that are not exactly orthogonal is their `flaw`.
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
    BoundSketch,
    Frame,
    QueryCodes,
    SketchCodes,
    empty_sketch,
    packed_words,
    whole_blocks,
)
from kway.threads import pmap, spans

PIECE = 196  # products per sum: shorter sums have a smaller bound of the rounding error, but take longer (T1f)


def sketch_product(values: NDArray[np.float32], axes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return values (b, d) @ axes (d, M), with each inner sum split into sums of PIECE products."""
    total = values[:, :PIECE] @ axes[:PIECE]
    for a in range(PIECE, len(axes), PIECE):
        total += values[:, a : a + PIECE] @ axes[a : a + PIECE]
    return total


@dataclass(frozen=True)
class EuclideanSpace:
    """Computes the sketches of rows, from the principal axes (d, few), a rotation and the step of the bytes."""

    frame: Frame
    axes: NDArray[np.float32]
    turn: NDArray[np.float32]
    middle: NDArray[np.float32]
    error: float  # error of the coordinates, relative to |z|
    turn_error: float  # error of the rotation, relative to the rotated vector
    step: float  # difference between neighboring bytes of the fine sketch

    @property
    def whole(self) -> bool:
        """Whether there are as many axes as columns, so that the remaining part is 0."""
        return self.axes.shape[0] == self.axes.shape[1]

    @property
    def widths(self) -> tuple[int, int]:
        """Number of columns of the coarse and of the fine sketch."""
        d, few = self.axes.shape
        return few + 1, -(-d // ROUND) * ROUND

    @property
    def fine_type(self) -> type[np.int8]:
        """Type of the fine sketch."""
        return np.int8

    def sketch(self, block: NDArray, into: BoundSketch) -> None:
        """Write the sketches of block (b, d), and the bounds of their errors, into arrays of b rows."""
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
        into.slack[:] *= 1 + 2 * len(self.axes) * ROUNDING  # sums in float32
        into.slack[:] += 4 * ROUNDING * sizes + UNDERFLOW

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.axes.nbytes + self.turn.nbytes + self.middle.nbytes + self.frame.center.nbytes


def euclidean_space(
    frame: Frame, axes: NDArray[np.float32], sample: NDArray, rng: np.random.Generator
) -> EuclideanSpace:
    """Return the space of the axes (d, few); the coarse sketch is centered on its mean over the sample (s, d)."""
    d, few = axes.shape
    pieces = -(-d // PIECE)
    error = (PIECE + pieces + 2) * ROUNDING * 1.01 * np.sqrt(few) * 1.01 + flaw(axes) + 6 * ROUNDING
    turn = random_turn(few + 1, rng)
    turn_error = (few + 9) * ROUNDING * 1.01 * np.sqrt(few + 1) + flaw(turn) + 8 * ROUNDING
    zero, identity = np.zeros(few + 1, np.float32), np.eye(few + 1, dtype=np.float32)
    plain = EuclideanSpace(frame, frozen(axes), identity, zero, error, turn_error, _byte_step(frame, sample))
    out = empty_sketch(len(sample), plain)
    plain.sketch(sample, out)
    return replace(plain, turn=frozen(turn), middle=frozen(out.coarse.mean(0)))


def _byte_step(frame: Frame, sample: NDArray) -> float:
    """Return the step of the bytes, a float32 value, such that 99% of the rows of the sample are within range."""
    peaks = np.abs(frame.place(sample).values).max(axis=1)
    return float(np.float32((np.quantile(peaks, 0.99) or peaks.max() or 1.0) / 127))


class EuclideanCodes(SketchCodes):
    """Coarse sketches as signed bytes; the limits of the bytes are a CodeRoom."""

    @classmethod
    def encode(
        cls, coarse: NDArray[np.float32], cells: CellOrder, space: EuclideanSpace, variant: int
    ) -> EuclideanCodes:
        """Encode coarse sketches (n, w), in the order of the cells."""
        n, width = coarse.shape
        room = code_room(variant, width)
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
            packed[blocks] = packed_words(
                codes.view(np.uint8) ^ 128, np.int32
            )  # one operand of the product is unsigned
            bias[blocks] = np.ceil(-halves).reshape(-1, 64)

        pmap(work, spans(n, 4096))
        margin = (1 + 1e-9) / space.step**2
        return cls(frozen(packed), limits, step, float(errors.max()), margin, variant, frozen(bias))

    def encode_queries(self, coarse: NDArray[np.float32], members: NDArray[np.int32]) -> QueryCodes:
        """Encode the queries coarse[members], padded to whole tiles."""
        m = len(members)
        codes = np.zeros((-(-m // QUERIES) * QUERIES, 4 * self.packed.shape[1]), np.int8)
        halves, errors = np.empty(m), np.empty(m)
        code_l2(coarse, members, self.step, self.limits, codes, halves, errors)
        return QueryCodes(
            prepare_l2(codes.view(np.int32), self.variant), halves + lifts_l2(codes[:m], self.variant), errors
        )


def _step(sample: NDArray[np.float32], room: CodeRoom) -> float:
    """Return one step for all coordinates, such that nearly all rows of the sample (s, w) are within the limits."""
    peaks = np.abs(sample).max(axis=1)
    usual = float(np.quantile(peaks, 0.99)) * room.top / 64
    step = min(float(peaks.max()), usual or np.inf) / room.top
    first = np.arange(sample.shape[1]) & 2 == 0
    norms = [np.quantile(np.linalg.norm(sample[:, half], axis=1), 0.99) for half in (first, ~first)]
    return max(step, float(max(norms)) / room.norm) or 1.0
