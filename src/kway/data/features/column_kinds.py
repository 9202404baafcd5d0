"""What a column is, told from training rows: number, true/false, date, category, text, vector, or of no use.

id        every value its own and either nearly consecutive whole numbers or codes such as a7-33f, or any words or
          whole numbers in a column called id, uuid, ..._id: names rows
category  at most MOST_LEVELS levels, none rare, cover most rows
text      any other words: sentences, names
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.data.features import columns as col
from kway.data.sources.arrow_types import is_number, is_text, is_vector, whole_column
from kway.data.sources.written_values import are_codes
from kway.data.suggest import listing

USED = ("number", "true/false", "date", "category", "text", "vector")

MOST_LEVELS = 100
_COVERED = 0.8  # share of rows that the kept levels of a category must cover
_MOSTLY = 0.9  # share of numbers among words from which a column is numbers with gaps
_FEW_LEVELS = 20  # so few numbers that a typed file says are text are names of levels
_FEWEST_FOR_ID = 20  # rows; in fewer, distinct whole numbers may well be a measure
_ID_RANGE = 2.0  # ids of a random half of all rows still lie within twice their number
_ID_NAME = r"(?i)id|.+[_ .-]id|.*uuid|guid|row_?(id|number)|unnamed: 0|index"
_CODE = r"^[A-Za-z0-9_.:#-]{1,64}$"


@dataclass(frozen=True)
class ColumnKind:
    """The kind of a column, why it is dropped or what is odd about it, and for a category its levels."""

    name: str
    note: str = ""
    levels: tuple[str, ...] = ()


def rare_below(n: int) -> int:
    """Rows under which a level is rare: 10, or 0.1 % of many rows, or 1 % of few (at least 2)."""
    return max(2, min(10, -(-n // 100)), -(-n // 1000))


def kind_of(column: Any, name: str = "") -> ColumnKind:
    """What the column is; one whose name says that it is an id is one, where no value is there twice."""
    return _id_by_name(column, name) or _kind_by_values(column)


def _kind_by_values(column: Any) -> ColumnKind:
    was, column = column.type, whole_column(column)
    if column.null_count == len(column):
        return ColumnKind("empty", "missing in every row")
    if was != column.type and is_number(column.type):  # a dictionary: somebody said that these are levels
        return _constant(column) or ColumnKind("category", "", _levels(col.as_words(column)).kept)
    if is_vector(column.type):
        return ColumnKind("vector")
    if str(column.type) == "bool":
        return _constant(column) or ColumnKind("true/false")
    if is_number(column.type):
        return _kind_of_number_column(column)
    if col.as_moments(column) is not None:
        return _constant(column) or ColumnKind("date")
    if is_text(column.type):
        return _kind_of_words(col.as_words(column))
    return ColumnKind("unknown", f"of type {column.type}, which does not become numbers")


def kind_as_asked(column: Any, kind: str) -> ColumnKind:
    """The kind where a person has said what the column is; a category still needs its levels."""
    if kind == "category":
        return ColumnKind(kind, "as asked", _levels(col.as_words(column)).kept)
    if kind == "number" and is_text(whole_column(column).type):
        words = col.as_words(column).drop_null()
        parsed = col.parse_numbers(words)
        if parsed.odd.any():
            return ColumnKind(kind, f"{_mixed(words, parsed)}, as asked")
    return ColumnKind(kind, "as asked")


def _id_by_name(column: Any, name: str) -> ColumnKind | None:
    import pyarrow.compute as pc

    plain = whole_column(column)
    if not re.fullmatch(_ID_NAME, name.strip()) or len(plain) < _FEWEST_FOR_ID or plain.null_count:
        return None
    if not (is_text(plain.type) or str(plain.type).startswith(("int", "uint"))):
        return None
    if pc.count_distinct(plain).as_py() < len(plain):
        return None
    return ColumnKind("id", f"it is called {name!r} and no value is there twice, such as {plain[0].as_py()!r}")


def _kind_of_number_column(column: Any) -> ColumnKind:
    import pyarrow.compute as pc

    whole = str(column.type).startswith(("int", "uint"))
    kind = _kind_of_numbers(col.as_numbers(column, ""), whole)
    infinite = 0 if whole else pc.sum(pc.is_inf(column.cast("float64", safe=False))).as_py() or 0
    if kind.name != "number" or not infinite:
        return kind
    return ColumnKind("number", f"infinite in {infinite:,} {'row' if infinite == 1 else 'rows'}, taken as missing")


def _kind_of_numbers(numbers: NDArray[np.float64], are_whole: bool) -> ColumnKind:
    present = numbers[~np.isnan(numbers)]
    if present.size == 0:
        return ColumnKind("empty", "missing, infinite or beyond any measure in every row")
    low, high = float(present.min()), float(present.max())
    if low == high:
        return _same_value(f"{low:g}", present.size < numbers.size, "number")
    whole = are_whole or bool((present == np.floor(present)).all())
    n = numbers.size
    close = n - 1 <= high - low < _ID_RANGE * n and present.size == n >= _FEWEST_FOR_ID
    if whole and close and len(np.unique(present)) == present.size:
        return ColumnKind("id", f"whole numbers from {low:.0f} to {high:.0f}, each in one row only: they name the rows")
    return ColumnKind("number")


def _kind_of_words(words: Any) -> ColumnKind:
    import pyarrow.compute as pc

    present = words.drop_null()
    if len(present) == 0:
        return ColumnKind("empty", "blank in every row")
    n_levels = pc.count_distinct(present).as_py()
    if n_levels == 1:
        return _same_value(repr(present[0].as_py()), len(present) < len(words), "category", (present[0].as_py(),))
    if are_codes(present):
        return _kind_of_codes(words, present, n_levels)
    parsed = col.parse_numbers(present)
    n_numbers = int(np.isfinite(parsed.numbers).sum())
    share = n_numbers / max(1, n_numbers + int(parsed.odd.sum()))  # words for a gap are neither
    if share >= _MOSTLY and (n_numbers < len(present) or n_levels > _FEW_LEVELS):
        return _kind_of_numeric_words(present, parsed)
    mixed = f"mixes numbers ({share:.0%} of rows) and words, taken as words" if 0.1 < share < _MOSTLY else ""
    return _levels_or_text(words, present, n_levels, mixed)


def _kind_of_codes(words: Any, present: Any, n_levels: int) -> ColumnKind:
    note = "codes with leading zeros, unless types say number"
    return _levels_or_text(words, present, n_levels, note)


def _levels_or_text(words: Any, present: Any, n_levels: int, note: str) -> ColumnKind:
    levels = _levels(words)
    if levels.covered >= _COVERED:
        return ColumnKind("category", note, levels.kept)
    if _name_rows(present, n_levels):
        return ColumnKind("id", f"codes such as {present[0].as_py()!r}, each in one row only: they name the rows")
    return ColumnKind("text", note)


def _kind_of_numeric_words(words: Any, parsed: col.Parsed) -> ColumnKind:
    kind = _kind_of_numbers(parsed.numbers[np.isfinite(parsed.numbers)], are_whole=False)
    strange = np.flatnonzero(~np.isfinite(parsed.numbers))
    if kind.name != "number" or not len(strange):
        return kind
    return ColumnKind("number", _mixed(words, parsed))


def _mixed(words: Any, parsed: col.Parsed) -> str:
    strange = np.flatnonzero(~np.isfinite(parsed.numbers))
    some = listing(map(repr, sorted(set(words.take(strange).to_pylist()))), 3)
    return f"mixed: {some} in {len(strange):,} rows taken as missing"


@dataclass(frozen=True)
class _Levels:
    kept: tuple[str, ...]
    covered: float  # share of rows


def _levels(words: Any) -> _Levels:
    """The levels that are not rare, most frequent first, at most MOST_LEVELS."""
    import pyarrow.compute as pc

    counted = pc.value_counts(words.drop_null())
    names, counts = counted.field("values").to_pylist(), counted.field("counts").to_numpy()
    order = sorted(range(len(names)), key=lambda i: (-counts[i], names[i]))[:MOST_LEVELS]
    kept = [i for i in order if counts[i] >= rare_below(len(words))]
    present = len(words) - words.null_count
    return _Levels(tuple(names[i] for i in kept), float(counts[kept].sum()) / max(1, present))


def _name_rows(words: Any, n_levels: int) -> bool:
    """Nearly all distinct, without spaces and mostly with a digit: names of rows, not words."""
    import pyarrow.compute as pc

    n = len(words)
    if n < _FEWEST_FOR_ID or n_levels < 0.95 * n:
        return False
    codes = pc.sum(pc.match_substring_regex(words, _CODE)).as_py()
    digits = pc.sum(pc.match_substring_regex(words, "[0-9]")).as_py()
    return bool(codes >= 0.95 * n and digits >= 0.5 * n)


def _constant(column: Any) -> ColumnKind | None:
    """The kind of true/false and dates where they never change."""
    import pyarrow.compute as pc

    found = pc.unique(column.drop_null())
    if len(found) > 1 or column.null_count:
        return None
    return ColumnKind("constant", f"{found[0].as_py()!s} in every row")


def _same_value(value: str, has_gaps: bool, kind: str, levels: tuple[str, ...] = ()) -> ColumnKind:
    """A single value says nothing, unless it is there in some rows and missing in others."""
    return ColumnKind(kind, "", levels) if has_gaps else ColumnKind("constant", f"{value} in every row")
