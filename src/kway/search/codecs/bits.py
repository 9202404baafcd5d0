"""Bits: rows as codes of 1, 2 or 4 bits per column, with an estimate of every product and its error bar.

The codes are like those of RaBitQ (Gao and Long 2024). With a random rotation R, padded to D columns:

    r = R (x - center)              cosine: x of length one
    q.x = q.center + f <R q, y>     y is the code of r; the estimate is unbiased. Its standard deviation is
                                    ||q_perp|| e_r, e_r^2 = (f^2 ||y||^2 - ||r||^2) / (D - 1)

q_perp is the part of R q that is orthogonal to r. At 512 bits per row and a cosine of 0.6 the deviation is 0.027.

Bits           the store: its parameters, and how it encodes, scans and restores rows
BitFrame       parameters of the encoding: number of bits, distance, center and rotation
BitRows        codes of rows about one center
CenteredBits   codes of rows about the landmark m_c of their cell. Rows are nearer to it than to a common center, and
               the error of an estimate is proportional to ||x - m_c||
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kway.errors import CombinationError, InputError
from kway.kernels.codes.bits import WIDEST_FILTER, encode_rows, rotate
from kway.kernels.jit import frozen
from kway.memory import CACHE_BYTES, rows_per_block
from kway.parameters import YES_OR_NO, between, check_parameters, whole
from kway.rows.gpu.device import Device
from kway.rows.gpu.tensor_rows import TensorRows
from kway.search.codecs.stores import Codes, GpuStoredRows, Store, StoredRows
from kway.search.distances import DOT, Distance, squares
from kway.threads import pmap, spans

if TYPE_CHECKING:
    from kway.search.bit_cells import BitCells
    from kway.search.codecs.bit_scan import BitScan
    from kway.search.landmarks import LandmarksIndex
    from kway.search.metrics import Metric

GRID_STEP = {1: 1, 2: 0.996, 4: 0.335}  # bits -> step of the best uniform grid for a normal coordinate (Max 1960)
_ROTATION_ROUNDS = 3  # rounds of signs and Hadamard blocks: rotated coordinates then pass a test of normality
_SMALL_MEAN = 0.02  # codes are about the origin if the mean of unit rows has a smaller squared length; decided by C1
_LARGEST_FACTOR = 4.0  # largest f sqrt(D) stored for unit rows: a row and its code have a cosine above 1/4 (test_bits)
CODE_ARRAYS = ("head", "rest", "factor", "half", "widest")


@dataclass(frozen=True)
class Bits(Store):
    """RaBitQ-like codes: rows stored as 1, 2 or 4 bits per column.

    A search is approximate: it estimates distances from the codes, with error bars. Codes save memory, not time. With
    ``rerank=False``, the codes of float32 rows take 8 to 32 times less memory, plus 2 to 8 bytes per row. The columns
    are padded to a multiple of 64. A search of codes is slower than a search of full rows in memory, so use codes if
    the rows do not fit in memory.

    Parameters
    ----------
    bits : {1, 2, 4}, default=1
        Bits per column. In addition, each row takes 8 bytes, or 2 bytes for the metric cosine if the mean of the rows
        is near the origin.
    rerank : bool, default=True
        Whether full rows are stored next to the codes; they may be memory-mapped. A search measures the full rows that
        the error bars cannot rule out. Otherwise only the codes are stored, and distances are estimates.
    miss : float, default=0.002
        Largest probability with which the error bars rule out a true neighbor, between 0 and 0.5. A larger value
        measures fewer rows. It does not count neighbors in cells of `Landmarks` that are not searched.

    References
    ----------
    Gao and Long (2024), "RaBitQ: Quantizing High-Dimensional Vectors with a Theoretical Error Bound for Approximate
    Nearest Neighbor Search", SIGMOD.

    Examples
    --------
    >>> import numpy as np
    >>> from kway.search import Bits, Flat
    >>> rows = np.random.default_rng(0).normal(size=(1000, 64)).astype(np.float32)
    >>> Flat(store=Bits(1)).build(rows).search(rows[:2], k=1).ids.tolist()
    [[0], [1]]
    """

    bits: int = 1
    rerank: bool = True
    miss: float = 0.002

    name = "bits"
    exact = False
    # whether a search looks for the row after the k-th to settle ties
    settles_ties = False  # the row after the k-th may be far away, and searching for it may take most of the time
    # whether landmarks have all coordinates: 64 of 512 coordinates separate clusters in random directions badly
    learns_long = True  # decided by the benchmark of code scans (C1)

    @property
    def bits_per_value(self) -> int:
        """Bits per value of the codes."""
        return self.bits

    def __post_init__(self) -> None:
        if not whole(1).allows(self.bits) or self.bits not in GRID_STEP:
            raise InputError(f"Bits(bits) must be 1, 2 or 4, got {self.bits!r:.100}")
        check_parameters(self, rerank=YES_OR_NO, miss=between(0, 0.5))

    @property
    def z(self) -> float:
        """Upper normal quantile at miss / 2.

        The probability `miss` is split equally between the first filter and the error bar.
        """
        from scipy.special import ndtri  # slow to load

        return float(-ndtri(0.5 * self.miss))

    def check(self, distance: Distance, sparse: bool) -> None:
        """Raise CombinationError unless rows are dense and the distance is euclidean, cosine or dot.

        Parameters
        ----------
        distance : Distance
            The distance that the engine computes.
        sparse : bool
            Whether the rows are sparse.
        """
        super().check(distance, sparse)
        if not distance.by_products:
            raise CombinationError(
                f"Bits() cannot estimate the metric {distance.name!r}; use 'euclidean', 'cosine' or 'dot', or "
                "store=Int8()"
            )

    def frame(self, rows: NDArray, distance: Distance) -> BitFrame:
        """Choose center and rotation for rows like these.

        Parameters
        ----------
        rows : ndarray of shape (n, d)
            Rows.
        distance : Distance
            The distance that the engine computes.

        Returns
        -------
        BitFrame
            The center and the rotation that encode such rows.
        """
        mean = np.zeros(rows.shape[1])
        for part in _parts(rows):
            mean += distance.place(rows[part].astype(np.float64)).sum(axis=0)
        return self.frame_about(mean / max(1, len(rows)), distance)

    def frame_about(self, mean: NDArray[np.float64], distance: Distance) -> BitFrame:
        """Choose center and rotation for rows of a given mean.

        Parameters
        ----------
        mean : ndarray of shape (d,)
            Mean of the rows in the space of the distance.
        distance : Distance
            The distance that the engine computes.

        Returns
        -------
        BitFrame
            The center and the rotation that encode such rows.
        """
        dim = -(-len(mean) // 64) * 64
        signs = np.random.default_rng(0).integers(0, 2, (_ROTATION_ROUNDS, dim)) * 2 - 1
        if distance.by_angle and mean @ mean < _SMALL_MEAN:
            mean = np.zeros_like(mean)
        return BitFrame(self.bits, distance, mean.astype(np.float32), frozen(signs.astype(np.int8)))

    def encode(self, rows: NDArray, distance: Distance) -> BitRows:
        """Encode rows about their mean, or about the origin if that is as good.

        Parameters
        ----------
        rows : ndarray of shape (n, d)
            Rows.
        distance : Distance
            The distance that the engine computes.

        Returns
        -------
        BitRows
            The codes.
        """
        return self.frame(rows, distance).encode(rows)

    def restore(self, arrays: dict[str, NDArray], distance: Distance) -> BitRows | None:
        """Return the codes of a model file.

        Parameters
        ----------
        arrays : dict of str to ndarray
            Arrays of the model file by name.
        distance : Distance
            The distance that the engine computes.

        Returns
        -------
        BitRows or None
            The codes; None if the file has none.
        """
        if "codes.head" not in arrays:
            return None
        frame = BitFrame(self.bits, distance, frozen(arrays["codes.center"]), frozen(arrays["codes.signs"]))
        return BitRows(frame, **{key: frozen(arrays[f"codes.{key}"]) for key in CODE_ARRAYS})

    def scan(self, kept: StoredRows, distance: Distance) -> BitScan:
        """Return a search that scans the codes of all rows.

        Parameters
        ----------
        kept : StoredRows
            The stored rows.
        distance : Distance
            The distance that the engine computes.

        Returns
        -------
        BitScan
            The search.
        """
        from kway.search.codecs.bit_scan import BitScan

        return BitScan(kept, distance, self.z)

    def scan_blocks(self, blocks: Any, metric: Metric, folder: str | Path | None) -> BitScan:
        """Return a search that scans the codes of all blocks; full rows are used if the blocks are one array of floats.

        Parameters
        ----------
        blocks : array, path or iterable
            An array (n, d), a folder of .npy or parquet files, or an iterable of arrays (m, d).
        metric : Metric
            The metric of the search.
        folder : path or None
            Folder of finished parts, from which an interrupted build resumes.

        Returns
        -------
        BitScan
            The search.
        """
        from kway.search.codecs.block_codes import encode_blocks

        mapped = blocks if isinstance(blocks, np.ndarray) and blocks.dtype in (np.float32, np.float64) else None
        if mapped is None:
            self._check_no_rerank("pass the rows as one array of floats (a memory map)")
        codes = encode_blocks(blocks, self, metric, folder)
        return self.scan(StoredRows(mapped if self.rerank else None, codes), metric.distance)

    def table(self) -> type[BitCells]:
        """Return the type of table that stores codes of rows about the landmark of their cell.

        Returns
        -------
        type
            BitCells.
        """
        from kway.search.bit_cells import BitCells

        return BitCells

    def fill_cells(self, index: LandmarksIndex, blocks: Any, folder: str | Path | None) -> int:
        """Fill an empty index with the codes of all blocks, each row about its landmark.

        Parameters
        ----------
        index : LandmarksIndex
            The empty index.
        blocks : array, path or iterable
            An array (n, d), a folder of .npy or parquet files, or an iterable of arrays (m, d).
        folder : path or None
            Folder of finished parts, from which an interrupted build resumes.

        Returns
        -------
        int
            The number of rows.
        """
        from kway.search.bit_cells import fill_cells

        self._check_no_rerank("call build(rows)")
        return fill_cells(index, blocks, folder)

    def _check_no_rerank(self, instead: str) -> None:
        if self.rerank:
            raise CombinationError(
                f"{self} cannot be built from blocks, because blocks are not stored; use Bits({self.bits}, "
                f"rerank=False), or {instead}"
            )

    def store_on_gpu(self, rows: TensorRows, distance: Distance) -> GpuStoredRows:
        """Encode rows on the GPU about their mean.

        Parameters
        ----------
        rows : TensorRows of shape (n, d)
            Rows on the GPU.
        distance : Distance
            The distance that the engine computes.

        Returns
        -------
        GpuStoredRows
            The codes, and the rows if `rerank` is set.
        """
        from kway.search.codecs.gpu_codes import encode_bits_on_gpu, mean_on_gpu

        frame = self.frame_about(mean_on_gpu(rows, distance), distance)
        return GpuStoredRows(rows if self.rerank else None, encode_bits_on_gpu(rows, distance, frame))


@dataclass(frozen=True)
class BitFrame:
    """Parameters of the encoding: z = R (x - center) is quantized to `bits` bits per column."""

    bits: int
    distance: Distance
    center: NDArray[np.float32]  # (d,)
    signs: NDArray[np.int8]  # (rounds, D) of the rotation R

    @property
    def wide(self) -> int:
        """Number D of rotated columns: d, rounded up to a multiple of 64."""
        return self.signs.shape[1]

    @property
    def plain(self) -> bool:
        """Whether rows have length 1 and the center is the origin; then only f is stored, in 2 bytes."""
        return self.distance.by_angle and not self.center.any()

    @property
    def unit(self) -> np.float32:
        """The unit of stored factors: f is `unit` times an integer if `plain`, otherwise f is stored as it is."""
        largest = np.iinfo(np.uint16).max
        return np.float32(_LARGEST_FACTOR / np.sqrt(self.wide) / largest) if self.plain else np.float32(1)

    def rotate(self, rows: NDArray) -> NDArray[np.float32]:
        """Return the rotated rows (n, D) of rows (n, d); the center is not subtracted."""
        out = np.zeros((len(rows), self.wide), dtype=np.float32)
        out[:, : rows.shape[1]] = rows
        rotate(out, self.signs)
        return out

    def encode(self, rows: NDArray) -> BitRows:
        """Return codes of rows (n, d)."""
        return join_codes(pmap(lambda part: self._encode_part(rows[part]), _parts(rows)))

    def _encode_part(self, rows: NDArray) -> BitRows:
        z, widest = self.rotate(self.distance.place(rows) - self.center), np.zeros(1, dtype=np.float32)
        n, n_words = len(z), self.wide // 64
        n_head = min(n_words, WIDEST_FILTER)
        head = np.empty((n_head, n), dtype=np.uint64)
        rest = np.empty((n, self.bits * n_words - n_head), dtype=np.uint64)
        factor, half = np.empty(n, dtype=np.float32), np.empty(n, dtype=np.float32)
        encode_rows(z, self.bits, np.float32(GRID_STEP[self.bits]), head, rest, factor, half, widest)
        if self.plain:
            multiples = np.clip(np.rint(factor / self.unit), 0, np.iinfo(np.uint16).max)
            factor, half = multiples.astype(np.uint16), half[:0]
        return BitRows(self, head, rest, factor, half, widest)


@dataclass(frozen=True)
class BitRows(Codes):
    """Rows (n, d) as codes of a frame; kernels/codes/bits.py describes the layout."""

    frame: BitFrame
    head: NDArray[np.uint64]  # (P, n) the first words of the signs
    rest: NDArray[np.uint64]  # (n, B W - P) the other words
    factor: NDArray  # (n,) f in multiples of frame.unit: uint16 or float32
    half: NDArray[np.float32]  # (n,) ||r||^2 / 2 (but see encode_residuals), or (0,) if all are 1 / 2
    widest: NDArray[np.float32]  # (1,) the largest e_r / f: standard deviation of <q, y> for a unit query

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.head.shape[1], len(self.frame.center)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        arrays = (self.head, self.rest, self.factor, self.half, self.frame.center, self.frame.signs)
        return sum(array.nbytes for array in arrays)

    def __getitem__(self, where: Any) -> NDArray[np.float32]:
        """Return approximations of the rows at a slice or array of positions: center + R' y <r, y> / ||y||^2."""
        selected = self.take(np.arange(len(self))[where])
        y, f = selected.grid(), selected.factors()
        y_squares = np.einsum("ij,ij->i", y, y)
        # <r, y> = ||r||^2 / f
        y *= np.divide(2.0 * selected.halves(), f * y_squares, out=np.zeros_like(f), where=f > 0)[:, None]
        return y @ self.frame.rotate(np.eye(self.shape[1])).T + self.frame.center

    def grid(self) -> NDArray[np.float32]:
        """Return the decoded y (n, D) of kernels/codes/bits.py."""
        bits, wide = self.frame.bits, self.frame.wide
        words = np.concatenate([self.head.T, self.rest], axis=1).view(np.uint8)  # (n, B D / 8) bytes
        y = np.full((len(self), wide), 1 - 2**bits, dtype=np.float32)
        for b in range(bits):
            plane = words[:, b * wide // 8 : (b + 1) * wide // 8]
            y += np.float32(2 ** (bits - b)) * np.unpackbits(plane, axis=1, bitorder="little")
        return y

    def factors(self) -> NDArray[np.float32]:
        """Return the factors f (n,)."""
        return self.factor.astype(np.float32) * self.frame.unit

    def halves(self) -> NDArray[np.float32]:
        """Return ||r||^2 / 2 (n,) of every row; only rows of zeros have a factor of 0."""
        return self.half if len(self.half) else np.where(self.factor > 0, np.float32(0.5), np.float32(0))

    def on_device(self, device: Device) -> Any:
        """Return a copy of the codes on a device, in whole tiles."""
        from kway.rows.gpu.bit_codes import EncodedBits
        from kway.rows.gpu.sign_codes import CODE_TILE

        n = len(self)
        tiles = device.zeros((-(-n // CODE_TILE) * CODE_TILE, 2 * self.frame.bits * self.frame.wide // 64), "int32")
        for part in spans(n, rows_per_block(self.frame.bits * self.frame.wide // 8)):
            words = np.concatenate([self.head[:, part].T, self.rest[part]], axis=1)
            tiles[part] = device.put(np.ascontiguousarray(words).view(np.int32))
        return EncodedBits(tiles, tiles[:n], device.put(self.factors()), device.put(self.half), float(self.widest[0]))

    def like(self, rows: NDArray) -> BitRows:
        """Encode more rows about the same center."""
        return self.frame.encode(rows)

    def join(self, more: BitRows) -> BitRows:
        """Return these codes followed by more codes about the same center."""
        return join_codes([self, more])

    def take(self, positions: NDArray[np.int64]) -> BitRows:
        """Return the codes at positions."""
        half = self.half[positions] if len(self.half) else self.half
        head, rest, factor = self.head[:, positions], self.rest[positions], self.factor[positions]
        return BitRows(self.frame, frozen(head), frozen(rest), frozen(factor), frozen(half), self.widest)

    def arrays(self) -> dict[str, NDArray]:
        """Return the arrays of a model file."""
        arrays = {f"codes.{key}": getattr(self, key) for key in CODE_ARRAYS}
        return arrays | {"codes.center": self.frame.center, "codes.signs": self.frame.signs}


def join_codes(parts: Sequence[BitRows]) -> BitRows:
    """Return the codes of all parts, which have the same frame, in their order."""
    widest = np.max([part.widest for part in parts], axis=0)
    head = np.concatenate([part.head for part in parts], axis=1)
    rest, factor, half = (np.concatenate([getattr(part, key) for part in parts]) for key in ("rest", "factor", "half"))
    return BitRows(parts[0].frame, frozen(head), frozen(rest), frozen(factor), frozen(half), frozen(widest))


def _parts(rows: NDArray) -> list[slice]:
    return spans(len(rows), rows_per_block(8 * rows.shape[1], CACHE_BYTES)) or [slice(0, 0)]


def residual_frame(store: Bits, n_features: int) -> BitFrame:
    """Return the frame that encodes the residuals x - m_c: their center is the origin."""
    return store.frame_about(np.zeros(n_features), DOT)


def encode_residuals(
    rows: NDArray, frame: BitFrame, landmarks: NDArray[np.float32], cells: NDArray[np.int64], distance: Distance
) -> BitRows:
    """Return the codes of the residuals x - m_c of rows x (n, d) from the landmarks (c, d) of their cells (n,).

    For cosine, `half` of a zero row is raised by 1/2, so that its distance to every query of length one is 1:
    ||q - m||^2 / 2 + half - <q - m, r> with r = -m. It is then not ||r||^2 / 2, so a restored zero row is not zero.
    """

    def work(part: slice) -> BitRows:
        placed = distance.place(rows[part])
        codes = frame.encode(placed - landmarks[cells[part]])
        if not distance.by_angle:
            return codes
        return replace(codes, half=frozen(codes.half + np.float32(0.5) * (squares(placed) == 0)))

    return join_codes(pmap(work, _parts(rows)))


@dataclass(frozen=True)
class CenteredBits(BitRows):
    """Codes of residuals that decode to rows."""

    landmarks: NDArray[np.float32]  # (c, d)
    cells: NDArray[np.int64]  # (n,)

    def __getitem__(self, where: Any) -> NDArray[np.float32]:
        return super().__getitem__(where) + self.landmarks[self.cells[where]]
