"""Distinct rows: equal rows with equal targets are one row, their weights added, in an order made from values alone.

A weight of 2 then is exactly a row given twice, and nothing that follows depends on how the rows were arranged.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.gpu.far_rows import FarRows
from kway.compute.kernels.linear.sgd import row_hashes
from kway.data.gate import Rows
from kway.linear.losses import Targets
from kway.linear.objective.centred_rows import CentredRows
from kway.linear.objective.objective import Objective

CONDENSED = 1 << 20  # numbers in X up to which a fit condenses its rows first: a few milliseconds


class Distinct(NamedTuple):
    """One row of each group of equal rows, and the groups' weights (n,) at those rows, mean 1 over them."""

    rows: NDArray[np.int64]
    weight: NDArray


def condensed(objective: Objective) -> Objective:
    """The same objective on distinct rows; a large one as it is: there the sorting would cost more than it gives."""
    if objective.rows_apart or objective.X.shape[0] * objective.X.shape[1] > CONDENSED:
        return objective
    rows, weight = distinct_rows(objective)
    soft = objective.targets.soft
    chosen = weight[rows]
    return replace(
        objective,
        X=objective.X.take(rows, axis=0) if isinstance(objective.X, np.ndarray) else objective.X[rows],
        targets=Targets(objective.targets.codes[rows], None if soft is None else soft[rows]),
        weight=None if (chosen == 1).all() else chosen,
    )


def distinct_rows(objective: Objective) -> Distinct:
    """Groups of equal rows, found by sorting a key of their values."""
    X, codes, soft = objective.X, objective.targets.codes, objective.targets.soft
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


def equal_keys(X: Rows) -> NDArray[np.float64]:
    """A number a row, (n,): that of equal rows is the same."""
    direction = np.random.default_rng(0).standard_normal(X.shape[1])
    if sp.issparse(X):
        return np.asarray(X @ direction)
    if isinstance(X, FarRows):
        return X.keys(direction)
    keys = np.empty(X.shape[0])
    row_hashes(X, direction, keys)
    return keys


def key_sums(objective: Objective) -> NDArray[np.float64]:
    """Sums over rows that a change of any row, of its target or of its weight changes, (4,); parts' add up."""
    keys, targets = equal_keys(objective.X), objective.targets
    soft = 0.0 if targets.soft is None else float(keys @ (targets.soft @ np.arange(1.0, targets.soft.shape[1] + 1)))
    weighed = keys.sum() if objective.weight is None else keys @ objective.weight
    return np.array([keys @ keys, keys @ targets.codes, soft, weighed], float)


def rows_mark(objective: Objective) -> tuple[Any, ...]:
    """What tells rows, with their labels and weights, from others: a change of any of them changes it."""
    if isinstance(objective.X, CentredRows):
        objective = replace(objective, X=objective.X.given)
    X = objective.X
    if objective.rows_in_files:  # not read through for this: their files are told by size and time
        beside = (objective.targets.codes, objective.weight)
        return X.shape, X.mark, *(None if values is None else zlib.crc32(values.tobytes()) for values in beside)
    return X.shape, *map(float, key_sums(objective))


def _equal(X: Rows, soft: NDArray | None, a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether rows a are rows b, one by one."""
    if isinstance(X, FarRows):
        same = X.equal(a, b)
    else:
        same = (X[a] != X[b]).getnnz(axis=1) == 0 if sp.issparse(X) else (X[a] == X[b]).all(axis=1)
    return same if soft is None else same & (soft[a] == soft[b]).all(axis=1)
