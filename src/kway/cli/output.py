"""What the verbs print: one JSON object, or text and tables for people."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any


def emit_json(value: Any) -> None:
    """Print `value` as one JSON object; what JSON cannot say (infinity, parts) becomes null or text."""
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
    """Words that came with the data, which rich must not take for markup."""
    from rich.markup import escape

    return escape(str(text))


def say(text: str = "") -> None:
    """A line for people, in rich's markup."""
    from rich.console import Console

    Console(highlight=False, soft_wrap=True).print(text)


def width() -> int:
    """Letters of a line: the terminal's, 80 in a pipe."""
    from rich.console import Console

    return int(Console().width)


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], best: int | None = None) -> None:
    """A table, numbers to the right and words to the left; row `best` stands out."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    lines = [tuple(row) for row in rows]
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for j, column in enumerate(columns):
        words = j == 0 or not all(_NUMBER.match(line[j]) for line in lines)
        table.add_column(column, justify="left" if words else "right", no_wrap=j == 0 or not words)
    for i, row in enumerate(lines):
        table.add_row(*map(safe, row), style="bold green" if i == best else None)
    Console(highlight=False).print(table)


_NUMBER = re.compile(r"^$|^–$|^[-+]?[0-9][^(]*$")  # a cell that is a figure, with its unit, or a gap among them


def shown_number(value: float | None, digits: int = 4) -> str:
    """A figure of a table; a dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}"
