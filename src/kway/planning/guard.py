"""What `fit` asks before it starts: refuse what would die of memory, say at once what will take long.

Free for small problems: the formulas are some arithmetic, memory is read and rates are looked up only above a size.
"""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp

from kway.errors import BudgetError
from kway.planning import words
from kway.planning.linear_ways import softmax_way
from kway.planning.machine import available_bytes
from kway.planning.plan import ways_of
from kway.planning.rates import Rates, known
from kway.planning.row_ways import flat_way
from kway.planning.size import Size
from kway.planning.way import Formula, Way
from kway.progress import note

WORTH_ASKING = 2**28  # bytes: less is always there
_LONG = 30.0  # seconds from which the time is told
PATIENCE = 3600.0  # seconds of a softmax over all classes, at the default rates, above which classes are sampled
FITS = 15  # of softmax that a comparison is worth: a path of alphas over the folds, from warm starts
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
        _tell(who, formula(size, known()).fit_seconds)


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


def comparison_seconds(size: Size, rates: Rates = _DEFAULT) -> float:
    """What a comparison of families takes: many fits, and a search of all rows by all. By default at typical rates,
    so that what is decided by it is the same everywhere.
    """
    return FITS * softmax_way(size, rates).fit_seconds + size.n * flat_way(size, rates).predict_seconds


def before_comparison(size: Size, budget: float | None) -> None:
    """Tell the time of a comparison of families that will take long."""
    expected = comparison_seconds(size, known())
    _tell("the comparison", expected if budget is None else min(expected, budget))


def _tell(who: str, seconds: float) -> None:
    if seconds > _LONG:
        note(f"{who}: about {words.time(seconds)} expected on this machine")
