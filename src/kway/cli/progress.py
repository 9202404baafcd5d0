"""The live view of a job on a terminal's stderr: what runs now, how far it is, and the leaderboard so far.

⠹ softmax: fold 1, fit 3 of 11 ━━━━━━━╸━━━━━━━━━━━━━━━━ 0:00:12
  neighbors-manhattan  0.9517  5 folds
  neighbors            0.9474  5 folds
  Ctrl-C keeps the best so far
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kway.errors import UsageError
from kway.progress import News, watched

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_SHOWN = 5  # families of the leaderboard
_WORDS_WIDTH = 44  # letters of "neighbors-manhattan-no-text: folds 2 to 5"


@contextmanager
def live(what: str = "reading", elapsed: float = 0.0) -> Iterator[Callable[[list[str]], None]]:
    """Inside, a person at a terminal sees the job run; what is given prints lines that stay, on stderr.

    It begins with `what`; `elapsed` are the seconds that the job has taken before, where this goes on with it.
    """
    if not sys.stderr.isatty():
        yield lambda lines: print(*lines, sep="\n", file=sys.stderr, flush=True)
        return
    from rich.console import Console, Group
    from rich.live import Live
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column

    console = Console(stderr=True)
    words = TextColumn("{task.description}", table_column=Column(min_width=_WORDS_WIDTH))  # the bar stays where it is
    columns = (SpinnerColumn(), words, BarColumn(24), TimeElapsedColumn())
    bar = Progress(*columns, console=console)
    task = bar.add_task(what, total=None)
    bar.tasks[0].start_time = bar.get_time() - elapsed
    with Live(bar, console=console, transient=True) as screen:

        def show(news: News) -> None:
            if news.stays:
                console.print(news.what, markup=False, highlight=False, soft_wrap=True)
                return
            # short of full while anything runs: a finished task stops its clock
            total = news.of or None
            done = news.done if total is None else min(news.done, 0.99 * total)
            bar.update(task, description=news.what, completed=done, total=total)
            screen.update(Group(bar, _board(news.lines)) if news.lines else bar)

        with watched(show):
            yield lambda lines: console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def _board(lines: tuple[tuple[str, ...], ...]) -> Any:
    """The best families so far."""
    from rich.console import Group
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for place, (first, *others) in enumerate(lines[:_SHOWN]):
        table.add_row(f"  {first}", *others, style="bold" if place == 0 else "dim")
    return Group(table, "  [dim]Ctrl-C keeps the best so far[/]")


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
        raise UsageError(f"--budget must be a time such as 60s, 2m or 1h, got {text!r}")
    return value
