"""L-BFGS with the classes of a softmax apart: one descent, of which every shard runs the part of its own classes.

Directions, steps and pairs are vectors over all classes; a shard holds its rows of each, and the coefficients come from
inner products, which are added up over the shards (compute/cluster/rounds.py). So all take the same decisions, by the
code that one machine runs (lbfgs.py), and go through the same points but for rounding.

A step is kept before the next begins: in files, where the cluster has a folder, by each shard its own, with all that
L-BFGS remembers; else theta alone, where the fit was called. A shard that dies is made again, all go back to the last
step, and at most the current one is lost. A fit that was ended with its driver goes on from the folder.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.cluster.rounds import Speaker, Talk, hold_rounds
from kway.compute.cluster.row_source import Carried, FilePlace, SharedRows, shared_source
from kway.compute.cluster.session import make_crew, n_nodes, shared_folder
from kway.compute.threads import single_blas
from kway.linear.losses import Targets
from kway.linear.objective.class_shard import ClassShard
from kway.linear.objective.objective import Objective
from kway.linear.solvers.base import Control, Solution
from kway.linear.solvers.diary import PointFiles, StepsFile, Trail, mark_of
from kway.linear.solvers.lbfgs import solve_smooth
from kway.linear.solvers.point import Point

_SAFE = 0.5  # of tol: there is no proof here, and the gain of a third of the way is an estimate


class ShardStep(NamedTuple):
    """Told after each step: the objective, and the rows of theta here where no file has them."""

    value: float
    theta: NDArray | None


@dataclass(frozen=True)
class ClassSharded:
    """Preconditioned L-BFGS, the classes over the nodes of a cluster."""

    name: ClassVar[str] = "lbfgs"
    needs: ClassVar[frozenset[str]] = frozenset({"loss.cross_entropy", "penalty.smooth", "rows.here"})
    promises: ClassVar[bool] = True

    def solve(self, objective: Objective, theta: NDArray, control: Control) -> Solution:
        """From theta to within tol of the optimum, relative to the objective."""
        edges = class_edges(objective.n_scores)
        kept = _Kept.of(objective, theta, control, len(edges) - 1)
        crew = make_crew(_makers(objective, kept.steps, control, edges))
        try:
            ends: list[Solution] = hold_rounds(crew, kept.start, kept.report)
        finally:
            crew.close()
        if kept.steps is not None:
            kept.steps.forget()
        whole, said = np.concatenate([end.theta for end in ends]), ends[0]
        near = said.converged or said.miss <= control.tol
        return replace(said, theta=whole, converged=near, advice="" if near else said.advice, value=said.history[-1])


def class_edges(n_classes: int) -> list[int]:
    """Where the classes are cut: as many shards as there are nodes."""
    shards = max(1, min(n_nodes(), n_classes))
    return [n_classes * s // shards for s in range(shards + 1)]


# ---------------------------------------------------------------- on each shard


def open_class_shard(
    source: FilePlace | Carried | SharedRows, blank: ClassShard, control: Control, files: PointFiles | None, first: int
) -> Speaker:
    """The shard on its node: `blank` is its problem without rows."""
    return Speaker(partial(descend_classes, replace(blank, X=source.rows(), turned=[]), control, files, first))


def descend_classes(
    shard: ClassShard,
    control: Control,
    files: PointFiles | None,
    first: int,
    talk: Talk,
    history: list[float],
    theta: NDArray | None,
) -> Solution:
    """The part of a descent that is about the classes from `first` on, from theta (K, d + 1) of all (None: zero)."""
    shard = replace(shard, talk=talk)
    here = shard.zeros() if theta is None else shard.laid_out(theta[first : first + shard.n_scores])
    diary = ShardDiary(talk, files, history, here)
    with single_blas():
        return solve_smooth(shard, here, replace(control, tol=_SAFE * control.tol, diary=diary))


@dataclass(frozen=True)
class ShardDiary:
    """A shard's steps: kept in its files, or told to whoever holds the rounds."""

    talk: Talk
    files: PointFiles | None
    history: list[float]
    theta: NDArray  # the rows here of the last step, where there are no files

    def trail(self, objective: Objective) -> Trail:
        """As many of the last points as every shard has; without files the last one."""
        if not self.history:
            return Trail([], [])
        if self.files is None:
            return Trail([Point.centred_at(objective, self.theta)], self.history)
        points = self.files.last(self.history, objective)
        fewest = -int(self.talk.most(np.array([-len(points)]))[0])
        return Trail(points[len(points) - fewest :], self.history)

    def enter(self, iteration: int, point: Point) -> bool:
        """Keep a step, then tell of it."""
        if self.files is not None:
            self.files.keep(iteration, point)
        return self.talk.report(ShardStep(point.value, point.theta if self.files is None else None))


# ---------------------------------------------------------------- where the fit was called


@dataclass
class _Kept:
    """What a fit holds of its shards: the values so far, and theta where they have no folder to keep it in."""

    control: Control
    steps: StepsFile | None
    theta: NDArray | None
    history: list[float] = field(default_factory=list)

    @staticmethod
    def of(objective: Objective, theta: NDArray, control: Control, parts: int) -> _Kept:
        home, begun = shared_folder(), theta if theta.any() else None
        if home is None:
            return _Kept(control, None, begun)
        mark = mark_of(objective, control.tol)
        steps = StepsFile.of(home / f"fit-{mark[:16]}", mark, parts)
        return _Kept(control, steps, begun, steps.history)

    def start(self) -> tuple[list[float], NDArray | None]:
        """What the shards begin from: the last step that all of them kept."""
        return self.history, self.theta

    def report(self, steps: list[ShardStep]) -> bool:
        """A step that everybody has taken and kept."""
        self.history = [*self.history, steps[0].value]
        if self.steps is not None:
            self.steps.add(steps[0].value)
        else:
            self.theta = np.concatenate([step.theta for step in steps if step.theta is not None])
        tell = self.control.progress
        return tell is not None and tell(len(self.history) - 1, steps[0].value)


def _makers(
    objective: Objective, steps: StepsFile | None, control: Control, edges: list[int]
) -> list[Callable[[], Speaker]]:
    """How each node makes its shard."""
    source = shared_source(objective.X)
    facts = {f.name: getattr(objective, f.name) for f in fields(Objective)} | {"X": objective.X[:0], "turned": []}
    plain = Control(control.max_iter, control.tol, least=control.least)
    found: list[Callable[[], Speaker]] = []
    for part, (first, end) in enumerate(itertools.pairwise(edges)):
        facts |= {"targets": Targets(objective.targets.codes - first), "n_scores": end - first}
        files = None if steps is None else PointFiles(steps.folder, part)
        blank = ClassShard(**facts, n_classes=objective.n_scores)
        found.append(partial(open_class_shard, source, blank, plain, files, first))
    return found
