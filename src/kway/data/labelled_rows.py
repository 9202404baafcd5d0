"""What the reader is asked for and what it gives: ReadOptions in, LabelledRows out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.data.sources.arrow_types import text_columns
from kway.data.sources.dates import DAY_FIRST, MONTH_FIRST
from kway.data.sources.frames import n_rows
from kway.data.sources.images import ImageForm
from kway.data.sources.requirements import RowRequirements
from kway.data.sources.text_form import OPEN, TextForm
from kway.data.sources.written_values import Written
from kway.data.suggest import listing
from kway.errors import InputError, UsageError

ALL = ("all",)  # of the columns to keep


@dataclass(frozen=True)
class ReadOptions:
    """How DATA is to be read: `target`, `group`, `order`, `id` and `drop` name columns that are no features.

    `skip_bad` leaves out images and lines of a csv that cannot be read, and rows without a label. `form` is how text is
    written; `types` says what columns are (number, category, date, day-first, month-first, text, ...). `keep` names
    columns to give back as they came (ALL: every one), beside the id; `numbers`: those of a csv that are plain numbers
    as numbers. `answer` is the target of rows to predict: no feature, and it may have gaps. `usual`: nobody named the
    target, a model did.
    """

    target: str | None = None
    group: str | None = None
    order: str | None = None
    drop: tuple[str, ...] = ()
    skip_bad: bool = False
    form: TextForm = OPEN
    types: Mapping[str, str] = field(default_factory=dict)
    id: str | None = None
    keep: tuple[str, ...] = ()
    numbers: bool = False
    answer: str | None = None
    usual: bool = False

    def __post_init__(self) -> None:
        """Refuse a target that is to be something else as well."""
        others = {"--group": (self.group,), "--order": (self.order,), "--id": (self.id,), "--drop": self.drop}
        for option, columns in others.items():
            if self.target is not None and self.target in columns:
                raise UsageError(f"{self.target!r} is both --target and {option}; name another column in one of them")

    def without_labels(self) -> ReadOptions:
        """The same for rows to predict."""
        return replace(self, target=None, answer=self.target)

    @property
    def kinds(self) -> dict[str, str]:
        """`types` in the words of Features."""
        return {c: "date" if t in (DAY_FIRST, MONTH_FIRST) else t for c, t in self.types.items()}


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows with labels y (n,), groups and order (n,), each None where there is none; the test part likewise.

    `feature_names` are those of a matrix, where it has any (a table has its own); `image` is the form of pictures and
    `files` their names; `notes` say what was found on the way, in words. `form` and `written` tell how text was
    written, `words` a word of each column as it stands there. `beside` are the columns to give back with the answers
    (of the test rows, where there are some), `skipped` files that could not be read and were left out, as ReadOptions
    allowed.
    """

    name: str
    rows: Any
    y: NDArray | None = None
    test_rows: Any = None
    test_y: NDArray | None = None
    groups: NDArray | None = None
    order: NDArray | None = None
    feature_names: tuple[str, ...] = ()
    image: ImageForm | None = None
    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    form: TextForm = OPEN
    written: tuple[Written, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)
    beside: Mapping[str, Any] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """Rows, the test part left out."""
        return n_rows(self.rows)

    def required_labels(self) -> NDArray:
        """The labels, or an error that says how to name their column."""
        if self.y is None and self.image is not None and self.files:
            raise InputError(f"{self.name} has images without labels; give a folder with a sub-folder for each class")
        if self.y is None:
            columns = getattr(self.rows, "column_names", None) or self.feature_names
            known = f"; its columns are {listing(columns)}" if columns else ""
            raise InputError(f"{self.name} has no labels; name the column that holds them with --target{known}")
        return np.asarray(self.y)

    def requirements(self) -> RowRequirements:
        """What another file must bring to be used beside this one."""
        text_labels = self.y is not None and self.y.dtype.kind in "UO"
        if not hasattr(self.rows, "column_names"):
            return RowRequirements(None, (), self.image, self.rows.shape[1], text_labels)
        columns = tuple(self.rows.column_names)
        how = {w.column: w.how for w in self.written}
        return RowRequirements(columns, text_columns(self.rows), self.image, None, text_labels, how, self.form)
