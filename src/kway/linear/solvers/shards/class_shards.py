"""L-BFGS with the classes of a softmax apart: one descent, of which every shard runs the part of its own classes.

Directions, steps and pairs are vectors over all classes; a shard holds its rows of each, and the coefficients come from
inner products, which are added up over the shards (compute/cluster/rounds.py). So all take the same decisions, by the
code that one machine runs (lbfgs.py), and go through the same points but for rounding.

A step is kept before the next begins: in files, where the cluster has a folder, by each shard its own, with all that
L-BFGS remembers; else theta alone, where the fit was called. A shard that dies is made again, all go back to the last
step, and at most the current one is lost. A fit that was ended with its driver goes on from the folder.

Where the cluster has GPUs and a folder, the shards are workers of Ray Train, one a GPU (trained_classes.py).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kway.compute.cluster.rounds import hold_rounds
from kway.compute.cluster.row_source import shared_source
from kway.compute.cluster.session import make_crew, n_nodes, shared_folder
from kway.compute.cluster.train import n_gpus, wire_for
from kway.linear.losses import Targets
from kway.linear.objective.class_shard import ClassShard
from kway.linear.objective.objective import Objective
from kway.linear.solvers.base import Control, Solution
from kway.linear.solvers.shards.class_parts import ShardPart, ShardStep, open_class_shard
from kway.linear.solvers.shards.step_files import PointFiles, StepsFile, mark_of
from kway.linear.solvers.shards.trained_classes import train_classes


@dataclass(frozen=True)
class ClassSharded:
    """Preconditioned L-BFGS, the classes over the nodes of a cluster."""

    name: ClassVar[str] = "lbfgs"
    needs: ClassVar[frozenset[str]] = frozenset({"loss.cross_entropy", "penalty.smooth", "rows.here"})
    promises: ClassVar[bool] = True
    spans: ClassVar[bool] = True

    def solve(self, objective: Objective, theta: NDArray, control: Control) -> Solution:
        """From theta to within tol of the optimum, relative to the objective."""
        gpus = n_gpus()
        shards = gpus if gpus and shared_folder() is not None else n_nodes()
        edges = class_edges(objective.n_scores, shards)
        kept = _Kept.of(objective, theta, control, len(edges) - 1)
        parts = shard_parts(objective, kept.steps, control, edges)
        if gpus and kept.steps is not None:
            said = train_classes(objective, parts, kept.steps, kept.theta, wire_for(len(parts)))
        else:
            said = _asked(parts, kept)
        if kept.steps is not None:
            kept.steps.forget()
        near = said.converged or said.miss <= control.tol
        return replace(said, converged=near, advice="" if near else said.advice, value=said.history[-1])


def _asked(parts: list[ShardPart], kept: _Kept) -> Solution:
    """The solution of shards that are members of a crew, asked round by round."""
    crew = make_crew([partial(open_class_shard, part) for part in parts])
    try:
        ends: list[Solution] = hold_rounds(crew, kept.start, kept.report)
    finally:
        crew.close()
    return replace(ends[0], theta=np.concatenate([end.theta for end in ends]))


def class_edges(n_classes: int, shards: int) -> list[int]:
    """Where the classes are cut: into so many shards, none of them empty."""
    shards = max(1, min(shards, n_classes))
    return [n_classes * s // shards for s in range(shards + 1)]


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
        mark = mark_of(objective, control.tol, "lbfgs by classes")
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


def shard_parts(objective: Objective, steps: StepsFile | None, control: Control, edges: list[int]) -> list[ShardPart]:
    """What each shard is made of."""
    source = shared_source(objective.X)
    facts = {f.name: getattr(objective, f.name) for f in fields(Objective)} | {"X": objective.X[:0], "turned": []}
    plain = Control(control.max_iter, control.tol, least=control.least)
    found = []
    for part, (first, end) in enumerate(itertools.pairwise(edges)):
        facts |= {"targets": Targets(objective.targets.codes - first), "n_scores": end - first}
        files = None if steps is None else PointFiles(steps.folder, part)
        found.append(ShardPart(source, ClassShard(**facts, n_classes=objective.n_scores), plain, files, first))
    return found
