"""Sparse rows larger than memory: CSR whose entries lie in mapped temporary files without names.

data (e,), indices (e,) int32     in files, written once, as the blocks come
indptr (n + 1,)                   here, with the labels
"""

from __future__ import annotations

from collections.abc import Iterable
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.data.blocks.labelled_blocks import LabelledBlock
from kway.data.gate import plain_rows
from kway.data.labels import joined
from kway.errors import CombinationError, InputError

MOST_IN_FILES = 2**31 - 1  # beyond, scipy would hold wider indices, in memory
ENTRY_BYTES = 8  # of a float32 and its column


class FileCSR(sp.csr_matrix):
    """CSR rows (n, d) in files; some of them, by a slice or positions, are CSR in memory."""

    def __getitem__(self, where: Any) -> sp.csr_matrix:
        return sp.csr_matrix(super().__getitem__(where))

    def rows_in(self, n_bytes: int) -> int:
        """About how many rows take so many bytes."""
        each = (self.data.itemsize + self.indices.itemsize) * self.nnz // max(1, self.shape[0])
        return max(1, n_bytes // max(1, each))


class LabelledCSR(NamedTuple):
    """Rows in files, and the label of each (n,)."""

    X: FileCSR
    y: NDArray


def sparse_rows_of_blocks(blocks: Iterable[LabelledBlock]) -> LabelledCSR:
    """Sparse blocks (X, y) written as they come, in the float type of the first, all as wide as it."""
    labels, ends = list[NDArray](), [np.zeros(1, np.int64)]
    width, kind = 0, np.dtype(np.float32)
    with TemporaryFile(prefix="kway-entries-") as numbers, TemporaryFile(prefix="kway-entries-") as columns:
        for X, y in blocks:
            if not sp.issparse(X):
                raise InputError(f"a block is {type(X).__name__}, the first was sparse; give all the same")
            rows = plain_rows(X, "X of a block", sparse=True)
            if not labels:
                width, kind = rows.shape[1], rows.dtype
            if rows.shape[1] != width:
                raise InputError(f"a block has {rows.shape[1]} columns, the first had {width}; give all the same")
            numbers.write(np.ascontiguousarray(rows.data, kind).data)
            columns.write(np.ascontiguousarray(rows.indices, np.int32).data)
            ends.append(rows.indptr[1:] + ends[-1][-1])
            labels.append(y)
            _refuse_too_many(int(ends[-1][-1]))
        entries = _mapped(numbers, kind), _mapped(columns, np.dtype(np.int32))
    y = joined(labels)
    return LabelledCSR(FileCSR((*entries, np.concatenate(ends)), shape=(len(y), width)), y)


def _refuse_too_many(entries: int) -> None:
    if entries > MOST_IN_FILES:
        raise CombinationError(f"sparse rows in files may have {MOST_IN_FILES:,} entries, and these have more")


def _mapped(file: IO[bytes], kind: np.dtype) -> NDArray:
    """What was written; a private map, since kernels are compiled for arrays that can be written to."""
    file.flush()
    size = file.tell() // kind.itemsize
    return np.memmap(file, kind, "c", shape=(size,)) if size else np.empty(0, kind)
