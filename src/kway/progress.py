"""Progress of long work, reported to one watcher in a context variable.

    with watched(view):                                inside, `view` is called with News
        with stage("softmax: fold 1", 3, of=18):       step 3 of 18 begins
            step(2, 11, "fit 3 of 11")                 a part of that step is done
        for image in track(images, "reading", n): ...  counted
        with portion(0.6, 0.8): ...                    steps inside are so much of the whole
    with bar("softmax, 200 iterations", 200) as at:    shown with or without a watcher
        at(7, "objective 0.31")

Without a watcher `stage` and `step` are silent, `note` writes a line, `track` draws a bar on a terminal's stderr if the
work is long, and `bar` always draws one, for verbose work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

Thing = TypeVar("Thing")


class News(NamedTuple):
    """What runs now, how many steps of all are done, and lines of cells to show below, such as the scores so far."""

    what: str
    done: float = 1.0
    of: float = 1.0
    lines: tuple[tuple[str, ...], ...] = ()
    stays: bool = False  # a line that stays on the screen
    left: float | None = None  # seconds that the work may still take at most; None: not known


Watcher = Callable[[News], None]
Tell = Callable[[int, str], None]  # steps done, and a note


class _Watched(NamedTuple):
    """The watcher, and the stage that runs."""

    watcher: Watcher
    now: News
    low: float  # share of the whole at which the stages inside begin
    high: float  # and end

    def tell(self, news: News) -> None:
        """Report to the watcher, scaled to the current portion of the whole."""
        if (self.low, self.high) != (0.0, 1.0):
            share = min(1.0, news.done / news.of) if news.of else 0.0
            news = news._replace(done=self.low + share * (self.high - self.low), of=1.0)
        self.watcher(news)


_watched: ContextVar[_Watched | None] = ContextVar("progress", default=None)


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Inside, progress is reported to this function only: two views on one terminal would overwrite each other."""
    before = _watched.set(_Watched(watcher, News("", 0.0), 0.0, 1.0))
    try:
        yield
    finally:
        _watched.reset(before)


@contextmanager
def stage(
    what: str,
    done: float = 0.0,
    of: float = 1.0,
    lines: tuple[tuple[str, ...], ...] = (),
    left: float | None = None,
) -> Iterator[None]:
    """A stage of the work, reported with `done` of all steps before it; `step` reports its parts."""
    told = _watched.get()
    if told is None:
        yield
        return
    now = News(what, done, of, lines, left=left)
    inside = told._replace(now=now)
    before = _watched.set(inside)
    try:
        inside.tell(now)
        yield
    finally:
        _watched.reset(before)


@contextmanager
def portion(low: float, high: float) -> Iterator[None]:
    """Stages inside are this part of the whole, so that one bar covers several kinds of work."""
    told = _watched.get()
    if told is None:
        yield
        return
    before = _watched.set(told._replace(low=low, high=high))
    try:
        yield
    finally:
        _watched.reset(before)


def step(done: int, of: int, note: str) -> None:
    """Report that `done` parts of the current stage are done; the note names the next part."""
    told = _watched.get()
    if told is not None:
        now = told.now
        told.tell(now._replace(what=f"{now.what}, {note}" if now.what else note, done=now.done + done / of))


def note(text: str) -> None:
    """Show a line that stays: through the watcher, else on stderr."""
    told = _watched.get()
    if told is None:
        print(text, file=sys.stderr)
    else:
        told.watcher(told.now._replace(what=text, stays=True))


def track(things: Iterable[Thing], what: str, of: int, worth: int = 50) -> Iterator[Thing]:
    """Yield the things and count them for the watcher, or on a bar if there are at least `worth`."""
    if _watched.get() is None and (of < worth or not sys.stderr.isatty()):
        yield from things
        return
    with bar(what, of, transient=True) as at:
        for done, thing in enumerate(things):
            at(done, "")
            yield thing


def silent(done: int, note: str) -> None:
    """A `Tell` that reports nothing."""


@contextmanager
def bar(what: str, of: int, transient: bool = False, asked: bool = True) -> Iterator[Tell]:
    """A function of the steps done and a note, shown by the watcher or as a bar; silent if not `asked`."""
    if not asked:
        yield silent
        return
    told = _watched.get()
    if told is not None:
        tell = told.tell
        yield lambda done, note: tell(News(f"{what}, {note}" if note else what, done, of))
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"), TimeElapsedColumn(),
        TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=transient) as screen:
        task = screen.add_task(what, total=of, note="")
        yield lambda done, note: screen.update(task, completed=done, note=note)
