"""Columns of a table: the kind of each, and its values as numbers, words, parts of a date or vectors.

The training rows decide the kind: number, true/false, date, category, text, vector, or a kind that is not used:

    id        every value occurs once, and the values are nearly consecutive whole numbers, codes such as a7-33f, or any
              words or whole numbers in a column called id, uuid, ..._id
    category  at most MOST_LEVELS levels, none of them rare, cover most rows
    text      any other words: sentences, names

The values of a column:

    as_numbers(column)   (n,) float64, NaN if missing or infinite
    as_words(column)     large_string, null if missing or blank
    as_parts(column)     year, month, day, weekday, hour, each (n,) float64
    as_vectors(column)   (n, d) float32
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pa_types
from numpy.typing import NDArray

from kway.errors import InputError
from kway.suggest import listing
from kway.tables.sources.frames import is_date, is_number, is_numeric, is_text, is_vector, whole_column
from kway.tables.sources.values import DATE_EXAMPLES, FEW_ROWS, MOSTLY, are_codes, odd_date, share_of_numbers, trimmed
from kway.text_tables import count

MOST_LEVELS = 100  # levels of a category; outputs with fewer columns are dense. Decided by benchmark T11 (tables)
_TOO_LARGE = np.sqrt(np.finfo(np.float64).max)  # values whose squares overflow count as missing
_ID_NAME = r"(?i)id|.+[_ .-]id|.*uuid|guid|row_?(id|number)|unnamed: 0|index"
_CODE = r"^[A-Za-z0-9_.:#-]{1,64}$"
DATE_PARTS = ("year", "month", "day", "weekday", "hour")


# ---- kinds


@dataclass(frozen=True)
class ColumnKind:
    """The kind of a column, a note (such as the reason why it is dropped), and the levels of a category."""

    name: str
    note: str = ""
    levels: tuple[str, ...] = ()


def rare_below(n: int) -> int:
    """Return the smallest number of rows of a level that is not rare in a column of n rows.

    It is 1% of n, but at least 2 and at most 10, or 0.1% of n if that is more.
    """
    return max(2, min(10, -(-n // 100)), -(-n // 1000))


def kind_of(column: Any, name: str = "") -> ColumnKind:
    """Return the kind of a column; one that is called id and has no value twice is an id."""
    return _id_by_name(column, name) or _kind_by_values(column)


def _kind_by_values(column: Any) -> ColumnKind:
    original_type, column = column.type, whole_column(column)
    if column.null_count == len(column):
        return ColumnKind("empty", "missing in every row")
    if original_type != column.type and is_number(column.type):  # a dictionary of numbers: its values are levels
        return _constant(column) or ColumnKind("category", "", _levels(as_words(column)).frequent)
    if is_vector(column.type):
        lengths = pc.min_max(pc.list_value_length(column)).as_py()
        if lengths["min"] != lengths["max"]:
            return ColumnKind("unknown", f"lists of {lengths['min']} to {lengths['max']} numbers, not of one length")
        return ColumnKind("vector")
    if str(column.type) == "bool":
        return _constant(column) or ColumnKind("true/false")
    if is_number(column.type):
        return _kind_of_number_column(column)
    if is_date(column.type):
        return _constant(column) or ColumnKind("date")
    if is_text(column.type):
        return _kind_of_words(as_words(column))
    return ColumnKind("unknown", f"of type {column.type}, which does not become numbers")


def kind_as_asked(column: Any, kind: str) -> ColumnKind:
    """Return the kind that the user gave, with the levels of a category."""
    return ColumnKind(kind, "as asked", _levels(as_words(column)).frequent if kind == "category" else ())


def _id_by_name(column: Any, name: str) -> ColumnKind | None:
    values = whole_column(column)
    if not re.fullmatch(_ID_NAME, name.strip()) or len(values) < FEW_ROWS or values.null_count:
        return None
    if not is_text(values.type) and not (is_number(values.type) and _are_integers(as_numbers(values, name))):
        return None
    if pc.count_distinct(values).as_py() < len(values):
        return None
    return ColumnKind("id", f"it is called {name!r} and no value occurs twice, such as {values[0].as_py()!r}")


def _kind_of_number_column(column: Any) -> ColumnKind:
    kind = _kind_of_numbers(as_numbers(column, ""))
    infinite = pc.sum(pc.is_inf(column.cast("float64", safe=False))).as_py() or 0
    if kind.name != "number" or not infinite:
        return kind
    return ColumnKind("number", f"infinite in {count(infinite, 'row')}, read as missing")


def _kind_of_numbers(numbers: NDArray[np.float64]) -> ColumnKind:
    present = numbers[~np.isnan(numbers)]
    if present.size == 0:
        return ColumnKind("empty", "missing, infinite or too large in every row")
    low, high = float(present.min()), float(present.max())
    if low == high:
        return _same_value(f"{low:g}", present.size < numbers.size, "number")
    n = numbers.size
    is_consecutive = n - 1 <= high - low < 2 * n and present.size == n >= FEW_ROWS
    if is_consecutive and _are_integers(present) and len(np.unique(present)) == present.size:
        return ColumnKind("id", f"whole numbers from {low:.0f} to {high:.0f}, each in one row only")
    return ColumnKind("number")


def _kind_of_words(words: Any) -> ColumnKind:
    present = words.drop_null()
    if len(present) == 0:
        return ColumnKind("empty", "blank in every row")
    n_levels = pc.count_distinct(present).as_py()
    if n_levels == 1:
        return _same_value(repr(present[0].as_py()), len(present) < len(words), "category", (present[0].as_py(),))
    share = share_of_numbers(present)
    note = f"mixes numbers ({share:.0%} of rows) and words, read as words" if 0.1 < share < MOSTLY else ""
    note = "codes with leading zeros, unless types is number" if are_codes(present) else note
    levels = _levels(words)
    if levels.covered >= MOSTLY:
        return ColumnKind("category", note, levels.frequent)
    if _are_row_names(present, n_levels):
        return ColumnKind("id", f"codes such as {present[0].as_py()!r}, each in one row only")
    return ColumnKind("text", note)


def _are_integers(numbers: NDArray[np.float64]) -> bool:
    return bool((numbers == np.floor(numbers)).all())


@dataclass(frozen=True)
class _Levels:
    """The frequent levels of a column, and the share of the rows that they cover."""

    frequent: tuple[str, ...]
    covered: float


def _levels(words: Any) -> _Levels:
    """Return the levels that are not rare, most frequent first, at most MOST_LEVELS."""
    counted = pc.value_counts(words.drop_null())
    names, counts = counted.field("values").to_pylist(), counted.field("counts").to_numpy()
    order = sorted(range(len(names)), key=lambda i: (-counts[i], names[i]))[:MOST_LEVELS]
    kept = [i for i in order if counts[i] >= rare_below(len(words))]
    present = len(words) - words.null_count
    return _Levels(tuple(names[i] for i in kept), float(counts[kept].sum()) / max(1, present))


def _are_row_names(words: Any, n_levels: int) -> bool:
    """Return whether words are names of rows: nearly all distinct, without spaces and mostly with a digit."""
    n = len(words)
    if n < FEW_ROWS or n_levels < 0.95 * n:
        return False
    codes = pc.sum(pc.match_substring_regex(words, _CODE)).as_py()
    digits = pc.sum(pc.match_substring_regex(words, "[0-9]")).as_py()
    return bool(codes >= 0.95 * n and digits >= 0.5 * n)


def _constant(column: Any) -> ColumnKind | None:
    """Return the kind "constant" if a column has only one value and none is missing."""
    values = pc.unique(column.drop_null())
    if len(values) > 1 or column.null_count:
        return None
    return ColumnKind("constant", f"{values[0].as_py()!s} in every row")


def _same_value(value: str, has_gaps: bool, kind: str, levels: tuple[str, ...] = ()) -> ColumnKind:
    """Return the kind of a column with one value: it is useful only if it is missing in some rows."""
    return ColumnKind(kind, "", levels) if has_gaps else ColumnKind("constant", f"{value} in every row")


@dataclass(frozen=True, eq=False)
class ColumnPart:
    """A part of Features that reads one column of the table. A subclass defines `output_names` and `encode`."""

    column: str
    output_names: ClassVar[Any]  # names of the columns of the result

    @property
    def columns(self) -> tuple[str, ...]:
        """The column of the table that each column of the result is made of."""
        return (self.column,) * len(self.output_names)

    def apply(self, table: Any) -> Any:
        """Return the columns of the result (n, len(output_names)), dense or CSR."""
        return self.encode(table.column(self.column))

    def encode(self, column: Any) -> Any:
        """Return the columns of the result for the values of the column."""
        raise NotImplementedError(f"{type(self).__name__} must define encode")


# ---- values


def as_words(column: Any) -> Any:
    """Return a column as text, with null for missing and blank values."""
    column = whole_column(column)
    words = trimmed(column if is_text(column.type) else column.cast(pa.large_string()))
    return pc.if_else(pc.equal(words, ""), pa.scalar(None, pa.large_string()), words)


def as_numbers(column: Any, name: str) -> NDArray[np.float64]:
    """Return float64 with NaN for missing and infinite values."""
    column = whole_column(column)
    if not is_numeric(column.type):
        raise InputError(f"column {name!r} was numeric in training and has type {column.type} now; give numbers")
    floats = column.cast("float64", safe=False)  # whole numbers above 2^53 are rounded
    numbers = np.array(floats.to_numpy(zero_copy_only=False), np.float64)
    return np.where(np.abs(numbers) < _TOO_LARGE, numbers, np.nan)


def as_parts(column: Any, name: str) -> dict[str, NDArray[np.float64]]:
    """Return the parts of dates, NaN for missing ones; a time of day has only its hour."""
    moments = whole_column(column)
    if moments.null_count == len(moments):
        return {part: np.full(len(column), np.nan) for part in DATE_PARTS}
    if not is_date(moments.type):
        got = f"has {odd_date(as_words(moments))!r:.60} and others" if is_text(moments.type) else f"is {moments.type}"
        raise InputError(f"column {name!r} must contain dates, but {got}; write dates as {DATE_EXAMPLES}")
    functions: dict[str, Any] = {}
    if not pa_types.is_time(moments.type):
        functions = {"year": pc.year, "month": pc.month, "day": pc.day, "weekday": pc.day_of_week}
    if not pa_types.is_date(moments.type):
        functions["hour"] = pc.hour
    parts = {part: function(moments).cast("float64") for part, function in functions.items()}
    return {part: np.array(values.to_numpy(zero_copy_only=False)) for part, values in parts.items()}


def as_vectors(column: Any, name: str, width: int | None = None) -> NDArray[np.float32]:
    """Return (n, d) of a column of lists of equal length (`width`); a missing list is a row of NaN."""
    values = whole_column(column)
    present = values.drop_null()
    if len(present) and not is_vector(values.type):
        raise InputError(
            f"column {name!r} had lists of numbers in training and has type {values.type} now; give lists of numbers"
        )
    if width is not None and len(present):  # few lists of another length count as missing
        wrong_length = pc.not_equal(pc.list_value_length(values), width).fill_null(False)
        if 0 < (n := pc.sum(wrong_length).as_py()) <= max(1, (1 - MOSTLY) * len(present)):
            warnings.warn(
                f"column {name!r}: {n:,} lists are not {width} numbers long and read as missing", stacklevel=2
            )
            lists = [None if stray else vector for stray, vector in zip(wrong_length.to_pylist(), values.to_pylist())]
            values = pa.array(lists, values.type)
            present = values.drop_null()
    lengths = sorted(pc.unique(pc.list_value_length(present)).to_pylist()) if len(present) else [width or 0]
    if len(lengths) != 1 or (width is not None and lengths != [width]):
        wanted = "of equal length" if width is None else f"{width} numbers long, as in fit"
        raise InputError(f"column {name!r} has lists of {listing(lengths, 5)} numbers; they must be {wanted}")
    out = np.full((len(values), lengths[0]), np.nan, np.float32)
    if len(present):
        flat = present.flatten().cast("float32", safe=False).to_numpy(zero_copy_only=False)
        out[values.is_valid().to_numpy(zero_copy_only=False)] = flat.reshape(-1, lengths[0])
    return out


# ---- codes of levels

MAX_CATEGORIES = 255  # the number of categories that HistGradientBoostingClassifier accepts


@dataclass(frozen=True, eq=False)
class LevelCodes(ColumnPart):
    """One number per level of a column, for trees: the levels that have a code, in the order of their codes.

    Missing values and levels without a code are NaN. If a column has more than MAX_CATEGORIES levels, the levels of a
    single row get no code, because a tree cannot learn from one row.

    If at most MAX_CATEGORIES levels have a code, the codes are categories, which boosted trees divide into sets. They
    are in alphabetical order, because forests compare codes by their order, and names such as "A1", "A2", "A3" often
    follow an order. Otherwise the levels are in order of their frequency, and trees compare the codes.
    """

    levels: tuple[str, ...]

    @property
    def is_category(self) -> bool:
        """Whether trees divide the levels into sets. Otherwise they compare the codes."""
        return len(self.levels) <= MAX_CATEGORIES

    @property
    def output_names(self) -> tuple[str, ...]:
        """The name of the one output column."""
        return (self.column,)

    def encode(self, column: Any) -> NDArray[np.float64]:
        """Return codes (n, 1), NaN for missing values and unknown levels."""
        codes = pc.index_in(as_words(column), value_set=pa.array(self.levels, pa.large_string()))
        return np.array(codes.cast("float64").to_numpy(zero_copy_only=False), np.float64)[:, None]


def learn_codes(column: Any, name: str) -> LevelCodes:
    """Learn the levels of a column from training rows."""
    counted = pc.value_counts(as_words(column).drop_null())
    names, counts = counted.field("values").to_pylist(), counted.field("counts").to_numpy()
    min_rows = 2 if len(names) > MAX_CATEGORIES else 1
    levels = [i for i in range(len(names)) if counts[i] >= min_rows]
    is_category = len(levels) <= MAX_CATEGORIES
    order = sorted(levels, key=lambda i: names[i] if is_category else (-counts[i], names[i]))
    return LevelCodes(name, tuple(names[i] for i in order))


def repeats_levels(column: Any) -> bool:
    """Return whether the distinct values occur twice or more on average; otherwise the column is free text."""
    words = as_words(column).drop_null()
    return bool(2 * pc.count_distinct(words).as_py() <= len(words))
