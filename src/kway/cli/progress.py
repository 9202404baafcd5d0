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

from kway.progress import News, watched

_SHOWN = 5  # families that are shown
_WORDS_WIDTH = 44  # characters of "neighbors-manhattan-no-text: folds 2 to 5"


@contextmanager
def live(what: str = "reading", elapsed: float = 0.0) -> Iterator[Callable[[list[str]], None]]:
    """Inside, a terminal shows how the job runs; yields a function that prints lines on stderr that stay.

    It begins with `what`; `elapsed` are the seconds that the job has taken before.
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
