"""Rows and queries scaled by powers of two, so that squares neither overflow nor underflow.

    rows     x -> 2^e x          one exponent e for the whole index; one per row if lengths do not count (cosine)
    queries  q -> 2^(e + f) q    f (q,) is 0 except for a query so far away that float64 hardly tells the rows apart
    d -> 2^-(e + f) d            2^-(2 e + f) for products (dot)

A power of two changes no digit. e is 0 in the usual range (`PowerSpan`), and nothing is copied. Rows that no single
power of two can hold (squared differences of 1e-200 next to values of 1e200) raise an error with the column and the
value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.errors import InputError
from kway.memory import CACHE_BYTES, rows_per_block
from kway.rows.blocks import FEW_VALUES, row_blocks
from kway.threads import pmap, spans
from kway.validation import largest_value

if TYPE_CHECKING:
    from kway.search.distances import Distance


def peak(rows: Any) -> float:
    """Return the largest |value|."""
    if sp.issparse(rows):
        return float(np.abs(rows.data).max(initial=0.0))
    return max(float(rows.max(initial=0.0)), -float(rows.min(initial=0.0)))


def all_below(rows: Any, most: float) -> bool:
    """Return whether every |value| is below most; for few values, the sum of squares decides first."""
    few = isinstance(rows, np.ndarray) and rows.size <= FEW_VALUES
    return (few and float(np.vdot(rows, rows)) < most * most) or peak(rows) < most


def row_peaks(rows: Any) -> NDArray[np.float64]:
    """Return the largest |value| of each row (n,)."""
    if sp.issparse(rows):
        return np.asarray(abs(rows).max(axis=1).toarray(), dtype=np.float64).ravel()
    peaks = np.empty(len(rows))

    def work(part: slice) -> None:
        high, low = rows[part].max(axis=1, initial=0.0), rows[part].min(axis=1, initial=0.0)
        peaks[part] = np.maximum(high, -low)

    pmap(work, spans(len(rows), rows_per_block(rows.itemsize * rows.shape[1], CACHE_BYTES)))
    return peaks


def exponents(peaks: NDArray) -> NDArray[np.int64]:
    """Return e (n,) with 2^(e - 1) <= peak < 2^e; 0 for 0."""
    return np.asarray(np.frexp(peaks)[1], dtype=np.int64)


def by_power(rows: Any, powers: Any) -> Any:
    """Return rows times 2^powers, one for all or one per row (n,), in their own type.

    >>> by_power(np.ones((2, 1)), np.array([1, -1])).ravel().tolist()
    [2.0, 0.5]
    """
    each = np.asarray(powers, dtype=np.int32)
    if sp.issparse(rows):
        each = np.repeat(each, np.diff(rows.indptr)) if each.ndim else each
        return sp.csr_matrix((np.ldexp(rows.data, each), rows.indices, rows.indptr), shape=rows.shape)
    return np.ldexp(rows, each[:, None] if each.ndim else each)


def near_one(rows: Any) -> Any:
    """Scale every row by its own power of two to a largest |value| from 1/2 to 1; zero rows stay zero."""
    return by_power(rows, -exponents(row_peaks(rows)))


class PowerSpan(NamedTuple):
    """Powers of two between which the largest value of rows is not scaled, and the largest power of a query."""

    least: int
    most: int
    farthest: int


_WIDE = PowerSpan(-40, 150, 400)  # float64 throughout
SINGLE = PowerSpan(-40, 40, 400)  # float32 rows, whose squares are float64
NARROW = PowerSpan(-24, 24, 55)  # float32 squares: 2^110 d stays below 2^127


class Scaled(NamedTuple):
    """Queries (q, d) in the units of an index, their own exponents f (q,) or None, and the float type of answers."""

    rows: Any
    exponents: NDArray[np.int64] | None
    kind: np.dtype

    def part(self, which: Any) -> Scaled:
        """Return some of the queries."""
        own = None if self.exponents is None else self.exponents[which]
        return Scaled(self.rows[which], own, self.kind)


@dataclass(frozen=True)
class Unit:
    """Scaling of an index: exponent e, and the span of powers that its arithmetic can represent."""

    distance: Distance
    span: PowerSpan
    exponent: int = 0
    by_row: bool = False  # each row is scaled by its own power of two

    @staticmethod
    def of(rows: Any, distance: Distance, narrow: bool) -> Unit:
        """Return the scaling for rows (n, d) of an index."""
        span = _span(rows.dtype, narrow)
        if not distance.scales:
            return Unit(distance, span)
        peaks = row_peaks(rows)
        held = peaks[peaks > 0]
        if not len(held):
            return Unit(distance, span)
        low, high = (int(np.frexp(value)[1]) for value in (held.min(), held.max()))
        if distance.by_angle:
            return Unit(distance, span, by_row=low < span.least or high > min(span.most, -span.least))
        exponent = 0 if span.least <= high <= span.most else -high
        if (exponent and rows.dtype == np.float32) or (distance.order == 2 and rows.dtype == np.float64):
            _refuse_uneven(rows, high, low)
        return Unit(distance, span, exponent)

    @staticmethod
    def from_exponent(exponent: int, dtype: np.dtype, distance: Distance, narrow: bool) -> Unit:
        """Return the scaling of a model file."""
        return Unit(distance, _span(dtype, narrow), exponent)

    @property
    def plain(self) -> bool:
        """Whether rows are not scaled."""
        return self.exponent == 0 and not self.by_row

    def rows(self, rows: Any) -> Any:
        """Return scaled rows (n, d)."""
        if self.by_row:
            return near_one(rows)
        return by_power(rows, self.exponent) if self.exponent else rows

    def more_rows(self, rows: Any) -> Any:
        """Return later rows scaled; raise an error if they are too large for the scaling of the index."""
        if not self.distance.scales or not rows.shape[0]:
            return rows
        if self.distance.by_angle:
            return near_one(rows) if self._wild(row_peaks(rows)) else rows
        if int(np.frexp(peak(rows))[1]) + self.exponent > self.span.most + 2:
            most = 2.0 ** (self.span.most - self.exponent)
            raise InputError(
                f"rows hold {largest_value(rows)}, more than was prepared for ({most:.3g}) by the rows before; "
                "learn again from all rows, or scale the column"
            )
        return self.rows(rows)

    def given(self, rows: Any) -> Any:
        """Return stored rows as they were given; rows with scalings of their own as they are stored."""
        return by_power(rows, -self.exponent) if self.exponent and hasattr(rows, "astype") else rows

    def queries(self, rows: Any) -> Scaled:
        """Return scaled queries (q, d); distant ones, and those under angles or products, get powers of their own."""
        kind = rows.dtype
        if not self.distance.scales or not rows.shape[0]:
            return Scaled(rows, None, kind)
        if self.distance.degree == 1:
            if self.exponent == 0 and all_below(rows, 2.0**self.span.farthest):
                return Scaled(rows, None, kind)
            peaks = row_peaks(rows)
            own = np.minimum(0, self.span.farthest - self.exponent - exponents(peaks))
            own[peaks == 0] = 0  # a zero row needs no power of its own
            return Scaled(by_power(rows.astype(np.float64), own + self.exponent), own, kind)
        peaks = row_peaks(rows)
        if not self._wild(peaks) and self.exponent == 0:
            return Scaled(rows, None, kind)
        own = -exponents(peaks)  # products and angles: exact at any length
        wider = kind if self.distance.by_angle else np.dtype(np.float64)  # products exceed float32 before values do
        return Scaled(by_power(rows.astype(np.float64), own), own - self.exponent, wider)

    def finish(self, distances: NDArray, queries: Scaled | None = None) -> NDArray:
        """Return distances (q, k) without the scaling; one beyond the range of float64 becomes its largest value."""
        own = None if queries is None else queries.exponents
        if (self.exponent == 0 and own is None) or self.distance.by_angle:
            return distances
        power = -(self.distance.degree * self.exponent + (0 if own is None else own[:, None]))
        with np.errstate(over="ignore"):
            given = np.ldexp(distances, np.broadcast_to(power, distances.shape).astype(np.int32))
        most = np.finfo(np.float64).max
        return np.where(np.isinf(distances), distances, np.clip(given, -most, most))

    def _wild(self, peaks: NDArray) -> bool:
        held = peaks[peaks > 0]
        limit = min(self.span.most, -self.span.least)
        return bool(len(held)) and not (held.min() > 2.0**-limit and held.max() < 2.0**limit)


def _span(dtype: np.dtype, narrow: bool) -> PowerSpan:
    return NARROW if narrow else SINGLE if dtype == np.float32 else _WIDE


def _refuse_uneven(rows: Any, high: int, low: int) -> None:
    """Raise an error for rows that no common power of two can scale; `high`, `low`: exponents of the row peaks."""
    normal = -np.finfo(rows.dtype).minexp  # squares of float32 are float64, those of float64 must be normal themselves
    holds = normal if rows.dtype == np.float32 else normal // 2
    if high - low > holds:
        peaks = row_peaks(rows)
        least = int(np.where(peaks > 0, peaks, np.inf).argmin())
        raise InputError(
            f"rows hold {largest_value(rows)} beside a row of values up to {peaks[least]:.3g} (row "
            f"{least}): their distances span more than {rows.dtype} holds; drop that row, or scale (or take the log "
            "of) the column"
        )
    spread = _spread(rows)
    if 0 < spread < 2.0 ** (high - holds):
        raise InputError(
            f"rows differ by at most {spread:.3g} while they hold {largest_value(rows)}: "
            f"more than {rows.dtype} holds at once; drop the constant columns, or scale the others"
        )


def _spread(rows: Any) -> float:
    """Return the widest range of a column."""
    if sp.issparse(rows):
        high, low = (end(axis=0).toarray() for end in (rows.max, rows.min))
    else:
        high, low = rows[0].copy(), rows[0].copy()
        for part in row_blocks(rows):
            np.maximum(high, rows[part].max(axis=0), out=high)
            np.minimum(low, rows[part].min(axis=0), out=low)
    return float((0.5 * high - 0.5 * low).max())  # halves: the difference itself may overflow
