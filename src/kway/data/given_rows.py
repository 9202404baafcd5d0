"""Rows that are in memory already, read as a file of them would be: a frame with its target, or X with y."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.data.messages import explained
from kway.data.reading import (
    LabelledRows,
    ReadOptions,
    _cut_by_split,
    _feature_columns,
    _sortable,
    picture_form,
    refuse_columns,
)
from kway.data.sources.frames import as_table, is_table
from kway.data.sources.label_column import LEAVE_THEM, column_labels, rows_with_labels, unlabelled_note
from kway.data.sources.requirements import RowRequirements
from kway.data.sources.written_values import convert_frame
from kway.errors import InputError


@dataclass(frozen=True, eq=False)
class GivenRows:
    """A table, or X (n, d), and labels y (n,) where they are no column of it; `str` is what messages call it."""

    rows: Any
    y: Any = None
    name: str = "the table"

    def __str__(self) -> str:
        return self.name

    def labelled_rows(self, how: ReadOptions, like: RowRequirements) -> LabelledRows:
        """As `kway.data.reading.read_rows` gives those of a file."""
        return self._from_table(how, like) if is_table(self.rows) else self._from_matrix(how)

    def _from_table(self, how: ReadOptions, like: RowRequirements) -> LabelledRows:
        table = as_table(self.rows, self.name)
        columns = list(table.column_names)
        refuse_columns(columns, how if like.columns is None else replace(how, drop=(), types={}), self.name)
        if table.num_rows == 0:
            raise InputError(f"{self.name} has no rows; give rows to learn from")
        labels, notes = self._labels(table.num_rows), tuple[str, ...]()
        if how.target is not None:
            if how.skip_bad:
                table, _, left_out = rows_with_labels(table, how.target)
                notes = (unlabelled_note(left_out),) if left_out else ()
            what = f"target {how.target!r} of {self.name}"
            labels = column_labels(table.column(how.target), what, typed=True, advice=LEAVE_THEM)
        features = _feature_columns(columns, how, like, self.name)
        extra = [c for c in (how.group, how.order) if c is not None]
        leave = tuple(w for w in like.words if w not in like.written)
        wanted = table.select(list(dict.fromkeys([*features, *extra])))
        wanted, written = convert_frame(wanted, like.written, how.types, leave, how.form.decimal)
        group, order = (
            None if c is None else _sortable(wanted.column(c), f"{what} {c!r} of {self.name}")
            for what, c in (("group", how.group), ("order", how.order))
        )
        found = LabelledRows(
            self.name, wanted.select(features), labels, groups=group, order=order, written=written, notes=notes
        )
        return _cut_by_split(found)

    def _from_matrix(self, how: ReadOptions) -> LabelledRows:
        named = [name for name in (how.target, how.group, how.order, how.id, *how.drop, *how.types) if name is not None]
        if named:
            raise InputError(
                f"{self.name} has no column {named[0]!r}: it is a matrix; give a table, or the labels as y"
            )
        try:
            rows = self.rows if hasattr(self.rows, "tocsr") else np.asanyarray(self.rows)  # a mask is refused later on
        except ValueError as error:
            raise explained(error, self.rows) from error
        flat = rows.reshape(len(rows), -1) if rows.ndim > 2 else rows
        return LabelledRows(self.name, flat, self._labels(flat.shape[0]), image=picture_form(rows.shape))

    def _labels(self, n: int) -> NDArray | None:
        """y checked as a column of a table is."""
        if self.y is None:
            return None
        shape = getattr(self.y, "shape", None) or np.shape(np.asarray(self.y, dtype=object))
        if len(shape) != 1:
            raise InputError(f"target has the shape {tuple(shape)}; give one label a row, as a list or a 1-D array")
        column = as_table({"y": self.y}).column("y")
        if len(column) != n:
            raise InputError(f"target has {len(column):,} labels for {n:,} rows of {self.name}; give one label a row")
        return column_labels(column, "target", typed=True)
