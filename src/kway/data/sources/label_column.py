"""The labels in a column of a table: text as it is, numbers where the text is the one way to write them.

" ham", "ham"  one label of a csv, where blanks around words are nobody's; a frame's labels stay as they are
1, 2, 10      whole numbers         1.0, 2.5   floats        true, False   bools
007, 08, 10   text: as numbers, 7 and 007 would be one class
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.errors import InputError

_GAPS = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None")  # a gap among numbers; a word among words, but for ""
_INTEGER = r"^-?(0|[1-9][0-9]{0,17})$"
_FLOAT = r"^-?((0|[1-9][0-9]{0,14})(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,2})?$"
_BOOL = r"^(?i:true|false)$"


_LABEL_THEM = "drop these rows or label them"
LEAVE_THEM = "label these rows, or leave them out: --skip-bad"


def column_labels(column: Any, what: str, typed: bool, advice: str = _LABEL_THEM, written: bool = False) -> NDArray:
    """Labels (n,) of a pyarrow column; a gap is an error, `what` names the column in it.

    `typed`: the file itself says that the column is text (parquet); csv does not, so there numbers are looked for.
    `written`: words of a csv, blanks around which say nothing.
    """
    import pyarrow.compute as pc

    kind = str(column.type)
    if "string" in kind or "dictionary" in kind:
        words = pc.utf8_trim_whitespace(column.cast("string")) if written else column.cast("string")
        numbers = None if typed else _words_as_numbers(words, what, advice)
        return _words(words, what, advice) if numbers is None else numbers
    _refuse_gaps(column.null_count, len(column), what, advice)
    labels = np.asarray(column.to_numpy())
    if labels.dtype.kind not in "iufb":
        raise InputError(f"{what} is of type {kind}; make it text, whole numbers or true/false")
    return labels


class NoLabelError(InputError):
    """Rows of which none has a label: an error of all rows, and of a piece of them nothing but a piece to leave out."""

    def __init__(self, target: str, rows: int) -> None:
        super().__init__(f"no row has a label in {target!r}; name the column that holds them with --target")
        self.rows = rows


class Labelled(NamedTuple):
    """Rows of a table that have a label, which of all (n,) they are, and how many have none."""

    table: Any
    kept: Any
    left_out: int


def rows_with_labels(table: Any, target: str) -> Labelled:
    """The rows whose target is no gap; among numbers, NA and the like are gaps too."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = table.column(target)
    there = column.is_valid()
    if "string" in str(column.type) or "dictionary" in str(column.type):
        words = pc.utf8_trim_whitespace(column.cast("string"))
        gaps = pa.array(_GAPS if _number_kind(words) else _GAPS[:1])
        there = pc.invert(pc.or_(pc.is_null(words), pc.is_in(words, gaps)))
    left_out = len(column) - (pc.sum(there).as_py() or 0)
    if left_out == len(column):
        raise NoLabelError(target, left_out)
    return Labelled(table.filter(there) if left_out else table, there, left_out)


def unlabelled_note(rows: int) -> str:
    """What is said where rows were left out."""
    return f"{rows:,} {'row' if rows == 1 else 'rows'} without a label left out, as --skip-bad asks"


def _words(words: Any, what: str, advice: str) -> NDArray:
    labels = words.to_pylist()
    _refuse_gaps(sum(not word for word in labels), len(labels), what, advice)
    return np.asarray(labels)


def _words_as_numbers(words: Any, what: str, advice: str) -> NDArray | None:
    """The words as numbers or bools, None where some are neither."""
    kind = _number_kind(words)
    if kind is None:
        return None
    gaps = len(words) - len(_no_gaps(words))
    _refuse_gaps(gaps, len(words), what, advice)
    return np.asarray(words.cast(kind).to_numpy())


def _number_kind(words: Any) -> str | None:
    """What all words but the gaps are; None where they are neither numbers nor bools."""
    import pyarrow.compute as pc

    real = _no_gaps(words)
    for pattern, dtype in ((_INTEGER, "int64"), (_BOOL, "bool"), (_FLOAT, "float64")):
        if len(real) and pc.all(pc.match_substring_regex(real, pattern)).as_py():
            return dtype
    return None


def _no_gaps(words: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return words.filter(pc.invert(pc.or_(pc.is_null(words), pc.is_in(words, pa.array(_GAPS)))))


def _refuse_gaps(gaps: int, n: int, what: str, advice: str) -> None:
    if gaps:
        raise InputError(f"{what} is empty in {gaps:,} of {n:,} rows; {advice}")
