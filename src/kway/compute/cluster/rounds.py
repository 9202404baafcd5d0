"""Rounds: one program on every member of a crew, each with its own share, that stops to add up what all have.

    program(talk, *start) -> result       the same on every member, on different data
    talk.total(part), talk.most(part)     the sum, the largest, over all members: everybody gets the same numbers
    talk.report(what)                     told to whoever holds the rounds; whether to stop

A program written so does not know who its fellows are: here they are members of a crew, whose answers are added up
where the rounds are held, a question a round; `torch.distributed` does the same between processes (train.py). A member
that was made again in the middle has forgotten its part: all begin again, from the start that their holder then gives.
"""

from __future__ import annotations

import queue
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.cluster.crew import Crew
from kway.errors import ClusterError

_SUM, _MOST, _REPORT, _DONE, _LOST = "sum", "most", "report", "done", "lost"
_TOGETHER: dict[str, Callable[[list[Any]], Any]] = {
    _SUM: lambda parts: np.sum(parts, axis=0),
    _MOST: lambda parts: np.max(parts, axis=0),
}


class Talk(ABC):
    """How a program reaches its fellows."""

    @abstractmethod
    def total(self, part: NDArray) -> NDArray:
        """The sum of everybody's part."""

    @abstractmethod
    def most(self, part: NDArray) -> NDArray:
        """The largest of everybody's part, entry by entry."""

    @abstractmethod
    def report(self, what: Any) -> bool:
        """Tell where everybody stands; whether to stop there."""


class Said(NamedTuple):
    """What a member stopped for, and what it has to say."""

    kind: str
    what: Any


class Speaker:
    """A member: the program in a thread of its own, which runs from one round to the next and ends with the member.

    The thread knows the talk only, not the member: a fit that was interrupted, or a member made again, would otherwise
    leave a thread that waits for ever, and whatever the program holds (BLAS at one thread) with it.
    """

    def __init__(self, program: Callable[..., Any]) -> None:
        self._program = program
        self._round, self._said = -1, Said(_LOST, None)
        self._talk: _RoundTalk | None = None

    def begin(self, *start: Any) -> Said:
        """From the start that is given, whatever went before, to the first round."""
        if self._talk is not None:
            self._talk.end()
        self._talk, self._round = _RoundTalk(), 0
        weakref.finalize(self, self._talk.end).atexit = False
        threading.Thread(target=_run, args=(self._program, self._talk, start), daemon=True).start()
        self._said = self._talk.next_said()
        return self._said

    def go_on(self, number: int, heard: Any) -> Said:
        """What this round came to; on to the next. Asked twice, the answer is the same; after a loss, that."""
        if self._talk is None or number > self._round + 1:
            return Said(_LOST, None)
        if number == self._round + 1:
            self._round = number
            self._talk.heard.put(heard)
            self._said = self._talk.next_said()
        return self._said


def _run(program: Callable[..., Any], talk: _RoundTalk, start: tuple[Any, ...]) -> None:
    try:
        talk.said.put(Said(_DONE, program(talk, *start)))
    except _Ended:
        return
    except BaseException as error:
        talk.said.put(error)


class _Ended(Exception):
    """The rounds began anew: nobody waits for this thread any more."""


class _RoundTalk(Talk):
    """Words between the program's thread and the member that it belongs to."""

    def __init__(self) -> None:
        self.said: queue.Queue[Any] = queue.Queue()
        self.heard: queue.Queue[Any] = queue.Queue()

    def total(self, part: NDArray) -> NDArray:
        return np.asarray(self._ask(_SUM, part))

    def most(self, part: NDArray) -> NDArray:
        return np.asarray(self._ask(_MOST, part))

    def report(self, what: Any) -> bool:
        return bool(self._ask(_REPORT, what))

    def next_said(self) -> Said:
        """What the program stops for next; its error, if it fails."""
        found: Said | BaseException = self.said.get()
        if isinstance(found, BaseException):
            raise found
        return found

    def end(self) -> None:
        """Let the thread go."""
        self.heard.put(_Ended())

    def _ask(self, kind: str, what: Any) -> Any:
        self.said.put(Said(kind, what))
        found = self.heard.get()
        if isinstance(found, _Ended):
            raise found
        return found


def hold_rounds(crew: Crew, start: Callable[[], tuple[Any, ...]], report: Callable[[list[Any]], bool]) -> list[Any]:
    """Every member's result. `start()` is what all begin from, again after a loss; `report` hears, and says to stop."""
    said = _begun(crew, start())
    number = 0
    while True:
        kinds = {one.kind for one in said}
        if _LOST in kinds:
            said, number = _begun(crew, start()), 0
            continue
        if len(kinds) > 1:
            raise ClusterError(f"members of one program stopped for different things ({', '.join(sorted(kinds))})")
        kind, parts = kinds.pop(), [one.what for one in said]
        if kind == _DONE:
            return parts
        heard = report(parts) if kind == _REPORT else _TOGETHER[kind](parts)
        number += 1
        said = _all(crew.ask("go_on", number, heard))


def _begun(crew: Crew, start: tuple[Any, ...]) -> list[Said]:
    return _all(crew.ask("begin", *start))


def _all(said: list[Any]) -> list[Said]:
    """What every member said: a program cannot go on without one."""
    lost = [i for i, one in enumerate(said) if one is None]
    if lost:
        raise ClusterError(f"member {lost[0]} of {len(said)} of a fit did not answer; see `kway cluster status`")
    return said
