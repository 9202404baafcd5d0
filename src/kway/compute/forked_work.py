"""Work on another core, by forked copies of this process that send back text alone.

    beside(work)             work() -> text, begun now
    copies(prepare, 2)       two that make ready while this process does other things, and then answer lines of text

For Python's own work, such as drawing, which threads would do one at a time. Only where a fork is known to be safe: on
Linux, in the command's own process, without the threads of torch and Ray. Elsewhere, and where a copy fails or stands
still, the text of `beside` is worked out here, when it is asked for; `copies` says that there are none.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import sys
from collections.abc import Callable
from itertools import takewhile
from typing import NamedTuple

from kway import progress
from kway.compute.threads import cores
from kway.light_imports import PROCESS

STANDSTILL = 60.0  # seconds without a byte after which the copy is given up


def beside(work: Callable[[], str]) -> Callable[[], str]:
    """What gives the text: begun at once where there is a core for it."""
    if not _can_fork():
        return work
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(source)  # else it would wait for a reader for ever, where this process is killed
        _send(work, sink)
    os.close(sink)

    def text() -> str:
        found = _received(source, child)
        ended = os.waitpid(child, 0)[1] == 0
        return found if ended and found is not None else work()

    return text


def copies(prepare: Callable[[], Callable[[str], str]], count: int) -> Copies | None:
    """Copies that import what `prepare` does and answer by what it gives; None where there is no core for them."""
    return Copies(prepare, count) if _can_fork() else None


class _Way(NamedTuple):
    """Two pipes, read end first: lines asked of a copy, and its answers."""

    asked: tuple[int, int]
    told: tuple[int, int]


class Copies:
    """Copies of this process that answer lines of text, each in the order asked, when all has been asked.

    The others are forked by the first once it is ready, so that what they need is imported once.
    """

    def __init__(self, prepare: Callable[[], Callable[[str], str]], count: int) -> None:
        ways = [_Way(os.pipe(), os.pipe()) for _ in range(count)]
        self._child = os.fork()
        if self._child == 0:
            _serve(prepare, ways)
        for way in ways:
            os.close(way.asked[0])
            os.close(way.told[1])
        self._asked, self._told = [way.asked[1] for way in ways], [way.told[0] for way in ways]
        self._counts = [0] * count

    def ask(self, which: int, line: str) -> None:
        """A line without breaks for one of the copies; one that has died, or stands still, is told by `answers`."""
        self._counts[which] += 1
        self._write(which, line)

    def _write(self, which: int, line: str) -> None:
        left = memoryview(f"{line}\n".encode())
        with contextlib.suppress(BrokenPipeError):
            while left and select.select([], [self._asked[which]], [], STANDSTILL)[1]:
                left = left[os.write(self._asked[which], left[: select.PIPE_BUF]) :]  # so many never wait

    def answers(self) -> list[list[str]] | None:
        """What each copy answers; None where one did not come to its end. Nothing can be asked afterwards."""
        for which in range(len(self._asked)):
            self._write(which, "")  # an end that can be seen while another fork holds the pipe
        found = [_received(told, self._child) for told in self._told]
        ended = os.waitpid(self._child, 0)[1] == 0
        for asked in self._asked:
            os.close(asked)
        answers = [(text or "").split("\n")[:-1] for text in found]
        return answers if ended and [len(own) for own in answers] == self._counts else None


def _can_fork() -> bool:
    """Whether a fork is safe, and there is a core for it."""
    own = PROCESS.own and sys.platform == "linux" and cores() > 1
    return own and not {"torch", "ray"} & set(sys.modules)


def _send(work: Callable[[], str], sink: int) -> None:
    """The copy's life: nothing of what it has inherited is flushed, closed or said a second time."""
    try:
        with open(sink, "wb") as out, progress.watched(lambda news: None):
            out.write(work().encode())
        os._exit(0)
    finally:
        os._exit(1)


def _serve(prepare: Callable[[], Callable[[str], str]], ways: list[_Way]) -> None:
    """The life of the copies: ready, one fork a way, answers when all was asked."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the comparison, not the page
        gc.disable()  # it ends with a few answers: looking for what could be freed took a twentieth of its time
        for way in ways:
            os.close(way.asked[1])
            os.close(way.told[0])
        with progress.watched(lambda news: None):
            answer, own, others = prepare(), ways[0], list[int]()
            for way in ways[1:]:
                others.append(os.fork())
                if others[-1] == 0:
                    own, others = way, []
                    break
            for way in ways:
                if way is not own:
                    os.close(way.asked[0])
                    os.close(way.told[1])
            with open(own.asked[0], encoding="utf-8") as asked, open(own.told[1], "w", encoding="utf-8") as out:
                answers = [answer(line) for line in takewhile("\n".__ne__, asked)]
                out.writelines(f"{line}\n" for line in answers)
        os._exit(max((os.waitpid(child, 0)[1] for child in others), default=0) > 0)
    finally:
        os._exit(1)


def _received(source: int, child: int) -> str | None:
    """All that a copy sent; None where it stood still, and was ended."""
    parts: list[bytes] = []
    with open(source, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], STANDSTILL)[0]:
            part = pipe.read(1 << 16)
            if not part:
                return b"".join(parts).decode()
            parts.append(part)
    os.kill(child, signal.SIGKILL)
    return None
