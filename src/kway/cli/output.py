"""Printing for all commands: one JSON object, or text and tables, and the live view of a job on a terminal.

If the program that reads stdout ends early, as `head` does, or the disk is full, kway stops printing but finishes its
work and writes its files. Control characters in names and labels are escaped, so that data cannot control a terminal.
If a stream cannot encode a character (PYTHONIOENCODING=ascii, old terminals), a question mark is printed.
"""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedIOBase
from typing import Any, BinaryIO

from kway.progress import News, watched
from kway.text_tables import plain, printable


def emit_json(value: Any) -> None:
    """Print `value` as one JSON object on one line."""
    try:
        print(json.dumps(plain(value), allow_nan=False), flush=True)
    except OSError as error:
        lose_output(error)


_lost: list[OSError] = []  # errors that prevented text from being printed


def lose_output(error: OSError) -> None:
    """Stop printing: the reader of stdout has ended, or the disk is full."""
    if not isinstance(error, BrokenPipeError):
        _lost.append(error)
    silence_stdout()


def report_lost_output() -> int:
    """Print an error and return 1 if text could not be printed; the files of the command are complete."""
    if not _lost:
        return 0
    print(f"error: stdout cannot be written: {_lost.pop().strerror}; the files are complete", file=sys.stderr)
    return 1


def silence_stdout() -> None:
    """Redirect stdout to the null device, because Python would raise when it flushes a closed pipe at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def safe(text: object) -> str:
    """Escape text that came with the data, so that neither rich nor the terminal reads it as markup."""
    from rich.markup import escape

    return escape(printable(str(text)))


def say(text: str = "") -> None:
    """Print a line of rich markup; a terminal wraps it, a pipe gets it as one line."""
    print_rich(text, soft_wrap=sys.stdout is None or not sys.stdout.isatty())


def print_rich(content: Any, soft_wrap: bool = False) -> None:
    """Print rich markup or a table."""
    from rich.console import Console

    class PipeConsole(Console):
        """A console that continues if its reader has ended; rich's own ends the process."""

        def on_broken_pipe(self) -> None:
            silence_stdout()

    try:
        PipeConsole(highlight=False, soft_wrap=soft_wrap).print(
            printable(content) if isinstance(content, str) else content
        )
    except OSError as error:
        lose_output(error)


def note_text(note: str) -> str:
    """Return a note as a sentence, in lines that fit into the terminal."""
    from kway.cli.options import with_flags

    return f"Note: {wrapped(with_flags(note), 6)}"


def say_note(note: str) -> None:
    """Print a note, with the flags of the options that it names."""
    say(safe(note_text(note)))


def wrapped(text: str, indent: int) -> str:
    """Return a sentence in lines as wide as the terminal, to be printed after `indent` characters."""
    return textwrap.fill(f"{' ' * indent}{text}.", max(terminal_width(), 80), subsequent_indent="  ")[indent:]


def terminal_width() -> int:
    """Return the number of characters per line: the width of the terminal, or 80 in a pipe."""
    from rich.console import Console

    return int(Console().width)


_NUMBER = re.compile(r"^$|^–$|^[-+]?[0-9][^(]*$")  # an empty cell, a dash, or a number with its unit


MIN_NAME_WIDTH = 12  # characters that the first column of a table keeps on a narrow terminal


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], best: int | None = None) -> None:
    """Print a table with numbers aligned right and words left; row `best` is highlighted.

    Long names in the first column are cut, so that numbers are always complete.
    """
    from rich import box
    from rich.table import Table

    lines = [tuple(row) for row in rows]
    is_text = [not all(_NUMBER.match(line[j]) for line in lines) for j in range(len(columns))]
    widths = [max(map(len, [*name.split(), *(line[j] for line in lines if not is_text[j])]), default=0)
              for j, name in enumerate(columns)]  # the least width of each column  # fmt: skip
    width = terminal_width()
    name_width = max(min(width // 2, width - sum(widths[1:]) - 3 * len(columns)), MIN_NAME_WIDTH)
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.add_column(columns[0], no_wrap=True, max_width=name_width)
    for name, least, text in zip(columns[1:], widths[1:], is_text[1:]):
        table.add_column(name, justify="left" if text else "right", min_width=least)
    for i, row in enumerate(lines):
        table.add_row(*map(safe, row), style="bold green" if i == best else None)
    print_rich(table)


def format_number(value: float | None, digits: int = 4) -> str:
    """Return a number with a fixed number of digits, or a dash if there is none."""
    return "–" if value is None else f"{value:.{digits}f}"


# ---- the live view of a job


@contextmanager
def live_view(
    what: str = "reading", elapsed: float = 0.0, families: int = 5, text_width: int = 44
) -> Iterator[Callable[[list[str]], None]]:
    """Show the running job on stderr if that is a terminal; yields a function that prints lines that stay.

    The view shows what runs now (at first `what`), a progress bar, the time since the job started (`elapsed` seconds
    before this call) and the best `families` so far:

        ⠹ softmax: 2,000 rows, fit 3 of 11 ━━━━━━━╸━━━━━━━━━━━━━━━━ 0:00:12
          neighbors-manhattan  0.9517  fold 1 of 5
          Ctrl-C keeps the best so far; at most 48 s are left
    """
    if not sys.stderr.isatty():
        yield lambda lines: print(
            *map(printable, lines), sep="\n", end="\n" if lines else "", file=sys.stderr, flush=True
        )
        return
    from rich.console import Console, Group
    from rich.live import Live
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column

    console = Console(stderr=True)
    text = TextColumn("{task.description}", table_column=Column(min_width=text_width))  # so that the bar does not move
    bar = Progress(SpinnerColumn(), text, BarColumn(24), TimeElapsedColumn(), console=console)
    task = bar.add_task(what, total=None)
    bar.tasks[0].start_time = bar.get_time() - elapsed

    def keep(text: str) -> None:
        console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    with Live(bar, console=console, transient=True) as screen:

        def show(news: News) -> None:
            if news.stays:
                keep(news.what)
                return
            total = news.of or None  # the bar stays below 100% while work runs, because a full bar stops its clock
            done = news.done if total is None else min(news.done, 0.99 * total)
            bar.update(task, description=safe(news.what), completed=done, total=total)
            screen.update(Group(bar, _standings(news.lines[:families], news.left)) if news.lines else bar)

        with watched(show):
            yield lambda lines: keep("\n".join(lines)) if lines else None


def _standings(lines: Sequence[tuple[str, ...]], seconds_left: float | None) -> Any:
    """Return the best families so far and the seconds left, as a table for rich."""
    from rich.console import Group
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for position, (first, *others) in enumerate(lines):
        table.add_row(f"  {first}", *others, style="bold" if position == 0 else "dim")
    limit = (
        ""
        if seconds_left is None or seconds_left == float("inf")
        else f"; at most {max(0.0, seconds_left):.0f} s are left"
    )
    return Group(table, f"  [dim]Ctrl-C keeps the best so far{limit}[/]")


# ---- data on a terminal


class TerminalBytes(BufferedIOBase):
    """Bytes for a terminal: control characters become question marks."""

    def __init__(self, out: BinaryIO) -> None:
        self.out = out

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, content: Any) -> int:
        """Write text in UTF-8."""
        text = bytes(content)
        self.out.write(re.sub(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]", b"?", text))
        return len(text)

    def flush(self) -> None:
        """Flush the terminal."""
        self.out.flush()


# ---- streams that cannot encode every character


def allow_any_character(*streams: Any) -> None:
    """Make these streams print a question mark for a character that they cannot encode, instead of raising."""
    for stream in streams:
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
