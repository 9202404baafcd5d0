"""Where the rows of a problem live: device="cpu" here, "cuda" on the GPU, "auto" there where the plan says it pays.

Inside `kway.cluster(...)` a large problem is split over its nodes: by rows, each with all classes, or, for a softmax by
L-BFGS, by classes, each with all rows. A step moves theta and its gradient to and from each node, or three numbers a
row and back: `split="auto"` takes what moves less.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from kway.compute.cluster.session import current, n_nodes
from kway.compute.gpu.device import ChosenDevice, resolve
from kway.errors import InputError
from kway.linear.objective.class_shard import ClassesApart
from kway.linear.objective.objective import Objective
from kway.linear.objective.on_cluster import ClusterObjective
from kway.linear.objective.on_device import DeviceObjective
from kway.planning import far_ways, guard
from kway.planning.linear_ways import softmax_way
from kway.planning.rates import Rates, known
from kway.planning.size import Size

LEAST_SPREAD = 1 << 26  # bytes of rows below which a pass takes less than asking the nodes for it
LEAST_CLASSES = 1 << 26  # bytes of theta below which its classes stay together
ROW_BYTES = 24  # that a row costs a step, to and from each node, where classes are split: 12 each way in float32
MOST_DENSE = 1 << 32  # bytes of sparse rows made dense, which is what a device multiplies


def room(objective: Objective) -> AbstractContextManager[None]:
    """Inside it, memory that runs out on the device is a BudgetError; nothing where the rows are here."""
    if not isinstance(objective, DeviceObjective):
        return nullcontext()
    return objective.device.room(
        f"a fit of {objective.n:,} rows x {objective.d:,} features, {objective.n_scores:,} scores"
    )


class Placed(NamedTuple):
    """The problem, its rows where they are to be, and in one sentence why; no sentence where nothing was asked."""

    objective: Objective
    why: str


def choose_device(device: str, size: Size) -> ChosenDevice:
    """The device that a word means for a problem of this size."""
    return resolve(device, pays=device != "auto" or far_ways.gpu_pays(size, known()))


def placed(objective: Objective, device: str, by_classes: bool = False, sampling: bool = False) -> Placed:
    """The same problem with its rows where `device` says.

    `by_classes`: its solver can split the classes too; `sampling`: it may sample them instead, where all take hours.
    """
    chosen = choose_device(device, guard.size_of(objective.X, objective.n_scores))
    if chosen.device is not None:
        return Placed(DeviceObjective.of(_dense(objective), chosen.device), chosen.why)
    hard = objective.targets.soft is None and objective.loss.cross_entropy and objective.penalty.smooth
    if by_classes and hard and splits_classes(guard.size_of(objective.X, objective.n_scores), sampling):
        apart = ClassesApart(**{f.name: getattr(objective, f.name) for f in fields(Objective)})
        return Placed(apart, f"classes on the {n_nodes()} nodes of a cluster")
    home = current()
    if home is not None and (home.split == "rows" or _bytes_of(objective.X) >= LEAST_SPREAD):
        return Placed(ClusterObjective.of(objective), f"rows on the {n_nodes()} nodes of a cluster")
    return Placed(objective, chosen.why)


def splits_classes(size: Size, sampling: bool) -> bool:
    """Whether the cluster, if there is one, is to split the classes of a softmax of this size; see `placed`."""
    home, theta = current(), size.parameters * size.itemsize
    if home is None or home.split != "auto" or size.K == 2:
        return home is not None and home.split == "classes" and size.K > 2
    if theta < LEAST_CLASSES or 2 * theta <= ROW_BYTES * size.n:
        return False
    return not sampling or softmax_way(size, Rates()).fit_seconds <= guard.PATIENCE * n_nodes()


def _bytes_of(X: Any) -> int:
    return int(X.data.nbytes + X.indices.nbytes if sp.issparse(X) else X.nbytes)


def _dense(objective: Objective) -> Objective:
    """Sparse rows as dense ones where those are not large; C-contiguous."""
    X = objective.X
    if not sp.issparse(X):
        return objective
    needed = X.shape[0] * X.shape[1] * X.dtype.itemsize
    if needed > MOST_DENSE:
        raise InputError(
            f"X is sparse, {X.shape[0]:,} x {X.shape[1]:,}: a GPU multiplies dense rows, which would take "
            f"{needed / 2**30:.1f} GiB here (at most {MOST_DENSE / 2**30:.0f}); use device='cpu', which reads it so"
        )
    return replace(objective, X=np.ascontiguousarray(X.toarray()), turned=[])
