"""The labels in a column of a table: text as it is, numbers where the text is the one way to write them.

1, 2, 10      whole numbers         1.0, 2.5   floats        true, False   bools
007, 08, 10   text: as numbers, 7 and 007 would be one class
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.errors import InputError

_GAPS = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None")  # a gap among numbers; a word among words, but for ""
_INTEGER = r"^-?(0|[1-9][0-9]{0,17})$"
_FLOAT = r"^-?((0|[1-9][0-9]{0,14})(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,2})?$"
_BOOL = r"^(?i:true|false)$"


def column_labels(column: Any, what: str, typed: bool) -> NDArray:
    """Labels (n,) of a pyarrow column; a gap is an error, `what` names the column in it.

    `typed`: the file itself says that the column is text (parquet); csv does not, so there numbers are looked for.
    """
    kind = str(column.type)
    if "string" in kind or "dictionary" in kind:
        words = column.cast("string")
        numbers = None if typed else _words_as_numbers(words, what)
        return _words(words, what) if numbers is None else numbers
    _refuse_gaps(column.null_count, len(column), what)
    labels = np.asarray(column.to_numpy())
    if labels.dtype.kind not in "iufb":
        raise InputError(f"{what} is of type {kind}; make it text, whole numbers or true/false")
    return labels


def _words(words: Any, what: str) -> NDArray:
    labels = words.to_pylist()
    _refuse_gaps(sum(not word for word in labels), len(labels), what)
    return np.asarray(labels)


def _words_as_numbers(words: Any, what: str) -> NDArray | None:
    """The words as numbers or bools, None where some are neither."""
    import pyarrow as pa
    import pyarrow.compute as pc

    real = words.filter(pc.invert(pc.is_in(words, pa.array(_GAPS))))
    for pattern, dtype in ((_INTEGER, "int64"), (_BOOL, "bool"), (_FLOAT, "float64")):
        if len(real) and pc.all(pc.match_substring_regex(real, pattern)).as_py():
            _refuse_gaps(len(words) - len(real), len(words), what)
            return np.asarray(words.cast(dtype).to_numpy())
    return None


def _refuse_gaps(gaps: int, n: int, what: str) -> None:
    if gaps:
        raise InputError(f"{what} is empty in {gaps:,} of {n:,} rows; drop these rows or label them")
