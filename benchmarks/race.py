"""Honest timing: contestants interleaved (A B A B ...), the medians and the spread, quality beside the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

PAUSE = 0.5  # seconds between runs: OpenMP's threads spin for up to 0.2 s and would be charged to whoever comes next


@dataclass
class Timing:
    """Seconds of each round, and what the last round answered."""

    seconds: list[float] = field(default_factory=list)
    answer: Any = None

    @property
    def median(self) -> float:
        ordered = sorted(self.seconds)
        middle = len(ordered) // 2
        return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


@dataclass
class Row:
    """One line of the table: kway against one peer on one job."""

    target: str
    job: str
    data: str
    peer: str
    kway_seconds: float
    peer_seconds: float
    least: float | None  # the ratio aimed at; None: for information
    quality: str  # of both answers, so that no ratio is quoted where the quality differs
    equal: bool = True  # whether the qualities allow the ratio
    rounds: dict[str, list[float]] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        return self.peer_seconds / self.kway_seconds

    @property
    def holds(self) -> bool:
        return self.equal and (self.least is None or self.ratio >= self.least)

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": round(self.ratio, 2), "holds": self.holds}


def race(contestants: dict[str, Callable[[], Any]], rounds: int) -> dict[str, Timing]:
    """Run all contestants in turn, `rounds` times."""
    timings = {name: Timing() for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            time.sleep(PAUSE)
            start = time.perf_counter()
            answer = run()
            timings[name].seconds.append(time.perf_counter() - start)
            timings[name].answer = answer
    return timings


def row(
    target: str,
    job: str,
    data: str,
    peer: str,
    timings: dict[str, Timing],
    least: float | None,
    quality: str,
    equal: bool = True,
) -> Row:
    """The line of `peer` against "kway" in a race."""
    ours, theirs = timings["kway"], timings[peer]
    rounds = {"kway": ours.seconds, peer: theirs.seconds}
    return Row(target, job, data, peer, ours.median, theirs.median, least, quality, equal, rounds)
