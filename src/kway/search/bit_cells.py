"""Landmark cells whose rows are stored as bits: codes of the difference between a row and its landmark.

`BitCells` is the table of codes, sorted by cell. A model file has the same order, so that a large index can be
memory-mapped.

    offsets (c + 1,)   cell g contains the rows offsets[g]:offsets[g + 1]
    names (n,)         row ids: names[i] is the position in the index of row i of this table; `places` is its inverse
    lengths (c, 2)     the smallest and the largest length ||x - m|| of the rows x of a cell with landmark m. A zero row
                       under cosine counts as longer than it is (encode_residuals). The bound of its distance is
                       still valid, because <q - m, r> <= ||q - m|| ||r||.
    rotated (c, D)     the landmarks, rotated like the codes

`fill_cells` builds the table from blocks of rows, with at most one block in memory (codecs/block_codes.py):

    1. Place the landmarks by k-means on a sample. An array or a folder of .npy files is sampled at random. The sample
       of any other source, such as a generator or a folder of parquet files, is its first block. Shuffle its rows.
    2. For each block, find the nearest landmark of each row, and encode the difference.
    3. Sort the codes by cell, in place, one array at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from kway.errors import InputError
from kway.kernels.cells import CellFinder, CellQueries, find_cells
from kway.kernels.codes.bit_cells import CellPairs, CodedCells, search_bit_cells
from kway.kernels.codes.bit_scan import CodedRows, Estimator
from kway.kernels.codes.row_tiles import TABLE_FEATURES
from kway.kernels.jit import frozen
from kway.kernels.lanes import chosen
from kway.kernels.topk import EMPTY, merge
from kway.rows.blocks import SAMPLE_ROWS
from kway.search.cells import (
    CellGroups,
    CellLayout,
    CellOrder,
    Projected,
    Projection,
    single_groups,
    sort_by_cell,
    take_stored,
)
from kway.search.codecs.bit_scan import coded_rows
from kway.search.codecs.bits import BitRows, Bits, CenteredBits, encode_residuals, residual_frame
from kway.search.codecs.block_codes import BlockEncoder, encode_parts
from kway.search.codecs.stores import StoredRows
from kway.search.distances import DOT, Distance
from kway.search.kmeans import ROWS_PER_CENTER
from kway.search.results import Heaps, empty_heaps
from kway.threads import pmap, workers
from kway.validation import plain_rows

if TYPE_CHECKING:
    from kway.search.landmarks import LandmarksIndex

_ROWS_PER_THREAD = 2**15  # searching this many rows is worth one more thread; decided by the scan benchmark (C1)
_NO_PROJECTION = frozen(np.empty((0, 0), dtype=np.float32))


@dataclass(frozen=True)
class BitCells(CellOrder):
    """Codes in the order of their cells, and the full rows if they are stored."""

    distance: Distance
    z: float  # half-width of error bars, in standard deviations of an estimate
    kept: StoredRows  # its codes are BitRows
    centers: NDArray[np.float32]  # (c, d)
    names: NDArray[np.int64]
    offsets: NDArray[np.int64]
    lengths: NDArray[np.float32]
    rotated: NDArray[np.float32]

    bounds = None  # the kernel skips cells by their `lengths`
    long = _NO_PROJECTION  # only queries are projected
    max_norm = 0.0

    @staticmethod
    def keep(rows: NDArray, cells: NDArray[np.int64], layout: CellLayout) -> StoredRows:
        """Encode rows (n, d) that belong to these cells (n,)."""
        store = _bits(layout)
        frame = residual_frame(store, rows.shape[1])
        codes = encode_residuals(rows, frame, layout.centers(), frozen(cells), layout.distance)
        return StoredRows(rows if store.rerank else None, codes)

    @staticmethod
    def of(kept: StoredRows, cells: NDArray[np.int64], layout: CellLayout) -> BitCells:
        """Return the table of stored rows, which are in the order of their positions and belong to these cells (n,)."""
        order, offsets = sort_by_cell(cells, len(layout.landmarks))
        ordered = take_stored(kept, order)
        return BitCells.from_codes(ordered.full, cast(BitRows, ordered.codes), frozen(order), offsets, layout)

    @staticmethod
    def from_arrays(rows: Any, arrays: dict[str, NDArray], layout: CellLayout) -> BitCells:
        """Return the table of a model file."""
        center = {"codes.center": np.zeros(len(layout.projection.mean), dtype=np.float32)}
        codes = _bits(layout).restore(center | arrays, residual_frame(_bits(layout), 1).distance)
        assert codes is not None
        offsets = np.concatenate([[0], np.cumsum(arrays["sizes"])])
        full = None if rows is None else frozen(rows)
        return BitCells.from_codes(full, codes, frozen(arrays["names"]), frozen(offsets), layout)

    @staticmethod
    def from_codes(
        full: NDArray | None, codes: BitRows, names: NDArray, offsets: NDArray, layout: CellLayout
    ) -> BitCells:
        """Return the table of codes that are sorted by cell, with names (n,) and offsets (c + 1,)."""
        centers = layout.centers()
        lengths = np.zeros((len(centers), 2), dtype=np.float32)
        filled = np.flatnonzero(np.diff(offsets))
        if len(filled):
            for column, ufunc in enumerate((np.minimum, np.maximum)):
                lengths[filled, column] = np.sqrt(2.0 * ufunc.reduceat(codes.half, offsets[filled]))
        rotated = codes.frame.rotate(centers)
        return BitCells(
            layout.distance,
            _bits(layout).z,
            StoredRows(full, codes),
            centers,
            names,
            offsets,
            frozen(lengths),
            frozen(rotated),
        )

    @property
    def nbytes(self) -> int:
        """Bytes in memory, including full rows."""
        arrays = (self.centers, self.names, self.offsets, self.lengths, self.rotated)
        return int(self.kept.nbytes + sum(array.nbytes for array in arrays))

    @property
    def codes(self) -> BitRows:
        """The codes, in the order of the cells."""
        return cast(BitRows, self.kept.codes)

    @property
    def ends_exact(self) -> bool:
        """Whether a search of all cells is the reference for guarantees: only if full rows are not stored."""
        return not self.has_full

    @property
    def best(self) -> Any:
        """The most precise rows in the order of their positions: an array, or codes that decode to rows."""
        kept = self.rows()
        if kept.full is not None:
            return kept.full
        return CenteredBits(**vars(kept.codes), landmarks=self.centers, cells=self.cells)

    def more(self, rows: NDArray, cells: NDArray[np.int64], layout: CellLayout) -> StoredRows:
        """Encode more rows (n, d), which belong to these cells (n,)."""
        return self.keep(rows, cells, layout)

    def arrays(self) -> dict[str, NDArray]:
        """Return the arrays of a model file."""
        full = {"rows": self.kept.full} if self.has_full else {}
        codes = self.codes.arrays()
        del codes["codes.center"]  # zeros
        return full | codes | {"names": self.names, "sizes": np.diff(self.offsets)}

    def search_single(
        self, exact: NDArray[np.float64], placed: NDArray[np.float64], finder: CellFinder, probes: int, heaps: Heaps,
    ) -> int:  # fmt: skip
        """Search the nearest cells of few queries; return the number of rows measured or estimated.

        The threads share every cell, because searching a cell of a large index takes milliseconds. `exact` (q, d) are
        the queries in float64, and `placed` (q, d) the same queries in the space of the distance. `finder` finds the
        `probes` nearest landmarks of each query.
        """
        q, nearest = len(exact), empty_heaps(len(exact), probes)
        short = np.empty((q, finder.landmarks.shape[1] + 1), np.float32)
        find_cells(placed, finder, CellQueries(short, np.empty((q, 0), np.float32), exact, np.empty(q)), *nearest)
        groups = single_groups(nearest.ids)
        cells = groups.cells[groups.cells < len(self.centers)]
        n_rows = int((self.offsets[cells + 1] - self.offsets[cells]).sum())
        n_parts, measured = min(workers(), 1 + n_rows // _ROWS_PER_THREAD), 0

        def search(part: int) -> tuple[Heaps, int]:
            part_heaps = empty_heaps(q, heaps.ids.shape[1])
            return part_heaps, self._search_part(exact, part_heaps, groups, part, n_parts)

        for part_heaps, count in pmap(search, range(n_parts)):
            merge(*heaps, *part_heaps)
            measured += count
        return measured

    def search_groups(self, exact: NDArray[np.float64], projected: Projected, heaps: Heaps, groups: CellGroups) -> int:
        """Search cells for groups of queries (q, d); return the number of rows measured or estimated."""
        return self._search_part(exact, heaps, groups, part=0, n_parts=1)

    def _search_part(
        self, exact: NDArray[np.float64], heaps: Heaps, groups: CellGroups, part: int, n_parts: int
    ) -> int:  # fmt: skip
        """Search one of n_parts parts of every cell; return the number of rows measured or estimated."""
        rotated = self.codes.frame.rotate(np.asarray(self.distance.place(exact)))
        cells = CodedCells(self.offsets, self.lengths, self.rotated)
        queries, fast = CellPairs(*groups, rotated, exact), chosen(*TABLE_FEATURES)
        counts = search_bit_cells(self._estimator, self._coded, cells, queries, part, n_parts, fast, *heaps)
        n_estimated, n_measured = counts
        return int(n_measured if self.has_full else n_estimated)

    @cached_property
    def _estimator(self) -> Estimator:
        distance, bar = self.distance, self.z * float(self.codes.widest[0]) if self.has_full else 0.0
        min_distance = -EMPTY if distance.signed else 0.0
        return Estimator(distance.code, distance.order > 0, distance.shifts, min_distance, self.z, bar)

    @cached_property
    def _coded(self) -> CodedRows:
        full = self.kept.full if self.has_full else np.empty((0, len(self.centers.T)), dtype=np.float32)
        return coded_rows(self.codes, frozen(full), self.names)


def _bits(layout: CellLayout) -> Bits:
    assert isinstance(layout.store, Bits)
    return layout.store


# Settings of the index in a folder of parts. A resumed run reads them and encodes the remaining blocks in the same way.
_SETTINGS = ("mean", "basis", "length", "landmarks", "trained")


def fill_cells(index: LandmarksIndex, source: Any, folder: str | Path | None = None) -> int:
    """Place the landmarks of an empty index, encode all blocks and set its table; return the number of rows."""
    store = index.recipe.store
    assert isinstance(store, Bits)
    arrays = encode_parts(source, _CellEncoder(store, index.metric, index, _arrays_of(source)), folder)
    order, offsets = sort_by_cell(arrays.take("cells"), index.n_landmarks)
    codes = store.restore(arrays.take_all(order), DOT)
    assert codes is not None
    index._set(BitCells.from_codes(None, codes, frozen(order), offsets, index._layout()))
    return len(order)


@dataclass
class _CellEncoder(BlockEncoder):
    """Encodes blocks of rows about the landmarks of the index.

    The landmarks are placed by a sample of the arrays, or by the first block if there are none.
    """

    index: LandmarksIndex
    arrays: tuple[NDArray, ...]

    kind = "codes of cells"

    def learn(self, rows: NDArray) -> None:
        index, n = self.index, sum(map(len, self.arrays))
        if not n and index.recipe.n_landmarks == "auto":
            raise InputError(
                "n_landmarks='auto' needs an array or a folder of .npy files with rows, because the number of rows "
                "of other sources is unknown; set Landmarks(n_landmarks=...) to about twice the square root of the "
                "number of rows"
            )
        n_landmarks = 2.0 * n**0.5 if index.recipe.n_landmarks == "auto" else index.recipe.n_landmarks
        size = int(max(ROWS_PER_CENTER * n_landmarks, SAMPLE_ROWS, 6 * rows.shape[1]))
        sample = rows if not n else self._sample(size)
        index._place(sample, n or len(rows))

    def restore(self, facts: Mapping[str, NDArray]) -> None:
        index = self.index
        index._projection = Projection(facts["mean"], frozen(facts["basis"]), int(facts["length"]))
        index._landmarks, index._trained = frozen(facts["landmarks"]), int(facts["trained"])

    def facts(self) -> dict[str, NDArray]:
        index = self.index
        projection = index._projection
        values = (projection.mean, projection.basis, projection.length, index._landmarks, index._trained)
        return dict(zip(_SETTINGS, map(np.asarray, values)))

    def encode(self, rows: NDArray) -> dict[str, NDArray]:
        index = self.index
        cells, frame = index._nearest_landmarks(rows), residual_frame(_bits(index._layout()), rows.shape[1])
        codes = encode_residuals(rows, frame, self._centers, cells, self.metric.distance)
        return codes.arrays() | {"cells": cells.astype(np.int32)}

    @cached_property
    def _centers(self) -> NDArray[np.float32]:
        return self.index._layout().centers()

    def _sample(self, size: int) -> NDArray:
        """Return `size` rows, drawn at random from all arrays."""
        ends = np.cumsum([len(a) for a in self.arrays])
        n, rng = int(ends[-1]), np.random.default_rng(self.index.recipe.seed)
        drawn = np.arange(n) if size >= n else np.sort(rng.choice(n, size, replace=False))
        cuts = np.searchsorted(drawn, ends[:-1])
        parts = zip(self.arrays, np.split(drawn, cuts), [0, *ends[:-1]])
        sample = np.concatenate([array[rows - first] for array, rows, first in parts])
        return np.asarray(self.index.metric.prepare(plain_rows(sample, "rows")))


def _arrays_of(source: Any) -> tuple[NDArray, ...]:
    """Return the arrays of a source whose rows can be read in any order; () for an iterable or parquet files."""
    if isinstance(source, str | Path):
        return tuple(np.load(file, mmap_mode="r") for file in sorted(Path(source).glob("*.npy")))
    return (source,) if hasattr(source, "shape") else ()
