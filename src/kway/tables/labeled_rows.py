"""LabeledRows: rows as they were read, with their labels. RowRequirements: what a model needs from rows.

`number_rows` turns a table into a matrix (n, d) for models without Features. The matrix is float32 if that represents
every value exactly, else float64. Missing values are NaN. A column that is not numeric raises InputError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow.compute as pc
import pyarrow.types as kinds
from numpy.typing import NDArray

from kway.errors import InputError
from kway.suggest import listing
from kway.tables.read_options import UNKNOWN_FORM, TextForm
from kway.tables.sources.frames import is_numeric, is_table, n_rows, number_kinds, take_rows, text_columns
from kway.tables.sources.images import ImageForm
from kway.tables.sources.labels import UnlabeledError
from kway.tables.sources.values import NO_EARLIER_ROWS, ColumnFormat, EarlierRows


class RowRequirements(NamedTuple):
    """What rows must have to be used with a model, or together with other rows.

    Parameters
    ----------
    columns : tuple of str or None
        The columns of a table to read; None for all.
    text_columns : tuple of str
        Columns that are read as text.
    image : ImageForm or None
        The form to which images are resized; None if it is chosen from the images.
    n_features : int or None
        The number of columns of a matrix.
    text_labels : bool
        Whether labels are text even if all of them look like numbers.
    earlier : EarlierRows
        Formats and kinds of columns in the training rows.
    form : TextForm
        The form of the training file.
    id : str or None
        The column with the names of the rows.
    number_classes : tuple
        The classes of a model if they are numbers; labels must then be numbers, too.
    """

    columns: tuple[str, ...] | None = None
    text_columns: tuple[str, ...] = ()
    image: ImageForm | None = None
    n_features: int | None = None
    text_labels: bool = False
    earlier: EarlierRows = NO_EARLIER_ROWS
    form: TextForm = UNKNOWN_FORM
    id: str | None = None
    number_classes: tuple[Any, ...] = ()


def joined_requirements(required: Sequence[RowRequirements]) -> RowRequirements:
    """Return the requirements of several models at once."""
    first = required[0]
    if first.columns is None:
        return first
    columns = dict.fromkeys(column for each in required for column in each.columns or ())
    text_columns = dict.fromkeys(column for each in required for column in each.text_columns)
    formats = {column: form for each in required for column, form in each.earlier.formats.items()}
    earlier = first.earlier._replace(formats=formats)
    return first._replace(columns=tuple(columns), text_columns=tuple(text_columns), earlier=earlier)


@dataclass(frozen=True, eq=False)
class LabeledRows:
    """Rows as they were read, with labels and a test part.

    Parameters
    ----------
    name : str
        The name of the source in messages.
    rows : pyarrow.Table or matrix of shape (n, d)
        The rows.
    y : ndarray of shape (n,) or None
        The labels.
    test_rows, test_y : table or matrix, ndarray, or None
        The rows and labels of the test part.
    groups, order : ndarray of shape (n,) or None
        Values of the group and order columns.
    weights, test_weights : ndarray of shape (n,), or None
        Weights of the rows and of the rows of the test part.
    feature_names : tuple of str
        Names of the columns of a matrix; a table has its own.
    image : ImageForm or None
        The form of the images.
    files : tuple of str
        File names of the images.
    notes : tuple of str
        Notes for the user on how the rows were read.
    left_out : tuple of str
        Notes on what was not used, such as bad lines.
    form : TextForm
        The form of the text file.
    written : tuple of ColumnFormat
        The formats of converted columns.
    kept_columns : mapping of str to pyarrow column or ndarray
        Columns to return with the predictions, such as the id.
    test_kept_columns : mapping of str to pyarrow column or ndarray
        The same columns of the test rows.
    positions, test_positions : ndarray of shape (n,), or None
        Positions of the rows and of the test rows in the source; None if these are 0, 1, 2, ...
    skipped : tuple of str
        Files that could not be read and were left out (skip_bad).
    """

    name: str
    rows: Any
    y: Any = None
    test_rows: Any = None
    test_y: Any = None
    groups: NDArray | None = None
    order: NDArray | None = None
    weights: NDArray | None = None
    test_weights: NDArray | None = None
    feature_names: tuple[str, ...] = ()
    image: ImageForm | None = None
    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    form: TextForm = UNKNOWN_FORM
    written: tuple[ColumnFormat, ...] = ()
    kept_columns: Mapping[str, Any] = field(default_factory=dict)
    test_kept_columns: Mapping[str, Any] = field(default_factory=dict)
    positions: NDArray[np.int64] | None = None
    test_positions: NDArray[np.int64] | None = None
    skipped: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """Number of rows, without the test part."""
        return n_rows(self.rows)

    def at(self, rows: NDArray) -> Self:
        """Select rows, by position or by a mask (n,); the test part stays as it is."""
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows
        arrays = {name: getattr(self, name) for name in ("y", "groups", "order", "weights")}
        selected: dict[str, Any] = {name: array[rows] for name, array in arrays.items() if array is not None}
        selected["positions"] = rows if self.positions is None else self.positions[rows]
        selected["kept_columns"] = {name: column.take(rows) for name, column in self.kept_columns.items()}
        return replace(self, rows=take_rows(self.rows, rows), **selected)

    def required_labels(self) -> NDArray:
        """Return the labels; raise UnlabeledError if there are none."""
        if self.y is None and self.image is not None and self.files:
            raise UnlabeledError(f"{self.name} has images without labels; give a folder with one sub-folder per class")
        if self.y is None:
            columns = getattr(self.rows, "column_names", None) or self.feature_names
            known = f"; its columns are {listing(columns)}" if columns else ""
            raise UnlabeledError(f"{self.name} has no labels; name the column with the labels: target={known}")
        return np.asarray(self.y)

    def requirements(self) -> RowRequirements:
        """Return what another file must have to be used together with this one."""
        text_labels = self.y is not None and self.y.dtype.kind in "UO"
        if not hasattr(self.rows, "column_names"):
            return RowRequirements(None, (), self.image, self.rows.shape[1], text_labels)
        columns = tuple(self.rows.column_names)
        earlier = EarlierRows({w.column: w.how for w in self.written}, number_kinds(self.rows))
        return RowRequirements(columns, text_columns(self.rows), self.image, None, text_labels, earlier, self.form)


# ---- as matrices of numbers


def number_rows(data: LabeledRows, columns: Sequence[str] | None = None) -> LabeledRows:
    """Return the rows and test rows as matrices; `columns` selects and orders columns by name."""
    if is_table(data.rows):
        names = tuple(data.rows.column_names if columns is None else columns)
        test = None if data.test_rows is None else matrix_of(data.test_rows, names, data.name)
        return replace(data, rows=matrix_of(data.rows, names, data.name), test_rows=test, feature_names=names)
    if not columns or not data.feature_names or tuple(columns) == data.feature_names:
        return data
    missing = [c for c in columns if c not in data.feature_names]
    if missing:
        raise InputError(f"{data.name} has no feature {listing(missing)}; it has {listing(data.feature_names)}")
    positions = [data.feature_names.index(c) for c in columns]
    test = None if data.test_rows is None else data.test_rows[:, positions]
    return replace(data, rows=data.rows[:, positions], test_rows=test, feature_names=tuple(columns))


def matrix_of(table: Any, names: Sequence[str], name: str) -> NDArray:
    """Return columns of a table as a matrix (n, d); `name` is the name of the table in the error message."""
    columns = [table.column(c) for c in names]
    not_numeric = [c for c, column in zip(names, columns) if not is_numeric(column.type)]
    if not_numeric:
        raise InputError(
            f"{name} has columns that are not numeric: {listing(not_numeric)}; encode them as numbers or drop them"
        )
    dtype = np.float32 if all(map(_exact_in_float32, columns)) else np.float64
    matrix = np.empty((table.num_rows, len(columns)), dtype)
    for j, column in enumerate(columns):
        matrix[:, j] = column.cast("float64").to_numpy()
    return matrix


def _exact_in_float32(column: Any) -> bool:
    if kinds.is_integer(column.type):
        bounds = pc.min_max(column).as_py()  # None if every value is missing
        return (bounds["min"] or 0) >= -(2**24) and (bounds["max"] or 0) <= 2**24
    return kinds.is_boolean(column.type) or kinds.is_null(column.type) or str(column.type) in ("float", "halffloat")
