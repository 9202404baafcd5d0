"""What a fit checks before it starts: does it fit into memory, and should it sample classes?

Small problems pay nothing: the formulas are arithmetic, and memory is read only above a size. Decisions use
the default rates, not those of this machine, so that the same rows get the same solver everywhere.
"""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp

from kway.errors import BudgetError
from kway.memory import available_bytes, has_room
from kway.planning import costs
from kway.planning.costs import Cost, Formula, Size
from kway.planning.plan import MAX_FIT_SECONDS, make_plan
from kway.planning.rates import Rates
from kway.units import format_bytes, format_count

_DEFAULT = Rates()


def size_of(X: Any, n_classes: int, n_neighbors: int = 5) -> Size:
    """Return the Size of checked rows (n, d)."""
    n, d = X.shape
    density = min(X.nnz / max(1, n * d), 1 - 1e-9) if sp.issparse(X) else 1.0
    return Size(n, d, max(2, n_classes), n_neighbors, density, X.dtype.itemsize)


def check_fit(name: str, formula: Formula, size: Size) -> Cost:
    """Return the cost at the default rates, or raise BudgetError if it needs more memory than there is.

    The rows are in memory already and do not count.
    """
    cost = formula(size, _DEFAULT)
    need = cost.fit_bytes - size.rows_bytes
    if has_room(need, share=1.0):
        return cost
    free = available_bytes()
    advised = make_plan(size, _DEFAULT, free + size.rows_bytes).advised
    advice = "no approach fits"
    if advised is not None:
        advice = f"{advised.name} fits ({advised.call}: {advised.summarize()})"
    raise BudgetError(
        f"{name} on {size.n:,} rows x {size.d:,} features with {size.K:,} classes needs {format_bytes(need)} beside "
        f"its rows ({format_count(cost.parameters)} parameters), there is {format_bytes(free)}; {advice}; "
        f"kway.plan({size.n}, {size.d}, {size.K}) lists the approaches, $KWAY_MEMORY sets how much may be used"
    )


def check_gpu_fit(name: str, formula: Formula, size: Size, free: int, device: str) -> int:
    """Return the bytes of a fit on a GPU, or raise BudgetError if fewer are free."""
    cost = formula(size, _DEFAULT)
    if cost.device_bytes <= free:
        return cost.device_bytes
    raise BudgetError(
        f"{name} on {size.n:,} rows x {size.d:,} features with {size.K:,} classes ({format_count(cost.parameters)} "
        f"parameters) needs {format_bytes(cost.device_bytes)} on {device}, which has {format_bytes(free)} free; use "
        f"device='cpu', or fewer rows; kway.plan({size.n}, {size.d}, {size.K}) lists the approaches"
    )


def exceeds_softmax(size: Size) -> bool:
    """Return whether a softmax over all classes would take hours, or more memory beside the rows than there is."""
    cost = costs.softmax(size, _DEFAULT)
    need = cost.fit_bytes - size.rows_bytes
    return cost.fit_seconds > MAX_FIT_SECONDS or not has_room(need, share=1.0)


def exceeds_gpu_steps(size: Size) -> bool:
    """Return whether epochs of steps over all classes would take hours on a typical GPU."""
    return costs.gpu_step_seconds(size, _DEFAULT) > MAX_FIT_SECONDS
