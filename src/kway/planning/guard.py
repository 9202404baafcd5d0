"""What `fit` asks before it starts: refuse what would die of memory, say at once what will take long.

Free for small problems: the formulas are some arithmetic, memory is read and rates are looked up only above a size.
"""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp

from kway.errors import BudgetError
from kway.planning import words
from kway.planning.gpu_ways import GPU_TYPICAL, gpu_steps_seconds
from kway.planning.linear_ways import softmax_way
from kway.planning.machine import available_bytes
from kway.planning.plan import ways_of
from kway.planning.rates import Rates, known
from kway.planning.size import Size
from kway.planning.way import Formula, Way
from kway.progress import note

WORTH_ASKING = 2**28  # bytes: less is always there
_LONG = 30.0  # seconds from which the time is told
PATIENCE = 3600.0  # seconds of a softmax over all classes, at the default rates, above which classes are sampled
_ALL_BUT = 0.8  # of the memory that is there may be one table: the rest is for what is made of it
_DEFAULT = Rates()


def size_of(X: Any, n_classes: int, n_neighbors: int = 5) -> Size:
    """The size of checked rows (n, d)."""
    n, d = X.shape
    density = min(X.nnz / max(1, n * d), 1 - 1e-9) if sp.issparse(X) else 1.0
    return Size(n, d, max(2, n_classes), n_neighbors, density, X.dtype.itemsize)


def before_fit(who: str, formula: Formula, size: Size) -> None:
    """Raise BudgetError where the fit needs more than there is; tell a long one's time. The rows are already here."""
    guess = refuse(who, formula, size)
    if guess.fit_seconds > _LONG / 3:  # the default rates may be that far off
        tell_time(who, formula(size, known()).fit_seconds)


def before_device(who: str, formula: Formula, size: Size, free: int, device: str) -> int:
    """The bytes of a fit on a device; BudgetError where fewer are free there."""
    way = formula(size, _DEFAULT)
    if way.device_bytes <= free:
        return way.device_bytes
    raise BudgetError(
        f"{who} on {size.n:,} rows x {size.d:,} features with {size.K:,} classes needs {words.size(way.device_bytes)} "
        f"on {device} by the plan ({words.count(way.parameters)} parameters), which has {words.size(free)} free; use "
        f"device='cpu', or fewer rows; kway.plan({size.n}, {size.d}, {size.K}) lists the ways"
    )


def refuse(who: str, formula: Formula, size: Size) -> Way:
    """The way at the default rates; BudgetError where it needs more memory beside the rows than there is."""
    way = formula(size, _DEFAULT)
    need = way.fit_bytes - size.rows_bytes
    if need <= WORTH_ASKING or need <= (there := available_bytes()):
        return way
    advised = ways_of(size, known(), there + size.rows_bytes).advised
    fitting = "no way fits" if advised is None else f"{advised.name} fits ({advised.call}: {advised.needs()})"
    raise BudgetError(
        f"{who} on {size.n:,} rows x {size.d:,} features with {size.K:,} classes needs {words.size(need)} beside its "
        f"rows ({words.count(way.parameters)} parameters), there is {words.size(there)}; {fitting}; "
        f"kway.plan({size.n}, {size.d}, {size.K}) lists the ways, $KWAY_MEMORY sets what may be taken"
    )


def has_room(need: int) -> bool:
    """Whether so many bytes may be taken at once, some memory left."""
    return need <= WORTH_ASKING or need <= _ALL_BUT * available_bytes()


def beyond_softmax(size: Size) -> bool:
    """Whether a softmax over all classes would take hours or more memory beside the rows than there is.

    By the default rates, not this machine's: the same rows get the same solver everywhere that can hold them.
    """
    way = softmax_way(size, _DEFAULT)
    need = way.fit_bytes - size.rows_bytes
    return way.fit_seconds > PATIENCE or (need > WORTH_ASKING and need > available_bytes())


def beyond_gpu_steps(size: Size) -> bool:
    """Whether epochs of steps over all classes would take hours on a GPU, by a typical one's rate."""
    return gpu_steps_seconds(size, GPU_TYPICAL) > PATIENCE


def tell_time(who: str, seconds: float) -> None:
    """Say at once that it will take long, where it will."""
    if seconds > _LONG:
        note(f"{who}: about {words.time(seconds)} expected on this machine")
