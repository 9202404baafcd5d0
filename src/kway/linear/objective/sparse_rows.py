"""CSR rows with their transpose: what the two products of a sparse gradient read.

    scores (m, R) = rows W + b, W (d, R)          by rows, a share of them a worker
    sums (d, R) += rows' slopes, slopes (m, R)    by columns, a share of the entries a worker

Rows come in runs whose slopes stay small; the transpose, as large as the rows, is made once for all gradients, unless
the rows are in files.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.kernels.linear.csr import csr_product
from kway.compute.threads import pmap, spans_of, workers
from kway.data.gate import Rows

MOST_SLOPES = 1 << 23  # of a run
FEWEST_ROWS = 1024  # of a run: with fewer most columns would be empty


def dense_rows(X: Rows) -> NDArray[np.float64]:
    """Rows, dense or CSR, as a float64 array (m, d)."""
    return np.asarray(X.toarray() if sp.issparse(X) else X, np.float64)


@dataclass(frozen=True)
class RowRun:
    """Rows start to stop and their columns: CSC, which is the transpose in CSR."""

    rows: slice
    columns: sp.csc_matrix  # (m, d)
    shares: list[slice]  # of the columns, with about as many entries each

    def add_product(self, slopes: NDArray, sums: NDArray, n_jobs: int | None) -> None:
        """sums (d, R) += rows' slopes."""
        X = self.columns
        pmap(lambda s: csr_product(X.data, X.indices, X.indptr, s.start, slopes, sums[s]), self.shares, n_jobs)


def runs(
    X: sp.csr_matrix, n_scores: int, n_jobs: int | None, share: slice, most: int | None = None
) -> Iterator[RowRun]:
    """A share of the rows in runs, of `most` rows at most."""
    size = max(FEWEST_ROWS, MOST_SLOPES // n_scores)
    for rows in spans_of(share, size if most is None else min(size, most)):
        columns = X[rows].tocsc()
        yield RowRun(rows, columns, _even_shares(columns.indptr, workers(n_jobs)))


def add_scores(X: sp.csr_matrix, rows: slice, weights: NDArray, scores: NDArray) -> None:
    """scores (m, R) += rows of X times weights (d, R)."""
    csr_product(X.data, X.indices, X.indptr, rows.start, weights, scores)


def _even_shares(indptr: NDArray, parts: int) -> list[slice]:
    """Columns cut where each part has about as many entries."""
    cuts = np.searchsorted(indptr, int(indptr[-1]) * np.arange(1, parts) // parts)
    edges = [0, *(int(cut) for cut in cuts), len(indptr) - 1]
    return [slice(a, b) for a, b in itertools.pairwise(edges) if b > a]
