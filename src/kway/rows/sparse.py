"""Passes over CSR rows in memory: the two products of a sparse gradient.

    scores = X W + b          X (m, d), W (d, R): row by row, a share of the rows per worker
    gradient += X' slopes     slopes (m, R): column by column, a share of the entries per worker

Rows are processed in runs, so that their slopes take little memory. The runs are transposed once, for all gradients;
the transposed runs take as much memory as the rows.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.kernels.linear.csr import csr_product
from kway.memory import rows_per_block
from kway.rows.dense import BlockRows
from kway.rows.passes import DISTINCT, IN_MEMORY, QUICK, RowLosses, Sums
from kway.threads import pmap, shares, spans_of, workers

RUN_ROWS = 1024  # smallest number of rows of a run: with fewer, most columns would be empty (data set of texts)


@dataclass(frozen=True)
class RowRun:
    """Consecutive rows, stored by column (CSC): the arrays of the transpose in CSR."""

    rows: slice
    columns: sp.csc_matrix  # (m, d)
    shares: list[slice]  # slices of the columns with about the same number of entries each

    def add_product(self, slopes: NDArray, sums: NDArray) -> None:
        """Add X' slopes to sums (d, R), X being the rows of the run."""
        X = self.columns
        pmap(lambda s: csr_product(X.data, X.indices, X.indptr, s.start, slopes, sums[s]), self.shares)


@dataclass(frozen=True, eq=False)
class SparseRows(BlockRows):
    """A CSR matrix (n, d) in memory; theta is in Fortran order, so that the weights of a feature are adjacent."""

    order: ClassVar[Literal["C", "F"]] = "F"
    squared_rows: ClassVar[int] = 8 * RUN_ROWS  # a pass over all columns for each block

    @property
    def offers(self) -> frozenset[str]:
        """Capabilities: X is in memory, and equal rows can be merged."""
        return frozenset({IN_MEMORY, QUICK, DISTINCT})

    def take(self, chosen: NDArray | slice) -> SparseRows:
        """Return the chosen rows."""
        return SparseRows(self.X[chosen], max(self.n, self.n_whole))

    def fill_scores(self, theta: NDArray, rows: slice, scores: NDArray) -> None:
        """Write f of the given rows to scores (m, R)."""
        scores[:] = theta[:, -1]
        csr_product(
            self.X.data, self.X.indices, self.X.indptr, rows.start, np.ascontiguousarray(theta[:, :-1].T), scores
        )

    def value_gradient(self, theta: NDArray, losses: RowLosses) -> Sums:
        """Return the sums of the weighted losses and of their gradients, which are in Fortran order."""
        theta = self.with_layout(theta)
        total, gradient = 0.0, np.zeros_like(theta)
        for run in self._runs(len(theta)):
            first = run.rows.start
            slopes = np.empty((run.rows.stop - first, len(theta)), theta.dtype)

            def block(rows: slice, first: int = first, slopes: NDArray = slopes) -> float:
                scores = slopes[rows.start - first : rows.stop - first]
                self.fill_scores(theta, rows, scores)
                return losses.overwrite_with_slopes(scores, rows)

            parts = shares(len(slopes), least=64)
            total += sum(pmap(block, [slice(first + s.start, first + s.stop) for s in parts]))
            run.add_product(slopes, gradient.T[:-1])
            gradient[:, -1] += slopes.sum(axis=0)
        return Sums(total, gradient)

    @cached_property
    def _kept_runs(self) -> dict[int, list[RowRun]]:
        return {}

    def _runs(self, n_scores: int) -> list[RowRun]:
        """Return the runs, which are built once per number of scores."""
        if n_scores not in self._kept_runs:
            self._kept_runs.clear()  # they take as much memory as the rows
            self._kept_runs[n_scores] = list(runs(self.X, n_scores, slice(0, self.n), workers()))
        return self._kept_runs[n_scores]

    def _block_squares(self, rows: slice, h: NDArray | None) -> NDArray:
        X = self.X[rows]
        squares = X.multiply(X)
        return np.asarray(squares.sum(axis=0)) if h is None else np.asarray((squares.T @ h[:, rows].T).T)

    # ---- columns and equal rows

    def fingerprint(self) -> str:
        """Return a digest that changes with any value."""
        X = self.X
        return f"{X.shape}: {zlib.crc32(X.data, zlib.crc32(X.indices, zlib.crc32(X.indptr)))}"

    def mean(self) -> NDArray:
        """Return zeros: sparse rows are not centered, because that would make them dense."""
        return np.zeros(self.d, self.dtype)

    def subtract_mean(self, mean: NDArray) -> SparseRows:
        """Return the rows unchanged."""
        return self

    def keys(self, direction: NDArray) -> NDArray[np.float64]:
        """Return x_i . direction (n,); equal rows have equal keys."""
        return np.asarray(self.X @ direction)

    def equal(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether row a[i] equals row b[i], for each i."""
        return np.asarray((self.X[a] != self.X[b]).getnnz(axis=1) == 0)

    def units(self) -> NDArray[np.float64]:
        """Return the root mean square of the nonzero entries of each column, (d,); 1 for a column of zeros."""
        columns, data = self.X.indices, self.X.data.astype(np.float64)
        peaks = np.zeros(self.d)
        np.maximum.at(peaks, columns, np.abs(data))  # divided out, so that no square overflows
        peaks[peaks == 0] = 1
        squares = np.bincount(columns, np.square(data / peaks[columns]), minlength=self.d)
        counts = np.bincount(columns, data != 0, minlength=self.d)
        return np.where(counts > 0, peaks * np.sqrt(squares / np.maximum(counts, 1)), 1.0)

    def scale_columns(self, units: NDArray) -> SparseRows:
        """Return rows with each column divided by its unit (d,)."""
        X = self.X
        data = (X.data / units[X.indices]).astype(X.dtype)
        return SparseRows(sp.csr_matrix((data, X.indices, X.indptr), shape=X.shape))


def runs(X: Any, n_scores: int, share: slice, n_shares: int, max_rows: int | None = None) -> Iterator[RowRun]:
    """Yield a share of the rows in runs of at most `max_rows` rows, each for `n_shares` workers."""
    size = max(RUN_ROWS, rows_per_block(8 * n_scores))
    for rows in spans_of(share, size if max_rows is None else min(size, max_rows)):
        columns = X[rows].tocsc()
        yield RowRun(rows, columns, _even_shares(columns.indptr, n_shares))


def _even_shares(indptr: NDArray, parts: int) -> list[slice]:
    """Return slices of columns with about the same number of entries each."""
    cuts = np.searchsorted(indptr, int(indptr[-1]) * np.arange(1, parts) // parts)
    edges = [0, *(int(cut) for cut in cuts), len(indptr) - 1]
    return [slice(a, b) for a, b in itertools.pairwise(edges) if b > a]
