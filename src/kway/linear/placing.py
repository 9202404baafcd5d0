"""Where the rows of a problem live: device="cpu" here, "cuda" on the GPU, "auto" there where the plan says it pays.

Inside `kway.cluster(...)` the rows of a large problem are split over its nodes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import scipy.sparse as sp
from numpy.typing import NDArray

from kway import words
from kway.linear.objective import Objective
from kway.planning import costs, guard
from kway.planning.costs import Formula, Size
from kway.planning.rates import Rates
from kway.rows.cluster.passes import ClusterRows
from kway.rows.cluster.restart import saved_theta
from kway.rows.cluster.session import current, n_nodes, said_nodes
from kway.rows.gpu.device import ChosenDevice, Device, has_gpu, is_tensor, resolve
from kway.rows.gpu.tensor_rows import TensorRows
from kway.rows.passes import wrap_rows

LEAST_SPREAD = 1 << 26  # bytes of rows below which a pass takes less than asking the nodes for it


class Placed(NamedTuple):
    """The problem, its rows where they are to be, and in one sentence why; no sentence where nothing was asked.

    `planned`: bytes on the device by the plan.
    """

    objective: Objective
    why: str
    planned: int = 0
    device: Device | None = None


def room(there: Placed) -> AbstractContextManager[None]:
    """Inside it, memory that runs out on the device is a BudgetError with the plan's bytes; nothing for rows here."""
    o = there.objective
    if there.device is None:
        return nullcontext()
    planned = f"planned for {words.size(there.planned)} there"
    return there.device.room(f"a fit of {o.n:,} rows x {o.d:,} features, {o.n_scores:,} scores, {planned},")


def choose_device(device: str, size: Size, formula: Formula = costs.gpu_softmax, X: Any = None) -> ChosenDevice:
    """The device that a word means for a problem of this size, whose costs there are `formula`.

    Rows X that are on a GPU stay there.
    """
    if isinstance(X, TensorRows):
        return ChosenDevice(X.device, resolve(device).why)
    if device != "auto":
        return resolve(device)
    verdict = costs.judge_gpu(size, Rates(), formula, sys.maxsize)
    chosen = resolve(device, verdict.pays)
    if chosen.device is not None:
        verdict = costs.judge_gpu(size, Rates(), formula, chosen.device.free_bytes())
    elif verdict.pays:
        return chosen
    return ChosenDevice(
        chosen.device if verdict.pays else None, f"on the {'GPU' if verdict.pays else 'CPU'}: {verdict.why}"
    )


def keeping(device: str, X: Any) -> Device | None:
    """Where the rows X of a fit stay, or go, if they are a tensor; None: they are read here. "auto": where they are."""
    if not is_tensor(X) or device == "cpu" or (device == "auto" and not X.is_cuda):
        return None
    return resolve(device).device


def answering(device: str, n: int, coef: NDArray) -> Device | None:
    """Where a fitted model answers n rows: on a GPU where there is one (still) and, for "auto", it pays; None: here."""
    R, d = coef.shape
    pays = device == "cuda" or costs.gpu_pays_for_predictions(Size(n, d, max(2, R)), Rates())
    return Device("cuda") if pays and has_gpu() else None


def placed(objective: Objective, chosen: ChosenDevice, size: Size, formula: Formula) -> Placed:
    """The same problem with its rows on the device that was chosen; raises BudgetError if it does not fit there."""
    if chosen.device is None:
        return _spread(objective) or Placed(objective, chosen.why)
    planned = guard.check_gpu_fit(
        f"the {objective.loss.name} loss", formula, size, chosen.device.free_bytes(), chosen.device.name
    )
    rows = wrap_rows(objective.X, chosen.device)
    return Placed(replace(objective, rows=rows), chosen.why, planned, chosen.device)


def _spread(objective: Objective) -> Placed | None:
    """The same problem with its rows on the nodes of a cluster; None if it stays in this process."""
    home = current()
    if home is not None and (home.split == "rows" or _bytes_of(objective.X) >= LEAST_SPREAD):
        return Placed(
            replace(objective, rows=wrap_rows(objective.X, cluster=True)), f"rows on the {said_nodes(n_nodes())}"
        )
    return None


@contextmanager
def restarted(objective: Objective) -> Iterator[NDArray | None]:
    """The theta that an earlier run of the same fit on a cluster left, if any; its file goes when the fit is done."""
    rows, saved = objective.rows, None
    if isinstance(rows, ClusterRows):
        problem = (objective.n_scores, objective.loss, objective.penalty, objective.fit_intercept)
        saved = saved_theta(rows.n, rows.X, *objective.targets, objective.weight, *problem)
        rows.on_theta = None if saved is None else saved.save
    yield None if saved is None else saved.load()
    if saved is not None:
        saved.forget()


def _bytes_of(X: Any) -> int:
    return int(X.data.nbytes + X.indices.nbytes if sp.issparse(X) else X.nbytes)
