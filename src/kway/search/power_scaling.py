"""Rows and queries scaled by powers of two, so that squares neither overflow nor underflow.

    rows     x -> 2^e x          one exponent e per index; one per row if only directions count (cosine)
    queries  q -> 2^(e + f) q    f (q,) is 0, except for a query so far away that its squares would overflow
    d -> 2^-(e + f) d            for products (dot): d -> 2^-(2 e + f) d

Multiplication by a power of two changes no digit of a normal number. The exponent e is 0, and nothing is copied, if the
largest value of the rows is in the usual range (`PowerSpan`). float32 rows outside this range are converted to float64,
in which every float32 value and its square is normal. Rows that no single power of two can represent, such as squared
differences of 1e-200 next to values of 1e200, raise an error with the column and the value.
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


def max_abs(rows: Any) -> float:
    """Return the largest absolute value of rows (n, d), dense or CSR; 0 if there are none."""
    if sp.issparse(rows):
        return float(np.abs(rows.data).max(initial=0.0))
    return max(float(rows.max(initial=0.0)), -float(rows.min(initial=0.0)))


def all_below(rows: Any, limit: float) -> bool:
    """Return whether every absolute value is below the limit; for few values, one sum of squares usually decides."""
    few = isinstance(rows, np.ndarray) and rows.size <= FEW_VALUES
    return (few and float(np.vdot(rows, rows)) < limit * limit) or max_abs(rows) < limit


def row_peaks(rows: Any) -> NDArray[np.float64]:
    """Return the largest absolute value of each row (n,)."""
    if sp.issparse(rows):
        return np.asarray(abs(rows).max(axis=1).toarray(), dtype=np.float64).ravel()
    peaks = np.empty(len(rows))

    def work(part: slice) -> None:
        high, low = rows[part].max(axis=1, initial=0.0), rows[part].min(axis=1, initial=0.0)
        peaks[part] = np.maximum(high, -low)

    pmap(work, spans(len(rows), rows_per_block(rows.itemsize * rows.shape[1], CACHE_BYTES)))
    return peaks


def exponents(peaks: NDArray) -> NDArray[np.int64]:
    """Return e (n,) with 2^(e - 1) <= peak < 2^e; 0 for a peak of 0."""
    return np.asarray(np.frexp(peaks)[1], dtype=np.int64)


def scale_by_powers(rows: Any, powers: Any) -> Any:
    """Return rows (n, d) times 2^powers in their own float type; powers is one number or one per row (n,).

    >>> scale_by_powers(np.ones((2, 1)), np.array([1, -1])).ravel().tolist()
    [2.0, 0.5]
    """
    powers = np.asarray(powers, dtype=np.int32)
    if sp.issparse(rows):
        powers = np.repeat(powers, np.diff(rows.indptr)) if powers.ndim else powers
        return sp.csr_matrix((np.ldexp(rows.data, powers), rows.indices, rows.indptr), shape=rows.shape)
    return np.ldexp(rows, powers[:, None] if powers.ndim else powers)


def scale_each_row(rows: Any) -> Any:
    """Scale every row by its own power of two, so that its largest absolute value is in [1/2, 1); zero rows stay."""
    return scale_by_powers(rows, -exponents(row_peaks(rows)))


class PowerSpan(NamedTuple):
    """Range of the arithmetic of an index: rows whose largest value is in 2^min_power..2^max_power are not scaled.

    `max_query` is the largest power of two that a query may reach after scaling.
    """

    min_power: int
    max_power: int
    max_query: int

    @property
    def limit(self) -> float:
        """The power of two L such that values in (1 / L, L) need no scaling."""
        return 2.0 ** min(self.max_power, -self.min_power)


_DOUBLE = PowerSpan(-40, 150, 400)  # float64 rows, whose squares are float64
SINGLE = PowerSpan(-40, 40, 400)  # float32 rows, whose squares are float64
NARROW = PowerSpan(-24, 24, 55)  # float32 squares: (2^55)^2 d = 2^110 d stays below 2^127


class Scaled(NamedTuple):
    """Queries (q, d) in the scale of an index, their own exponents f (q,) or None, and the float type of the result."""

    rows: Any
    exponents: NDArray[np.int64] | None
    result_type: np.dtype

    def part(self, positions: Any) -> Scaled:
        """Return the queries at these positions."""
        powers = None if self.exponents is None else self.exponents[positions]
        return Scaled(self.rows[positions], powers, self.result_type)


@dataclass(frozen=True)
class Unit:
    """Scaling of an index: the exponent e, and the span of powers that its arithmetic can represent."""

    distance: Distance
    span: PowerSpan
    exponent: int = 0
    by_row: bool = False  # each row is scaled by its own power of two

    @staticmethod
    def of(rows: Any, distance: Distance, narrow: bool) -> Unit:
        """Return the scaling for rows (n, d) of an index; narrow: whether its squares are float32."""
        span = _span(rows.dtype, narrow)
        if not distance.scales:
            return Unit(distance, span)
        peaks = row_peaks(rows)
        nonzero = peaks[peaks > 0]
        if not len(nonzero):
            return Unit(distance, span)
        low, high = (int(np.frexp(value)[1]) for value in (nonzero.min(), nonzero.max()))
        if distance.by_angle:
            return Unit(distance, span, by_row=low < span.min_power or high > min(span.max_power, -span.min_power))
        if span == SINGLE and not span.min_power <= high <= span.max_power:
            span = _DOUBLE
        exponent = 0 if span.min_power <= high <= span.max_power else -high
        if (exponent and rows.dtype == np.float32) or (distance.order == 2 and rows.dtype == np.float64):
            _check_range(rows, high, low)
        return Unit(distance, span, exponent)

    @staticmethod
    def from_exponent(exponent: int, dtype: np.dtype, distance: Distance, narrow: bool) -> Unit:
        """Return the scaling of stored rows of this dtype, whose exponent is known."""
        return Unit(distance, _span(dtype, narrow), exponent)

    @property
    def plain(self) -> bool:
        """Whether rows are not scaled."""
        return self.exponent == 0 and not self.by_row

    def stored_type(self, dtype: np.dtype) -> np.dtype:
        """Return the dtype in which rows of this dtype are stored: float64 if the arithmetic needs its range."""
        return np.dtype(np.float64) if self.span == _DOUBLE else dtype

    def rows(self, rows: Any) -> Any:
        """Return scaled rows (n, d) in their stored type."""
        rows = rows.astype(self.stored_type(rows.dtype), copy=False)
        if self.by_row:
            return scale_each_row(rows)
        return scale_by_powers(rows, self.exponent) if self.exponent else rows

    def more_rows(self, rows: Any) -> Any:
        """Return later rows scaled; raise InputError if they are too large for the scaling of the index."""
        if not self.distance.scales or not rows.shape[0]:
            return rows
        if self.distance.by_angle:
            return scale_each_row(rows) if self._needs_scaling(row_peaks(rows)) else rows
        if int(np.frexp(max_abs(rows))[1]) + self.exponent > self.span.max_power + 2:
            limit = 2.0 ** (self.span.max_power - self.exponent)
            raise InputError(
                f"rows contain {largest_value(rows)}, but the scaling chosen from the first rows allows at most "
                f"{limit:.3g}; fit or build again with all rows, or scale the column"
            )
        return self.rows(rows)

    def given(self, rows: Any) -> Any:
        """Return stored rows in the units of the caller; rows with their own powers stay as they are stored."""
        return scale_by_powers(rows, -self.exponent) if self.exponent and hasattr(rows, "astype") else rows

    def queries(self, rows: Any) -> Scaled:
        """Return scaled queries (q, d); distant ones, and those under angles or products, get powers of their own."""
        result_type = rows.dtype
        if not self.distance.scales or not rows.shape[0]:
            return Scaled(rows, None, result_type)
        if self.distance.degree == 1:
            if self.exponent == 0 and all_below(rows, 2.0**self.span.max_query):
                return Scaled(rows, None, result_type)
            peaks = row_peaks(rows)
            powers = np.minimum(0, self.span.max_query - self.exponent - exponents(peaks))
            powers[peaks == 0] = 0
            return Scaled(scale_by_powers(rows.astype(np.float64), powers + self.exponent), powers, result_type)
        peaks = row_peaks(rows)
        if not self._needs_scaling(peaks) and self.exponent == 0:
            return Scaled(rows, None, result_type)
        powers = -exponents(peaks)  # products and angles are exact at any length
        if not self.distance.by_angle:
            result_type = np.dtype(np.float64)  # products exceed float32 before values do
        return Scaled(scale_by_powers(rows.astype(np.float64), powers), powers - self.exponent, result_type)

    def finish(self, distances: NDArray, queries: Scaled | None = None) -> NDArray:
        """Return distances (q, k) without the scaling; one beyond the range of float64 becomes its largest value."""
        powers = None if queries is None else queries.exponents
        if (self.exponent == 0 and powers is None) or self.distance.by_angle:
            return distances
        total = -(self.distance.degree * self.exponent + (0 if powers is None else powers[:, None]))
        with np.errstate(over="ignore"):
            unscaled = np.ldexp(distances, np.broadcast_to(total, distances.shape).astype(np.int32))
        largest = np.finfo(np.float64).max
        return np.where(np.isinf(distances), distances, np.clip(unscaled, -largest, largest))

    def _needs_scaling(self, peaks: NDArray) -> bool:
        nonzero = peaks[peaks > 0]
        limit = self.span.limit
        return bool(len(nonzero)) and not (nonzero.min() > 1 / limit and nonzero.max() < limit)


def _span(dtype: np.dtype, narrow: bool) -> PowerSpan:
    if narrow:
        return NARROW
    return SINGLE if dtype == np.float32 else _DOUBLE


def _check_range(rows: Any, high: int, low: int) -> None:
    """Raise InputError for rows that no common power of two can scale; high and low are exponents of the row peaks.

    After scaling, the smallest row peak and the differences of rows must be normal numbers of the dtype. Squares of
    float32 values are computed in float64, but squares of float64 values must be normal float64 numbers themselves.
    """
    normal = -np.finfo(rows.dtype).minexp
    max_span = normal if rows.dtype == np.float32 else normal // 2
    if high - low > max_span:
        peaks = row_peaks(rows)
        smallest = int(np.where(peaks > 0, peaks, np.inf).argmin())
        raise InputError(
            f"rows contain {largest_value(rows)}, but the largest value of row {smallest} is {peaks[smallest]:.3g}; "
            f"{rows.dtype} cannot represent both after scaling. Drop that row, or scale (or take the log of) the column"
        )
    spread = _max_column_range(rows)
    if 0 < spread < 2.0 ** (high - max_span):
        raise InputError(
            f"rows differ by at most {spread:.3g} but contain {largest_value(rows)}; {rows.dtype} cannot represent "
            "both after scaling. Drop the constant columns, or scale the others"
        )


def _max_column_range(rows: Any) -> float:
    """Return the largest difference of two values of a column."""
    if sp.issparse(rows):
        high, low = (extreme(axis=0).toarray() for extreme in (rows.max, rows.min))
    else:
        high, low = rows[0].copy(), rows[0].copy()
        for part in row_blocks(rows):
            np.maximum(high, rows[part].max(axis=0), out=high)
            np.minimum(low, rows[part].min(axis=0), out=low)
    return float((0.5 * high - 0.5 * low).max())  # halves, because the difference itself may overflow
