"""Rows that were read as a matrix of numbers (n, d), for models that have no features of their own.

Columns of a table become columns of the matrix in their order, or in the order in which they are named; a column that
is not numbers is an error that names it. float32 where it holds every value exactly, float64 otherwise; a gap is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.data.reading import LabelledRows
from kway.data.sources.arrow_types import is_number
from kway.data.sources.frames import is_table
from kway.data.suggest import listing
from kway.errors import InputError


def number_rows(found: LabelledRows, columns: Sequence[str] | None = None) -> LabelledRows:
    """The same with rows and test rows as matrices; `columns` by name, where both sides have names."""
    if is_table(found.rows):
        names = tuple(found.rows.column_names if columns is None else columns)
        test = None if found.test_rows is None else matrix_of(found.test_rows, names, found.name)
        return replace(found, rows=matrix_of(found.rows, names, found.name), test_rows=test, feature_names=names)
    if not columns or not found.feature_names or tuple(columns) == found.feature_names:
        return found
    missing = [c for c in columns if c not in found.feature_names]
    if missing:
        raise InputError(f"{found.name} has no feature {listing(missing)}; it has {listing(found.feature_names)}")
    place = [found.feature_names.index(c) for c in columns]
    test = None if found.test_rows is None else found.test_rows[:, place]
    return replace(found, rows=found.rows[:, place], test_rows=test, feature_names=tuple(columns))


def matrix_of(table: Any, names: Sequence[str], name: str) -> NDArray:
    """Columns of a table as a matrix (n, d); `name` is whose they are, in the error about one that is not numbers."""
    columns = [table.column(c) for c in names]
    odd = [c for c, column in zip(names, columns) if not _becomes_number(column.type)]
    if odd:
        raise InputError(
            f"{name} has columns that are not numbers: {listing(odd)}; encode them as numbers or drop them"
        )
    narrow = all(map(_exact_in_float32, columns))
    matrix = np.empty((table.num_rows, len(columns)), np.float32 if narrow else np.float64)
    for j, column in enumerate(columns):
        matrix[:, j] = column.cast("float64").to_numpy()
    return matrix


def _becomes_number(kind: Any) -> bool:
    import pyarrow.types as kinds

    return is_number(kind) or kinds.is_boolean(kind) or kinds.is_null(kind)


def _exact_in_float32(column: Any) -> bool:
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    if kinds.is_integer(column.type):
        ends = pc.min_max(column).as_py()
        return (ends["min"] or 0) >= -(2**24) and (ends["max"] or 0) <= 2**24
    return kinds.is_boolean(column.type) or kinds.is_null(column.type) or str(column.type) in ("float", "halffloat")
