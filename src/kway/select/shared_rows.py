"""Test rows that are training rows, too: on these a model is not tested but asked what it was told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kway.data.sources.arrow_types import whole_column
from kway.data.sources.frames import is_table, n_rows
from kway.errors import UsageError

_FEW = 0.05  # share of the test rows that may well be alike by chance: answers to a few questions, say


def refuse_same(data: Any, test: Any) -> None:
    """An error where the test is the data itself, by whatever name."""
    ours, theirs = (getattr(given, "rows", given) for given in (data, test))
    named = [given for given in (ours, theirs) if isinstance(given, str)]
    files = [Path(name) for name in named if Path(name).exists()]
    same = files[0].samefile(files[1]) if len(files) == 2 else len(named) == 2 and named[0] == named[1]
    if same or ours is theirs:
        raise UsageError(
            "the rows to test on are the data itself, which tells nothing of new rows; name others, or none: a fifth "
            "of the rows is then put aside"
        )


def shared_note(rows: Any, test_rows: Any) -> Iterator[str]:
    """What is said where many of the test rows were learned from."""
    shared, n = n_shared(rows, test_rows), n_rows(test_rows)
    if shared > _FEW * n:
        yield f"{shared:,} of the {n:,} test rows are training rows, too, so that the test is easier than new rows are"


def n_shared(rows: Any, test_rows: Any) -> int:
    """How many test rows are equal to a training row in every column; 0 where rows are not compared."""
    if is_table(rows):
        return _shared_of_tables(rows, test_rows)
    if hasattr(rows, "tocsr") or rows.dtype != test_rows.dtype:
        return 0
    known = {row.tobytes() for row in np.ascontiguousarray(rows)}
    return sum(row.tobytes() in known for row in np.ascontiguousarray(test_rows))


def _shared_of_tables(rows: Any, test_rows: Any) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc

    def lines(table: Any) -> Any:
        cells = [whole_column(table.column(c)).cast(pa.large_string()).fill_null("") for c in rows.column_names]
        return pc.binary_join_element_wise(*cells, pa.scalar("\x1f", pa.large_string()))

    try:
        return int(pc.sum(pc.is_in(lines(test_rows), value_set=lines(rows))).as_py() or 0)
    except (pa.ArrowException, KeyError):  # vectors and the like
        return 0
