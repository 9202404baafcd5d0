"""Words of a column without the blanks around them, and those that are there: n/a, ? and - stand for nothing."""

from __future__ import annotations

from typing import Any

from kway.data.sources.arrow_types import whole_column

_GAPS = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?", "-")  # words for a missing number


def trimmed(column: Any) -> Any:
    """Text (n,) without blanks around it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.utf8_trim_whitespace(whole_column(column)).cast(pa.large_string())


def present(words: Any) -> Any:
    """Those that are no gaps."""
    return words.filter(is_present(words))


def is_present(words: Any) -> Any:
    """Which (n,) are no gaps."""
    import pyarrow as pa
    import pyarrow.compute as pc

    gap = pc.or_(pc.is_null(words), pc.is_in(words, pa.array(_GAPS, pa.large_string())))
    return pc.invert(gap)
