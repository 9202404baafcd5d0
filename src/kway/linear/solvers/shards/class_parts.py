"""What each shard of a softmax with its classes apart runs, and what it is made of (class_shards.py).

ShardPart         rows by their source, the problem of some classes without them, the files of its steps
descend_classes   the part of one descent that is about these classes, whoever its fellows are
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.cluster.rounds import Speaker, Talk
from kway.compute.cluster.row_source import Carried, FilePlace, SharedRows
from kway.compute.threads import single_blas
from kway.linear.objective.class_shard import ClassShard
from kway.linear.objective.objective import Objective
from kway.linear.solvers.base import Control, Solution
from kway.linear.solvers.lbfgs import solve_smooth
from kway.linear.solvers.point import Point
from kway.linear.solvers.shards.diary import Diary, Trail
from kway.linear.solvers.shards.step_files import PointFiles

_SAFE = 0.5  # of tol: there is no proof here, and the gain of a third of the way is an estimate


class ShardStep(NamedTuple):
    """Told after each step: the objective, and the rows of theta here where no file has them."""

    value: float
    theta: NDArray | None


class ShardPart(NamedTuple):
    """What a shard is made of: `blank` is its problem without rows, `first` the first of its classes."""

    source: FilePlace | Carried | SharedRows
    blank: ClassShard
    control: Control
    files: PointFiles | None
    first: int

    def shard(self) -> ClassShard:
        """Its problem, where it is asked for."""
        return replace(self.blank, X=self.source.rows(), turned=[])


def open_class_shard(part: ShardPart) -> Speaker:
    """The shard as a member of a crew, on its node."""
    return Speaker(partial(descend_classes, part.shard(), part.control, part.files, part.first))


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
class ShardDiary(Diary):
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
