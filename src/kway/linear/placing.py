"""Where the rows of a problem live: device="cpu" here, "cuda" on the GPU, "auto" there where the plan says it pays.

Inside `kway.cluster(...)` a large problem is split over its nodes: by rows, each with all classes, or, for a softmax by
L-BFGS, by classes, each with all rows. A step moves theta and its gradient to and from each node, or three numbers a
row and back: `split="auto"` takes what moves less.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.cluster.session import current, n_nodes, said_nodes
from kway.compute.gpu.device import ChosenDevice, Device, has_gpu, is_tensor, resolve
from kway.compute.gpu.far_rows import FarRows
from kway.errors import InputError
from kway.linear.objective.class_shard import ClassesApart
from kway.linear.objective.objective import Objective
from kway.linear.objective.on_cluster import ClusterObjective
from kway.linear.objective.on_device import DeviceObjective
from kway.planning import gpu_ways, guard, words
from kway.planning.gpu_ways import MOST_DENSE
from kway.planning.linear_ways import softmax_way
from kway.planning.rates import Rates, known, known_with_gpu
from kway.planning.size import Size
from kway.planning.way import Formula

LEAST_SPREAD = 1 << 26  # bytes of rows below which a pass takes less than asking the nodes for it
LEAST_CLASSES = 1 << 26  # bytes of theta below which its classes stay together
ROW_BYTES = 24  # that a row costs a step, to and from each node, where classes are split: 12 each way in float32


class Placed(NamedTuple):
    """The problem, its rows where they are to be, and in one sentence why; no sentence where nothing was asked.

    `planned`: bytes on the device by the plan.
    """

    objective: Objective
    why: str
    planned: int = 0


def room(there: Placed) -> AbstractContextManager[None]:
    """Inside it, memory that runs out on the device is a BudgetError with the plan's bytes; nothing for rows here."""
    o = there.objective
    if not isinstance(o, DeviceObjective):
        return nullcontext()
    planned = f"planned for {words.size(there.planned)} there"
    return o.device.room(f"a fit of {o.n:,} rows x {o.d:,} features, {o.n_scores:,} scores, {planned},")


def choose_device(device: str, size: Size, formula: Formula = gpu_ways.gpu_fit) -> ChosenDevice:
    """The device that a word means for a problem of this size, which the plan counts as `formula` there."""
    if device != "auto":
        return resolve(device)
    guess = gpu_ways.gpu_verdict(size, known(), formula, sys.maxsize)
    chosen = resolve(device, guess.pays)
    if chosen.device is None:
        return chosen if guess.pays else ChosenDevice(None, f"on the CPU: {guess.why}")
    pays, why = gpu_ways.gpu_verdict(size, known_with_gpu(), formula, chosen.device.free_bytes())
    return ChosenDevice(chosen.device, f"on the GPU: {why}") if pays else ChosenDevice(None, f"on the CPU: {why}")


def keeping(device: str, X: Any) -> Device | None:
    """Where the rows X of a fit stay, or go, if they are a tensor; None: they are read here. "auto": where they are."""
    if not is_tensor(X) or device == "cpu" or (device == "auto" and not X.is_cuda):
        return None
    return resolve(device).device


def answering(device: str, n: int, coef: NDArray) -> Device | None:
    """Where a fitted model answers n rows: on a GPU where there is one (still) and, for "auto", it pays; None: here."""
    R, d = coef.shape
    pays = device == "cuda" or gpu_ways.gpu_answers(Size(n, d, max(2, R)), known())
    return Device("cuda") if pays and has_gpu() else None


def placed(
    objective: Objective,
    device: str,
    formula: Formula = gpu_ways.gpu_fit,
    by_classes: bool = False,
    sampling: bool = False,
) -> Placed:
    """The same problem with its rows where `device` says; BudgetError where by the plan it does not fit there.

    `by_classes`: its solver can split the classes too; `sampling`: it may sample them instead, where all take hours.
    """
    size, X = guard.size_of(objective.X, objective.n_scores), objective.X
    there = isinstance(X, FarRows)
    chosen = ChosenDevice(X.device, resolve(device).why) if there else choose_device(device, size, formula)
    if chosen.device is None:
        return _spread(objective, size, by_classes, sampling) or Placed(objective, chosen.why)
    planned = guard.before_device(
        f"the {objective.loss.name} loss", formula, size, chosen.device.free_bytes(), chosen.device.name
    )
    return Placed(DeviceObjective.of(_dense(objective), chosen.device), chosen.why, planned)


def _spread(objective: Objective, size: Size, by_classes: bool, sampling: bool) -> Placed | None:
    """The same problem on the nodes of a cluster, by classes or by rows; None where it stays here."""
    hard = objective.targets.soft is None and objective.loss.cross_entropy and objective.penalty.smooth
    if by_classes and hard and splits_classes(size, sampling):
        apart = ClassesApart(**{f.name: getattr(objective, f.name) for f in fields(Objective)})
        return Placed(apart, f"classes on the {said_nodes(n_nodes())}")
    home = current()
    if home is not None and (home.split == "rows" or _bytes_of(objective.X) >= LEAST_SPREAD):
        return Placed(ClusterObjective.of(objective), f"rows on the {said_nodes(n_nodes())}")
    return None


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
