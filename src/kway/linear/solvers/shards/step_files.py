"""The diary of a descent in files, where the rows are on a cluster that has a folder.

fit-MARK/  part-P-step-I.npy     a point's theta and gradient, (2, R, d + 1): as many of the last as the solver needs
           steps.json            the values so far, and whose they are: written after the points, it makes them count
           chapter-WIDTH/        the same of one rounding of a hinge; end.npz, its solution, once it is solved

L-BFGS needs as many points as it remembers pairs, which are differences of points that follow each other: the last
files give back all that it knew. Steepest descent needs two, for its next step, and the proximal solver one, from which
it goes on as after any new model; one more is kept, for an end between a point and its value. `part` tells shards of
classes apart, each of which holds some rows of theta.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from kway.compute.cluster.session import shared_folder
from kway.data.outputs.atomic import replacing
from kway.errors import InputError
from kway.linear.objective.distinct_rows import key_sums
from kway.linear.objective.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.solvers.base import Control, Solution
from kway.linear.solvers.many_classes.checkpoints import fingerprint
from kway.linear.solvers.point import Point
from kway.linear.solvers.shards.diary import Diary, Trail

REMEMBERED = 20  # steps back: as many as L-BFGS keeps pairs
_FACTS, _END = "steps.json", "end.npz"


@dataclass(frozen=True)
class PointFiles:
    """The points of one part of theta, in a folder with those of the others; `remembered` beside the last."""

    folder: Path
    part: int = 0
    remembered: int = REMEMBERED

    def keep(self, iteration: int, point: Point) -> None:
        """The point after a step; the oldest goes."""
        self.folder.mkdir(parents=True, exist_ok=True)  # another run of the same fit, done, has taken it away
        with replacing(self._file(iteration)) as draft, draft.open("wb") as out:
            np.save(out, np.stack([point.theta, point.gradient]))
        self._file(iteration - self.remembered - 1).unlink(missing_ok=True)

    def last(self, history: list[float], objective: Objective) -> list[Point]:
        """The points up to the last of these values, oldest first, as an objective lays theta out."""
        found: list[Point] = []
        for iteration in range(max(0, len(history) - 1 - self.remembered), len(history)):
            file = self._file(iteration)
            if not file.is_file():
                found.clear()
                continue
            theta, gradient = (objective.laid_out(a) for a in _read(file))
            total = history[iteration]
            smooth = total - Penalty(lasso=objective.penalty.lasso).value(theta[:, :-1])
            found.append(Point(theta, smooth, gradient, total))
        return found

    def _file(self, iteration: int) -> Path:
        return self.folder / f"part-{self.part}-step-{iteration}.npy"


def _read(file: Path) -> Any:
    """The array of a file that this module wrote, or the arrays by name."""
    try:
        with file.open("rb") as held:
            found = np.load(held, allow_pickle=False)
            return found if isinstance(found, np.ndarray) else dict(found)
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise _torn(file, error) from error


def _torn(file: Path, error: Exception) -> InputError:
    return InputError(f"{str(file)!r} cannot be read ({error}); remove the folder to begin anew")


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
            raise _torn(file, error) from error

    def add(self, value: float) -> None:
        """Another step counts."""
        self.history = [*self.history, value]
        self.folder.mkdir(parents=True, exist_ok=True)
        with replacing(self.folder / _FACTS) as draft:
            draft.write_text(json.dumps({"mark": self.mark, "parts": self.parts, "history": self.history}))

    def forget(self) -> None:
        """The fit is done: take its files away."""
        for chapter in self.folder.glob("chapter-*"):
            (chapter / _END).unlink(missing_ok=True)
            StepsFile(chapter, self.mark, self.parts).forget()
        for file in (*self.folder.glob("part-*-step-*.npy"), self.folder / _FACTS):
            file.unlink(missing_ok=True)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()


@dataclass(frozen=True)
class FileDiary(Diary):
    """The diary of a descent that holds all of theta itself."""

    steps: StepsFile
    points: PointFiles

    @staticmethod
    def of(folder: Path, mark: str, remembered: int) -> FileDiary:
        """What is in a folder, and will be."""
        return FileDiary(StepsFile.of(folder, mark, 1), PointFiles(folder, remembered=remembered))

    def trail(self, objective: Objective) -> Trail:
        """The points that are there."""
        points = self.points.last(self.steps.history, objective)
        return Trail(points, self.steps.history if points else [])

    def enter(self, iteration: int, point: Point) -> bool:
        """The point, then that it counts."""
        self.points.keep(iteration, point)
        self.steps.history = self.steps.history[:iteration]
        self.steps.add(point.total)
        return False

    def chapter(self, width: float) -> FileDiary:
        """In a folder of its own."""
        return FileDiary.of(self.steps.folder / f"chapter-{width:g}", self.steps.mark, self.points.remembered)

    def ended(self) -> Solution | None:
        """As it was kept."""
        file = self.steps.folder / _END
        if not file.is_file():
            return None
        held = _read(file)
        try:
            return Solution(held["theta"], **json.loads(str(held["facts"])))
        except (ValueError, KeyError, TypeError) as error:
            raise _torn(file, error) from error

    def end(self, found: Solution) -> None:
        """The solution; then the steps to it go."""
        if (self.steps.folder / _END).is_file():
            return
        facts = {f.name: getattr(found, f.name) for f in fields(Solution) if f.name != "theta"}
        told = json.dumps(facts, default=lambda number: number.item())
        with replacing(self.steps.folder / _END) as draft, draft.open("wb") as out:
            np.savez(out, theta=found.theta, facts=np.array(told))
        self.steps.forget()


@contextmanager
def kept_steps(objective: Objective, control: Control, solver: str, remembered: int = REMEMBERED) -> Iterator[Control]:
    """Control with files for a diary, where rows are on a cluster that has a folder; they go when the fit is done."""
    home = shared_folder()
    if home is None or not objective.rows_apart:
        yield control
        return
    mark = mark_of(objective, control.tol, solver)
    diary = FileDiary.of(home / f"fit-{mark[:16]}", mark, remembered)
    yield replace(control, diary=diary)
    diary.steps.forget()


def mark_of(objective: Objective, tol: float, solver: str) -> str:
    """What tells a fit from others: its rows, labels, weights and settings, however many nodes hold them."""
    o: Any = objective
    sums = key_sums(o) if o.rows_here else o.key_sums()
    digits = 17 if o.rows_here else 9  # sums over other shards round otherwise
    rows = (o.n, o.d, str(o.X.dtype), *(f"{value:.{digits}g}" for value in sums))
    return fingerprint((*rows, o.n_scores, o.loss, o.penalty, o.fit_intercept, tol, solver))
