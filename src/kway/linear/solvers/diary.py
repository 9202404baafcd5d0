"""Diaries of a descent: where it stood after each step, for a run that has to begin again.

    trail       the last points of an earlier run, oldest first, and its values so far: nothing where there was none
    enter       the point after a step; whether to stop

A diary in files holds a point's theta and gradient, (2, R, d + 1), as far back as L-BFGS remembers: its pairs are
differences of points that follow each other, so that the last files give back all that it knew. What holds them
together (the values so far, and whose they are) is in one small file that is written after the points.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from kway.compute.cluster.session import shared_folder
from kway.data.atomic import replacing
from kway.errors import InputError
from kway.linear.objective.distinct_rows import equal_keys
from kway.linear.objective.objective import Objective
from kway.linear.solvers.checkpoints import fingerprint
from kway.linear.solvers.point import Point

REMEMBERED = 20  # steps back: as many as L-BFGS keeps pairs
_FACTS = "steps.json"


class Trail(NamedTuple):
    """Points (the last some), and the values of all steps up to the last of them."""

    points: list[Point]
    history: list[float]


class Diary(Protocol):
    """Who keeps the steps of a descent."""

    def trail(self, objective: Objective) -> Trail:
        """What an earlier run left."""
        ...

    def enter(self, iteration: int, point: Point) -> bool:
        """Keep a step; whether to stop after it."""
        ...


@dataclass(frozen=True)
class NoDiary:
    """Nothing is kept."""

    def trail(self, objective: Objective) -> Trail:
        """Nothing."""
        return Trail([], [])

    def enter(self, iteration: int, point: Point) -> bool:
        """Go on."""
        return False


NO_DIARY = NoDiary()


@dataclass(frozen=True)
class PointFiles:
    """The points of one part of theta, in a folder with those of the others."""

    folder: Path
    part: int = 0

    def keep(self, iteration: int, point: Point) -> None:
        """The point after a step; the oldest goes."""
        with replacing(self._file(iteration)) as draft, draft.open("wb") as out:
            np.save(out, np.stack([point.theta, point.gradient]))
        self._file(iteration - REMEMBERED - 1).unlink(missing_ok=True)

    def last(self, history: list[float], objective: Objective) -> list[Point]:
        """The points up to the last of these values, oldest first, as an objective lays theta out."""
        found: list[Point] = []
        for iteration in range(max(0, len(history) - 1 - REMEMBERED), len(history)):
            file = self._file(iteration)
            if not file.is_file():
                found.clear()
                continue
            theta, gradient = (objective.laid_out(a) for a in np.load(file, allow_pickle=False))
            found.append(Point(theta, history[iteration], gradient, history[iteration]))
        return found

    def _file(self, iteration: int) -> Path:
        return self.folder / f"part-{self.part}-step-{iteration}.npy"


@dataclass
class StepsFile:
    """The values of the steps that count: those of which everybody's points are there."""

    folder: Path
    mark: str  # what tells this fit from others
    parts: int
    history: list[float] = field(default_factory=list)

    @staticmethod
    def of(folder: Path, mark: str, parts: int) -> StepsFile:
        """Those of an earlier run of the same fit, or none."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / _FACTS
        if not file.is_file():
            return StepsFile(folder, mark, parts)
        try:
            facts = json.loads(file.read_text())
            same = facts["mark"] == mark and facts["parts"] == parts
            return StepsFile(folder, mark, parts, [float(value) for value in facts["history"]] if same else [])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{str(file)!r} cannot be read ({error}); remove the folder to begin anew") from error

    def add(self, value: float) -> None:
        """Another step counts."""
        self.history = [*self.history, value]
        with replacing(self.folder / _FACTS) as draft:
            draft.write_text(json.dumps({"mark": self.mark, "parts": self.parts, "history": self.history}))

    def forget(self) -> None:
        """The fit is done: take its files away."""
        for file in (*self.folder.glob("part-*-step-*.npy"), self.folder / _FACTS):
            file.unlink(missing_ok=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()


@dataclass(frozen=True)
class FileDiary:
    """The diary of a descent that holds all of theta itself."""

    steps: StepsFile

    def trail(self, objective: Objective) -> Trail:
        """The points that are there."""
        points = PointFiles(self.steps.folder).last(self.steps.history, objective)
        return Trail(points, self.steps.history if points else [])

    def enter(self, iteration: int, point: Point) -> bool:
        """The point, then that it counts."""
        PointFiles(self.steps.folder).keep(iteration, point)
        self.steps.history = self.steps.history[:iteration]
        self.steps.add(point.value)
        return False


@contextmanager
def kept_steps(objective: Objective, tol: float) -> Iterator[Diary]:
    """Files, where the rows are on a cluster that has a folder; they go when the fit is done."""
    home = shared_folder()
    if home is None or not objective.rows_apart:
        yield NO_DIARY
        return
    mark = mark_of(objective, tol)
    steps = StepsFile.of(home / f"fit-{mark[:16]}", mark, 1)
    yield FileDiary(steps)
    steps.forget()


def mark_of(objective: Objective, tol: float) -> str:
    """What tells a fit from others: its rows, labels and settings."""
    o: Any = objective
    keys = equal_keys(o.X)  # a change of any row changes their sums
    rows = (o.X.shape, str(o.X.dtype), float(keys.sum()), float(keys @ keys))
    settings = (*rows, o.n_scores, o.loss.name, o.penalty, o.fit_intercept, tol)
    return fingerprint(settings, o.targets.codes, np.zeros(0) if o.weight is None else o.weight)
