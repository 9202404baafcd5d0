"""How an index stores rows: in full (dense or CSR), as codes, or both.

Store        a way to store rows: Full (store=None), Int8 (int8.py), Bits (bits.py)
Codes        rows in fewer bytes: `codes[part]` are the decoded rows (m, d) float32, which scans measure
StoredRows   the rows of an index, which can be joined, selected and written to a model file

full rows    codes    scanned    measured
yes          no       full       full rows
yes          yes      codes      the full rows that the error of the codes cannot rule out. Results are exact with Int8;
                                 with Bits, the error bars miss a neighbor with a stated probability
no           yes      codes      codes: results are approximate

Arrays of a model file: "rows" (n, d) for dense rows; "rows.data", "rows.indices", "rows.indptr" for CSR.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.errors import CombinationError
from kway.kernels.jit import frozen
from kway.memory import CACHE_BYTES, rows_per_block
from kway.parameters import NONE, Rule
from kway.rows.gpu.device import Device
from kway.rows.gpu.tensor_rows import TensorRows
from kway.search.distances import Distance, Matrix
from kway.threads import pmap, spans

if TYPE_CHECKING:
    from kway.search.bit_cells import BitCells
    from kway.search.block_scan import Scan
    from kway.search.cells import CellTable
    from kway.search.landmarks import LandmarksIndex
    from kway.search.metrics import Metric


def join_rows(rows: Any, more: Any) -> Any:
    """Return rows followed by more rows, as CSR if either is sparse."""
    if sp.issparse(rows) or sp.issparse(more):
        return sp.csr_matrix(sp.vstack([sp.csr_matrix(rows), sp.csr_matrix(more)]))
    return np.concatenate([rows, more])


def drop_rows(rows: Any, positions: NDArray[np.int64]) -> Any:
    """Return all rows except those at positions."""
    if sp.issparse(rows):
        return rows[np.delete(np.arange(rows.shape[0]), positions)]
    return np.delete(rows, positions, axis=0)


def _bytes_of(rows: Any) -> int:
    """Return the bytes of an array, of CSR rows, or of codes."""
    parts = [rows.data, rows.indices, rows.indptr] if sp.issparse(rows) else [rows]
    return sum(int(part.nbytes) for part in parts)


def row_arrays(rows: Any) -> dict[str, NDArray]:
    """Return the arrays of a model file that contain the rows."""
    if sp.issparse(rows):
        return {"rows.data": rows.data, "rows.indices": rows.indices, "rows.indptr": rows.indptr}
    return {"rows": np.asarray(rows)}


def rows_of_arrays(arrays: dict[str, NDArray], n: int, d: int) -> Any:
    """Return the rows (n, d) from the arrays of `row_arrays`, or None if there are none."""
    if "rows.data" in arrays:
        return sp.csr_matrix((arrays["rows.data"], arrays["rows.indices"], arrays["rows.indptr"]), shape=(n, d))
    return np.asarray(arrays["rows"]) if "rows" in arrays else None


class Codes(ABC):
    """Rows (n, d) in fewer bytes."""

    dtype = np.dtype(np.float32)  # of decoded rows

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(n, d)."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes in memory."""

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def host(self) -> Codes:
        """The codes in the memory of the host: these codes, or a copy of codes that are on a GPU."""
        return self

    @abstractmethod
    def __getitem__(self, where: Any) -> NDArray[np.float32]:
        """Return the decoded rows (m, d) at a slice or an array of positions."""

    @abstractmethod
    def like(self, rows: NDArray) -> Codes:
        """Encode more rows, so that `join` accepts them."""

    @abstractmethod
    def join(self, more: Any) -> Codes:
        """Return these codes followed by the codes that `like` returned."""

    @abstractmethod
    def take(self, positions: NDArray[np.int64]) -> Codes:
        """Return the codes at positions."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray]:
        """Return the arrays of a model file; `Store.restore` reads them."""

    @abstractmethod
    def on_device(self, device: Device) -> Any:
        """Return the codes on a device; they are copied unless they are there already."""

    def device_bytes(self) -> int:
        """Return the bytes of the copy on a device."""
        return self.nbytes + 4 * len(self)

    def errors(self, rows: NDArray, distance: Distance) -> NDArray[np.float64]:
        """Return the distance (n,) of each decoded row from its full row, in the distance's space."""
        parts = spans(len(rows), rows_per_block(8 * rows.shape[1], CACHE_BYTES))
        errors = pmap(lambda part: distance.errors(rows[part], self[part]), parts)
        return np.concatenate(errors) if errors else np.empty(0)


class Store(ABC):
    """A way to store rows: a frozen dataclass that a fit never changes.

    The methods of this class store rows in full. Codes override those that differ.
    """

    name: ClassVar[str]
    rerank: bool  # whether full rows are stored next to the codes
    exact: ClassVar[bool] = True  # whether results are those of brute force over the rows as they are stored
    settles_ties: ClassVar[bool] = True  # whether a search requests k + 1 rows, so that a tie at position k is visible
    learns_long: ClassVar[bool] = False  # whether landmarks are placed by the long projection (search/cells.py)

    @property
    def bits_per_value(self) -> int:
        """Bits per value of the codes; 0 if there are none."""
        return 0

    def encode(self, rows: NDArray, distance: Distance) -> Codes | None:
        """Encode rows for searches under a distance.

        Parameters
        ----------
        rows : ndarray of shape (n, d)
            Rows.
        distance : Distance
            The distance that the engine computes.

        Returns
        -------
        Codes or None
            The codes; None if the rows are stored in full only.
        """
        return None

    def restore(self, arrays: dict[str, NDArray], distance: Distance) -> Codes | None:
        """Return the codes of a model file.

        Parameters
        ----------
        arrays : dict of str to ndarray
            Arrays of the model file by name.
        distance : Distance
            The distance that the engine computes.

        Returns
        -------
        Codes or None
            The codes; None if the file has none.
        """
        return None

    def scan(self, kept: StoredRows, distance: Distance) -> Scan:
        """Return a search over all stored rows.

        Parameters
        ----------
        kept : StoredRows
            The stored rows.
        distance : Distance
            The distance that the engine computes.

        Returns
        -------
        Scan
            The search.
        """
        from kway.search.block_scan import BlockScan

        return BlockScan(kept, distance)

    def scan_blocks(self, blocks: Any, metric: Metric, folder: str | Path | None) -> Scan | None:
        """Return a search over blocks of rows that are not stored.

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
        Scan or None
            The search; None if this store needs the rows.
        """
        from kway.search.codecs.block_codes import encode_blocks

        if self.rerank:
            return None
        return self.scan(StoredRows(None, encode_blocks(blocks, self, metric, folder)), metric.distance)

    def table(self) -> type[CellTable] | type[BitCells]:
        """Return the type of table that stores rows in landmark cells.

        Returns
        -------
        type
            CellTable or BitCells.
        """
        from kway.search.cells import CellTable

        return CellTable

    def fill_cells(self, index: LandmarksIndex, blocks: Any, folder: str | Path | None) -> int | None:
        """Fill an empty index from blocks of rows that are not stored.

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
        int or None
            The number of rows; None if this store needs the rows.
        """
        return None

    def store_on_gpu(self, rows: TensorRows, distance: Distance) -> GpuStoredRows:
        """Store rows on a GPU; nothing is copied to the CPU.

        Parameters
        ----------
        rows : TensorRows of shape (n, d)
            Rows on the GPU.
        distance : Distance
            The distance that the engine computes.

        Returns
        -------
        GpuStoredRows
            The rows, their codes, or both, on the same device.
        """
        return GpuStoredRows(rows)

    def keep(self, rows: Matrix, distance: Distance) -> StoredRows:
        """Store rows.

        Parameters
        ----------
        rows : ndarray or CSR matrix of shape (n, d)
            Rows.
        distance : Distance
            The distance that the engine computes.

        Returns
        -------
        StoredRows
            Full rows, their codes, or both.
        """
        return StoredRows(rows if self.rerank else None, self.encode(rows, distance))

    def load(self, rows: Matrix | None, arrays: dict[str, NDArray], distance: Distance) -> StoredRows:
        """Return the rows of a model file; codes that it lacks are computed again.

        Parameters
        ----------
        rows : ndarray, CSR matrix or None
            Full rows (n, d) of the model file; None if it contains codes only.
        arrays : dict of str to ndarray
            Arrays of the model file by name.
        distance : Distance
            The distance that the engine computes.

        Returns
        -------
        StoredRows
            Full rows, their codes, or both.
        """
        codes = self.restore(arrays, distance)
        return self.keep(rows, distance) if codes is None else StoredRows(rows, codes)

    def check(self, distance: Distance, sparse: bool) -> None:
        """Raise CombinationError for rows that codes cannot represent.

        Parameters
        ----------
        distance : Distance
            The distance that the engine computes.
        sparse : bool
            Whether the rows are sparse.
        """
        if sparse or not distance.coded:
            what = "sparse rows" if sparse else f"the metric {distance.name!r}"
            raise CombinationError(
                f"{type(self).__name__}() cannot store {what}, because codes are rounded; use store=None"
            )


@dataclass(frozen=True)
class Full(Store):
    """Rows as they are given."""

    name = "full"
    rerank = True

    def check(self, distance: Distance, sparse: bool) -> None:
        """Accept any rows."""


FULL = Full()


STORE = NONE | Rule("a store such as Int8() or Bits(1)", lambda value: isinstance(value, Store))


class SelectedRows(NamedTuple):
    """Rows (m, d), and the positions (q, k) of the requested rows among them."""

    rows: NDArray
    places: NDArray[np.int64]

    @staticmethod
    def select(rows: Any, ids: NDArray[np.int64]) -> SelectedRows:
        """Select the rows at ids (q, k); only these are decoded, or copied from a GPU."""
        positions, places = np.unique(ids, return_inverse=True)
        return SelectedRows(frozen(np.asarray(rows[positions])), places.reshape(ids.shape))


@dataclass(frozen=True, eq=False, repr=False)
class StoredRows:
    """Full rows (n, d), their codes, or both."""

    full: Any  # (n, d) dense, CSR, or None
    codes: Codes | None = None

    @property
    def scanned(self) -> Any:
        """The rows that scans read: an array, CSR, or codes."""
        return self.full if self.codes is None else self.codes

    @property
    def best(self) -> Any:
        """The most precise rows that are stored: an array, CSR, or codes if there are no full rows."""
        return self.codes if self.full is None else self.full

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        shape: tuple[int, int] = self.scanned.shape
        return shape

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(_bytes_of(rows) for rows in (self.full, self.codes) if rows is not None)

    @property
    def has_full(self) -> bool:
        """Whether full rows are stored."""
        return self.full is not None

    @property
    def sparse(self) -> bool:
        """Whether rows are CSR."""
        return sp.issparse(self.full)

    def select_rows(self, ids: NDArray[np.int64]) -> SelectedRows:
        """Return dense rows for ids (q, k): all rows, or only the selected ones if they have to be decoded."""
        return SelectedRows.select(self.codes, ids) if self.full is None else SelectedRows(frozen(self.full), ids)

    def on_device(self, device: Device) -> Any:
        """Return the most precise rows on a device: a tensor, or codes that are read like one."""
        return device.put(self.full) if self.codes is None or self.full is not None else self.codes.on_device(device)

    def device_bytes(self) -> int:
        """Return the bytes of a search on a device: the copy of the rows, and the operands of its products."""
        return 2 * _bytes_of(self.best)

    def full_on_device(self, device: Device, spare: int) -> Any:
        """Return the full rows on a device; None if there are none, or if they and `spare` more bytes do not fit."""
        fits = self.full is not None and _bytes_of(self.full) + spare <= device.free_bytes()
        return device.put(self.full) if fits else None

    def like(self, rows: Matrix) -> StoredRows:
        """Store more rows in the same way: dense or CSR like these rows."""
        if sp.issparse(rows) and not self.sparse:
            rows = rows.toarray()
        full = sp.csr_matrix(rows) if self.sparse else rows
        return StoredRows(None if self.full is None else full, None if self.codes is None else self.codes.like(rows))

    def join(self, more: StoredRows) -> StoredRows:
        """Return these rows followed by the rows that `like` returned."""
        full = None if self.full is None else join_rows(self.full, more.full)
        return StoredRows(full, None if self.codes is None else self.codes.join(more.codes))

    def take(self, positions: NDArray[np.int64]) -> StoredRows:
        """Return the rows at positions."""
        full = None if self.full is None else self.full[positions]
        return StoredRows(full, None if self.codes is None else self.codes.take(positions))

    def drop(self, positions: NDArray[np.int64]) -> StoredRows:
        """Return all rows except those at positions."""
        return self.take(np.delete(np.arange(len(self)), positions))

    def arrays(self) -> dict[str, NDArray]:
        """Return the arrays of a model file."""
        full = {} if self.full is None else row_arrays(self.full)
        return full | ({} if self.codes is None else self.codes.arrays())


class GpuStoredRows(StoredRows):
    """Full rows or codes on a GPU; they are copied to the host when the CPU first reads them.

    Int8 codes of full rows are not computed, because a GPU searches the full rows. Loading a model file computes them.
    """

    tensor_rows: TensorRows | None

    def __init__(self, tensor_rows: TensorRows | None, codes: Codes | None = None) -> None:
        object.__setattr__(self, "tensor_rows", tensor_rows)
        object.__setattr__(self, "codes", codes)

    @cached_property
    def full(self) -> Any:
        """The full rows as an array, copied at first use, or None."""
        return None if self.tensor_rows is None else frozen(np.asarray(self.tensor_rows))

    @property
    def _best_on_gpu(self) -> Any:
        """The most precise rows, on the GPU; `best` copies them to the host."""
        return self.codes if self.tensor_rows is None else self.tensor_rows

    @property
    def copied_to_host(self) -> bool:
        """Whether full rows have been copied to the CPU."""
        return vars(self).get("full") is not None

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        n, d = self._best_on_gpu.shape
        return n, d

    @property
    def nbytes(self) -> int:
        """Bytes in the memory of the CPU."""
        return int((self.full.nbytes if self.copied_to_host else 0) + (0 if self.codes is None else self.codes.nbytes))

    @property
    def sparse(self) -> bool:
        """Always False: rows on a GPU are dense."""
        return False

    @property
    def has_full(self) -> bool:
        """Whether full rows are stored on the GPU."""
        return self.tensor_rows is not None

    def on_device(self, device: Device) -> Any:
        """Return the rows, which are on the GPU already."""
        return self._best_on_gpu.on_device(device) if self.tensor_rows is None else self.tensor_rows.tensor

    def device_bytes(self) -> int:
        """Return the bytes of the operands of its products; the rows are on the GPU already."""
        return int(self._best_on_gpu.nbytes)

    def full_on_device(self, device: Device, spare: int) -> Any:
        """Return the full rows, which are on the GPU already, or None."""
        return None if self.tensor_rows is None else self.tensor_rows.tensor

    def select_rows(self, ids: NDArray[np.int64]) -> SelectedRows:
        """Return the rows at ids (q, k); only these are copied."""
        if self.tensor_rows is None or self.copied_to_host:
            return super().select_rows(ids)
        return SelectedRows.select(self.tensor_rows, ids)
