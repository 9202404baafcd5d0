"""Find rows whose label is probably wrong, by confident learning [1]_.

p_ik is the probability of class k for row i, from a model that was not trained on row i. With the given label y_i,

    t_k = mean of p_ik over the rows with y_i = k        mean confidence in class k on its own rows
    c_i = argmax of p_ik over the classes with p_ik >= t_k

The label of row i is probably wrong if c_i exists and is not y_i. The rows with the lowest p_i,y_i come first. A row
whose class has no other row to learn from cannot be judged.

References
----------
.. [1] C. Northcutt, L. Jiang and I. Chuang (2021), Confident learning: estimating uncertainty in dataset labels. JAIR.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.auto.compare_data import DataComparison
from kway.auto.race.folds import FEW_ROWS
from kway.auto.race.pool import Pool, own_predictions
from kway.confidence.blend import log_probabilities
from kway.neighbors import NeighborsClassifier
from kway.neighbors.agreement import without_self
from kway.planning import costs
from kway.planning.rates import Rates
from kway.probabilities import softmax
from kway.rows.blocks import count_rows, take_rows
from kway.search.results import Neighbors


class OutOfFold(NamedTuple):
    """Out-of-fold probabilities p (m, K) of `rows` (m,), and whether each row can be judged (m,)."""

    rows: NDArray[np.int64]
    p: NDArray
    judged: NDArray[np.bool_]


class Suspects(NamedTuple):
    """Rows (m,) ordered by the probability of their label, lowest first.

    `label` and `suggested` are class codes, `p_label` and `p_suggested` their probabilities, and `wrong` is whether the
    label is probably wrong.
    """

    rows: NDArray[np.int64]
    label: NDArray[np.int64]
    suggested: NDArray[np.int64]
    p_label: NDArray[np.float64]
    p_suggested: NDArray[np.float64]
    wrong: NDArray[np.bool_]

    def at(self, selected: Any) -> Suspects:
        """Return the suspects that an index, a slice or a mask selects."""
        return Suspects(*(values[selected] for values in self))


@dataclass(frozen=True, eq=False)
class WrongLabels:
    """Rows whose label is probably wrong, and their nearest rows.

    Attributes
    ----------
    suspects : Suspects
        The rows, most suspicious first.
    near : ndarray of shape (m, k)
        The nearest other rows of each, nearest first.
    distances : ndarray of shape (m, k)
        Their distances.
    judged : int
        Number of rows that were judged.
    """

    suspects: Suspects
    near: NDArray[np.int64]
    distances: NDArray[np.float64]
    judged: int


def rank_labels(p: NDArray, codes: NDArray[np.int64]) -> Suspects:
    """Return all rows in order of suspicion, from probabilities p (n, K) and the codes (n,) of the given labels.

    >>> p = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.2, 0.8], [0.95, 0.05]])
    >>> found = rank_labels(p, np.array([0, 0, 1, 1, 1]))
    >>> found.rows[found.wrong], found.suggested[found.wrong]
    (array([4]), array([0]))
    """
    p = np.asarray(p, np.float64)
    n, K = p.shape
    p_label = p[np.arange(n), codes]
    counts = np.bincount(codes, minlength=K)
    mean_p = np.divide(np.bincount(codes, p_label, K), counts, out=np.full(K, np.inf), where=counts > 0)  # t_k (K,)
    confident = np.where(p >= mean_p, p, -1.0)
    suggested_class = confident.argmax(axis=1)
    wrong = (confident.max(axis=1) >= 0) & (suggested_class != codes)
    p_others = p.copy()
    p_others[np.arange(n), codes] = -1.0
    suggested = np.where(wrong, suggested_class, p_others.argmax(axis=1))
    order = np.lexsort((-p[np.arange(n), suggested], p_label))
    suspects = Suspects(np.arange(n), codes, suggested, p_label, p[np.arange(n), suggested], wrong)
    return suspects.at(order)


# ---- probabilities of rows by models that did not learn from them


def out_of_fold(chosen: DataComparison, pool: Pool | None) -> OutOfFold | None:
    """Return the predictions of a comparison for its held-out rows; None if no family has probabilities.

    The blend predicts if there is one, else the best family.
    """
    race = chosen.comparison.race
    if pool is not None:
        rows = race.held_out_rows(int(pool.fold.max()) + 1)
        tables = [pool.held_out[name].probabilities() for name in pool.weights]
        weighted = [weight * log_probabilities(p) for weight, p in zip(pool.weights.values(), tables)]
        p = softmax(np.sum(weighted, axis=0))
    else:
        held_out, rows = own_predictions(race, chosen.comparison.best.model, chosen.options.seed)
        if held_out is None:
            return None
        p = held_out.probabilities()
    return OutOfFold(rows, p, _learned_elsewhere(race.codes, race.folds, rows))


def _learned_elsewhere(codes: NDArray[np.int64], folds: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray:
    """Return whether the class of each of these rows has rows outside its fold."""
    inside = np.zeros((int(codes.max()) + 1, int(folds.max()) + 2), np.int64)
    np.add.at(inside, (codes, folds), 1)  # fold -1 is the last column
    return np.asarray(inside[codes[rows], folds[rows]] < inside.sum(axis=1)[codes[rows]])


# ---- the rows, and their neighbors


def find_wrong_labels(
    predictions: OutOfFold, codes: NDArray[np.int64], X: Any, max_rows: int | None = None
) -> WrongLabels:
    """Return the rows whose label is probably wrong, with the nearest rows of X (n, d), whose labels are `codes` (n,).

    With `max_rows`, return this number of rows instead, most suspicious first.
    """
    judged = predictions.rows[predictions.judged]
    ranked = rank_labels(predictions.p[predictions.judged], codes[judged])
    ranked = ranked._replace(rows=judged[ranked.rows])
    suspects = ranked.at(ranked.wrong if max_rows is None else slice(max_rows))
    distances, neighbors = nearest_rows(X, suspects.rows)
    return WrongLabels(suspects, neighbors, distances, len(judged))


def nearest_rows(X: Any, rows: NDArray[np.int64], k: int = 5) -> tuple[NDArray, NDArray]:
    """Return the distances and the numbers (m, k) of the nearest other rows of X for its rows `rows` (m,)."""
    n = count_rows(X)
    k = min(k, n - 1)
    if not len(rows) or k < 1:
        return np.empty((len(rows), max(k, 0))), np.empty((len(rows), max(k, 0)), np.int64)
    model = NeighborsClassifier(k + 1).fit(X, np.arange(n) % 2)  # the labels do not matter
    distances, ids = model.kneighbors(take_rows(X, rows), k + 1)
    neighbors = without_self(Neighbors(ids, distances), rows)
    return np.asarray(neighbors.distances, np.float64), np.asarray(neighbors.ids)


def search_seconds(X: Any, n_classes: int) -> float:
    """Return the expected seconds of finding the nearest rows of all rows."""
    size = costs.size_of(X, n_classes)
    return size.n * costs.flat(size, Rates()).predict_seconds


# ---- rows that are nearly equal


def close_pairs(X: Any, neighbors: NDArray[np.int64], distances: NDArray, share: float = 0.01) -> NDArray[np.int64]:
    """Return pairs (m, 2) of rows that are nearly equal, each pair once, from the neighbors (n, k) of all rows.

    Two rows are nearly equal if their distance is at most `share` of the median distance to the nearest other row.
    """
    i, j = np.nonzero(distances <= _radius(distances[:, 0], share))
    pairs = np.sort(np.stack([i, neighbors[i, j]], axis=1), axis=1)
    return np.unique(pairs, axis=0)


def _radius(nearest: NDArray, share: float) -> float:
    """Return the distance up to which rows are near-duplicates, from the distances (n,) to the nearest rows.

    Distances that are zero up to rounding do not count in the median.
    """
    positive = nearest[nearest > 1e-6 * max(1.0, float(nearest.max(initial=0.0)))]
    return share * float(np.median(positive)) if len(positive) else 0.0


def shared_rows(X: Any, test_X: Any, share: float = 0.01) -> NDArray[np.int64]:
    """Return pairs (m, 2) of a training row and a test row that are nearly equal."""
    n = count_rows(X)
    model = NeighborsClassifier(1).fit(X, np.arange(n) % 2)
    distances, neighbors = (np.asarray(values)[:, 0] for values in model.kneighbors(test_X, 1))
    sample = np.arange(n)[:: max(1, n // FEW_ROWS)]
    sample_distances, _ = nearest_rows(X, sample, 1)
    close = np.flatnonzero(distances <= _radius(sample_distances[:, 0], share))
    return np.stack([neighbors[close], close], axis=1)
