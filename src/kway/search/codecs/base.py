"""How an index keeps rows: full (dense or CSR), as codes, or both.

Store       what every way to keep rows offers: Full (store=None) here, Int8 and Bits in modules of their own
Codes       rows in fewer bytes: `codes[part]` are the decoded rows (m, d) float32, which scans measure, and
            `codes.errors(rows, distance)` says how far each lies from its full row
KeptRows    the rows of an index, to which it adds, and which it writes to a model file

full    codes    scanned    measured
yes     no       full       full
yes     yes      codes      full, those that the codes' error leaves in doubt: answers are exact
no      yes      codes      codes: answers are approximate

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
from kway.rows.gpu.device import Device
from kway.rows.gpu.tensor_rows import TensorRows
from kway.search.distances import Distance, Matrix
from kway.threads import pmap, spans

if TYPE_CHECKING:
    from kway.search.bit_cells import BitCells
    from kway.search.block_scan import Scan
    from kway.search.cells import CellTable, Ground
    from kway.search.landmarks import LandmarksIndex
    from kway.search.metrics import Metric


def join_rows(rows: Any, more: Any) -> Any:
    """Rows followed by more rows, in the type that holds both."""
    if sp.issparse(rows) or sp.issparse(more):
        return sp.csr_matrix(sp.vstack([sp.csr_matrix(rows), sp.csr_matrix(more)]))
    return np.concatenate([rows, more])


def drop_rows(rows: Any, positions: NDArray[np.int64]) -> Any:
    """Rows but those at positions."""
    if sp.issparse(rows):
        return rows[np.delete(np.arange(rows.shape[0]), positions)]
    return np.delete(rows, positions, axis=0)


def row_arrays(rows: Any) -> dict[str, NDArray]:
    """Arrays that hold rows in a model file."""
    if sp.issparse(rows):
        return {"rows.data": rows.data, "rows.indices": rows.indices, "rows.indptr": rows.indptr}
    return {"rows": np.asarray(rows)}


def rows_of_arrays(arrays: dict[str, NDArray], n: int, d: int) -> Any:
    """Rows (n, d) out of the arrays of `row_arrays`, None where they are not among them."""
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
        """Bytes held."""

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def __getitem__(self, where: Any) -> NDArray[np.float32]:
        """Decoded rows of a slice or an array of positions."""

    @abstractmethod
    def like(self, rows: NDArray) -> Codes:
        """Codes of more rows, made so that `join` can hold both."""

    @abstractmethod
    def join(self, more: Any) -> Codes:
        """These and more codes, made by `like`."""

    @abstractmethod
    def take(self, positions: NDArray[np.int64]) -> Codes:
        """The codes at positions."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray]:
        """Arrays of a model file; the store's `restore` reverses it."""

    @abstractmethod
    def on_device(self, device: Device) -> Any:
        """The codes on a device, copied there if they are not there yet."""

    def device_bytes(self) -> int:
        """Bytes that the copy on a device takes."""
        return self.nbytes + 4 * len(self)

    def errors(self, rows: NDArray, distance: Distance) -> NDArray[np.float64]:
        """How far (n,) each decoded row lies from its full one, in the distance's space."""
        parts = spans(len(rows), max(64, 2**20 // max(1, rows.shape[1])))
        found = pmap(lambda part: distance.errors(rows[part], self[part]), parts)
        return np.concatenate(found) if found else np.empty(0)


class Store(ABC):
    """How rows are kept, a frozen dataclass; never changed by a fit. `rerank` keeps the full rows beside the codes.

    A store declares all that an index needs of it, so that a new one is one new module.
    """

    name: ClassVar[str]
    rerank: bool
    settles_ties: ClassVar[bool] = True  # whether one more than k is searched, to see ties
    learns_long: ClassVar[bool] = False  # whether landmarks are told apart by all coordinates of a projection

    @property
    @abstractmethod
    def bits_per_value(self) -> int:
        """Of the codes; 0 if there are none."""

    @property
    def exact(self) -> bool:
        """Whether answers are those of brute force over the rows as they are kept."""
        return True

    @abstractmethod
    def encode(self, rows: NDArray, distance: Distance) -> Codes | None:
        """Codes of rows (n, d) that are searched under the distance; None if the rows are kept as they are."""

    @abstractmethod
    def restore(self, arrays: dict[str, NDArray], distance: Distance) -> Codes | None:
        """The codes of a model file, None if it holds none."""

    @abstractmethod
    def scan(self, kept: KeptRows, distance: Distance) -> Scan:
        """A search over all kept rows."""

    def scan_blocks(self, blocks: Any, metric: Metric, folder: str | Path | None) -> Scan | None:
        """A search over rows that come in blocks and are not kept; None if they have to be kept."""
        return None

    def table(self) -> type[CellTable] | type[BitCells]:
        """How rows are kept in landmark cells."""
        from kway.search.cells import CellTable

        return CellTable

    def fill_cells(self, index: LandmarksIndex, blocks: Any, folder: str | Path | None) -> int | None:
        """Fill an empty index from blocks of rows that are not kept; the number of rows, None if they have to be."""
        return None

    @abstractmethod
    def keep_far(self, far: TensorRows, distance: Distance) -> FarKept:
        """Rows on a device as this store keeps them; nothing is copied to the CPU."""

    @abstractmethod
    def far_codes(self, far: TensorRows, cells: Any, ground: Ground) -> Any:
        """Codes alone of rows on a device that belong to these cells (n,)."""

    def keep(self, rows: Matrix, distance: Distance) -> KeptRows:
        """Rows (n, d) as this store keeps them."""
        return KeptRows(rows if self.rerank else None, self.encode(rows, distance))

    def kept_from(self, rows: Matrix | None, arrays: dict[str, NDArray], distance: Distance) -> KeptRows:
        """The rows of a model file; codes that it lacks are made again."""
        codes = self.restore(arrays, distance)
        return self.keep(rows, distance) if codes is None else KeptRows(rows, codes)

    def check(self, distance: Distance, sparse: bool) -> None:
        """Raise an error for rows that codes cannot represent."""
        if sparse or not distance.coded:
            what = "sparse rows" if sparse else f"the metric {distance.name!r}"
            raise CombinationError(
                f"{type(self).__name__}() cannot keep {what}: coded values are rounded; use store=None"
            )

    def facts(self) -> dict[str, Any]:
        """JSON facts of the store."""
        return {"name": self.name, **vars(self)}


class RowsFound(NamedTuple):
    """Rows (m, d), and where (q, k) those that were asked for are among them."""

    rows: NDArray
    places: NDArray[np.int64]

    @staticmethod
    def of(rows: Any, ids: NDArray[np.int64]) -> RowsFound:
        """Those at ids (q, k) alone, of rows that are decoded, or copied from a device, when they are cut out."""
        some, places = np.unique(ids, return_inverse=True)
        return RowsFound(frozen(np.asarray(rows[some])), places.reshape(ids.shape))


@dataclass(frozen=True)
class KeptRows:
    """Full rows (n, d), their codes, or both."""

    full: Any  # (n, d) dense, CSR, or None
    codes: Codes | None = None

    @property
    def scanned(self) -> Any:
        """What scans read: an array, CSR, or codes."""
        return self.full if self.codes is None else self.codes

    @property
    def best(self) -> Any:
        """The rows as precisely as they are kept: an array, CSR, or codes where there is nothing else."""
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
        """Bytes held."""
        held = 0 if self.codes is None else self.codes.nbytes
        if sp.issparse(self.full):
            return int(held + self.full.data.nbytes + self.full.indices.nbytes + self.full.indptr.nbytes)
        return int(held + (0 if self.full is None else self.full.nbytes))

    @property
    def has_full(self) -> bool:
        """Whether full rows are kept."""
        return self.full is not None

    @property
    def sparse(self) -> bool:
        """Whether rows are CSR."""
        return sp.issparse(self.full)

    def found(self, ids: NDArray[np.int64]) -> RowsFound:
        """The rows at ids (q, k), dense: all of them, or, where they would have to be made, those alone."""
        return RowsFound.of(self.codes, ids) if self.full is None else RowsFound(frozen(self.full), ids)

    def on_device(self, device: Device) -> Any:
        """The rows on a device as precisely as they are kept: a tensor, or read like one."""
        return device.put(self.full) if self.codes is None or self.full is not None else self.codes.on_device(device)

    def device_bytes(self) -> int:
        """Bytes that a search of the rows on a device takes: the copy, and what enters its products."""
        return 2 * int(self.best.nbytes)

    def full_on_device(self, device: Device, spare: int) -> Any:
        """The full rows on a device; None if there are none, or no room for them and `spare` bytes more."""
        fits = self.full is not None and self.full.nbytes + spare <= device.free_bytes()
        return device.put(self.full) if fits else None

    def decoded(self) -> Matrix:
        """All rows as numbers."""
        return self.best[:] if self.full is None else self.full

    def like(self, rows: Matrix) -> KeptRows:
        """More rows kept in the same way, dense or CSR as these are."""
        if sp.issparse(rows) and not sp.issparse(self.full):
            rows = rows.toarray()
        full = sp.csr_matrix(rows) if sp.issparse(self.full) else rows
        return KeptRows(None if self.full is None else full, None if self.codes is None else self.codes.like(rows))

    def join(self, more: KeptRows) -> KeptRows:
        """These and more rows, made by `like`."""
        full = None if self.full is None else join_rows(self.full, more.full)
        return KeptRows(full, None if self.codes is None else self.codes.join(more.codes))

    def take(self, positions: NDArray[np.int64]) -> KeptRows:
        """The rows at positions."""
        full = None if self.full is None else self.full[positions]
        return KeptRows(full, None if self.codes is None else self.codes.take(positions))

    def drop(self, positions: NDArray[np.int64]) -> KeptRows:
        """All rows but those at positions."""
        left = np.delete(np.arange(len(self)), positions)
        full = None if self.full is None else drop_rows(self.full, positions)
        return KeptRows(full, None if self.codes is None else self.codes.take(left))

    def arrays(self) -> dict[str, NDArray]:
        """Arrays of a model file."""
        full = {} if self.full is None else row_arrays(self.full)
        return full | ({} if self.codes is None else self.codes.arrays())


class FarKept(KeptRows):
    """Full rows, or codes, that are on a device alone, until somebody reads them here.

    No codes are made beside full rows that are searched there as they are (Int8): whoever reads a file makes them.
    """

    far: TensorRows | None

    def __init__(self, far: TensorRows | None, codes: Codes | None = None) -> None:
        object.__setattr__(self, "far", far)
        object.__setattr__(self, "codes", codes)

    @cached_property
    def full(self) -> Any:
        """The rows, copied now, or None."""
        return None if self.far is None else frozen(np.asarray(self.far))

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        n, d = self.there.shape
        return n, d

    @property
    def nbytes(self) -> int:
        """Bytes held here."""
        return int((self.full.nbytes if self.read else 0) + (0 if self.codes is None else self.codes.nbytes))

    @property
    def read(self) -> bool:
        """Whether full rows have been copied."""
        return vars(self).get("full") is not None

    @property
    def there(self) -> Any:
        """The rows as precisely as they are kept, where they are."""
        return self.codes if self.far is None else self.far

    @property
    def sparse(self) -> bool:
        """No: a device holds dense rows."""
        return False

    @property
    def has_full(self) -> bool:
        """Whether full rows are kept, there."""
        return self.far is not None

    def on_device(self, device: Device) -> Any:
        """The rows where they are."""
        return self.there.on_device(device) if self.far is None else self.far.tensor

    def device_bytes(self) -> int:
        """What enters the products."""
        return int(self.there.nbytes)

    def full_on_device(self, device: Device, spare: int) -> Any:
        """The full rows where they are, or None."""
        return None if self.far is None else self.far.tensor

    def found(self, ids: NDArray[np.int64]) -> RowsFound:
        """They alone are copied."""
        return super().found(ids) if self.far is None or self.read else RowsFound.of(self.far, ids)


@dataclass(frozen=True)
class Full(Store):
    """Rows as they are given."""

    name = "full"
    rerank = True

    @property
    def bits_per_value(self) -> int:
        """There are no codes."""
        return 0

    def encode(self, rows: NDArray, distance: Distance) -> None:
        """There are no codes."""

    def restore(self, arrays: dict[str, NDArray], distance: Distance) -> None:
        """There are no codes."""

    def check(self, distance: Distance, sparse: bool) -> None:
        """Any rows can be kept."""

    def scan(self, kept: KeptRows, distance: Distance) -> Scan:
        """A scan in blocks."""
        from kway.search.block_scan import BlockScan

        return BlockScan(kept, distance)

    def keep_far(self, far: TensorRows, distance: Distance) -> FarKept:
        """The rows themselves."""
        return FarKept(far)

    def far_codes(self, far: TensorRows, cells: Any, ground: Any) -> Any:
        """There are no codes."""
        raise NotImplementedError


FULL = Full()
