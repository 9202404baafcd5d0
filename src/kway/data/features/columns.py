"""One column of a table as what it is asked to be: numbers, words, parts of a date, vectors.

as_numbers(column)   (n,) float64, NaN where missing or infinite
as_words(column)     large_string with nulls where missing or blank
as_parts(column)     year, month, day, weekday, hour, each (n,) float64
as_vectors(column)   (n, d) float32
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.data.sources.arrow_types import is_date, is_text, is_vector, whole_column
from kway.data.sources.dates import FORMS, odd_date
from kway.data.suggest import listing
from kway.errors import InputError

NUMBER = r"^[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?$"  # 007 is a code, not a number
_GAPS = ("NA", "N/A", "NaN", "nan", "NULL", "null", "None", "?", "-")  # words that stand for a missing number
_TOO_LARGE = 1e100  # no measure: infinite, or a mark for missing whose square would overflow
DATE_PARTS = ("year", "month", "day", "weekday", "hour")
_ISO_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?)?$"


class Parsed(NamedTuple):
    """Numbers (n,) read from words, and which words (n,) were neither numbers nor gaps."""

    numbers: NDArray[np.float64]
    odd: NDArray[np.bool_]


def as_words(column: Any) -> Any:
    """Text with nulls where it is missing or blank; numbers, bools and dates as they are written."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = whole_column(column)
    if not is_text(column.type):
        column = column.cast(pa.large_string())
    trimmed = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, pa.large_string()), trimmed)


def as_numbers(column: Any, name: str, lenient: bool = False) -> NDArray[np.float64]:
    """Float64 with NaN for what is missing or infinite; `lenient`: also for words that are no numbers."""
    column = whole_column(column)
    if is_text(column.type):
        words = as_words(column)
        parsed = parse_numbers(words)
        if parsed.odd.any() and not lenient:
            raise InputError(
                f"column {name!r} was numbers in training, but says {_samples(words, parsed.odd)} in "
                f"{int(parsed.odd.sum()):,} rows; write numbers there, or leave the cell empty"
            )
        return _not_infinite(parsed.numbers)
    if is_date(column.type) or is_vector(column.type):
        raise InputError(f"column {name!r} was numbers in training and is {column.type} here; give the same column")
    try:
        floats = column.cast("float64", safe=False)  # whole numbers above 2^53 are rounded
        return _not_infinite(np.array(floats.to_numpy(zero_copy_only=False), np.float64))
    except Exception as error:
        raise InputError(f"column {name!r} of type {column.type} cannot be read as numbers: {error}") from error


def parse_numbers(words: Any) -> Parsed:
    """The words that are numbers, as numbers; gaps and odd words are NaN."""
    import pyarrow as pa
    import pyarrow.compute as pc

    fits = pc.match_substring_regex(words, NUMBER)
    numbers = pc.if_else(fits, words, pa.scalar(None, pa.large_string())).cast("float64")
    gap = pc.or_(pc.is_null(words), pc.is_in(words, pa.array(_GAPS, pa.large_string())))
    odd = pc.invert(pc.or_(gap, fits.fill_null(False)))
    return Parsed(np.array(numbers.to_numpy(zero_copy_only=False)), odd.to_numpy(zero_copy_only=False))


def as_moments(column: Any) -> Any | None:
    """A column of dates, or of text that is all ISO dates, as Arrow dates or times; None for any other."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = whole_column(column)
    if is_date(column.type):
        return column
    if not is_text(column.type):
        return None
    words = as_words(column)
    if words.null_count == len(words) or not pc.all(pc.match_substring_regex(words, _ISO_DATE)).as_py():
        return None
    try:
        return words.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:  # 2024-13-45
        return None


def as_parts(column: Any, name: str) -> dict[str, NDArray[np.float64]]:
    """Parts of a date, NaN where it is missing; a time of the day has its hour only."""
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    moments = as_moments(column)
    if moments is None:
        if whole_column(column).null_count == len(column):
            return {part: np.full(len(column), np.nan) for part in DATE_PARTS}
        got = odd_date(as_words(column).drop_null())
        raise InputError(f"column {name!r} is to hold dates, but says {got!r}; dates are read as {FORMS}")
    read: dict[str, Any] = {}
    if not kinds.is_time(moments.type):
        read = {"year": pc.year, "month": pc.month, "day": pc.day, "weekday": pc.day_of_week}
    if not kinds.is_date(moments.type):
        read["hour"] = pc.hour
    return {part: _float_values(function(moments)) for part, function in read.items()}


def as_vectors(column: Any, name: str, width: int | None = None) -> NDArray[np.float32]:
    """(n, d) of a column of lists, all as long (`width`, where that is known); a missing list is a row of NaN."""
    import pyarrow.compute as pc

    values = whole_column(column)
    there = values.drop_null()
    if len(there) and not is_vector(values.type):
        raise InputError(f"column {name!r} was lists of numbers in training and is {values.type} here")
    lengths = sorted(pc.unique(pc.list_value_length(there)).to_pylist()) if len(there) else [width or 0]
    if len(lengths) != 1 or (width is not None and lengths != [width]):
        wanted = "as long as each other" if width is None else f"{width} long, as they were in fit"
        raise InputError(f"column {name!r} has lists of {listing(lengths, 5)} numbers; they must be {wanted}")
    out = np.full((len(values), lengths[0]), np.nan, np.float32)
    if len(there):
        flat = there.flatten().cast("float32", safe=False).to_numpy(zero_copy_only=False)
        out[values.is_valid().to_numpy(zero_copy_only=False)] = flat.reshape(-1, lengths[0])
    return out


def _float_values(values: Any) -> NDArray[np.float64]:
    return np.array(values.cast("float64").to_numpy(zero_copy_only=False))


def _not_infinite(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.abs(numbers) < _TOO_LARGE, numbers, np.nan)


def _samples(words: Any, odd: NDArray[np.bool_]) -> str:
    found = list(dict.fromkeys(words.take(np.flatnonzero(odd)[:50]).to_pylist()))
    return listing(map(repr, found), 3)
