"""Transfer: neighbors give a query any payload, not only a label, together with the row that the payload belongs to.

    "nearest"    the payload of the nearest row
    "medoid"     the payload closest to the other payloads: argmin_i sum_j w_j distance(p_i, p_j)
    "mean"       sum_j w_j p_j of arrays, which belongs to no row
    "majority"   the payload with the largest sum of weights; its source is the nearest row that has it

Weights w (q, k) are those of the classifier's votes; with an index, all weights are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.errors import CombinationError, InputError
from kway.neighbors.classifier import NeighborsClassifier
from kway.search.index import Index


class Transferred(NamedTuple):
    """Payloads given to queries, and the rows that they come from.

    Attributes
    ----------
    payloads : list of length n_queries
        One payload per query; None if no row votes on the query.
    sources : ndarray of shape (n_queries,)
        Row of the payload; -1 if it is a mean or None.
    rows : ndarray of shape (n_queries, k)
        Neighbors, nearest first, -1 pads.
    weights : ndarray of shape (n_queries, k)
        Their weights, with sum 1.
    """

    payloads: list[Any]
    sources: NDArray[np.int64]
    rows: NDArray[np.int64]
    weights: NDArray[np.float64]


class _Choice(NamedTuple):
    payload: Any
    place: int  # number of the neighbor that has the payload, -1 if none has it


PayloadDistance = Callable[[Any, Any], float]
TransferRule = Callable[[list[Any], NDArray[np.float64], PayloadDistance | None], _Choice]


def transfer(
    source: NeighborsClassifier | Index,
    queries: Any,
    payloads: Sequence[Any],
    rule: str = "nearest",
    k: int = 5,
    distance: PayloadDistance | None = None,
) -> Transferred:
    """Give each query the payload that its neighbors agree on.

    Parameters
    ----------
    source : NeighborsClassifier or Index
        Finds the neighbors. A classifier uses its own number of neighbors and weights.
    queries : array-like of shape (n_queries, n_features)
        Queries.
    payloads : sequence of length n_samples
        payloads[i] belongs to row i of the data that `source` was built on.
    rule : {"nearest", "medoid", "mean", "majority"}, default="nearest"
        Payload of the nearest row; the payload closest to the others; the weighted mean of arrays; or the payload with
        the most weight.
    k : int, default=5
        Number of neighbors if `source` is an index.
    distance : callable or None, default=None
        distance(p, q) of two payloads for "medoid"; None is the Euclidean distance of arrays.

    Returns
    -------
    Transferred
        Payloads, their sources, and the neighbors with their weights.

    Examples
    --------
    >>> model = NeighborsClassifier(n_neighbors=2).fit([[0.0], [1.0], [9.0]], ["a", "a", "b"])
    >>> result = transfer(model, [[0.9]], ["a cat", "a dog", "a ship"])
    >>> result.payloads, result.sources
    (['a dog'], array([1]))
    """
    if rule not in RULES:
        raise InputError(f"unknown rule {rule!r}; use one of {', '.join(map(repr, RULES))}")
    rows, weights = _voters(source, queries, k)
    n = int(rows.max(initial=-1)) + 1
    if len(payloads) < n:
        raise InputError(f"got {len(payloads)} payloads for at least {n} rows; pass one payload per row")
    payloads = getattr(payloads, "iloc", payloads)  # a pandas Series reads payloads[i] as a label, not as a position
    choices = [_choose(payloads, ids, w, RULES[rule], distance) for ids, w in zip(rows, weights)]
    sources = np.array([ids[c.place] if c.place >= 0 else -1 for ids, c in zip(rows, choices)], dtype=np.int64)
    return Transferred([c.payload for c in choices], sources, rows, weights)


def _voters(source: Any, queries: Any, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return neighbors and their weights, (q, k) each."""
    if isinstance(source, NeighborsClassifier):
        return source.voters(queries)
    rows = source.nearest(queries, k).ids
    weights = (rows >= 0).astype(np.float64)
    return rows, weights / np.maximum(weights.sum(axis=1, keepdims=True), 1.0)


def _choose(
    payloads: Sequence[Any],
    ids: NDArray[np.int64],
    weights: NDArray[np.float64],
    rule: TransferRule,
    distance: PayloadDistance | None,
) -> _Choice:
    """Apply the rule to the neighbors of one query that have a weight."""
    places = np.flatnonzero((ids >= 0) & (weights > 0))
    if not len(places):
        return _Choice(None, -1)
    choice = rule([payloads[i] for i in ids[places]], weights[places], distance)
    return _Choice(choice.payload, int(places[choice.place]) if choice.place >= 0 else -1)


def _nearest(payloads: list[Any], weights: NDArray[np.float64], distance: PayloadDistance | None) -> _Choice:
    return _Choice(payloads[0], 0)


def _medoid(payloads: list[Any], weights: NDArray[np.float64], distance: PayloadDistance | None) -> _Choice:
    measure = distance or _array_distance
    costs = [sum(w * measure(p, q) for q, w in zip(payloads, weights)) for p in payloads]
    place = int(np.argmin(costs))  # ties go to the nearest
    return _Choice(payloads[place], place)


def _mean(payloads: list[Any], weights: NDArray[np.float64], distance: PayloadDistance | None) -> _Choice:
    arrays = [_numbers(p, "mean") for p in payloads]
    if len({a.shape for a in arrays}) > 1:
        raise CombinationError(
            f"rule='mean' needs payloads of one shape, got {sorted({a.shape for a in arrays})}; use 'medoid'"
        )
    return _Choice(np.tensordot(weights, np.stack(arrays), 1)[()], -1)


def _majority(payloads: list[Any], weights: NDArray[np.float64], distance: PayloadDistance | None) -> _Choice:
    totals: dict[Any, float] = {}
    for payload, weight in zip(payloads, weights):
        try:
            totals[payload] = totals.get(payload, 0.0) + float(weight)
        except TypeError as error:
            raise CombinationError(
                f"rule='majority' needs payloads that can be compared (text, numbers, tuples), got "
                f"{type(payload).__name__}; use 'medoid' or 'nearest'"
            ) from error
    place = payloads.index(max(totals, key=lambda p: totals[p]))  # ties go to the nearest
    return _Choice(payloads[place], place)


RULES: dict[str, TransferRule] = {"nearest": _nearest, "medoid": _medoid, "mean": _mean, "majority": _majority}


def _array_distance(p: Any, q: Any) -> float:
    return float(np.linalg.norm(_numbers(p, "medoid") - _numbers(q, "medoid")))


def _numbers(payload: Any, rule: str) -> NDArray[np.float64]:
    array = np.asarray(payload)
    if array.dtype.kind not in "fiub":
        advice = "pass distance=, a function of two payloads, or " if rule == "medoid" else ""
        raise CombinationError(
            f"rule={rule!r} needs numeric payloads, got {type(payload).__name__}; {advice}use 'majority' or 'nearest'"
        )
    return array.astype(np.float64)
