"""Search of landmark cells whose rows are codes about their landmark (bits.py): one query and one cell at a time.

    t = R (q - m)      halved: the query about the landmark m of the cell, rotated like the rows r = R (x - m)
    t = R q            under dot, because q.x = q.m + q.(x - m)
    key                half_r - f_r <t, y_r>, or -f_r <t, y_r>, as in bit_scan.py
    distance           sqrt(||t||^2 + 2 key)  |  ||t||^2 / 2 + key  (cosine of unit rows)  |  key - q.m  (dot)

A cell is skipped if its rows would need a cosine above 1 to be near enough, that is if |q - m| - |x - m| is too large.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kway.kernels.codes.bit_scan import (
    CodedQuery,
    PassedFilter,
    key_of,
    least_cosine,
    query_tables,
    scan_buffers,
    scan_tile,
)
from kway.kernels.codes.bit_tables import TABLE_ROWS
from kway.kernels.codes.sum_tables import fill_sum_tables, spread_rows
from kway.kernels.jit import kernel
from kway.kernels.topk import EMPTY

CHUNK = 64  # queries of a cell that share the spread rows of a tile; their tables stay in the L2 cache
_COSINE_ROUNDING = float(np.sqrt(np.finfo(np.float32).eps))  # of a cosine, whose lengths are those of float32 rows


class CodedCells(NamedTuple):
    """Landmark cells of coded rows."""

    offsets: Any  # (c + 1,)
    spans: Any  # (c, 2) the smallest and the largest length of a cell's rows
    landmarks: Any  # (c, D) rotated


class CellPairs(NamedTuple):
    """The queries pairs[starts[g]:starts[g + 1]] search cells[g]; rotated (q, D), queries (q, d) float64."""

    starts: Any
    cells: Any
    pairs: Any
    rotated: Any
    queries: Any


@kernel
def _about(how, rotated, landmark, local):
    """Write the rotated query about a rotated landmark to local (D,); return its sum, its norm and its base."""
    total, square, along, whole = np.float32(0), 0.0, 0.0, 0.0
    for j in range(len(rotated)):
        value = rotated[j] - landmark[j] if how.halved else rotated[j]
        local[j] = value
        total += value
        square += np.float64(value) * value
        along += np.float64(rotated[j]) * landmark[j]
        whole += np.float64(rotated[j]) * rotated[j]
    base = -along
    if how.halved:  # a query of zeros does not have length 1; its cosine to every row is 0
        # 1 - whole would be the rounding of float32, more than cosines of rows far from the origin differ
        base = square if how.squared else 0.5 * (square + (0.0 if whole > 0.5 else 1.0))
    return total, np.sqrt(square), base


@kernel
def _out_of_reach(how, worst, base, norm, span):
    """Return whether no row of a cell, with lengths span (2,), is nearer than `worst`: its cosine would be above 1."""
    if worst >= EMPTY:
        return False
    cosine = least_cosine(how.halved, key_of(how.squared, worst, base), norm, span[0], span[1])
    return cosine > 1.0 + _COSINE_ROUNDING


@kernel
def search_bit_cells(how, coded, cells, look, part, parts, fast, distances, ids):
    """Search one of `parts` parts of each cell for the queries of its pairs.

    Returns the numbers of rows estimated and measured.
    """
    wide = look.rotated.shape[1]
    counts, buffers, which = np.zeros(2, np.int64), scan_buffers(coded, wide, distances.shape[1]), query_tables(CHUNK, wide)
    local, words, members = np.empty((CHUNK, wide), np.float32), np.empty((CHUNK, 1), np.uint64), np.empty(CHUNK, np.int64)
    totals, norms, base = np.empty(CHUNK, np.float32), np.empty(CHUNK), np.empty(CHUNK)
    passed = PassedFilter(np.empty((2, 0, 6), np.uint64), np.full(2, -1, np.int64))
    for g in range(len(look.cells)):
        cell = look.cells[g]
        if cell >= len(cells.offsets) - 1:  # none
            continue
        begin, size = cells.offsets[cell], cells.offsets[cell + 1] - cells.offsets[cell]
        start, stop = begin + size * part // parts, begin + size * (part + 1) // parts
        if start == stop:
            continue
        for chunk in range(look.starts[g], look.starts[g + 1], CHUNK):
            m = 0
            for p in range(chunk, min(chunk + CHUNK, look.starts[g + 1])):
                i = look.pairs[p]
                totals[m], norms[m], base[m] = _about(how, look.rotated[i], cells.landmarks[cell], local[m])
                if _out_of_reach(how, distances[i, 0], base[m], norms[m], cells.spans[cell]):
                    continue
                which.units[m], which.lows[m] = fill_sum_tables(local[m], which.tables[m])
                members[m] = i
                m += 1
            for low in range(start, stop if m else start, TABLE_ROWS):
                high = min(stop, low + TABLE_ROWS)
                spread_rows(coded.head, coded.rest, low, high, buffers.words, buffers.halves, fast)
                for j in range(m):
                    i = members[j]
                    query = CodedQuery(words[j], local[j], totals[j], norms[j], base[j], look.queries[i])
                    scan_tile(
                        how, coded, query, which, j, low, high, cells.spans[cell, 1], passed, EMPTY, buffers, fast,
                        distances[i], ids[i], counts,
                    )  # fmt: skip
    return counts
