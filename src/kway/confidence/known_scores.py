"""Known scores: one number per row, higher for rows that are more similar to the training rows.

f (n, K) is the decision function.

    "max-probability"   the largest probability
    "energy"            log sum_c exp f_c
    "margin"            f of the best class minus f of the second-best; with probabilities instead of f if there is no f
    "distance"          minus the mean distance of the nearest training rows
    "joint"             energy / its spread + distance / its spread. The spreads are standard deviations over training
                        rows, each row without itself. The two scores fail on different rows.

All of them work block by block, so nothing of size n x K is built.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway import validation
from kway.confidence.conformal import rank_classes
from kway.confidence.splits import cut_blocks
from kway.errors import CombinationError, InputError
from kway.probabilities import log_sum_exp
from kway.rows.blocks import SAMPLE_ROWS, count_rows, take_rows
from kway.search.auto import pick_index
from kway.search.index import Index
from kway.search.metrics import pick_metric

Score = Callable[["Scorer", Any], NDArray[np.float64]]


@dataclass(frozen=True)
class Scorer:
    """A known score of a fitted estimator.

    Parameters
    ----------
    name : str
        Name of the score.
    estimator : classifier
        The fitted estimator.
    index : Index or None
        Its training rows, if the score needs them and the estimator has no `kneighbors`.
    n_neighbors : int
        Number of training rows of the distance score.
    spreads : tuple of float
        Standard deviations of the energy and of the distance, for the joint score.
    """

    name: str
    estimator: Any
    index: Index | None = None
    n_neighbors: int = 5
    spreads: tuple[float, float] = (1.0, 1.0)

    def __call__(self, X: Any) -> NDArray[np.float64]:
        """Return scores (n,)."""
        n = count_rows(X)
        parts = [KNOWN_SCORES[self.name](self, block) for block in cut_blocks(X, n, len(self.estimator.classes_))]
        return np.concatenate(parts)


def _max_probability(scorer: Scorer, X: Any) -> NDArray[np.float64]:
    return rank_classes(scorer.estimator, X, 1).probabilities[:, 0]


def _energy(scorer: Scorer, X: Any) -> NDArray[np.float64]:
    return log_sum_exp(_score_columns(scorer.estimator, X))


def _margin(scorer: Scorer, X: Any) -> NDArray[np.float64]:
    if not hasattr(scorer.estimator, "decision_function"):
        p = rank_classes(scorer.estimator, X, min(2, len(scorer.estimator.classes_))).probabilities
        return p[:, 0] - p[:, -1]
    f = np.partition(_score_columns(scorer.estimator, X), -2, axis=1)
    return f[:, -1] - f[:, -2]


def _distance(scorer: Scorer, X: Any) -> NDArray[np.float64]:
    if scorer.index is None:
        k = min(scorer.n_neighbors, int(getattr(scorer.estimator, "n_neighbors", scorer.n_neighbors)))
        distances = scorer.estimator.kneighbors(X, k)[0]
    else:
        distances = scorer.index.nearest(X, min(scorer.n_neighbors, scorer.index.n_rows)).distances
    return -np.asarray(distances, np.float64).mean(axis=1)


def _joint(scorer: Scorer, X: Any) -> NDArray[np.float64]:
    energy_spread, distance_spread = scorer.spreads
    return _energy(scorer, X) / energy_spread + _distance(scorer, X) / distance_spread


def _score_columns(estimator: Any, X: Any) -> NDArray[np.float64]:
    """Return decision_function as (n, K); for two classes (-f / 2, f / 2), which is symmetric in the classes."""
    f = np.asarray(estimator.decision_function(X), np.float64)
    return f if f.ndim == 2 else np.stack([-f / 2, f / 2], axis=1)


KNOWN_SCORES: dict[str, Score] = {
    "max-probability": _max_probability,
    "energy": _energy,
    "margin": _margin,
    "distance": _distance,
    "joint": _joint,
}
_NEEDS = {
    "max-probability": "predict_proba",
    "energy": "decision_function",
    "distance": "training rows that are numbers (or its own kneighbors)",
    "joint": "decision_function, and training rows that are numbers",
}


def supported_scores(estimator: Any, X: Any) -> list[str]:
    """Return the scores that this estimator supports; X are its training rows, None if they are unknown (prefit)."""
    names = [name for name in ("max-probability", "energy") if hasattr(estimator, _NEEDS[name])]
    if hasattr(estimator, "decision_function") or hasattr(estimator, "predict_proba"):
        names.append("margin")
    numeric = _are_numbers(X)
    if hasattr(estimator, "kneighbors") or numeric:
        names.append("distance")
    if numeric and hasattr(estimator, "decision_function") and not hasattr(estimator, "kneighbors"):
        names.append("joint")
    return names


def check_score(score: str) -> None:
    """Raise InputError for an unknown name."""
    if not isinstance(score, str) or (score != "auto" and score not in KNOWN_SCORES):
        raise InputError(f"score_by must be one of 'auto', {', '.join(map(repr, KNOWN_SCORES))}; got {score!r}")


def make_scorers(names: list[str], estimator: Any, X: Any, metric: Any, n_neighbors: int) -> list[Scorer]:
    """Return the named scores for a fitted estimator and its training rows X (None if they are unknown).

    Scores that use distances share one index of the rows.
    """
    supported = supported_scores(estimator, X)
    for name in names:
        if name not in supported:
            need = _NEEDS.get(name, "decision_function or predict_proba")
            raise CombinationError(
                f"the score {name!r} of {type(estimator).__name__} needs {need}; use score_by='auto'"
            )
    scorers = [Scorer(name, estimator, None, n_neighbors) for name in names]
    if hasattr(estimator, "kneighbors") or not {"distance", "joint"} & set(names):
        return scorers
    rows = validation.plain_rows(X, sparse=True)
    n, d = rows.shape
    recipe = pick_index("auto", n, d, pick_metric(metric), sp.issparse(rows)).recipe
    index = recipe.build(validation.checked(rows), metric=metric)
    spreads = _spreads(scorers[0], index, X, rows) if "joint" in names else (1.0, 1.0)
    needs: dict[str, dict[str, Any]] = {"distance": {"index": index}, "joint": {"index": index, "spreads": spreads}}
    return [replace(scorer, **needs.get(scorer.name, {})) for scorer in scorers]


def _spreads(scorer: Scorer, index: Index, X: Any, rows: Any) -> tuple[float, float]:
    """Return the standard deviations of energy and distance over training rows, each row without itself."""
    sample = np.unique(np.linspace(0, rows.shape[0] - 1, SAMPLE_ROWS).astype(np.int64))
    k = min(scorer.n_neighbors + 1, index.n_rows)
    distances = index.nearest(validation.checked(rows[sample]), k).distances[:, 1:]
    energies = replace(scorer, name="energy")(take_rows(X, sample))
    distance_spread = float(distances.mean(axis=1).std()) if k > 1 else 0.0
    return float(energies.std()) or 1.0, distance_spread or 1.0


def _are_numbers(X: Any) -> bool:
    """Return whether X are rows of numbers."""
    if X is None:
        return False
    try:
        validation.plain_rows(X, sparse=True)
    except (ValueError, TypeError):
        return False
    return True
