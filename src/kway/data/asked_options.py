"""ReadOptions of what a person asked for, by the names that the command and Python share: checked in one place.

Messages name options as the command does; `in_python` and `said_in_python` turn them into arguments of kway.fit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypedDict

from kway.data.features.column_kinds import USED
from kway.data.labelled_rows import ReadOptions
from kway.data.sources.dates import DAY_FIRST, MONTH_FIRST
from kway.data.sources.text_form import TextForm
from kway.data.suggest import listing, nearest
from kway.errors import InputError, KindError

KINDS = (*USED, DAY_FIRST, MONTH_FIRST, "drop")
_SAID = re.compile(
    r"--(?P<no>no-)?(?P<name>target|group|order|id|drop|types|sep|decimal|encoding|header|skip-bad|embed|also)\b"
    r"(?: (?P<column>[^\s=]+)=(?P<kind>[a-z/-]+)| (?P<mark>[.,;](?= )))?"
)


class Reading(TypedDict, total=False):
    """How a table is to be read; what is left out is told from the table.

    id: the column that names the rows; types: what columns are, by name; sep: between columns; decimal: the mark, . or
    a comma; encoding: of the text; header: whether the first row names the columns; skip_bad: leave out what cannot be
    read.
    """

    id: str | None
    types: Mapping[str, str] | None
    sep: str | None
    decimal: str | None
    encoding: str | None
    header: bool | None
    skip_bad: bool


def options_asked(target: str | None, drop: str | Sequence[str] = (), **given: Any) -> ReadOptions:
    """The options of a target and whatever of Reading, group and order is given; what cannot be meant is an error."""
    known = (*Reading.__annotations__, "group", "order")
    for name in given:
        if name not in known:
            close = nearest(name, known)
            raise KindError(f"there is no option {name!r}{close}; those of reading are target, drop, {listing(known)}")
    for name in ("id", "group", "order", "sep", "decimal", "encoding"):
        if not isinstance(given.get(name), str | None):
            raise InputError(f"--{name} is {given[name]!r:.60}; give text")
    for name in ("header", "skip_bad"):
        if not isinstance(given.get(name), bool | None):
            raise InputError(f"{name} is {given[name]!r:.60}; it may be True or False")
    form = TextForm.asked(*(given.get(name) for name in ("sep", "encoding", "decimal", "header")))
    return ReadOptions(
        target, given.get("group"), given.get("order"), (drop,) if isinstance(drop, str) else tuple(drop),
        bool(given.get("skip_bad")), form, _types(given.get("types")), given.get("id"),
    )  # fmt: skip


def _types(given: Any) -> dict[str, str]:
    if given is not None and not isinstance(given, Mapping):
        raise InputError(f"--types is {given!r:.60}; give a kind for each column, such as {{'zip': 'category'}}")
    for column, kind in (given or {}).items():
        if kind not in KINDS:
            close = nearest(str(kind), KINDS)
            raise InputError(f"--types says {kind!r} of {column!r}{close}; it may say {listing(KINDS)}")
    return dict(given or {})


def in_python(text: str) -> str:
    """Options of the command in a message as arguments: --decimal , becomes decimal=','."""
    return _SAID.sub(_argument, text)


def _argument(found: re.Match[str]) -> str:
    name = found["name"].replace("-", "_")
    if found["column"]:
        return f"{name}={{{found['column']!r}: {found['kind']!r}}}"
    if found["mark"]:
        return f"{name}={found['mark']!r}"
    if name in ("header", "skip_bad"):
        return f"{name}={not found['no']}"
    return f"{name}="


@contextmanager
def said_in_python() -> Iterator[None]:
    """Inside, errors name arguments of Python where they would name options of the command."""
    try:
        yield
    except InputError as error:
        text = in_python(str(error))
        if text == str(error):
            raise
        raise type(error)(text) from error
