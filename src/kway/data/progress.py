"""Progress of work that takes a while: told to whoever watches, else a bar on a terminal's stderr, else silent."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Item = TypeVar("Item")
Watcher = Callable[[str, int, int], None]  # what is done, steps done, steps in all

_WORTH_A_BAR = 50  # steps; fewer are over before anybody has read the bar
_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Inside, progress is told to this function: two views on one terminal would overwrite each other."""
    before = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(before)


def track(items: Iterable[Item], what: str, total: int, worth: int = _WORTH_A_BAR) -> Iterator[Item]:
    """The items, one by one, counted for the watcher, or with a bar where there are `worth` of them or more."""
    watcher = _watcher.get()
    if watcher is not None:
        for done, item in enumerate(items):
            watcher(what, done, total)
            yield item
        return
    if total < worth or not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track as bar

    yield from bar(items, description=what, total=total, console=Console(stderr=True), transient=True)
