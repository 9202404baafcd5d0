"""A ladder is one task and several implementations (rungs). Each rung is timed and its result compared.

Interpreted loops would take minutes. Such a rung does the first `part` rows, and its time is scaled up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

LONG = 0.05  # seconds a measurement lasts at least: shorter calls are repeated
TIMES = 3


class Problem(Protocol):
    """Arrays of which the first rows can be taken."""

    @property
    def rows(self) -> int:
        """Return the number of rows."""

    def some(self, rows: int) -> Problem:
        """Return the first rows."""


@dataclass(frozen=True)
class Rung:
    """One implementation: problem -> result. `intensity` is its operations per byte read or written."""

    name: str
    run: Callable[[Any], NDArray]
    intensity: float
    part: int | None = None
    note: str = ""


@dataclass(frozen=True)
class Ladder:
    """The task and its rungs, slowest first; `reference` computes the result in float64."""

    key: str
    title: str
    work: str
    operations: float  # of the whole work done in full: products and sums
    problem: Any
    reference: Callable[[Any], NDArray]
    rungs: tuple[Rung, ...]
    tolerance: float = 1e-4


def climb(ladder: Ladder) -> dict[str, Any]:
    """Time all rungs and return the record; raise if a result differs."""
    return {
        "key": ladder.key,
        "title": ladder.title,
        "work": ladder.work,
        "operations": ladder.operations,
        "rungs": [_climb(ladder, rung) for rung in ladder.rungs],
    }


def _climb(ladder: Ladder, rung: Rung) -> dict[str, Any]:
    whole = ladder.problem.rows
    part = min(whole, rung.part or whole)
    problem = ladder.problem.some(part)
    away = difference(rung.run(problem), ladder.reference(problem))  # which also warms up
    if away > ladder.tolerance:
        raise AssertionError(f"{ladder.title}, {rung.name}: the answer differs by {away:.2g}")
    seconds = timed(lambda: rung.run(problem)) * whole / part
    return {
        "name": rung.name,
        "seconds": seconds,
        "rows": part,
        "of": whole,
        "gflops": ladder.operations / seconds / 1e9,
        "intensity": rung.intensity,
        "difference": away,
        "note": rung.note,
    }


def difference(answer: NDArray, truth: NDArray) -> float:
    """Return the largest difference divided by the largest value."""
    return float(np.abs(np.asarray(answer, np.float64) - truth).max() / max(1e-30, float(np.abs(truth).max())))


def timed(run: Callable[[], Any]) -> float:
    """Return the seconds of a call: the median of a few measurements, each of enough calls."""
    start = time.perf_counter()
    run()
    once = time.perf_counter() - start
    repeat = max(1, int(LONG / max(1e-9, once)))
    found = [once] if repeat == 1 else []
    while len(found) < TIMES:
        start = time.perf_counter()
        for _ in range(repeat):
            run()
        found.append((time.perf_counter() - start) / repeat)
    return float(np.median(found))
