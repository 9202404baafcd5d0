"""How each column of a table was read: its kind, an example value, and the features that it became."""

from __future__ import annotations

from typing import Any, NamedTuple

from kway.auto.train_test import TrainTest
from kway.tables.features.features import Features
from kway.tables.sources.frames import plain_floats, whole_column
from kway.text_tables import one_line


class ColumnSummary(NamedTuple):
    """One column of DATA."""

    column: str
    kind: str
    example: str
    note: str  # how its values are written, if not as plain numbers or ISO dates
    done: str  # what it became
    missing: float  # share of the training rows
    levels: int | None  # of a category
    used: bool

    @property
    def is_surprising(self) -> bool:
        """Whether the user should check the column: it is not used, or its values needed a special rule."""
        return bool(self.note) or not self.used

    @property
    def treatment(self) -> str:
        """How the column was read, and what it became."""
        return f"{self.note}; {self.done}" if self.note else self.done


def summarize_columns(features: Features, data: TrainTest, example_length: int = 30) -> list[ColumnSummary]:
    """Return one summary per column of a table, or a single one for all columns of a matrix."""
    formats = {form.column: form for form in data.written}
    in_table = set(getattr(data.rows, "column_names", ()))  # once: pyarrow makes a new list for every access
    summaries = []
    for record in features.explain():
        name = record["column"]
        form = formats.get(name)
        example = form.example if form else _example(data.rows.column(name)) if name in in_table else ""
        summaries.append(
            ColumnSummary(
                column=name,
                kind=record["kind"],
                example=one_line(example, example_length),
                note=form.note.replace("'COL'", repr(name)) if form else "",
                done=record["done"].replace("'COL'", repr(name)),
                missing=record["missing"],
                levels=record["levels"],
                used=record["used"],
            )
        )
    return summaries


def _example(column: Any) -> str:
    """Return the first value of a column that is not missing."""
    values = plain_floats(whole_column(column).drop_null()[:100])
    return next((v for v in map(str, values.to_pylist()) if v.strip()), "")
