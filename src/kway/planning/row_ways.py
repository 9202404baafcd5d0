"""Ways that keep the rows themselves: n x d numbers, nothing learned but where to look.

flat         rows as they are, codes of about 30 bytes each that prove most of them too far
landmarks    2 sqrt(n) cells; an answer measures the landmarks, then the rows of 24 cells
bytes        one byte a number, 4 for a scale
bits         one bit a number, 2 for a factor
bit cells    one bit a number about the landmark of its cell, 16 bytes for lengths and places
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import NamedTuple

from kway.planning.rates import Rates
from kway.planning.size import LABEL_BYTES, LABELLING, Size
from kway.planning.way import Way

_PROBES = 24  # cells of an answer until they are tuned (search/landmarks.py)
_SHORT = 48  # numbers of a row's projection, at most
ALL_CELLS = 3  # times quicker a row, where a search looks into every cell: most rows are ruled out
PROMISED = 4000  # rows that a promise is made from (neighbors/promise.py)
_CODES = 46  # bytes of a row's coarse codes, its cell and its place
A_ROW = 44  # values that the cell and the place of a row cost as much as, while it is indexed: 40,000 to 200,000 rows
SKETCHING = 240  # bytes of a row while it is sketched
_ROOM = 10 * 2**20  # of samples
BIT_ROWS = 1.3e9  # rows a second and core that a filter of 128 bits passes
BIT_CODES = 3.5e7  # numbers a second and core that are checked, turned and coded: 1.5 s for 100,000 rows of 512
A_QUERY = 3e-4  # seconds of a search of bit cells that sizes do not tell: its first cell is estimated row by row
STREAMED = 2**28  # bytes of a block, where rows come as a stream and are never all in memory
CODING = 36 * 2**20  # bytes that are made of a block while it is coded; the block lies in a file or is the caller's


def flat_way(size: Size, rates: Rates) -> Way:
    """Exact neighbours."""
    if size.sparse:
        kept, seconds, answer = Kept(size.rows_bytes, 0, 0), 0.0, size.values / rates.sparse
    else:
        fine = -(-size.d // 32) * 32  # whole rows as bytes, which a few are held to
        kept = Kept(size.rows_bytes, size.n * (_CODES + fine), size.n * (SKETCHING + fine) + _ROOM)
        seconds = size.n * (size.d + A_ROW) / rates.certify + LABELLING * size.n / rates.memory
        answer = looked_at(size.n, size.d) / rates.certified
    why = "gives up nothing: the neighbours are exact"
    return _way("kNN flat", "NeighborsClassifier()", size, rates, kept, seconds, answer, why)


def looked_at(n: int, d: int) -> float:
    """Rows that a certified search is worth: all pass the scan, and the first cells and the last few cost as many."""
    return n + 33_000 + 120.0 * d


def landmarks(size: Size, rates: Rates) -> Way:
    """Neighbours in the nearest cells, with a promise from training rows, which search all cells once; rows by cell."""
    cells, short, values = 2 * sqrt(size.n), min(size.d, _SHORT), size.n * size.d
    index = size.n * (short * 4 + 16) + cells * size.d * 4
    promising = size.n * 450 + 6 * _ROOM
    answer = 2.0 * cells * short / rates.assign + _PROBES * size.n / cells * size.d / rates.probed
    seconds = values / rates.cells + min(PROMISED, size.n / 10) * values / (ALL_CELLS * rates.probed)
    why = "gives up 2 votes in 1,000, which may differ from exact search"
    kept = Kept(size.rows_bytes, index, size.rows_bytes + promising)
    way = _way("kNN landmarks", "NeighborsClassifier(index='landmarks')", size, rates, kept, seconds, answer, why)
    return replace(way, missing="landmarks need dense rows") if size.sparse else way


def as_bytes(size: Size, rates: Rates) -> Way:
    """Rows as one byte a number, all scanned."""
    rows = size.n * (size.d + 4)
    seconds, answer = size.n * (6000 + 60 * size.d) / rates.memory, size.n * size.d / rates.bytes_scan
    why = "gives up digits: distances are those of rows rounded to bytes"
    way = _way(
        "kNN bytes",
        "kway.search.Flat(store=Int8(rerank=False))",
        size,
        rates,
        Kept(rows, 0, rows + min(2 * _ROOM, 2 * size.rows_bytes)),
        seconds,
        answer,
        why,
    )
    return replace(way, missing="codes need dense rows") if size.sparse else way


def bits(size: Size, rates: Rates) -> Way:
    """Rows as one bit a number after a rotation; a filter of 128 bits passes over all. Rows come as a stream."""
    wide = -(-size.d // 64) * 64  # padded to whole words
    rows = size.n * (wide // 8 + 2)
    seconds = size.n * wide / (BIT_CODES * rates.cores)
    why = "gives up about 1 answer in 100, more where neighbours are far"
    way = _way(
        "kNN bits",
        "kway.search.Flat(store=Bits(1))",
        size,
        rates,
        Kept(rows, 0, 0),
        seconds,
        size.n / (BIT_ROWS * rates.cores),
        why,
    )
    way = replace(way, fit_bytes=max(way.model_bytes, rows + min(CODING, 8 * size.n * size.d)))
    return replace(way, missing="codes need dense rows") if size.sparse else way


def bit_cells(size: Size, rates: Rates) -> Way:
    """Rows as one bit a number about their landmark; an answer looks into the nearest cells. Rows come as a stream."""
    cells, short, wide = 2 * sqrt(size.n), min(size.d, _SHORT), -(-size.d // 64) * 64
    rows, index = size.n * (wide // 8 + 16), cells * (4 * size.d + 4 * wide)
    seconds = size.n * wide / (BIT_CODES * rates.cores) + 2.0 * size.n * cells * short / rates.assign
    answer = A_QUERY + 2.0 * cells * short / rates.assign + _PROBES * size.n / cells / BIT_ROWS
    way = _way(
        "kNN bit cells", "kway.search.Landmarks(store=Bits(1))", size, rates, Kept(rows, index, 0), seconds, answer,
        "gives up answers in cells that are not looked into, and digits: wants rows in clusters",
    )  # fmt: skip
    ordering = int(1.5 * way.model_bytes)  # while they are put into the order of cells
    way = replace(way, fit_bytes=ordering + min(STREAMED, 8 * size.n * size.d))
    return replace(way, missing="codes need dense rows") if size.sparse else way


class Kept(NamedTuple):
    """Bytes of the rows as they are kept, of what finds them, and of what building takes beside."""

    rows: float
    lookup: float
    build: float


def _way(
    name: str, call: str, size: Size, rates: Rates, kept: Kept, seconds: float, answer: float, gives_up: str
) -> Way:
    """A way that keeps rows."""
    labels, own = LABEL_BYTES * (size.n + 2 * size.K), size.n * size.d
    held = size.data_bytes + kept.lookup + kept.build + LABEL_BYTES * 2 * size.K
    model, disk = int(kept.rows + kept.lookup + labels), int(kept.rows + labels)
    whole = seconds + (held - size.rows_bytes) / rates.fresh
    return Way(name, call, own, int(held), model, disk, 2.0 * size.values, whole, answer, gives_up)
