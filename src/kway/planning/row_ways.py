"""Ways that keep the rows themselves: n x d numbers, nothing learned but where to look.

flat         rows as they are, a sketch of up to 48 numbers each that proves most of them too far
landmarks    2 sqrt(n) cells; an answer measures the landmarks, then the rows of 24 cells
bytes        one byte a number, 4 for a scale
bits         one bit a number, 2 for a factor
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

from kway import search
from kway.planning.rates import Rates
from kway.planning.size import LABEL, Size
from kway.planning.way import Way

PROBES = 24  # cells of an answer until they are tuned (search/landmarks.py)
SKETCH = 48  # numbers of a row's sketch, at most
BIT_ROWS = 1.3e9  # rows a second and core that a filter of 128 bits passes
STREAMED = 2**28  # bytes of a block, where rows come as a stream and are never all in memory


def flat(size: Size, rates: Rates) -> Way:
    """Exact neighbours."""
    sketch = min(size.d, SKETCH)
    index = 0 if size.sparse else size.n * (sketch * FLAT_SKETCH_BYTES + FLAT_ROW_BYTES)
    if size.sparse:
        seconds, answer = 0.0, size.values / rates.sparse
    else:
        seconds, answer = size.n * size.d / rates.certify, size.n * size.d / rates.certified
    return _kept(
        size, "neighbours, flat", "NeighborsClassifier()", size.rows_bytes, index, seconds, answer,
        "gives up nothing: the neighbours are exact",
    )  # fmt: skip


FLAT_SKETCH_BYTES = 6  # a coarse byte, floats for those in doubt
FLAT_ROW_BYTES = 40  # order, cell, norms


def landmarks(size: Size, rates: Rates) -> Way:
    """Neighbours in the nearest cells, with a promise made from training rows."""
    cells = 2 * sqrt(size.n)
    index = size.n * (SKETCH * 4 + 16) + cells * size.d * 4
    answer = (cells * min(size.d, SKETCH) * 2) / rates.assign + PROBES * size.n / cells * size.d / rates.probed
    way = _kept(
        size, "neighbours, landmarks", "NeighborsClassifier(index='landmarks')", size.rows_bytes, index,
        size.n * size.d / rates.cells, answer, "gives up 2 votes in 1,000, which may differ from exact search",
    )  # fmt: skip
    return replace(way, missing="landmarks need dense rows") if size.sparse else way


def as_bytes(size: Size, rates: Rates) -> Way:
    """Rows as one byte a number, all scanned."""
    rows = size.n * (size.d + 4)
    way = _kept(
        size, "neighbours, bytes", "NeighborsClassifier(index=Flat(store=Int8(rerank=False)))", rows, 0,
        size.rows_bytes / rates.memory * 4, size.n * size.d / rates.bytes_scan,
        "gives up digits: distances are those of rows rounded to bytes",
    )  # fmt: skip
    return replace(way, missing="codes need dense rows") if size.sparse else way


def bits(size: Size, rates: Rates) -> Way:
    """Rows as one bit a number after a rotation; a filter of 128 bits passes over all."""
    wide = 2 ** max(6, (size.d - 1).bit_length())  # padded for the rotation
    rows = size.n * (wide // 8 + 2)
    turn = 2.0 * size.n * wide * max(1, wide.bit_length())
    way = _kept(
        size, "neighbours, bits", "NeighborsClassifier(index=Flat(store=Bits(1)))", rows, 0,
        turn / rates.product_one / rates.cores, size.n / (BIT_ROWS * rates.cores),
        "gives up about 1 answer in 100, more where neighbours are far",
    )  # fmt: skip
    if size.sparse:
        return replace(way, missing="codes need dense rows")
    way = replace(way, fit_bytes=way.model_bytes + STREAMED)
    return way if "Bits" in search.__all__ else replace(way, missing="not yet in this version")


def _kept(
    size: Size, name: str, call: str, rows: float, index: float, seconds: float, answer: float, gives_up: str
) -> Way:
    """A way that keeps `rows` bytes of rows and `index` bytes to find them."""
    model = int(rows + index + LABEL * (size.n + 2 * size.K))
    held = int(size.data_bytes + index + (rows if rows < size.rows_bytes else 0) + LABEL * 2 * size.K)
    disk = int(rows + LABEL * (size.n + size.K))
    return Way(name, call, size.n * size.d, held, model, disk, 2.0 * size.values, seconds, answer, gives_up)
