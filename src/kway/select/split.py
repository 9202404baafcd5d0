"""DATA read and cut once: rows to learn from, and rows that nothing looks at until the end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.data.labels import encode
from kway.data.sources.frames import n_rows, take
from kway.data.sources.images import Form
from kway.data.sources.labelled import Raw, check_known, check_labels, read_raw
from kway.data.suggest import listing
from kway.errors import InputError
from kway.select.folds import split_test


@dataclass(frozen=True, eq=False)
class Parts:
    """Training rows with labels y, groups and order (n,), and test rows with theirs; `files` name images, by part."""

    name: str
    rows: Any
    y: NDArray
    test_rows: Any
    test_y: NDArray
    groups: NDArray | None
    order: NDArray | None
    image: Form | None
    notes: tuple[str, ...]
    how: str  # where the test rows come from

    @property
    def n(self) -> int:
        """Training rows."""
        return n_rows(self.rows)


def read_parts(
    data: str,
    target: str | None = None,
    test: str | None = None,
    group: str | None = None,
    order: str | None = None,
    seed: int = 0,
    skip_bad: bool = False,
) -> Parts:
    """DATA with its test part: the file `test`, the set's own, or a fifth of the rows put aside."""
    raw = read_raw(data, target, group, order, skip_bad=skip_bad)
    y = labels_of(raw)
    notes = (
        *raw.notes,
        *check_labels(y, f"target {target!r} of {raw.name}" if target else f"the target of {raw.name}"),
    )
    raw = replace(raw, notes=notes)
    if test is not None:
        other = read_raw(test, target, like=raw.wanted(), skip_bad=skip_bad)
        return _parts(raw, y, other.rows, labels_of(other), f"the rows of {test}")
    if raw.test_rows is not None and raw.test_y is not None:
        return _parts(raw, y, raw.test_rows, raw.test_y, "the set's own test rows")
    return _cut(raw, y, seed)


def labels_of(raw: Raw) -> NDArray:
    """The labels, or an error that says how to name their column."""
    if raw.y is None:
        columns = getattr(raw.rows, "column_names", None)
        known = f"; its columns are {listing(columns)}" if columns else ""
        raise InputError(f"{raw.name} has no labels; name the column that holds them with --target{known}")
    return np.asarray(raw.y)


def _parts(raw: Raw, y: NDArray, test_rows: Any, test_y: NDArray, how: str) -> Parts:
    if (y.dtype.kind in "UO") == (test_y.dtype.kind in "UO"):  # else the scores say what is wrong
        check_known(test_y, y, how)
    return Parts(raw.name, raw.rows, y, test_rows, test_y, raw.groups, raw.order, raw.image, raw.notes, how)


def _cut(raw: Raw, y: NDArray, seed: int) -> Parts:
    train, test = split_test(encode(y).codes, 0.2, raw.groups, raw.order, seed)
    how = "a fifth of the rows, by class"
    if raw.groups is not None:
        how = "about a fifth of the rows, no group in both parts"
    if raw.order is not None:
        how = "the last fifth of the rows in order"
    cut = replace(
        raw,
        rows=take(raw.rows, train),
        groups=None if raw.groups is None else raw.groups[train],
        order=None if raw.order is None else raw.order[train],
    )
    return _parts(cut, y[train], take(raw.rows, test), y[test], how)
