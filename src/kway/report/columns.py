"""How every column was read: what it was taken for, a value of it as it was written, and what it became."""

from __future__ import annotations

from typing import Any, NamedTuple

from kway.auto.train_test import TrainTest
from kway.tables.features.features import Features
from kway.tables.sources.frames import plain_floats, whole_column
from kway.text_tables import one_line

_LONGEST = 30  # letters of an example


class ColumnRead(NamedTuple):
    """One column; `missing` is a share of the training rows, `levels` the count of a category's."""

    column: str
    kind: str
    example: str
    done: str
    missing: float
    levels: int | None
    used: bool


def columns_read(features: Features, data: TrainTest) -> list[ColumnRead]:
    """A record a column, in the order of the table; one for all columns of a matrix."""
    written = {w.column: w for w in data.written}
    found = []
    for record in features.explain():
        name = record["column"]
        own = written.get(name)
        example = data.words.get(name) or (own.example if own else _example(data.rows, name))
        done = f"{own.note}; {record['done']}" if own and own.note else record["done"]
        done = done.replace("'COL'", repr(name))
        found.append(
            ColumnRead(
                name,
                record["kind"],
                one_line(example, _LONGEST),
                done,
                record["missing"],
                record["levels"],
                record["used"],
            )
        )
    return found


def _example(rows: Any, name: str) -> str:
    """The first value that is there, of a table that holds values and no words of a file."""
    if name not in getattr(rows, "column_names", ()):
        return ""
    there = plain_floats(whole_column(rows.column(name)).drop_null()[:100])
    return next((v for v in map(str, there.to_pylist()) if v.strip()), "")
