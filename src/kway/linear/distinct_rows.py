"""Distinct rows: equal rows with equal targets are one row, their weights added, in an order made from values alone.

A weight of 2 then is exactly a row given twice, and nothing that follows depends on how the rows were arranged.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.linear.objective import Objective
from kway.rows.passes import DISTINCT, RowPasses

CONDENSED = 1 << 20  # numbers in X up to which a fit condenses its rows first: a few milliseconds


class Distinct(NamedTuple):
    """One row of each group of equal rows, and the groups' weights (n,) at those rows, mean 1 over them."""

    rows: NDArray[np.int64]
    weight: NDArray


def condensed(objective: Objective) -> Objective:
    """The same objective on distinct rows; a large one as it is: there the sorting would cost more than it gives."""
    if DISTINCT not in objective.rows.offers or objective.n * objective.d > CONDENSED:
        return objective
    rows, weight = distinct_rows(objective)
    chosen = weight[rows]
    return replace(
        objective,
        rows=objective.rows.take(rows),
        targets=objective.targets.of(rows),
        weight=None if (chosen == 1).all() else chosen,
    )


def distinct_rows(objective: Objective) -> Distinct:
    """Groups of equal rows, found by sorting a key of their values."""
    X, (codes, soft) = objective.rows, objective.targets
    keys = equal_keys(X)
    extra = codes if soft is None else soft @ np.arange(1.0, soft.shape[1] + 1)
    order = _by_class_and_key(extra, keys)
    start = np.ones(len(order), bool)
    alike = (np.diff(keys[order]) == 0) & (np.diff(extra[order]) == 0)
    at = np.flatnonzero(alike)
    start[at + 1] = ~_equal(X, soft, order[at], order[at + 1])
    weight = np.ones(len(order)) if objective.weight is None else objective.weight.astype(np.float64)
    groups = np.add.reduceat(weight[order], np.flatnonzero(start))
    rows = order[start]
    full = np.zeros(len(order), X.dtype)
    full[rows] = groups / groups.mean()
    return Distinct(rows[groups > 0], full)


def _by_class_and_key(extra: NDArray, keys: NDArray[np.float64]) -> NDArray[np.int64]:
    """Their order: keys by the processor's own sorting, classes in 16 bits by radix; `lexsort` takes twice as long."""
    order = np.argsort(keys)
    small = extra.dtype.kind == "i" and len(extra) and int(extra.max()) < 1 << 15
    return order[np.argsort((extra.astype(np.int16) if small else extra)[order], kind="stable")]


def equal_keys(rows: RowPasses) -> NDArray[np.float64]:
    """A number per row, (n,): that of equal rows is the same."""
    return rows.keys(np.random.default_rng(0).standard_normal(rows.d))


def _equal(X: RowPasses, soft: NDArray | None, a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether rows a are rows b, one by one."""
    same = X.equal(a, b)
    return same if soft is None else same & (soft[a] == soft[b]).all(axis=1)
