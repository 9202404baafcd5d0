"""What an Arrow column is by its type, and the column as one array."""

from __future__ import annotations

from typing import Any

_WHOLE_NUMBER = r"^-?(0|[1-9]\d*)$"
_PLAIN_NUMBER = r"^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$"  # as JSON writes one
_TOO_FINE = r"^-?[0.]*[1-9](\.?\d){15}"  # more than the 15 digits that a float is sure to give back


def whole_column(column: Any) -> Any:
    """The column as one array with its dictionary, if any, looked up, and its text as large_string."""
    import pyarrow as pa
    import pyarrow.types as kinds

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # none, or too long for one piece
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if kinds.is_dictionary(column.type):
        column = column.dictionary_decode()
    if is_text(column.type) and not kinds.is_large_string(column.type):
        column = column.cast(pa.large_string())
    return column


def plain_numbers(column: Any) -> Any:
    """Words that are all plain numbers, but for gaps, as numbers; others, such as codes (007), as they are.

    So are fractions of more digits than a float holds.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    words = whole_column(column)
    words = pc.if_else(pc.equal(words, ""), pa.scalar(None, words.type), words)
    for pattern, kind in ((_WHOLE_NUMBER, pa.int64()), (_PLAIN_NUMBER, pa.float64())):
        if words.null_count < len(words) and pc.all(pc.match_substring_regex(words, pattern)).as_py():
            if kind == pa.float64() and pc.any(pc.match_substring_regex(words, _TOO_FINE)).as_py():
                return column
            try:
                return words.cast(kind)
            except pa.ArrowInvalid:  # a number of twenty digits is a code
                return column
    return column


def plain_floats(column: Any) -> Any:
    """Floats of 16 and 32 bits as the float64 that is written as they are: 5.1, where a cast gives 5.0999999."""
    import pyarrow as pa
    import pyarrow.types as kinds

    if not (kinds.is_float16(column.type) or kinds.is_float32(column.type)):
        return column
    return column.cast(pa.float32()).cast(pa.string()).cast(pa.float64())


def is_text(kind: Any) -> bool:
    """string, large_string or string_view."""
    import pyarrow.types as kinds

    return kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind)


def is_number(kind: Any) -> bool:
    """Integers, floats and decimals."""
    import pyarrow.types as kinds

    return kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind)


def is_date(kind: Any) -> bool:
    """Dates, moments and times of the day."""
    import pyarrow.types as kinds

    return kinds.is_date(kind) or kinds.is_timestamp(kind) or kinds.is_time(kind)


def is_vector(kind: Any) -> bool:
    """Lists of numbers: embeddings kept in a column."""
    import pyarrow.types as kinds

    lists = kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind)
    return bool(lists and is_number(kind.value_type))


def text_columns(table: Any) -> tuple[str, ...]:
    """The columns of a pyarrow table that are text, also where it is kept as a dictionary."""
    import pyarrow.types as kinds

    types = {f.name: f.type.value_type if kinds.is_dictionary(f.type) else f.type for f in table.schema}
    return tuple(c for c, kind in types.items() if is_text(kind))
