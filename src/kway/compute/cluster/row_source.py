"""Where a run of rows comes from when another process is to hold it.

Rows of a memory map are named by file and place, so that whoever holds them maps the file itself; others are carried,
or, where all are to hold the same rows, put where every node finds them once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.cluster.session import current, import_ray


class FilePlace(NamedTuple):
    """Rows (m, d), C-contiguous, from a byte of a file on."""

    path: str
    offset: int
    shape: tuple[int, int]
    dtype: str

    def rows(self) -> NDArray:
        """Mapped, not read."""
        return np.memmap(self.path, self.dtype, "r", self.offset, self.shape)


class Carried(NamedTuple):
    """Rows (m, d) as they are, dense or CSR."""

    held: Any

    def rows(self) -> Any:
        """As they are."""
        return self.held


class SharedRows(NamedTuple):
    """Rows (m, d) in the memory that the members of a node share."""

    held: Any  # Ray's name for them: they stay there while somebody holds it

    def rows(self) -> Any:
        """Where this node has them; they travel to it once."""
        return import_ray().get(self.held)


def shared_source(rows: Any) -> FilePlace | Carried | SharedRows:
    """Where all rows come from, for members that each hold all of them."""
    found = row_source(rows, slice(0, rows.shape[0]))
    if isinstance(found, Carried) and current() is not None:
        return SharedRows(import_ray().put(rows))
    return found


def row_source(rows: Any, run: slice) -> FilePlace | Carried:
    """Where a run of rows comes from."""
    part = rows[run]
    owner = None if sp.issparse(part) or not part.flags.c_contiguous else _mapped(part)
    if owner is None:
        return Carried(part)
    offset = owner.offset + part.ctypes.data - owner.ctypes.data
    return FilePlace(str(owner.filename), int(offset), part.shape, part.dtype.str)


def _mapped(rows: NDArray) -> np.memmap | None:
    """The whole memory map that an array is a view of."""
    owner: Any = rows
    while isinstance(owner, np.ndarray) and isinstance(owner.base, np.ndarray):
        owner = owner.base
    return owner if isinstance(owner, np.memmap) and owner.filename is not None else None
