"""Progress of work that takes a while: one context variable, set by whoever watches.

    with watched(view):                                a view on the whole, told News
        with stage("softmax: fold 1", 3, of=18):       step 3 of 18 begins
            step(2, 11, "fit 3 of 11")                 a part of that step is done
        for image in track(images, "reading", n): ...  counted
        with portion(0.6, 0.8): ...                    steps inside are so much of the whole
    with bar("softmax, 200 iterations", 200) as at:    shown whether anybody watches or not
        at(7, "objective 0.31")

Where nobody watches, `stage` and `step` are silent, `note` writes a line, `track` draws a bar on a terminal's stderr if
the work is long, and `bar` always does, for work that was asked to be talkative.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

Thing = TypeVar("Thing")

_WORTH_A_BAR = 50  # things; fewer are over before anybody has read the bar


class News(NamedTuple):
    """What runs now, how many steps of all are done, and lines of cells to show below, such as the scores so far."""

    what: str
    done: float = 1.0
    of: float = 1.0
    lines: tuple[tuple[str, ...], ...] = ()
    stays: bool = False  # a sentence that is to be read, however soon the next news comes


Watcher = Callable[[News], None]
Tell = Callable[[int, str], None]  # steps done, and a note


class _Watched(NamedTuple):
    """Who watches, and the stage that runs."""

    watcher: Watcher
    now: News
    low: float = 0.0  # of the whole, where the stages inside begin and end
    high: float = 1.0

    def tell(self, news: News) -> None:
        """To the watcher, as a part of the whole; a whole that is not divided is told as it is."""
        if (self.low, self.high) != (0.0, 1.0):
            share = min(1.0, news.done / news.of) if news.of else 0.0
            news = news._replace(done=self.low + share * (self.high - self.low), of=1.0)
        self.watcher(news)


_watched: ContextVar[_Watched | None] = ContextVar("progress", default=None)


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Inside, progress is told to this function, and to no other: two views on one terminal would overwrite."""
    before = _watched.set(_Watched(watcher, News("", 0.0)))
    try:
        yield
    finally:
        _watched.reset(before)


@contextmanager
def stage(what: str, done: float = 0.0, of: float = 1.0, lines: tuple[tuple[str, ...], ...] = ()) -> Iterator[None]:
    """A stage of the work: told now, with `done` steps of all behind it; `step` tells of its parts."""
    told = _watched.get()
    if told is None:
        yield
        return
    now = News(what, done, of, lines)
    inside = told._replace(now=now)
    before = _watched.set(inside)
    try:
        inside.tell(now)
        yield
    finally:
        _watched.reset(before)


@contextmanager
def portion(low: float, high: float) -> Iterator[None]:
    """Stages inside are this part of the whole, so that a bar goes on from one kind of work to the next."""
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
    """So many parts of the stage that runs are done; the note says which comes now."""
    told = _watched.get()
    if told is not None:
        now = told.now
        told.tell(now._replace(what=f"{now.what}, {note}" if now.what else note, done=now.done + done / of))


def note(text: str) -> None:
    """A sentence that must be read at once, such as how long it will take: to the watcher, else a line on stderr."""
    told = _watched.get()
    if told is None:
        print(text, file=sys.stderr)
    else:
        told.watcher(told.now._replace(what=text, stays=True))


def track(things: Iterable[Thing], what: str, of: int, worth: int = _WORTH_A_BAR) -> Iterator[Thing]:
    """The things, one by one, counted for the watcher, or with a bar where there are `worth` of them or more."""
    if _watched.get() is None and (of < worth or not sys.stderr.isatty()):
        yield from things
        return
    with bar(what, of, transient=True) as at:
        for done, thing in enumerate(things):
            at(done, "")
            yield thing


def silent(done: int, note: str) -> None:
    """A `Tell` that nobody hears."""


@contextmanager
def bar(what: str, of: int, transient: bool = False, asked: bool = True) -> Iterator[Tell]:
    """A function of the steps done and a note: told to the watcher, else drawn as a bar; silent where not asked for."""
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
