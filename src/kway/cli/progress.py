"""The live view of a job: what runs now, how far it is, how long it has taken; on a terminal's stderr only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kway.errors import InputError

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@contextmanager
def live() -> Iterator[Callable[[str, int, int], None] | None]:
    """A function told what runs now and the steps done of all; None where nobody is watching."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading (Ctrl-C keeps the best so far)", total=None)

        def told(what: str, done: int, steps: int) -> None:
            bar.update(task, description=what, completed=done, total=steps)

        yield told


def seconds(text: str | None) -> float | None:
    """A span of time as people write it: 60s, 2m, 1h or a plain number of seconds."""
    if text is None:
        return None
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "s")
    try:
        value = float(number) * _UNITS[unit]
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise InputError(f"--budget must be a time such as 60s, 2m or 1h, got {text!r}")
    return value
