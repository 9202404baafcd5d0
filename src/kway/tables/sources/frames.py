"""Tables in memory: frames of any library as pyarrow tables, types of Arrow columns, and checks of column names.

`as_table` turns pandas and polars frames, dicts of columns and lists of dicts into a pyarrow Table with unique column
names. `n_rows` and `take_rows` work on tables, arrays and sparse matrices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from numpy.typing import NDArray

from kway.errors import InputError, UsageError
from kway.suggest import listing, nearest

_INTEGER = r"^-?(0|[1-9][0-9]{0,17})$"
_FLOAT = r"^-?((0|[1-9][0-9]{0,14})(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,2})?$"
_BOOL = r"^(?i:true|false)$"
_JSON_NUMBER = r"^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$"
_OVER_15_DIGITS = r"^-?[0.]*[1-9](\.?\d){15}"  # a float64 keeps 15 decimal digits


# ---- frames


def is_table(X: Any) -> bool:
    """Return whether X is a pyarrow Table, a pandas or polars frame, a dict of columns or a list of dicts."""
    if isinstance(X, Mapping) or hasattr(X, "column_names") or hasattr(X, "collect_schema") or _are_records(X):
        return True
    return hasattr(X, "columns") and hasattr(X, "dtypes")


def _are_records(X: Any) -> bool:
    return isinstance(X, list) and len(X) > 0 and all(isinstance(row, Mapping) for row in X)


def without_lists(X: Any) -> Any:
    """Return X, or an array if X is a list of rows that are not records."""
    return np.asarray(X) if isinstance(X, (list, tuple)) and not _are_records(X) else X


def as_table(X: Any, name: str = "the table") -> pa.Table:
    """Return X as a pyarrow Table; a column of mixed Python objects becomes text."""
    if isinstance(X, pa.RecordBatch):
        X = pa.Table.from_batches([X])
    if isinstance(X, pa.Table):
        refuse_repeated([str(c) for c in X.column_names], name)
        return plain_types(X)
    if _are_records(X):
        rows = [_flat_record(row) for row in X]
        X = {key: [row.get(key) for row in rows] for key in dict.fromkeys(key for row in rows for key in row)}
    if isinstance(X, Mapping):
        columns = {_unicode(c): _arrow_column(values, c) for c, values in X.items()}
    elif hasattr(X, "to_arrow"):  # polars
        try:
            return plain_types(X.to_arrow())
        except pa.ArrowInvalid:  # a type that Arrow does not have, such as Int128
            columns = {c: _arrow_column(X[c].to_list(), c) for c in X.columns}
    elif hasattr(X, "collect"):
        raise InputError(f"{name} is a {type(X).__name__}, which has no rows yet; pass {name}.collect()")
    else:
        names = [_unicode(c) for c in X.columns]
        refuse_repeated(names, name)
        columns = {c: _arrow_column(X.iloc[:, j], c) for j, c in enumerate(names)}
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise InputError(f"{name} has columns of {listing(sorted(lengths))} rows; give all columns the same length")
    return plain_types(pa.table(columns))


def _flat_record(row: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a record with the values of nested records under names such as user.age."""
    flat: dict[Any, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{inner}": each for inner, each in _flat_record(value).items()}
        else:
            flat[key] = value
    return flat


def plain_types(table: pa.Table) -> pa.Table:
    """Return structs as one column per field (user.age), durations as seconds, and lists of text as one text."""
    while any(kinds.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    for j, field in enumerate(table.schema):
        if kinds.is_duration(field.type):
            seconds = pc.divide(table.column(j).cast(pa.duration("ns"), safe=False).cast("int64").cast("float64"), 1e9)
            table = table.set_column(j, field.name, seconds)
        elif (kinds.is_list(field.type) or kinds.is_large_list(field.type)) and is_text(field.type.value_type):
            lists = _without_nulls(table.column(j).combine_chunks().cast(pa.list_(pa.string())))
            table = table.set_column(j, field.name, pc.binary_join(lists, " "))
    return table


def _without_nulls(lists: pa.ListArray) -> pa.ListArray:
    """Return lists (n,) without the nulls inside them; a list that is null stays null."""
    values, places = pc.list_flatten(lists), pc.list_parent_indices(lists)
    starts = np.searchsorted(places.filter(values.is_valid()), np.arange(len(lists) + 1))
    return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), values.drop_null(), mask=lists.is_null())


def n_rows(X: Any) -> int:
    """Return the number of rows of a table, array, sparse matrix or list."""
    if isinstance(X, Mapping):
        return len(next(iter(X.values()), ()))
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def take_rows(X: Any, rows: NDArray) -> Any:
    """Select rows of a table, array or sparse matrix; `rows` are positions or a mask (n,)."""
    if not is_table(X):
        return X[rows]
    return as_table(X).take(np.flatnonzero(rows) if rows.dtype == bool else rows)


def _arrow_column(values: Any, name: Any) -> Any:
    """Return values as an Arrow column; as text if Arrow finds no common type."""
    if isinstance(values, str) or not hasattr(values, "__len__"):
        raise InputError(f"column {name!r} is {values!r:.50}; give a list with one value per row")
    try:
        if isinstance(values, np.ndarray) and values.dtype.kind in "UOT":
            values = values.tolist()
        return _plain_column(pa.array(values, from_pandas=True), values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, UnicodeError):
        numbers = [_number_or_none(v) for v in values]
        if all(n is not None or _is_nan(v) for n, v in zip(numbers, values)):  # also "3", and more than 64 bits
            return pa.array(numbers, pa.float64())
        return pa.array([None if _is_nan(v) else _unicode(v) for v in values], pa.large_string())


def _plain_column(column: Any, values: Any) -> Any:
    """Return types that only pandas has (periods, intervals) as text."""
    value_type = column.type.value_type if kinds.is_dictionary(column.type) else column.type
    is_nested = value_type is not column.type and kinds.is_nested(value_type)
    if (isinstance(value_type, pa.BaseExtensionType) or is_nested) and hasattr(values, "isna"):
        return pa.array([None if gap else str(v) for v, gap in zip(values, values.isna())], pa.large_string())
    return column


def _number_or_none(value: Any) -> float | None:
    """Return a number, or a text that is a plain number, as a float; None for anything else."""
    if isinstance(value, str) and not re.match(_JSON_NUMBER, value.strip()):
        return None
    try:
        return float(value) if isinstance(value, int | float | str) and not _is_nan(value) else None
    except OverflowError:
        return np.inf if value > 0 else -np.inf


def _unicode(value: Any) -> str:
    """Return the value as text that can be encoded as UTF-8."""
    text = str(value)
    if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        raise InputError(
            f"the text {text!r:.50} contains a lone surrogate, half of a character; decode it again as UTF-8"
        )
    return text


def _is_nan(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value)


# ---- types of columns


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is string, large_string or string_view."""
    return kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind)


def holds_text(column: Any) -> bool:
    """Return whether a column is text, or a dictionary of text."""
    return is_text(column.type.value_type if kinds.is_dictionary(column.type) else column.type)


def is_number(kind: pa.DataType) -> bool:
    """Return whether a type is an integer, float or decimal."""
    return kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind)


def is_numeric(kind: pa.DataType) -> bool:
    """Return whether the values of a type become numbers: numbers, true and false, and only missing values."""
    return is_number(kind) or kinds.is_boolean(kind) or kinds.is_null(kind)


def is_date(kind: pa.DataType) -> bool:
    """Return whether a type is a date, timestamp or time of day."""
    return kinds.is_date(kind) or kinds.is_timestamp(kind) or kinds.is_time(kind)


def is_vector(kind: pa.DataType) -> bool:
    """Return whether a type is a list of numbers, such as an embedding."""
    lists = kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind)
    return bool(lists and is_number(kind.value_type))


def text_columns(table: pa.Table) -> tuple[str, ...]:
    """Return the names of the text columns, including dictionary columns of text."""
    return tuple(field.name for field in table.schema if holds_text(field))


def number_kinds(table: pa.Table) -> dict[str, str]:
    """Return the columns of numbers, dates and true/false, with these kinds."""
    names = {"number": is_number, "date": is_date, "true/false": kinds.is_boolean}
    return {f.name: kind for f in table.schema for kind, holds in names.items() if holds(f.type)}


def whole_column(column: Any) -> pa.Array:
    """Return a column as one array, with dictionaries decoded and text as large_string."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # no chunk, or too long for one
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if kinds.is_dictionary(column.type):
        column = column.dictionary_decode()
    if is_text(column.type) and not kinds.is_large_string(column.type):
        column = column.cast(pa.large_string())
    return column


def number_type(words: Any) -> str | None:
    """Return the type that all words (n,), none missing, can have: int64, bool or float64; None if they are text."""
    for pattern, kind in ((_INTEGER, "int64"), (_BOOL, "bool"), (_FLOAT, "float64")):
        if len(words) and pc.all(pc.match_substring_regex(words, pattern)).as_py():
            return kind
    return None


def are_numbers(words: Any) -> Any:
    """Return the mask (n,) of the words that are plain numbers."""
    return pc.or_(pc.match_substring_regex(words, _INTEGER), pc.match_substring_regex(words, _FLOAT))


def plain_numbers(column: Any) -> Any:
    """Return a text column as numbers if all its values, apart from missing ones, are plain numbers.

    Other columns are returned unchanged: codes such as 007, and fractions with more digits than a float64 keeps.
    """
    text = whole_column(column)
    text = pc.if_else(pc.equal(text, ""), pa.scalar(None, text.type), text)
    kind = number_type(text.drop_null())
    if kind == "float64" and pc.any(pc.match_substring_regex(text, _OVER_15_DIGITS)).as_py():
        return column
    return text.cast(kind) if kind in ("int64", "float64") else column


def plain_floats(column: Any) -> Any:
    """Return floats of 16 and 32 bits as the float64 of the same decimal text: 5.1, not 5.0999999."""
    if not (kinds.is_float16(column.type) or kinds.is_float32(column.type)):
        return column
    return column.cast(pa.float32()).cast(pa.string()).cast(pa.float64())


# ---- names of columns


def refuse_repeated(columns: Sequence[str], name: str) -> None:
    """Raise InputError if two columns have the same name."""
    repeated = sorted({c for c in columns if columns.count(c) > 1}) if len(set(columns)) < len(columns) else []
    if repeated:
        raise InputError(f"{name} has more than one column named {listing(repeated)}; give each column its own name")


def refuse_unknown_column(
    column: str, columns: Sequence[str], name: str, role: str | None = None, error: type[InputError] = UsageError
) -> None:
    """Raise an error if a column does not exist, with the nearest name or the option that may help.

    `role` is the use of the column in the message, such as target or group.
    """
    if column in columns:
        return
    problem = f"{name} has no {role or 'such'} column {column!r}"
    possible_sep = next((sep for sep in (";", "\t", "|", ",") if len(columns) == 1 and sep in columns[0]), None)
    if possible_sep is not None:
        shown = "'tab'" if possible_sep == "\t" else repr(possible_sep)
        raise error(f"{problem}; its only column is {columns[0]!r}; if {shown} separates columns, give sep={shown}")
    problem += f"{nearest(column, columns)}; its columns are {listing(columns)}"
    if re.fullmatch("c[0-9]+", column) and not all(re.fullmatch("c[0-9]+", c) for c in columns):
        raise error(f"{problem}, taken from its first row; if that row is not a header, give header=False")
    raise error(problem)
