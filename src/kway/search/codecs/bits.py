"""Bits: rows as codes of 1, 2 or 4 bits per column, with an estimate of every product and its error bar (RaBitQ).

r = R (x - center)              rotated, padded to D columns; cosine: x of length one
q.x = q.center + f <R q, y>     unbiased; standard deviation ||q_perp|| e_r, e_r^2 = (f^2 ||y||^2 - ||r||^2) / (D - 1)

where q_perp is the part of R q that is not along r. At 512 bits per row and a cosine of 0.6 that is 0.027.

Bits(1, rerank=True)     the full rows are kept too (they may be memory-mapped) and decide among those that the error
                         bars leave in doubt; a true neighbor is lost with a chance of at most `miss`
Bits(1, rerank=False)    only the codes are kept: a bit per column and 2 bytes per row for unit rows about the origin,
                         8 for others; distances are estimates

CentredBits: rows about the landmark of their cell, which they are nearer to than to any common center, so that the
error of an estimate is in proportion to ||x - m_c||. half is ||r||^2 / 2, and that of a zero row under cosine such that
||q - m||^2 / 2 + half - q.r is its distance, 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kway.errors import CombinationError, InputError
from kway.kernels.codes.bits import WIDEST_FILTER, decode_rows, encode_rows, rotate, turn_back
from kway.kernels.jit import frozen
from kway.parameters import YES_OR_NO, between, check_parameters, whole
from kway.rows.gpu.device import Device
from kway.rows.gpu.tensor_rows import TensorRows
from kway.search.codecs.base import Codes, FarKept, KeptRows, Store
from kway.search.distances import DOT, Distance, squares
from kway.threads import pmap, spans

if TYPE_CHECKING:
    from kway.search.bit_cells import BitCells
    from kway.search.cells import Ground
    from kway.search.codecs.bit_scan import BitScan
    from kway.search.landmarks import LandmarksIndex
    from kway.search.metrics import Metric

_ROUNDS = 3  # of signs and Hadamard blocks: coordinates are then normal to all tests
USUAL = {1: 1.0, 2: 0.996, 4: 0.335}  # the step of the best uniform grid of 2^B levels for a normal coordinate
ORIGIN = 0.02  # squared length of the mean of unit rows below which the origin is as good a center (C1)
COPIED_ROWS = 2**20  # that are copied to a device together: bounds memory
_LARGEST = 4.0  # of f sqrt(D) for unit rows: a quarter is the least cosine of a row and its code that can be kept


@dataclass(frozen=True)
class Bits(Store):
    """Rows as 1, 2 or 4 bits a column; a search may lose a neighbour with a chance of `miss`."""

    bits: int = 1
    rerank: bool = True
    miss: float = 0.002

    name = "bits"
    settles_ties = False  # one more than k may lie far away, and cost most of the search
    # bits need no short projections: of clusters in all directions of 512 columns 64 coordinates hold an eighth; 24
    # probes of 1,020 cells found 81 % of the answers with them, and 94 % with 192
    learns_long = True

    @property
    def bits_per_value(self) -> int:
        """Of the codes."""
        return self.bits

    @property
    def exact(self) -> bool:
        """No: a neighbour may be lost, if seldom."""
        return False

    def __post_init__(self) -> None:
        if not whole(1).allows(self.bits) or self.bits not in USUAL:
            raise InputError(f"Bits(bits) must be 1, 2 or 4, got {self.bits!r:.100}")
        check_parameters(self, rerank=YES_OR_NO, miss=between(0, 0.5))

    @property
    def z(self) -> float:
        """The score of a normal that half of `miss` lies beyond: filter and error bar may each lose that much."""
        from scipy.special import ndtri  # slow to load

        return float(-ndtri(0.5 * self.miss))

    def check(self, distance: Distance, sparse: bool) -> None:
        """Products only: euclidean, cosine, dot of dense rows."""
        super().check(distance, sparse)
        if not distance.by_products:
            raise CombinationError(
                f"Bits() estimates products, which {distance.name!r} is none of; use 'euclidean', 'cosine' or 'dot', "
                "or store=Int8()"
            )

    def frame(self, rows: NDArray, distance: Distance) -> BitFrame:
        """What rows like these (n, d) are coded by."""
        mean = np.zeros(rows.shape[1])
        for part in _parts(rows):
            mean += distance.place(rows[part].astype(np.float64)).sum(axis=0)
        return self.frame_about(mean / max(1, len(rows)), distance)

    def frame_about(self, mean: NDArray[np.float64], distance: Distance) -> BitFrame:
        """What rows of this mean (d,), in the distance's space, are coded by."""
        wide = -(-len(mean) // 64) * 64
        signs = np.random.default_rng(0).integers(0, 2, (_ROUNDS, wide)).astype(np.int8) * 2 - 1
        if distance.by_angle and mean @ mean < ORIGIN:
            mean = np.zeros_like(mean)
        return BitFrame(self.bits, distance, mean.astype(np.float32), frozen(signs.astype(np.int8)))

    def encode(self, rows: NDArray, distance: Distance) -> BitRows:
        """Rows about their mean, or about the origin where that is as good."""
        return self.frame(rows, distance).encode(rows)

    def restore(self, arrays: dict[str, NDArray], distance: Distance) -> BitRows | None:
        """The codes of a model file."""
        if "codes.head" not in arrays:
            return None
        named = {key: frozen(arrays[f"codes.{key}"]) for key in ("head", "rest", "factor", "half", "widest")}
        return BitRows(
            BitFrame(self.bits, distance, *(frozen(arrays[f"codes.{k}"]) for k in ("centre", "signs"))), **named
        )

    def scan(self, kept: KeptRows, distance: Distance) -> BitScan:
        """A scan of the codes."""
        from kway.search.codecs.bit_scan import BitScan

        return BitScan(kept, distance, self.z)

    def scan_blocks(self, blocks: Any, metric: Metric, folder: str | Path | None) -> BitScan:
        """A scan of the codes of all blocks; full rows stay where they are if blocks are one array of floats."""
        from kway.search.codecs.streams import code_blocks

        mapped = blocks if isinstance(blocks, np.ndarray) and blocks.dtype in (np.float32, np.float64) else None
        if self.rerank and mapped is None:
            raise CombinationError(
                f"{self} cannot be built from blocks, which are not kept; use Bits({self.bits}, rerank=False), or pass "
                "the rows as one array of floats (a memory map), or call build(rows)"
            )
        codes = code_blocks(blocks, self, metric, folder)
        return self.scan(KeptRows(mapped if self.rerank else None, codes), metric.distance)

    def table(self) -> type[BitCells]:
        """Codes about landmarks."""
        from kway.search.bit_cells import BitCells

        return BitCells

    def fill_cells(self, index: LandmarksIndex, blocks: Any, folder: str | Path | None) -> int:
        """Code all blocks about their landmarks."""
        from kway.search.bit_cells import fill_cells

        if self.rerank:
            raise CombinationError(
                f"{self} cannot be built from blocks, which are not kept; use Bits({self.bits}, rerank=False), or "
                "call build(rows)"
            )
        return fill_cells(index, blocks, folder)

    def keep_far(self, far: TensorRows, distance: Distance) -> FarKept:
        """Codes that are made on the device, and the rows if they are kept."""
        from kway.search.codecs.far_codes import far_bits, placed_mean

        frame = self.frame_about(placed_mean(far, distance), distance)
        centre = far.device.put(frame.centre).double()
        return FarKept(far if self.rerank else None, far_bits(far, distance, frame, lambda part: centre))

    def far_codes(self, far: TensorRows, cells: Any, ground: Ground) -> Any:
        """Bits about the landmark of each row's cell; those of zero rows under cosine as CentredBits has them."""
        from kway.search.codecs.far_codes import far_bits

        centres = far.device.put(ground.centres()).double()
        frame = residual_frame(self, far.shape[1])
        codes = far_bits(far, ground.distance, frame, lambda part: centres[cells[part]])
        if ground.distance.by_angle:
            codes.there.half.add_(0.5 * (far.row_peaks() == 0))
        return codes


@dataclass(frozen=True)
class BitFrame:
    """What codes are made by: the number of bits, the distance, the centre (d,) and the signs (rounds, D)."""

    bits: int
    distance: Distance
    centre: NDArray[np.float32]
    signs: NDArray[np.int8]

    @property
    def wide(self) -> int:
        """D."""
        return self.signs.shape[1]

    @property
    def plain(self) -> bool:
        """Whether rows are of length one about the origin, so that f alone is kept of each, in 2 bytes."""
        return self.distance.by_angle and not self.centre.any()

    @property
    def unit(self) -> np.float32:
        """What a stored factor is a multiple of."""
        return np.float32(_LARGEST / np.sqrt(self.wide) / 65535) if self.plain else np.float32(1)

    def turned(self, moved: NDArray) -> NDArray[np.float32]:
        """R z (n, D) of z (n, d)."""
        out = np.zeros((len(moved), self.wide), dtype=np.float32)
        out[:, : moved.shape[1]] = moved
        rotate(out, self.signs)
        return out

    def encode(self, rows: NDArray) -> BitRows:
        """Codes of rows (n, d)."""
        n, words = len(rows), self.wide // 64
        planes = min(words, WIDEST_FILTER)
        head = np.empty((planes, n), dtype=np.uint64)
        rest = np.empty((n, self.bits * words - planes), dtype=np.uint64)
        factor, half = (
            np.empty(n, dtype=np.uint16 if self.plain else np.float32),
            np.empty(0 if self.plain else n, np.float32),
        )

        def work(part: slice) -> float:
            z, widest = self.turned(self.distance.place(rows[part]) - self.centre), np.zeros(1, dtype=np.float32)
            f, h = np.empty(len(z), dtype=np.float32), np.empty(len(z), dtype=np.float32)
            own = np.empty((planes, len(z)), dtype=np.uint64), rest[part]
            encode_rows(z, self.bits, np.float32(USUAL[self.bits]), 0, *own, f, h, widest)
            head[:, part] = own[0]
            factor[part] = np.clip(np.rint(f / self.unit), 0, 65535) if self.plain else f
            if not self.plain:
                half[part] = h
            return float(widest[0])

        widest = max(pmap(work, _parts(rows)), default=0.0)
        return BitRows(self, *map(frozen, (head, rest, factor, half, np.array([widest], dtype=np.float32))))


@dataclass(frozen=True)
class BitRows(Codes):
    """Rows (n, d) as bits: planes of signs, the other words, factors f, halves of the squares, the widest error."""

    frame: BitFrame
    head: NDArray[np.uint64]  # (P, n)
    rest: NDArray[np.uint64]  # (n, B W - P)
    factor: NDArray  # (n,) uint16 in multiples of frame.unit, or float32
    half: NDArray[np.float32]  # (n,) ||r||^2 / 2, or (0,) where all are 1 / 2
    widest: NDArray[np.float32]  # (1,) max e_r / f

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.head.shape[1], len(self.frame.centre)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(
            a.nbytes for a in (self.head, self.rest, self.factor, self.half, self.frame.centre, self.frame.signs)
        )

    def __getitem__(self, where: Any) -> NDArray[np.float32]:
        """The nearest that can be told of the rows: centre + R' y <r, y> / ||y||^2."""
        some = self.take(np.arange(len(self))[where])
        y, f = some.grid(), some.factors()
        length = np.einsum("ij,ij->i", y, y)
        y *= np.divide(2.0 * some.halves(), f * length, out=np.zeros_like(f), where=f > 0)[:, None]
        turn_back(y, self.frame.signs)
        return y[:, : self.shape[1]] + self.frame.centre

    def grid(self) -> NDArray[np.float32]:
        """The codes y (n, D)."""
        out = np.empty((len(self), self.frame.wide), dtype=np.float32)
        decode_rows(self.frame.bits, self.head, self.rest, out)
        return out

    def factors(self) -> NDArray[np.float32]:
        """f (n,)."""
        return self.factor.astype(np.float32) * self.frame.unit

    def halves(self) -> NDArray[np.float32]:
        """||r||^2 / 2 (n,)."""
        return self.half if len(self.half) else np.where(self.factor > 0, np.float32(0.5), np.float32(0))

    def deviations(self) -> NDArray[np.float32]:
        """e_r (n,): the standard deviation of an estimated product, a unit of ||q_perp||."""
        y = self.grid()
        lost = self.factors() ** 2 * np.einsum("ij,ij->i", y, y) - 2.0 * self.halves()
        return np.sqrt(np.maximum(lost, 0.0) / (self.frame.wide - 1))

    def on_device(self, device: Device) -> Any:
        """The codes on a device, in whole tiles."""
        from kway.rows.gpu.bit_codes import EncodedBits
        from kway.rows.gpu.sign_codes import CODE_TILE

        n = len(self)
        room = device.zeros((-(-n // CODE_TILE) * CODE_TILE, 2 * self.frame.bits * self.frame.wide // 64), "int32")
        for part in spans(n, COPIED_ROWS):
            ordered = np.concatenate([self.head[:, part].T, self.rest[part]], axis=1)
            room[part] = device.put(ordered.view(np.int32))
        return EncodedBits(room, room[:n], device.put(self.factors()), device.put(self.half), float(self.widest[0]))

    def like(self, rows: NDArray) -> BitRows:
        """More rows about the same centre."""
        return self.frame.encode(rows)

    def join(self, more: BitRows) -> BitRows:
        """These and more codes about the same centre."""
        return joined_codes([self, more])

    def take(self, positions: NDArray[np.int64]) -> BitRows:
        """The codes at positions."""
        half = self.half[positions] if len(self.half) else self.half
        head, rest, factor = self.head[:, positions], self.rest[positions], self.factor[positions]
        return BitRows(self.frame, frozen(head), frozen(rest), frozen(factor), frozen(half), self.widest)

    def arrays(self) -> dict[str, NDArray]:
        """Arrays of a model file."""
        own = {key: getattr(self, key) for key in ("head", "rest", "factor", "half", "widest")}
        own |= {"centre": self.frame.centre, "signs": self.frame.signs}
        return {f"codes.{key}": array for key, array in own.items()}


def joined_codes(parts: Sequence[BitRows]) -> BitRows:
    """All parts, made by one frame, one after another."""
    widest = np.max([part.widest for part in parts], axis=0)
    head = np.concatenate([part.head for part in parts], axis=1)
    rest, factor, half = (np.concatenate([getattr(part, key) for part in parts]) for key in ("rest", "factor", "half"))
    return BitRows(parts[0].frame, frozen(head), frozen(rest), frozen(factor), frozen(half), frozen(widest))


def _parts(rows: NDArray) -> list[slice]:
    return spans(len(rows), max(64, 2**18 // rows.shape[1]))  # float64 in the second cache


def residual_frame(store: Bits, n_features: int) -> BitFrame:
    """What x - m_c is coded by: a turn about the origin."""
    blank = np.zeros((1, n_features), dtype=np.float32)
    return store.frame(blank, DOT)


@dataclass(frozen=True)
class CentredBits(Codes):
    """Codes of x - m_c (n, d), the landmarks m (c, d) and the cells (n,)."""

    codes: BitRows
    centres: NDArray[np.float32]
    cells: NDArray[np.int64]

    @staticmethod
    def of(
        rows: NDArray, frame: BitFrame, centres: NDArray[np.float32], cells: NDArray[np.int64], distance: Distance
    ) -> CentredBits:
        """Rows (n, d) of these cells (n,)."""

        def work(part: slice) -> BitRows:
            placed = distance.place(rows[part])
            codes = frame.encode(placed - centres[cells[part]])
            blank = np.flatnonzero(squares(placed) == 0) if distance.by_angle else ()
            if not len(blank):
                return codes
            half = codes.half.copy()
            half[blank] += 0.5
            return replace(codes, half=frozen(half))

        parts = spans(len(rows), max(64, 2**18 // rows.shape[1]))  # float64 in the second cache
        return CentredBits(joined_codes(pmap(work, parts)), centres, cells)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.codes.shape

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.codes.nbytes + self.centres.nbytes + self.cells.nbytes

    def __getitem__(self, where: Any) -> NDArray[np.float32]:
        return self.codes[where] + self.centres[self.cells[where]]

    def on_device(self, device: Device) -> Any:
        """The codes on a device."""
        return self.codes.on_device(device)

    def like(self, rows: NDArray) -> CentredBits:
        """Not needed: an index that adds rows knows their cells (`of`)."""
        raise NotImplementedError

    def join(self, more: CentredBits) -> CentredBits:
        """These and more codes about the same landmarks."""
        return CentredBits(
            joined_codes([self.codes, more.codes]), self.centres, np.concatenate([self.cells, more.cells])
        )

    def take(self, positions: NDArray[np.int64]) -> CentredBits:
        """The codes at positions."""
        return CentredBits(self.codes.take(positions), self.centres, self.cells[positions])

    def arrays(self) -> dict[str, NDArray]:
        """Arrays of a model file, but for the landmarks, which are the index's."""
        kept = self.codes.arrays()
        del kept["codes.centre"]
        return kept
