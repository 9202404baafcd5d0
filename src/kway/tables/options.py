"""ReadOptions: how a table is to be read, checked when it is made. TextForm: how a table of text is written.

Errors name an option as Python does (`skip_bad`); the command adds its own spelling.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from kway.errors import UsageError
from kway.options import option, split_names
from kway.suggest import listing, nearest

ALL = ("all",)  # as `keep`: every column
DAY_FIRST, MONTH_FIRST = "day-first", "month-first"
USED = ("number", "true/false", "date", "category", "text", "vector")  # kinds of columns that become features
KINDS = (*USED, DAY_FIRST, MONTH_FIRST, "drop")  # what `types` may say
_SEPARATORS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " ", "pipe": "|"}  # by name


@dataclass(frozen=True)
class TextForm:
    """Separator, encoding and decimal mark of a table of text, and whether its first row names the columns.

    None means not known.
    """

    sep: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    header: bool | None = None


OPEN = TextForm()  # nothing is known


def _split_types(text: str | None) -> dict[str, str]:
    """Kinds of columns as they are typed: COL=KIND, with commas between."""
    found = {}
    for pair in split_names(text):
        column, equals, kind = pair.rpartition("=")
        if not equals or not column:
            raise UsageError(f"types has {pair!r}; write COLUMN=KIND, with commas between")
        found[column] = kind
    return found


@dataclass(frozen=True)
class ReadOptions:
    """How a table is to be read. What is not set is found out from the table.

    Parameters
    ----------
    target : column of the labels.
    group, order, id : columns that are no features: rows that belong together, time, names of rows.
    drop : columns to leave out.
    skip_bad : leave out images and lines of a csv that cannot be read, and rows without a label.
    types : kind per column, such as {"zip": "category", "when": "month-first"}.
    sep, decimal, encoding, header : how a text file is written: separator (one character or its name), decimal mark
        ("." or ","), encoding, and whether the first row names the columns.
    keep : columns to return as they were read; ALL for every column.
    numbers : return the plain numbers among the kept columns of a csv as numbers.
    answer : the target of rows to predict: no feature, and it may have gaps.
    usual : the target was named by a model, not by a person.
    """

    target: str | None = option(None, "Column with the labels.", flags=("--target", "-t"), metavar="COL")
    group: str | None = option(None, "Column whose groups are never split.", metavar="COL", commands=("fit", "compare"))
    order: str | None = option(
        None, "Time column: the last rows are the test set.", metavar="COL", commands=("fit", "compare")
    )
    drop: tuple[str, ...] = option((), "Columns to leave out.", metavar="COLS", parse=split_names)
    skip_bad: bool = option(False, "Leave out what cannot be read, and rows without a label.", typed=bool)
    types: Mapping[str, str] = option(
        None,
        "What columns are: number, category, text, date, day-first, month-first, true/false, vector or drop.",
        metavar="COL=KIND,...",
        parse=_split_types,
    )
    id: str | None = option(None, "Column that names the rows: no feature.", metavar="COL")
    sep: str | None = option(None, "Column separator, , ; | or tab; default: detected.")
    decimal: str | None = option(None, "Decimal mark, . or , ; default: detected.")
    encoding: str | None = option(None, "utf-8, latin-1, utf-16, ...; default: detected.")
    header: bool | None = option(
        None,
        "Whether the first row names the columns; default: detected.",
        typed=bool | None,
        flags=("--header/--no-header",),
    )
    keep: tuple[str, ...] = option(
        (),
        "Columns of DATA to write beside the predictions, or all.",
        metavar="COLS",
        parse=split_names,
        commands=("predict",),
    )
    numbers: bool = False
    answer: str | None = None
    usual: bool = False

    def __post_init__(self) -> None:
        for name in ("target", "group", "order", "id", "sep", "decimal", "encoding"):
            if not isinstance(getattr(self, name), str | None):
                raise UsageError(f"{name} is {getattr(self, name)!r:.60}; give text")
        for name in ("header", "skip_bad"):
            if not isinstance(getattr(self, name), bool | None):
                raise UsageError(f"{name} is {getattr(self, name)!r:.60}; it may be True or False")
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
        others = {"group": (self.group,), "order": (self.order,), "id": (self.id,), "drop": self.drop}
        for name, columns in others.items():
            if self.target is not None and self.target in columns:
                raise UsageError(f"target and {name} are both {self.target!r}; name another column in one of them")

    @property
    def form(self) -> TextForm:
        """How the text is written, as far as the options say."""
        return TextForm(self.sep, self.encoding, self.decimal, self.header)

    def in_form(self, form: TextForm) -> ReadOptions:
        """The same options for text that is written in this form."""
        return replace(self, **asdict(form))

    def without_labels(self) -> ReadOptions:
        """The same options for rows to predict."""
        return replace(self, target=None, answer=self.target)

    @property
    def kinds(self) -> dict[str, str]:
        """`types` in the words of Features."""
        return {c: "date" if t in (DAY_FIRST, MONTH_FIRST) else t for c, t in self.types.items()}


def _checked_sep(sep: str | None) -> str | None:
    sep = None if sep is None else _SEPARATORS.get(sep.lower(), sep)
    if sep is not None and (len(sep) != 1 or not sep.isascii() or sep in '\r\n"'):
        raise UsageError(f"sep is {sep!r}; it must be one character, such as , ; | or tab")
    return sep


def _checked_decimal(decimal: str | None) -> str | None:
    if decimal not in (None, ".", ","):
        raise UsageError(f"decimal is {decimal!r}; it may be . or ,")
    return decimal


def _checked_encoding(encoding: str | None) -> str | None:
    try:
        return None if encoding is None else codecs.lookup(encoding).name
    except LookupError as error:
        raise UsageError(f"encoding {encoding!r} is not known; such as utf-8, latin-1, cp1252, utf-16") from error


def _checked_types(types: Any) -> dict[str, str]:
    if types is not None and not isinstance(types, Mapping):
        raise UsageError(f"types is {types!r:.60}; give a kind for each column, such as {{'zip': 'category'}}")
    for column, kind in (types or {}).items():
        if kind not in KINDS:
            close = nearest(str(kind), KINDS)
            raise UsageError(f"types says {kind!r} of {column!r}{close}; it may say {listing(KINDS)}")
    return dict(types or {})
