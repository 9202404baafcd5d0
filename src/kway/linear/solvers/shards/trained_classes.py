"""The descent of class_shards.py on the workers of Ray Train: a GPU's worth of classes each, talking by all_reduce.

The shards keep every step in the cluster's folder, which is also where their result is read from: theta is the last
point of each part. A worker that dies costs the current step, as there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.cluster.rounds import Talk
from kway.compute.cluster.train import Wire, train_together
from kway.data.outputs.atomic import replacing
from kway.linear.objective.class_shard import ClassShard
from kway.linear.objective.class_shard_on_device import DeviceClassShard
from kway.linear.objective.objective import Objective
from kway.linear.solvers.base import Solution
from kway.linear.solvers.shards.class_parts import ShardPart, descend_classes
from kway.linear.solvers.shards.step_files import StepsFile

_END = "end.json"


def train_classes(
    objective: Objective, parts: list[ShardPart], steps: StepsFile, theta: NDArray | None, wire: Wire
) -> Solution:
    """The solution that the workers leave in the folder of steps."""
    programs: list[Any] = [partial(learn_part, part, steps, theta) for part in parts]
    train_together(programs, steps.folder, wire)
    done = StepsFile.of(steps.folder, steps.mark, steps.parts)
    ends = [part.files.last(done.history, objective)[-1].theta for part in parts if part.files is not None]
    said = json.loads((steps.folder / _END).read_text())
    miss = np.inf if said["miss"] is None else float(said["miss"])
    found = Solution(np.concatenate(ends), len(done.history) - 1, said["converged"], miss, done.history, said["advice"])
    (steps.folder / _END).unlink()
    return found


def learn_part(
    part: ShardPart,
    steps: StepsFile,
    theta: NDArray | None,
    reach: Callable[[Callable[[Any], None]], Talk],
    device: str,
) -> None:
    """On a worker: its classes, from where all of them left off."""
    known = StepsFile.of(steps.folder, steps.mark, steps.parts)
    talk = reach(lambda step: known.add(step.value))
    found = descend_classes(_on_device(part.shard(), device), part.control, part.files, part.first, talk,
                            known.history, theta)  # fmt: skip
    if part.first == 0:
        miss = float(found.miss) if np.isfinite(found.miss) else None
        with replacing(steps.folder / _END) as draft:
            draft.write_text(json.dumps({"converged": bool(found.converged), "miss": miss, "advice": found.advice}))


def _on_device(shard: ClassShard, device: str) -> ClassShard:
    """Dense rows on the device; CSR rows stay on the host."""
    if sp.issparse(shard.X):
        return shard
    return DeviceClassShard(**{f.name: getattr(shard, f.name) for f in fields(ClassShard)}, device=device)
