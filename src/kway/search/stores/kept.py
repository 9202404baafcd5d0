"""KeptRows: the rows of an index as it holds them: full (dense or CSR), as codes, or both.

full    codes    scanned    measured
yes     no       full       full
yes     yes      codes      full, those that the codes' error leaves in doubt
no      yes      codes      codes
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.gpu.far_rows import FarRows
from kway.compute.kernels.jit import frozen
from kway.search.spaces.distances import Distance, Matrix
from kway.search.spaces.rows import drop_rows, join_rows, row_arrays
from kway.search.stores.base import Codes, Store
from kway.search.stores.bits import Bits
from kway.search.stores.int8 import Int8

STORES: dict[str, type[Store]] = {kind.name: kind for kind in (Int8, Bits)}


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

    @staticmethod
    def of(rows: Matrix, store: Store | None, distance: Distance) -> KeptRows:
        """Rows as the store keeps them."""
        if store is None:
            return KeptRows(rows)
        return KeptRows(rows if store.rerank else None, store.encode(rows, distance))

    @staticmethod
    def from_arrays(
        rows: Matrix | None, store: Store | None, distance: Distance, arrays: dict[str, NDArray]
    ) -> KeptRows:
        """The rows of a model file; codes that it lacks are made again."""
        codes = None if store is None else store.restore(arrays, distance)
        return KeptRows.of(rows, store, distance) if codes is None else KeptRows(rows, codes)

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

    def found(self, ids: NDArray[np.int64]) -> RowsFound:
        """The rows at ids (q, k), dense: all of them, or, where they would have to be made, those alone."""
        return RowsFound.of(self.codes, ids) if self.full is None else RowsFound(self.full, ids)

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

    far: FarRows | None

    def __init__(self, far: FarRows | None, codes: Codes | None = None) -> None:
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
    def has_full(self) -> bool:
        """Whether full rows are kept, there."""
        return self.far is not None

    def found(self, ids: NDArray[np.int64]) -> RowsFound:
        """They alone are copied."""
        return super().found(ids) if self.far is None or self.read else RowsFound.of(self.far, ids)


def store_from(facts: dict[str, Any]) -> Store:
    """The store that `Store.facts` described; files of 0.1.0 do not name theirs, which is Int8."""
    given = dict(facts)
    return STORES[given.pop("name", Int8.name)](**given)
