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
from kway.tables.sources.frames import is_number, is_table, n_rows, number_kinds, take_rows, text_columns
from kway.tables.sources.images import ImageForm
from kway.tables.sources.values import NO_EARLIER_ROWS, ColumnFormat, EarlierRows


class RowRequirements(NamedTuple):
    """What rows must have to be used with a model, or together with other rows.

    columns: columns of a table (None: any); words: columns that are read as text; image: the form of images;
    n_features: width of a matrix; text_labels: labels are text even if all of them look like numbers; before, form: the
    columns and the text of earlier rows; id: the column with the names of the rows.
    """

    columns: tuple[str, ...] | None = None
    words: tuple[str, ...] = ()
    image: ImageForm | None = None
    n_features: int | None = None
    text_labels: bool = False
    before: EarlierRows = NO_EARLIER_ROWS
    form: TextForm = UNKNOWN_FORM
    id: str | None = None


def joined_requirements(required: Sequence[RowRequirements]) -> RowRequirements:
    """Return the requirements of several models at once."""
    first = required[0]
    if first.columns is None:
        return first
    columns = dict.fromkeys(column for each in required for column in each.columns or ())
    words = dict.fromkeys(word for each in required for word in each.words)
    written = {column: how for each in required for column, how in each.before.written.items()}
    before = first.before._replace(written=written)
    return first._replace(columns=tuple(columns), words=tuple(words), before=before)


@dataclass(frozen=True, eq=False)
class LabeledRows:
    """Rows of a table or a matrix with labels y, groups and order (n,), each None if absent, and a test part.

    feature_names: names of the columns of a matrix (a table has its own); image, files: the form of images and their
    file names; notes: how the rows were read; left_out: what was not used, such as bad lines and stray
    words; form, written: how the text and the columns were written; words: one word
    of each column as it is written; kept_columns: columns to return with the predictions (of the test rows if there are
    any); skipped: files that could not be read and were left out (skip_bad).
    """

    name: str
    rows: Any
    y: Any = None
    test_rows: Any = None
    test_y: Any = None
    groups: NDArray | None = None
    order: NDArray | None = None
    feature_names: tuple[str, ...] = ()
    image: ImageForm | None = None
    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    form: TextForm = UNKNOWN_FORM
    written: tuple[ColumnFormat, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)
    kept_columns: Mapping[str, Any] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """Number of rows without the test part."""
        return n_rows(self.rows)

    def at(self, rows: NDArray) -> Self:
        """Return some of the rows without the test part, by position or by a mask (n,)."""
        values = {name: getattr(self, name) for name in ("y", "groups", "order")}
        taken: dict[str, Any] = {name: v[rows] for name, v in values.items() if v is not None}
        return replace(self, rows=take_rows(self.rows, rows), **taken)

    def required_labels(self) -> NDArray:
        """Return the labels; raise InputError if there are none."""
        if self.y is None and self.image is not None and self.files:
            raise InputError(f"{self.name} has images without labels; give a folder with one sub-folder per class")
        if self.y is None:
            columns = getattr(self.rows, "column_names", None) or self.feature_names
            known = f"; its columns are {listing(columns)}" if columns else ""
            raise InputError(f"{self.name} has no labels; name the column with the labels: target={known}")
        return np.asarray(self.y)

    def requirements(self) -> RowRequirements:
        """Return what another file must have to be used together with this one."""
        text_labels = self.y is not None and self.y.dtype.kind in "UO"
        if not hasattr(self.rows, "column_names"):
            return RowRequirements(None, (), self.image, self.rows.shape[1], text_labels)
        columns = tuple(self.rows.column_names)
        before = EarlierRows({w.column: w.how for w in self.written}, number_kinds(self.rows))
        return RowRequirements(columns, text_columns(self.rows), self.image, None, text_labels, before, self.form)


# ---- as matrices of numbers


def number_rows(found: LabeledRows, columns: Sequence[str] | None = None) -> LabeledRows:
    """Return the rows and test rows as matrices; `columns` selects and orders columns by name."""
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
    """Return columns of a table as a matrix (n, d); `name` is the name of the table in the error message."""
    columns = [table.column(c) for c in names]
    odd = [c for c, column in zip(names, columns) if not _becomes_number(column.type)]
    if odd:
        raise InputError(
            f"{name} has columns that are not numeric: {listing(odd)}; encode them as numbers or drop them"
        )
    narrow = all(map(_exact_in_float32, columns))
    matrix = np.empty((table.num_rows, len(columns)), np.float32 if narrow else np.float64)
    for j, column in enumerate(columns):
        matrix[:, j] = column.cast("float64").to_numpy()
    return matrix


def _becomes_number(kind: Any) -> bool:
    return is_number(kind) or kinds.is_boolean(kind) or kinds.is_null(kind)


def _exact_in_float32(column: Any) -> bool:
    if kinds.is_integer(column.type):
        ends = pc.min_max(column).as_py()
        return (ends["min"] or 0) >= -(2**24) and (ends["max"] or 0) <= 2**24
    return kinds.is_boolean(column.type) or kinds.is_null(column.type) or str(column.type) in ("float", "halffloat")
