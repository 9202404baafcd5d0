"""ReadOptions: the options of the user for reading a table. TextForm: the form of a text file.

Errors name an option as in Python (`skip_bad`). The command line replaces these names by its own (`--skip-bad`).
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from kway.declared_options import option, split_names
from kway.errors import UsageError
from kway.suggest import listing, nearest

ALL = ("all",)  # value of `keep` for every column
DAY_FIRST, MONTH_FIRST = "day-first", "month-first"
USED = ("number", "true/false", "date", "category", "text", "vector")  # kinds of columns that become features
KINDS = (*USED, DAY_FIRST, MONTH_FIRST, "drop")  # values of `types`
_TEXT_OPTIONS = (
    "target", "group", "order", "weight", "id", "sep", "decimal", "encoding", "table", "hierarchy", "multilabel",
)  # fmt: skip
_SEPARATORS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " ", "pipe": "|"}  # by name


@dataclass(frozen=True)
class TextForm:
    """The form of a text file. None means unknown.

    Parameters
    ----------
    sep, encoding, decimal : str or None
        Separator of the columns, encoding, and decimal mark.
    header : bool or None
        Whether the first row names the columns.
    skip_rows : int or None
        Number of lines above the table.
    table : str or None
        The sheet or table to read, of a file that has several.
    """

    sep: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    header: bool | None = None
    skip_rows: int | None = None
    table: str | None = None


UNKNOWN_FORM = TextForm()


def _split_types(text: str | None) -> dict[str, str]:
    """Parse types of columns from the command line: COL=TYPE, separated by commas."""
    types = {}
    for pair in split_names(text):
        column, equals, kind = pair.rpartition("=")
        if not equals or not column:
            raise UsageError(f"types contains {pair!r}; write COLUMN=TYPE, separated by commas")
        types[column] = kind
    return types


@dataclass(frozen=True)
class ReadOptions:
    """How to read a table. Options that are not set are detected from the table.

    Parameters
    ----------
    target : str, optional
        Column with the labels.
    group : str, optional
        Column whose groups are never split between training and test rows.
    order : str, optional
        Time column: the last rows become the test set.
    weight : str, optional
        Column with the weights of the rows, numbers of 0 or more. It is not a feature.
    drop : tuple of str, default=()
        Columns to leave out.
    skip_bad : bool, default=False
        Leave out images and csv lines that cannot be read, and rows without a label if labels are needed. Cells that
        are not of the type of their column become missing values.
    types : mapping of str to str, optional
        Kind per column, such as {"zip": "category", "when": "month-first"}.
    id : str, optional
        Column with the names of the rows. It is not a feature.
    sep : str, optional
        Separator of a text file: one character or its name ("tab").
    decimal : {".", ","}, optional
        Decimal mark of a text file.
    encoding : str, optional
        Encoding of a text file.
    header : bool, optional
        Whether the first row of a text file names the columns.
    skip_rows : int, optional
        Number of lines above the table, such as a title.
    table : str, optional
        Sheet of a workbook, or table of a database.
    join_labels : bool, default=False
        Join labels that differ only in case or blanks.
    hierarchy : str, optional
        Separator of the levels of labels that are paths, such as "/" for animal/dog.
    multilabel : str, optional
        Separator of several labels in one cell, such as ";" for a;b.
    keep : tuple of str, default=()
        Columns to return as they were read; ALL for every column.
    numbers : bool, default=False
        Return kept columns of a csv as numbers if all their values are plain numbers.
    unused_target : str, optional
        The target column of rows to predict. It is not a feature and may have missing values.
    target_from_model : bool, default=False
        Whether the model gave the name of the target, and not the user.
    """

    target: str | None = option(
        None,
        "Column that contains the labels. Required for tables; datasets, image folders and array files already contain "
        "their labels.",
        flags=("--target", "-t"),
        metavar="COL",
    )
    group: str | None = option(
        None,
        "Column that groups the rows, such as a patient ID. Rows of the same group are never split between training "
        "and test.",
        metavar="COL",
        commands=("fit", "compare", "inspect"),
    )
    order: str | None = option(
        None,
        "Time column: the model is trained on earlier rows and tested on later ones.",
        metavar="COL",
        commands=("fit", "compare", "inspect"),
    )
    weight: str | None = option(
        None,
        "Column with a weight of 0 or more for each row. Models learn with the weights, and all scores are weighted "
        "means.",
        metavar="COL",
        commands=("fit", "compare"),
    )
    drop: tuple[str, ...] = option((), "Columns to leave out, separated by commas.", metavar="COLS", parse=split_names)
    skip_bad: bool = option(
        False,
        "Leave out images, lines and rows that cannot be used, and read cells of the wrong type as missing values.",
        typed=bool,
    )
    types: Mapping[str, str] = option(
        None,
        "Types of columns, such as zip=category,when=day-first. A type is number, category, text, true/false, date, "
        "day-first or month-first (dates such as 1/2/2024), vector (a list of numbers) or drop.",
        metavar="COL=TYPE,...",
        parse=_split_types,
    )
    id: str | None = option(None, "Column that identifies each row. It is not used as a feature.", metavar="COL")
    sep: str | None = option(
        None, "Column separator: a comma, a semicolon, | or tab. By default, detected.", metavar="CHAR"
    )
    decimal: str | None = option(None, "Decimal mark: a point or a comma. By default, detected.", metavar="CHAR")
    encoding: str | None = option(
        None, "Encoding, such as utf-8, latin-1 or utf-16. By default, detected.", metavar="NAME"
    )
    header: bool | None = option(
        None,
        "Whether the first row contains the names of the columns. By default, detected.",
        typed=bool | None,
        flags=("--header/--no-header",),
    )
    skip_rows: int | None = option(
        None, "Number of lines above the table to skip, such as a title. By default, 0.", typed=int | None, metavar="N"
    )
    table: str | None = option(
        None, "Sheet of an Excel file, or table of a SQLite file, if it has several.", metavar="NAME"
    )
    join_labels: bool = option(
        False,
        "Treat labels that differ only in case or whitespace, such as Yes and yes, as the same label.",
        typed=bool,
        commands=("fit", "compare", "evaluate", "inspect"),
    )
    hierarchy: str | None = option(
        None,
        "Read labels as paths with this separator, such as / for animal/dog. Accuracy is then reported per level, and "
        "--sets predicts nodes of the hierarchy.",
        metavar="SEP",
        commands=("fit",),
    )
    multilabel: str | None = option(
        None,
        "Each row may have several labels, separated by this character, such as ; for a;b.",
        metavar="SEP",
        commands=("fit",),
    )
    keep: tuple[str, ...] = option(
        (),
        "Columns of DATA to include in the output, separated by commas, or 'all' for every column.",
        metavar="COLS",
        parse=split_names,
        commands=("predict",),
    )
    numbers: bool = False
    unused_target: str | None = None
    target_from_model: bool = False

    def __post_init__(self) -> None:
        for name in _TEXT_OPTIONS:
            if not isinstance(getattr(self, name), str | None):
                raise UsageError(f"{name} is {getattr(self, name)!r:.60}; it must be text")
        for name in ("hierarchy", "multilabel"):
            if getattr(self, name) == "":
                raise UsageError(f"{name} is empty; it must be a separator, such as / or ;")
        if self.hierarchy is not None and self.multilabel is not None:
            raise UsageError("hierarchy= and multilabel= were both given; a label is a path or a list, so pass one")
        if self.skip_rows is not None and (not isinstance(self.skip_rows, int) or self.skip_rows < 0):
            raise UsageError(f"skip_rows is {self.skip_rows!r:.60}; it must be a whole number of 0 or more")
        for name in ("header", "skip_bad", "join_labels"):
            if not isinstance(getattr(self, name), bool | None):
                raise UsageError(f"{name} is {getattr(self, name)!r:.60}; it must be True or False")
        checked = {
            "drop": (self.drop,) if isinstance(self.drop, str) else tuple(self.drop),
            "skip_bad": bool(self.skip_bad),
            "types": _checked_types(self.types),
            "sep": _checked_sep(self.sep),
            "decimal": _checked_decimal(self.decimal),
            "encoding": _checked_encoding(self.encoding),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        others = {name: (getattr(self, name),) for name in ("group", "order", "weight", "id")} | {"drop": self.drop}
        for name, columns in others.items():
            if self.target is not None and self.target in columns:
                raise UsageError(f"target and {name} are both {self.target!r}; name another column in one of them")

    @property
    def form(self) -> TextForm:
        """The form of the text; None for what the options do not state."""
        return TextForm(self.sep, self.encoding, self.decimal, self.header, self.skip_rows, self.table)

    def in_form(self, form: TextForm) -> ReadOptions:
        """Return the options for text in this form."""
        return replace(self, **asdict(form))

    def without_labels(self) -> ReadOptions:
        """Return the options for rows to predict."""
        return replace(self, target=None, unused_target=self.target)

    @property
    def kinds(self) -> dict[str, str]:
        """`types` as values of the parameter `kinds` of Features."""
        return {c: "date" if t in (DAY_FIRST, MONTH_FIRST) else t for c, t in self.types.items()}


def _checked_sep(sep: str | None) -> str | None:
    sep = None if sep is None else _SEPARATORS.get(sep.lower(), sep)
    if sep is not None and (len(sep) != 1 or not sep.isascii() or sep in '\r\n"'):
        raise UsageError(f"sep is {sep!r}; it must be one character, such as , ; | or tab")
    return sep


def _checked_decimal(decimal: str | None) -> str | None:
    if decimal not in (None, ".", ","):
        raise UsageError(f"decimal is {decimal!r}; it must be . or ,")
    return decimal


def _checked_encoding(encoding: str | None) -> str | None:
    try:
        return None if encoding is None else codecs.lookup(encoding).name
    except LookupError as error:
        raise UsageError(
            f"encoding is {encoding!r}, which is not known; give utf-8, latin-1, cp1252 or utf-16, for example"
        ) from error


def _checked_types(types: Any) -> dict[str, str]:
    if types is not None and not isinstance(types, Mapping):
        raise UsageError(f"types is {types!r:.60}; it must map columns to kinds, such as {{'zip': 'category'}}")
    for column, kind in (types or {}).items():
        if kind not in KINDS:
            close = nearest(str(kind), KINDS)
            raise UsageError(f"types is {kind!r} for column {column!r}{close}; it must be {listing(KINDS)}")
    return dict(types or {})
