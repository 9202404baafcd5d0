"""Progress of long work. It is reported to at most one watcher, which is stored in a context variable.

    with watched(view):                                inside, `view` is called with News
        with stage("softmax: fold 1", 3, of=18):       a stage begins; 3 of 18 steps are done
            step(2, 11, "fit 3 of 11")                 2 of the 11 parts of this stage are done
        for image in track(images, "reading", n): ...  counts the images
        with portion(0.6, 0.8): ...                    the stages inside are 60% to 80% of the whole
    with bar("softmax, 200 iterations", 200) as tell:  shown with or without a watcher
        tell(7, "objective 0.31")

Without a watcher:

    stage, step   print nothing
    note          prints a line on stderr
    track         draws a bar if there are many items and stderr is a terminal
    bar           always draws a bar, for `verbose`

In a notebook, bars are HTML, which needs no widgets. Jobs call `shown_in_notebook()`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from html import escape
from typing import Any, NamedTuple, TypeVar

Thing = TypeVar("Thing")


class News(NamedTuple):
    """A progress report: the work that runs, and `done` of `of` steps.

    `lines` are rows of cells to show below the bar, such as the scores so far.
    """

    what: str
    done: float = 1.0
    of: float = 1.0
    lines: tuple[tuple[str, ...], ...] = ()
    stays: bool = False  # whether `what` is a line that stays on the screen
    left: float | None = None  # largest number of seconds that the work may still take; None if unknown


Watcher = Callable[[News], None]
Tell = Callable[[int, str], None]  # a function that reports the number of steps done, and a note


class _Watched(NamedTuple):
    """The watcher, the current stage, and the portion of the whole that it belongs to."""

    watcher: Watcher
    now: News
    low: float  # share of the whole at which the stages inside begin
    high: float  # and end

    def report(self, news: News) -> None:
        """Report to the watcher, scaled to the current portion of the whole."""
        if (self.low, self.high) != (0.0, 1.0):
            share = min(1.0, news.done / news.of) if news.of else 0.0
            news = news._replace(done=self.low + share * (self.high - self.low), of=1.0)
        self.watcher(news)


_watched: ContextVar[_Watched | None] = ContextVar("progress", default=None)


@contextmanager
def _using(state: _Watched) -> Iterator[None]:
    """Use a watcher with its stage and portion inside the block."""
    before = _watched.set(state)
    try:
        yield
    finally:
        _watched.reset(before)


def watched(watcher: Watcher) -> AbstractContextManager[None]:
    """Send all reports inside the block to `watcher`, and show no other bars, which would overwrite it."""
    return _using(_Watched(watcher, News("", 0.0), 0.0, 1.0))


@contextmanager
def stage(
    what: str,
    done: float = 0.0,
    of: float = 1.0,
    lines: tuple[tuple[str, ...], ...] = (),
    left: float | None = None,
) -> Iterator[None]:
    """Begin a stage of the work, with `done` of `of` steps done before it; `step` reports its parts."""
    current = _watched.get()
    if current is None:
        yield
        return
    inside = current._replace(now=News(what, done, of, lines, left=left))
    with _using(inside):
        inside.report(inside.now)
        yield


def portion(low: float, high: float) -> AbstractContextManager[None]:
    """Scale the progress of the stages inside to this portion of the whole, so that one bar covers all work."""
    current = _watched.get()
    return nullcontext() if current is None else _using(current._replace(low=low, high=high))


def step(done: int, of: int, note: str) -> None:
    """Report that `done` parts of the current stage are done; the note names the next part."""
    current = _watched.get()
    if current is not None:
        now = current.now
        current.report(now._replace(what=f"{now.what}, {note}" if now.what else note, done=now.done + done / of))


def note(text: str) -> None:
    """Show a line that stays on the screen: through the watcher if there is one, else on stderr."""
    current = _watched.get()
    if current is None:
        print(text, file=sys.stderr)
    else:
        current.watcher(current.now._replace(what=text, stays=True))


def track(things: Iterable[Thing], what: str, of: int, worth: int = 50) -> Iterator[Thing]:
    """Yield the things and report how many are done: to the watcher, or on a bar if there are at least `worth`."""
    if _watched.get() is None and (of < worth or not (sys.stderr.isatty() or in_notebook())):
        yield from things
        return
    with bar(what, of, transient=True) as tell:
        for done, thing in enumerate(things):
            tell(done, "")
            yield thing


def silent(done: int, note: str) -> None:
    """A `Tell` that reports nothing."""


@contextmanager
def bar(what: str, of: int, transient: bool = False, asked: bool = True) -> Iterator[Tell]:
    """Yield a function that reports steps done and a note, to the watcher or on a bar; nothing without `asked`."""
    if not asked:
        yield silent
        return
    current = _watched.get()
    if current is not None:
        report = current.report
        yield lambda done, note: report(News(f"{what}, {note}" if note else what, done, of))
        return
    if in_notebook():
        view = NotebookView()
        try:
            yield lambda done, note: view(News(f"{what}, {note}" if note else what, done, of))
        finally:
            view.close(keep=not transient)
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


# ---- notebooks


def in_notebook() -> bool:
    """Return whether the code runs in the kernel of a notebook."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return hasattr(get_ipython(), "kernel")


@contextmanager
def shown_in_notebook() -> Iterator[None]:
    """Show progress below the cell of a notebook; elsewhere, or if another watcher shows it, do nothing."""
    if _watched.get() is not None or not in_notebook():
        yield
        return
    view = NotebookView()
    try:
        with watched(view):
            yield
    finally:
        view.close(keep=False)


class NotebookView:
    """A watcher that shows a bar, what runs and the best scores so far as HTML, which it replaces in place."""

    def __init__(self, pause: float = 0.1) -> None:
        from IPython.display import HTML, display

        self._html, self._pause, self._begun, self._last = HTML, pause, time.perf_counter(), 0.0
        self._news = News("", 0.0)
        self._handle: Any = display(HTML(""), display_id=True)

    def __call__(self, news: News) -> None:
        """Show a report, unless it follows the last one within `pause` seconds; `close(keep=True)` shows the latest."""
        if news.stays:
            print(news.what, file=sys.stderr)
            return
        self._news = news
        if time.perf_counter() - self._last >= self._pause:
            self._show()

    def close(self, keep: bool) -> None:
        """Show the last report, or remove the bar."""
        if keep:
            self._show()
        else:
            self._handle.update(self._html(""))

    def _show(self) -> None:
        self._last = time.perf_counter()
        self._handle.update(self._html(progress_html(self._news, self._last - self._begun)))


def progress_html(news: News, seconds: float) -> str:
    """Return a report as HTML; all text is escaped.

    >>> progress_html(News("fit <1>", 1, 4), 65)
    '<div><progress value="0.2500"></progress> 0:01:05 fit &lt;1&gt;</div>'
    """
    share = min(1.0, news.done / news.of) if news.of else 0.0
    clock = f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02}:{int(seconds) % 60:02}"
    lines = "".join(f"<br>{escape('  '.join(line))}" for line in news.lines)
    return f'<div><progress value="{share:.4f}"></progress> {clock} {escape(news.what)}{lines}</div>'
