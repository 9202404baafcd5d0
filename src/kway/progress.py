"""Progress of work that takes a while: one context variable, set by whoever watches.

    with watched(view):                                a view on the whole, told News
        with stage("softmax: fold 1", 3, of=18):       step 3 of 18 begins
            step(2, 11, "fit 3 of 11")                 a part of that step is done
        for image in track(images, "reading", n): ...  counted
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


Watcher = Callable[[News], None]


class _Watched(NamedTuple):
    """Who watches, and the stage that runs."""

    watcher: Watcher
    now: News


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
def stage(what: str, done: float = 1.0, of: float = 1.0, lines: tuple[tuple[str, ...], ...] = ()) -> Iterator[None]:
    """A stage of the work: told now, with `done` steps of all behind it; `step` tells of its parts."""
    told = _watched.get()
    if told is None:
        yield
        return
    now = News(what, done, of, lines)
    before = _watched.set(_Watched(told.watcher, now))
    try:
        told.watcher(now)
        yield
    finally:
        _watched.reset(before)


def step(done: int, of: int, note: str) -> None:
    """So many parts of the stage that runs are done; the note says which comes now."""
    told = _watched.get()
    if told is not None:
        now = told.now
        told.watcher(now._replace(what=f"{now.what}, {note}" if now.what else note, done=now.done + done / of))


def note(text: str) -> None:
    """A sentence that must be read at once, such as how long it will take: to the watcher, else a line on stderr."""
    told = _watched.get()
    if told is None:
        print(text, file=sys.stderr)
    else:
        told.watcher(told.now._replace(what=text))


def track(things: Iterable[Thing], what: str, of: int, worth: int = _WORTH_A_BAR) -> Iterator[Thing]:
    """The things, one by one, counted for the watcher, or with a bar where there are `worth` of them or more."""
    if _watched.get() is None and (of < worth or not sys.stderr.isatty()):
        yield from things
        return
    with bar(what, of, transient=True) as at:
        for done, thing in enumerate(things):
            at(done, "")
            yield thing


@contextmanager
def bar(what: str, of: int, transient: bool = False) -> Iterator[Callable[[int, str], None]]:
    """A function of the steps done and a note: told to the watcher, else drawn as a bar on stderr."""
    told = _watched.get()
    if told is not None:
        watcher = told.watcher
        yield lambda done, note: watcher(News(f"{what}, {note}" if note else what, done, of))
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=transient) as screen:
        task = screen.add_task(what, total=of, note="")
        yield lambda done, note: screen.update(task, completed=done, note=note)
