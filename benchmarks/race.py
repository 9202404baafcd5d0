"""Timing: contestants take turns (A B A B ...); medians, spread, and the quality of the results.

    timings = race({"kway": ours, "peer": theirs}, rounds)     each runs once per round, in turn
    row("T1", job, data, "peer", timings, quality)             one line of the table
    absent("T1", job, data, "peer", error)                     the line of a peer that is not installed
    steps = settled("steps", search)                           a value that a job determines before its race

The same job runs again in a separate process per contestant (`child.py`). `race` then runs only that one, once, and
records its working memory. The results of the others, and the values of `settled`, come from the timed pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np

from .models import NotInstalled
from .peak import working_megabytes

PAUSE = 0.5  # seconds between runs: threads of OpenMP spin for up to 0.2 s and would slow down the next contestant
SHORT_PAUSE = 0.2  # rounds of a quick run
WITH_FIT = "fit + predict, "  # prefix of jobs that include the build


@dataclass
class Pass:
    """The purpose of a pass: times of all (alone is None), or the memory of one contestant."""

    alone: str | None = None
    pause: float = PAUSE
    folder: Path | None = None  # folder of the results of the timed pass
    settled: dict[str, Any] = field(default_factory=dict)  # JSON values by "number of the race, name"
    races: dict[int, list[str]] = field(default_factory=dict)  # contestants by the number of the race
    megabytes: dict[int, float] = field(default_factory=dict)  # of the contestant alone, by the number of the race


_current = Pass()


def begin(new: Pass) -> Pass:
    """Start a pass over the job of one target."""
    global _current
    _current = new
    return new


@dataclass
class Timing:
    """Seconds per round, and the result of the last round."""

    seconds: list[float] = field(default_factory=list)
    answer: Any = None
    race: int | None = None  # the number of its race within the job

    @property
    def median(self) -> float:
        return median(self.seconds)


@dataclass
class Row:
    """One line of the table: kway against a peer or a limit, on one job."""

    target: str
    job: str
    data: str
    peer: str
    kway_seconds: float  # or in `unit`
    peer_seconds: float
    least: float | None  # goal of the ratio (targets.py); None: for information
    quality: str  # of both results: no ratio is printed if they differ
    equal: bool = True  # whether the qualities allow the ratio
    rounds: dict[str, list[float]] = field(default_factory=dict)
    unit: str = "s"  # "MB" for memory, "slope" for the exponent of a cost curve
    race: int | None = None
    memory: dict[str, float] = field(default_factory=dict)  # MB of working memory by contestant
    missing: str = ""  # the package that is not installed: nothing was measured
    points: dict[str, Any] = field(default_factory=dict)  # data for the plots

    @property
    def ratio(self) -> float:
        return self.peer_seconds / self.kway_seconds if self.kway_seconds else float("inf")

    @property
    def holds(self) -> bool:
        return self.equal and not self.missing and (self.least is None or self.ratio >= self.least)

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": round(self.ratio, 2), "holds": self.holds}


def race(contestants: dict[str, Callable[[], Any]], rounds: int) -> dict[str, Timing]:
    """Run all contestants in turn, `rounds` times."""
    number = len(_current.races)
    _current.races[number] = list(contestants)
    if _current.alone is not None:
        return _alone(contestants, number)
    timings = {name: Timing(race=number) for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            time.sleep(_current.pause)
            start = time.perf_counter()
            answer = run()
            timings[name].seconds.append(time.perf_counter() - start)
            timings[name].answer = answer
    if _current.folder is not None:
        for place, t in enumerate(timings.values()):
            np.savez(_answers(number, place), allow_pickle=False, **_arrays(t.answer))
    return timings


def _alone(contestants: dict[str, Callable[[], Any]], number: int) -> dict[str, Timing]:
    """Run one contestant once; the results of the others come from the timed pass, because the job compares them."""
    answers = {name: _again(_answers(number, place)) for place, name in enumerate(contestants)}
    runs = contestants.get(_current.alone or "")
    if runs is not None:
        answers[_current.alone or ""], _current.megabytes[number] = working_megabytes(runs)
    return {name: Timing([1.0], answer, number) for name, answer in answers.items()}


def _answers(number: int, place: int) -> Path:
    assert _current.folder is not None
    return _current.folder / f"answer-{number}-{place}.npz"


def _arrays(answer: Any) -> dict[str, np.ndarray]:
    """Return the arrays that a job compares: the result itself, or the array attributes of a model."""
    if isinstance(answer, np.ndarray | int | float):
        return {"array": np.asarray(answer)}
    return {name: value for name, value in getattr(answer, "__dict__", {}).items() if isinstance(value, np.ndarray)}


def _again(path: Path) -> Any:
    with np.load(path, allow_pickle=False) as file:
        found = dict(file)
    return found["array"] if "array" in found else SimpleNamespace(**found)


def settled(name: str, find: Callable[[], Any]) -> Any:
    """Return `find()` (a JSON value), or in a memory pass the value of the timed pass."""
    key = f"{len(_current.races)} {name}"
    if key not in _current.settled:
        _current.settled[key] = find()
    return _current.settled[key]


def row(
    target: str,
    job: str,
    data: str,
    peer: str,
    timings: dict[str, Timing],
    quality: str,
    equal: bool = True,
) -> Row:
    """Return the line of `peer` against "kway" in a race."""
    ours, theirs = timings["kway"], timings[peer]
    rounds = {"kway": ours.seconds, peer: theirs.seconds}
    return Row(target, job, data, peer, ours.median, theirs.median, None, quality, equal, rounds, race=ours.race)


def absent(target: str, job: str, data: str, peer: str, error: NotInstalled) -> Row:
    """Return the line of a peer that is not installed."""
    said = f"not installed (pip install {error.package})"
    return Row(target, job, data, peer, float("nan"), float("nan"), None, said, False, missing=error.package)
