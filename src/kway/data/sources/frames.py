"""Tables of any make as one kind: pandas, polars, dicts of columns -> pyarrow Table with unique text names.

rows of a table, an array or a sparse matrix are counted and taken by the same two functions
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.data.sources.column_names import refuse_repeated
from kway.data.suggest import listing
from kway.errors import InputError


def is_table(X: Any) -> bool:
    """Whether X has named columns: a pyarrow Table, a pandas or polars frame, a dict of columns, a list of dicts."""
    if isinstance(X, Mapping) or hasattr(X, "column_names") or hasattr(X, "collect_schema") or _are_records(X):
        return True
    return hasattr(X, "columns") and hasattr(X, "dtypes")


def _are_records(X: Any) -> bool:
    """Whether X is a list of rows, each a dict: what JSON gives."""
    return isinstance(X, list) and len(X) > 0 and all(isinstance(row, Mapping) for row in X)


def as_table(X: Any, name: str = "the table") -> Any:
    """X as a pyarrow Table; a column of mixed Python objects becomes text, column by column."""
    import pyarrow as pa

    if isinstance(X, pa.Table):
        refuse_repeated([str(c) for c in X.column_names], name)
        return X
    if _are_records(X):
        X = {key: [row.get(key) for row in X] for key in dict.fromkeys(key for row in X for key in row)}
    if isinstance(X, Mapping):
        columns = {_unicode(c): _arrow_column(values, c) for c, values in X.items()}
    elif hasattr(X, "to_arrow"):  # polars
        try:
            return X.to_arrow()
        except pa.ArrowInvalid:  # a type that Arrow has not, such as Int128
            columns = {c: _arrow_column(X[c].to_list(), c) for c in X.columns}
    elif hasattr(X, "collect"):
        raise InputError(f"{name} is a {type(X).__name__}, which holds no rows yet; pass {name}.collect()")
    else:
        names = [_unicode(c) for c in X.columns]
        refuse_repeated(names, name)
        columns = {c: _arrow_column(X.iloc[:, j], c) for j, c in enumerate(names)}
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise InputError(f"{name} has columns of {listing(sorted(lengths))} rows; give every column as many")
    return pa.table(columns)


def n_rows(X: Any) -> int:
    """Rows of a table, array, sparse matrix or list."""
    if isinstance(X, Mapping):
        return len(next(iter(X.values()), ()))
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def take_rows(X: Any, rows: NDArray) -> Any:
    """Those rows of a table, array or sparse matrix; `rows` are numbers or a mask (n,)."""
    if not is_table(X):
        return X[rows]
    places = np.flatnonzero(rows) if rows.dtype == bool else rows
    return as_table(X).take(places)


def _arrow_column(values: Any, name: Any) -> Any:
    """One column; text of every value where Arrow finds no one type for them."""
    import pyarrow as pa

    if isinstance(values, str) or not hasattr(values, "__len__"):
        raise InputError(f"column {name!r} is {values!r:.50}, where a list of values is expected; give one a row")
    try:
        if isinstance(values, np.ndarray) and values.dtype.kind in "UOT":
            values = values.tolist()
        return _plain(pa.array(values, from_pandas=True), values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, UnicodeError):
        if all(isinstance(v, int | float) or v is None for v in values):  # whole numbers beyond 64 bits
            return pa.array([None if _is_gap(v) else _as_float(v) for v in values], pa.float64())
        return pa.array([None if _is_gap(v) else _unicode(v) for v in values], pa.large_string())


def _plain(column: Any, values: Any) -> Any:
    """The column, spans of time as seconds; periods and intervals, which are pandas' own, as text."""
    import pyarrow as pa
    import pyarrow.types as kinds

    if kinds.is_duration(column.type):
        return pa.array([None if v is None else v.total_seconds() for v in column.to_pylist()], pa.float64())
    held = column.type.value_type if kinds.is_dictionary(column.type) else column.type
    odd = isinstance(held, pa.BaseExtensionType) or (held is not column.type and kinds.is_nested(held))
    if odd and hasattr(values, "isna"):
        gaps = values.isna()
        return pa.array([None if gap else str(v) for v, gap in zip(values, gaps)], pa.large_string())
    return column


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf


def _unicode(value: Any) -> str:
    """The value as text that can be written."""
    text = str(value)
    if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        raise InputError(f"the text {text!r:.50} holds half of a character (a lone surrogate); read it as UTF-8 again")
    return text


def _is_gap(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value)
