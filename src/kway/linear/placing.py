"""Where the rows of a problem live: device="cpu" here, "cuda" on the GPU, "auto" there where the plan says it pays.

Inside `kway.cluster(...)`, rows that are many live on its nodes.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.cluster.session import current, n_nodes
from kway.compute.gpu.device import ChosenDevice, Device, has_gpu, resolve
from kway.errors import InputError
from kway.linear.objective.objective import Objective
from kway.linear.objective.on_cluster import ClusterObjective
from kway.linear.objective.on_device import DeviceObjective
from kway.planning import far_ways, guard
from kway.planning.rates import known
from kway.planning.size import Size

LEAST_SPREAD = 1 << 26  # bytes of rows below which a pass takes less than asking the nodes for it
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


def answering(device: str, n: int, coef: NDArray) -> Device | None:
    """Where a fitted model answers n rows: on a GPU where there is one (still) and, for "auto", it pays; None: here."""
    R, d = coef.shape
    pays = device == "cuda" or far_ways.gpu_answers(Size(n, d, max(2, R)), known())
    return Device("cuda") if pays and has_gpu() else None


def placed(objective: Objective, device: str) -> Placed:
    """The same problem with its rows where `device` says."""
    chosen = choose_device(device, guard.size_of(objective.X, objective.n_scores))
    if chosen.device is None and current() is not None and _bytes_of(objective.X) >= LEAST_SPREAD:
        return Placed(ClusterObjective.of(objective), f"rows on the {n_nodes()} nodes of a cluster")
    if chosen.device is None:
        return Placed(objective, chosen.why)
    return Placed(DeviceObjective.of(_dense(objective), chosen.device), chosen.why)


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
