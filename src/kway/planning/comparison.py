"""What comparing families takes, counted from what is run; from a size on they are compared on a sample (kway.select).

    comparison = passes x a + factors + SEARCHES x s    a: one pass over all rows and classes; s: all searched by all

passes   of a path of alphas over five folds with warm starts, which is far from as many fits: 60 to 100 for 11 alphas
         of one fold, 20 to 40 for the three that are run where a pass is heavy (5 sizes, 10 to 1,000 classes). On heavy
         sparse rows machines stand for all, whose alphas take about 25 products, and one search, by cosine
factors  of each class, where classes have few rows: as many times as a fit makes them, for three alphas of two folds
"""

from __future__ import annotations

from kway.planning.guard import tell_time
from kway.planning.linear_ways import factor_operations, pass_seconds
from kway.planning.rates import Rates, known
from kway.planning.row_ways import flat_way
from kway.planning.size import Size

HEAVY = 0.02  # seconds of one pass, at the default rates, above which one linear family stands for all, with few alphas
_PASSES, _HEAVY_PASSES = 600, 120  # of all linear families; of the one
_FACTORED = 6  # fits in which they are made
_MACHINE_PRODUCTS = 25  # of one-vs-all machines on sparse rows: 150 classes of 10,000 questions took 3.5 s
_FIT_PRODUCTS = 6  # of such machines of one alpha, to the tolerance of a comparison
_SEARCHES = 3.3  # by L2, by cosine, and by L1, which is a little slower
_DEFAULT = Rates()


def comparison_seconds(size: Size, rates: Rates = _DEFAULT) -> float:
    """Of all families. By default at typical rates, so that what is decided by it is the same everywhere."""
    heavy, search = pass_seconds(size, _DEFAULT) > HEAVY, size.n * flat_way(size, rates).predict_seconds
    if heavy and size.sparse:
        return machine_seconds(size, rates) + search
    passes, factors = _HEAVY_PASSES if heavy else _PASSES, _FACTORED * factor_operations(size) / rates.product
    return passes * pass_seconds(size, rates) + factors + _SEARCHES * search


def machine_seconds(size: Size, rates: Rates = _DEFAULT) -> float:
    """Of one-vs-all machines on sparse rows, all alphas."""
    return _MACHINE_PRODUCTS * size.values * size.scores / rates.sparse


def machine_fit_seconds(size: Size, rates: Rates = _DEFAULT) -> float:
    """Of one fit of such machines: 0.06 s of 1,600 texts of 40 classes, 2 s of 15,100 of 151."""
    return _FIT_PRODUCTS * size.values * size.scores / rates.sparse


def before_comparison(size: Size, budget: float | None) -> None:
    """Tell the time of a comparison that will take long."""
    expected = comparison_seconds(size, known())
    tell_time("the comparison", expected if budget is None else min(expected, budget))
