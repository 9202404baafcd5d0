"""What the commands print: one JSON object, or text and tables for people.

If the reader of stdout has left, as `head` does, printing ends but the work goes on: the files of a job are written.
Streams that cannot encode a character (PYTHONIOENCODING=ascii, old terminals) get the nearest plain one instead.
"""

from __future__ import annotations

import codecs
import dataclasses
import json
import math
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def printing() -> Iterator[None]:
    """Inside, what is printed goes to stdout at once; if its reader has left, it is dropped."""
    try:
        yield
        if sys.stdout is not None:  # as `>&-` leaves it
            sys.stdout.flush()
    except BrokenPipeError:
        hush()


def hush() -> None:
    """Redirect stdout to nowhere, as Python would fail to flush it at the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def emit_json(value: Any) -> None:
    """Print `value` as one JSON object; infinity becomes null, objects become text."""
    with printing():
        sys.stdout.write(json.dumps(plain(value), allow_nan=False) + "\n")


def plain(value: Any) -> Any:
    """Dataclasses, numpy values and the like as JSON types."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if hasattr(value, "tolist"):  # numpy arrays and scalars
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return repr(value)
    return str(value)


def safe(text: object) -> str:
    """Text that came with the data, escaped so that rich does not take it for markup."""
    from rich.markup import escape

    return escape(str(text))


def say(text: str = "") -> None:
    """Print a line in rich's markup: wrapped by a terminal, whole in a pipe."""
    print_rich(text, soft_wrap=sys.stdout is None or not sys.stdout.isatty())


def print_rich(what: Any, soft_wrap: bool = False, wide: int | None = None) -> None:
    """Rich's markup or tables, on lines of `wide` characters (None: as wide as the terminal)."""
    from rich.console import Console

    class PipeConsole(Console):
        """Goes on if its reader has left; rich's own would end the process."""

        def on_broken_pipe(self) -> None:
            hush()

    PipeConsole(highlight=False, soft_wrap=soft_wrap, width=wide).print(what)


def width() -> int:
    """Characters per line: the terminal's, 80 in a pipe."""
    from rich.console import Console

    return int(Console().width)


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], best: int | None = None) -> None:
    """A table, numbers aligned right and words left; row `best` stands out."""
    from rich import box
    from rich.table import Table

    lines = [tuple(row) for row in rows]
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for j, column in enumerate(columns):
        words = j == 0 or not all(_NUMBER.match(line[j]) for line in lines)
        most = width() // 2 if j == 0 else None  # names may be long, and figures beside them must be seen
        table.add_column(column, justify="left" if words else "right", no_wrap=j == 0 or not words, max_width=most)
    for i, row in enumerate(lines):
        table.add_row(*map(safe, row), style="bold green" if i == best else None)
    print_rich(table)


_NUMBER = re.compile(r"^$|^–$|^[-+]?[0-9][^(]*$")  # a cell that is a figure, with its unit, or a gap among them


def shown_number(value: float | None, digits: int = 4) -> str:
    """A figure of a table; a dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}"


# ---- streams without every character

_ASCII = {
    "–": "-", "—": "-", "…": "...", "±": "+-", "µ": "u", "×": "x", "·": ".", "≥": ">=", "≤": "<=", "→": "->",
    "“": '"', "”": '"', "‘": "'", "’": "'", "\N{NO-BREAK SPACE}": " ", "\N{MINUS SIGN}": "-",
    "━": "-", "─": "-", "╸": "-", "╺": "-", "│": "|", "•": "*",
}  # fmt: skip
_ERRORS = "kway-plain"


def to_ascii(text: str) -> str:
    """ASCII for people: accents left out, signs spelled, ? for the rest."""
    found = "".join(_ASCII.get(c, c) for c in text)
    found = unicodedata.normalize("NFKD", found)
    return "".join(c if ord(c) < 128 else "" if unicodedata.combining(c) else "?" for c in found)


def _encoding_error(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return to_ascii(error.object[error.start : error.end]), error.end


def allow_any_character(*streams: Any) -> None:
    """Let these streams replace characters that their encoding does not have, instead of failing."""
    codecs.register_error(_ERRORS, _encoding_error)
    for stream in streams:
        if hasattr(stream, "reconfigure") and not (stream.encoding or "").lower().startswith("utf"):
            stream.reconfigure(errors=_ERRORS)
