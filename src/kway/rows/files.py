"""Rows larger than memory: in memory-mapped files, read a block at a time. Their labels are in memory.

    a folder of .npy, or one file     mapped as they are
    parquet, csv, blocks of (X, y)    written once, as floats, to an unnamed temporary file
    sparse blocks                     the same: values and columns of a CSR matrix in two files, indptr in memory

`MappedRows` and `MappedCSR` are the passes of linear models over them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.errors import CombinationError, InputError
from kway.labels import check_width, joined
from kway.memory import BLOCK_BYTES
from kway.rows.blocks import LabeledRows, dense_blocks
from kway.rows.dense import BlockRows
from kway.rows.passes import RowLosses, Sums
from kway.rows.sparse import SparseRows, runs
from kway.validation import plain_rows

RUN_BYTES = 2**16  # bytes of consecutive rows that are read together when rows are shuffled (scale benchmark)
MAX_ENTRIES = np.iinfo(np.int32).max  # entries of a sparse matrix: with more, scipy would copy the indices as int64


@dataclass(frozen=True)
class FileRows:
    """Rows (n, d) in mapped parts; a slice or positions return them as floats. `fingerprint` identifies the rows."""

    parts: tuple[NDArray, ...]
    dtype: np.dtype
    fingerprint: str

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Number of the first row of each part, and n."""
        return np.cumsum([0, *map(len, self.parts)])

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (n, d) of the rows."""
        return int(self.starts[-1]), int(self.parts[0].shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def rows_in(self, n_bytes: int) -> int:
        """Return how many rows fit into `n_bytes` bytes."""
        return n_bytes // (self.dtype.itemsize * self.shape[1])

    def __getitem__(self, where: slice | NDArray[np.int64]) -> NDArray:
        if isinstance(where, slice) and (run := self._run(*where.indices(len(self)))) is not None:
            return run
        rows = np.arange(*where.indices(len(self))) if isinstance(where, slice) else np.asarray(where)
        values = np.empty((len(rows), self.shape[1]), self.dtype)
        parts = np.searchsorted(self.starts, rows, side="right") - 1
        for i in np.unique(parts):
            in_part = parts == i
            values[in_part] = self.parts[i][rows[in_part] - self.starts[i]]
        return values

    def _run(self, first: int, stop: int, step: int) -> NDArray | None:
        """Return consecutive rows of one part, without a copy if they have this dtype; None for other positions."""
        i = int(np.searchsorted(self.starts, first, side="right")) - 1
        if step != 1 or first >= stop or stop > self.starts[i + 1]:
            return None
        run = self.parts[i][first - self.starts[i] : stop - self.starts[i]]
        return np.asarray(run).astype(self.dtype, copy=False)

    def shuffled(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return a random order that reads the files in runs: runs in random order, rows shuffled among many runs."""
        n, d = self.shape
        size = d * self.dtype.itemsize
        if n * size <= BLOCK_BYTES:
            return rng.permutation(n)
        run = max(1, RUN_BYTES // size)
        starts = run * rng.permutation(-(-n // run))
        together = max(1, BLOCK_BYTES // RUN_BYTES)
        groups = [
            np.concatenate([np.arange(s, min(n, s + run)) for s in starts[i : i + together]])
            for i in range(0, len(starts), together)
        ]
        return np.concatenate([rng.permutation(group) for group in groups])


def write_blocks(blocks: Iterable[tuple[Any, Any]]) -> LabeledRows:
    """Write blocks (X, y) to a temporary file as they come, in the float type of the first."""
    labels, digest, width = list[NDArray](), 0, 0
    kind: np.dtype = np.dtype(np.float32)
    with TemporaryFile(prefix="kway-rows-") as out:  # unnamed, so that a killed fit leaves nothing behind
        for X, y in dense_blocks(blocks):
            if not labels:
                width, kind = X.shape[1], np.dtype(np.float64 if X.dtype.itemsize > 4 else np.float32)
            data = np.ascontiguousarray(X, kind)
            digest = zlib.crc32(data.data, digest)
            out.write(data.data)
            labels.append(y)
        y = joined(labels)
        out.flush()
        parts = (np.memmap(out, kind, "r", shape=(len(y), width)),)
        return LabeledRows(FileRows(parts, kind, f"{digest}"), y)


class FileCSR(sp.csr_matrix):
    """CSR rows (n, d) in files; a slice or positions return CSR rows in memory."""

    def __getitem__(self, where: Any) -> sp.csr_matrix:
        return sp.csr_matrix(super().__getitem__(where))

    def rows_in(self, n_bytes: int) -> int:
        """Return about how many rows fit into `n_bytes` bytes; at least one."""
        row_bytes = (self.data.itemsize + self.indices.itemsize) * self.nnz // max(1, self.shape[0])
        return max(1, n_bytes // max(1, row_bytes))


def write_sparse_blocks(blocks: Iterable[LabeledRows]) -> LabeledRows:
    """Write sparse blocks (X, y) to temporary files as they come, in the float type of the first."""
    labels, ends = list[NDArray](), [np.zeros(1, np.int64)]
    width, kind = 0, np.dtype(np.float32)
    with TemporaryFile(prefix="kway-entries-") as numbers, TemporaryFile(prefix="kway-entries-") as columns:
        for X, y in blocks:
            if not sp.issparse(X):
                raise InputError(f"a block is {type(X).__name__}, the first was sparse; make all blocks sparse")
            rows = plain_rows(X, "X of a block", sparse=True)
            width = check_width(rows, width if labels else None)
            kind = kind if labels else rows.dtype
            numbers.write(np.ascontiguousarray(rows.data, kind).data)
            columns.write(np.ascontiguousarray(rows.indices, np.int32).data)
            ends.append(rows.indptr[1:] + ends[-1][-1])
            labels.append(y)
            if ends[-1][-1] > MAX_ENTRIES:
                raise CombinationError(
                    f"sparse rows in files may have {MAX_ENTRIES:,} entries, got {int(ends[-1][-1]):,}; use fewer rows"
                )
        entries = _mapped(numbers, kind), _mapped(columns, np.dtype(np.int32))
    y = joined(labels)
    return LabeledRows(FileCSR((*entries, np.concatenate(ends)), shape=(len(y), width)), y)


def _mapped(file: IO[bytes], kind: np.dtype) -> NDArray:
    """Map the written file; copy-on-write, because kernels are compiled for writable arrays."""
    file.flush()
    size = file.tell() // kind.itemsize
    return np.memmap(file, kind, "c", shape=(size,)) if size else np.empty(0, kind)


@dataclass(frozen=True, eq=False)
class MappedRows(BlockRows):
    """Passes over dense rows in files."""

    X: FileRows

    @property
    def max_rows_in_memory(self) -> int:
        """Largest number of rows that may be in memory at the same time."""
        return self.X.rows_in(BLOCK_BYTES)

    def shuffled(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return a random order that reads the files in runs."""
        return self.X.shuffled(rng)

    def fingerprint(self) -> str:
        """Return the names, sizes and times of the files; a digest of the values would take a pass."""
        return self.X.fingerprint


@dataclass(frozen=True, eq=False)
class MappedCSR(SparseRows):
    """Passes over CSR rows in files; each pass transposes a run of rows again, as all of them would fill the memory."""

    X: FileCSR

    @property
    def offers(self) -> frozenset[str]:
        """Capabilities: none, only passes are possible."""
        return frozenset()

    @property
    def max_rows_in_memory(self) -> int:
        """Largest number of rows that may be in memory at the same time."""
        return self.X.rows_in(BLOCK_BYTES)

    def value_gradient(self, theta: NDArray, losses: RowLosses) -> Sums:
        """Return the sums of the weighted losses and of their gradients."""
        return BlockRows.value_gradient(self, theta, losses)

    def share_sums(self, theta: NDArray, losses: RowLosses, share: slice) -> Sums:
        """Return the sums over a share of the rows."""
        total, gradient = 0.0, np.zeros_like(theta)
        for run in runs(self.X, len(theta), share, 1, self.X.rows_in(BLOCK_BYTES // 2)):
            slopes = self.scores(theta, run.rows)
            total += losses.overwrite_with_slopes(slopes, run.rows)
            run.add_product(slopes, gradient.T[:-1])
            gradient[:, -1] += slopes.sum(axis=0)
        return Sums(total, gradient)
