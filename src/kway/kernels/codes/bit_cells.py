"""Scan of landmark cells (IVF) whose rows are codes of the difference from their landmark (bits.py).

    t = R (q - m)      if keys include ||r||^2 / 2 (`Estimator.halved`): the query minus the landmark m of the cell,
                       rotated like the rows r = R (x - m)
    t = R q            for the distance dot, because q.x = q.m + q.(x - m)
    key                half_r - f_r <t, y_r>, or -f_r <t, y_r>, as in bit_scan.py
    distance           sqrt(||t||^2 + 2 key)  |  ||t||^2 / 2 + key  (cosine of unit rows)  |  key - q.m  (dot)

Queries of a cell share its transposed rows. A cell is skipped for a query if |q - m| - |x - m| is too large for all its
rows x.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kway.kernels.codes.bit_scan import (
    CodedQuery,
    SumTables,
    empty_tables,
    key_of,
    least_cosine,
    scan_buffers,
    scan_tile,
)
from kway.kernels.codes.row_tiles import TILE_ROWS, fill_sum_tables, transpose_rows
from kway.kernels.jit import kernel
from kway.kernels.topk import EMPTY

QUERY_BATCH = 64  # queries that share the transposed rows of a tile: their tables stay in the L2 cache
# Error of a cosine whose key is a difference of nearly equal float32 lengths: about the square root of their rounding.
_COSINE_ROUNDING = float(np.sqrt(np.finfo(np.float32).eps))


class CodedCells(NamedTuple):
    """Landmark cells of coded rows; cell g contains rows offsets[g]..offsets[g + 1]."""

    offsets: Any  # (c + 1,)
    lengths: Any  # (c, 2) the smallest and the largest length of a cell's rows
    landmarks: Any  # (c, D) rotated


class CellPairs(NamedTuple):
    """The queries query_ids[starts[g]:starts[g + 1]] search cells[g]."""

    starts: Any  # (g + 1,)
    cells: Any  # (g,)
    query_ids: Any  # (p,) one entry per pair of a query and a cell
    rotated: Any  # (q, D)
    exact: Any  # (q, d) float64


class CellBatch(NamedTuple):
    """Queries of one cell, relative to its landmark."""

    members: Any  # (b,) query numbers
    rotated: Any  # (b, D) t
    totals: Any  # (b,) sums of t
    norms: Any  # (b,) of t
    base: Any  # (b,) ||t||^2 if distances are square roots, else the distance of a key of 0
    tables: Any  # SumTables


@kernel
def _subtract_landmark(estimator, query, landmark, local):
    """Write t (D,) of a rotated query (D,) to `local`; return its sum, its norm and the base of CodedQueries."""
    total, square, along_landmark, query_square = np.float32(0), 0.0, 0.0, 0.0
    for j in range(len(query)):
        value = query[j] - landmark[j] if estimator.halved else query[j]
        local[j] = value
        total += value
        square += np.float64(value) * value
        along_landmark += np.float64(query[j]) * landmark[j]
        query_square += np.float64(query[j]) * query[j]
    base = -along_landmark
    if estimator.squared:
        base = square
    elif estimator.halved:
        # A query has length 1 or, if all its values are 0, length 0; then its cosine to every row is 0. The measured
        # length is not used, because its rounding exceeds the distances between rows that are far from the origin.
        base = 0.5 * (square + (0.0 if query_square > 0.5 else 1.0))
    return total, np.sqrt(square), base


@kernel
def _out_of_reach(estimator, worst, base, norm, lengths):
    """Return whether no row with lengths (2,) smallest to largest is nearer than `worst`: its cosine would exceed 1."""
    if worst >= EMPTY:
        return False
    cosine = least_cosine(estimator.halved, key_of(estimator.squared, worst, base), norm, lengths[0], lengths[1])
    return cosine > 1.0 + _COSINE_ROUNDING


@kernel
def _fill_batch(estimator, cells, cell, queries, query_ids, worst, batch):
    """Fill the batch with those queries of query_ids (m,) for which a row of the cell may be nearer than worst (q,).

    Returns the number of these queries.
    """
    count, tables = 0, batch.tables
    for i in query_ids:
        local = batch.rotated[count]
        total, norm, base = _subtract_landmark(estimator, queries.rotated[i], cells.landmarks[cell], local)
        if _out_of_reach(estimator, worst[i], base, norm, cells.lengths[cell]):
            continue
        batch.members[count], batch.totals[count], batch.norms[count], batch.base[count] = i, total, norm, base
        tables.unit[count], tables.low[count] = fill_sum_tables(local, tables.entries[count])
        count += 1
    return count


@kernel
def _scan_batch(
    estimator, coded, queries, batch, count, start, stop, longest, buffers, fast, distances, ids, counts
):  # fmt: skip
    """Offer rows start..stop of a cell to the heaps of the first `count` queries of the batch."""
    tables = batch.tables
    for low in range(start, stop, TILE_ROWS):
        high = min(stop, low + TILE_ROWS)
        transpose_rows(coded.head, coded.rest, low, high, buffers.words, buffers.nibbles, fast)
        for j in range(count):
            i = batch.members[j]
            query = CodedQuery(batch.rotated[j], batch.totals[j], batch.norms[j], batch.base[j], queries.exact[i])
            own_tables = SumTables(tables.entries[j], tables.unit[j], tables.low[j])
            scan_tile(
                estimator, coded, query, own_tables, low, high, longest, EMPTY, buffers, fast,
                distances[i], ids[i], counts,
            )  # fmt: skip


@kernel
def search_bit_cells(estimator, coded, cells, queries, part, n_parts, fast, distances, ids):
    """Offer one of n_parts parts of each cell to the heaps distances, ids (q, k) of the queries that search it.

    estimator: Estimator, coded: CodedRows, cells: CodedCells, queries: CellPairs. Returns the numbers of rows estimated
    and measured.
    """
    dim = queries.rotated.shape[1]
    counts, buffers = np.zeros(2, np.int64), scan_buffers(coded, dim)
    batch = CellBatch(
        np.empty(QUERY_BATCH, np.int64), np.empty((QUERY_BATCH, dim), np.float32), np.empty(QUERY_BATCH, np.float32),
        np.empty(QUERY_BATCH), np.empty(QUERY_BATCH), empty_tables(QUERY_BATCH, dim),
    )  # fmt: skip
    for g in range(len(queries.cells)):
        cell = queries.cells[g]
        if cell >= len(cells.offsets) - 1:  # a pair that is left out
            continue
        first, size = cells.offsets[cell], cells.offsets[cell + 1] - cells.offsets[cell]
        start, stop = first + size * part // n_parts, first + size * (part + 1) // n_parts
        if start == stop:
            continue
        for p in range(queries.starts[g], queries.starts[g + 1], QUERY_BATCH):
            query_ids = queries.query_ids[p : min(p + QUERY_BATCH, queries.starts[g + 1])]
            count = _fill_batch(estimator, cells, cell, queries, query_ids, distances[:, 0], batch)
            if count:
                _scan_batch(
                    estimator, coded, queries, batch, count, start, stop, cells.lengths[cell, 1], buffers, fast,
                    distances, ids, counts,
                )  # fmt: skip
    return counts
