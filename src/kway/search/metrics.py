"""Metrics: what "near" means. Every search is built on a distance d(q, x), lower is better.

    "euclidean"   ||q - x||_2                          "manhattan"  ||q - x||_1
    "cosine"      1 - q.x / (||q|| ||x||)              "dot"        -q.x
    "hamming"     share of coordinates that differ     "haversine"  great-circle angle, columns latitude, longitude
    Gaussian(s)   ||q - x||_2, similarity exp(-d^2 / s^2)
    Laplacian(s)  ||q - x||_1, similarity exp(-d / s)

A zero vector has cosine distance 1 to everything, as in scikit-learn. `score` turns distances into scores, higher is
better; `log_similarity` is what votes are weighted by, in log space so that no kernel underflows.

A metric is a distance (distances.py: what the engine computes, and in which space) with units and a similarity.
"""

from __future__ import annotations

import difflib
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kway.errors import CombinationError, InputError
from kway.parameters import above
from kway.search.distances import COSINE, DOT, EUCLIDEAN, GREAT_CIRCLE, HAMMING, MANHATTAN, Distance

EARTH_RADIUS_KM = 6371.0088


@dataclass(frozen=True)
class Metric:
    """One way to measure: the distance that the engine computes, its units, and how it is read as a similarity."""

    name: ClassVar[str]
    distance: ClassVar[Distance]
    top: ClassVar[float] = 0.0  # score of rows at distance 0

    @property
    def bare(self) -> bool:
        """Whether it is its distance and no more: rows and distances in the engine's units, scores by subtraction."""
        return all(getattr(type(self), part) is getattr(Metric, part) for part in ("prepare", "finish", "score"))

    def check(self, n_features: int) -> None:
        """Refuse rows that this metric cannot measure."""

    def prepare(self, rows: Any) -> Any:
        """Rows (n, d) in the units that the engine measures in."""
        return rows

    def finish(self, distances: NDArray) -> NDArray:
        """The engine's distances in the units of the metric."""
        return distances

    def score(self, distances: NDArray) -> NDArray:
        """Scores of distances, higher is better."""
        return self.top - distances  # not -distances, which makes -0.0 of a perfect match

    def log_similarity(self, distances: NDArray) -> NDArray:
        """Log of the similarity of rows at these distances; -inf where the similarity is not positive."""
        raise CombinationError(
            f"the metric {self.name!r} has a distance but no similarity; vote with weights='distance', "
            "or use a metric that has one: 'cosine', 'dot', Gaussian(sigma), Laplacian(sigma)"
        )

    def facts(self) -> dict[str, Any]:
        """What a model file keeps of it; `from_facts` reverses this."""
        return {"name": self.name, **asdict(self)}


@dataclass(frozen=True)
class Euclidean(Metric):
    """||q - x||_2."""

    name = "euclidean"
    distance = EUCLIDEAN


@dataclass(frozen=True)
class Manhattan(Metric):
    """||q - x||_1."""

    name = "manhattan"
    distance = MANHATTAN


@dataclass(frozen=True)
class Cosine(Metric):
    """1 - cos(q, x); similarity cos(q, x), clipped at 0 in votes."""

    name = "cosine"
    distance = COSINE
    top = 1.0  # scores are cos(q, x)

    def log_similarity(self, distances: NDArray) -> NDArray:
        """log max(0, cos(q, x))."""
        return _log_positive(1.0 - distances)


@dataclass(frozen=True)
class Dot(Metric):
    """-q.x; similarity q.x, clipped at 0 in votes. Not a distance in the mathematician's sense: it may be negative."""

    name = "dot"
    distance = DOT

    def log_similarity(self, distances: NDArray) -> NDArray:
        """log max(0, q.x)."""
        return _log_positive(-distances)


@dataclass(frozen=True)
class Hamming(Metric):
    """Share of coordinates that differ."""

    name = "hamming"
    distance = HAMMING


@dataclass(frozen=True)
class Haversine(Metric):
    """Great-circle distance of (latitude, longitude): radians in and out, or degrees in and kilometres out."""

    degrees: bool = False

    name = "haversine"
    distance = GREAT_CIRCLE

    def check(self, n_features: int) -> None:
        """Two columns: latitude, longitude."""
        if n_features != 2:
            raise InputError(
                f"haversine measures rows of 2 columns (latitude, longitude), got {n_features} columns; pass those two"
            )

    def prepare(self, rows: NDArray) -> NDArray:
        """Radians in float64: float32 would round a place on earth by up to half a metre."""
        rows = np.ascontiguousarray(rows, dtype=np.float64)
        return np.radians(rows) if self.degrees else rows

    def finish(self, distances: NDArray) -> NDArray:
        """Kilometres where degrees came in."""
        return distances * EARTH_RADIUS_KM if self.degrees else distances


@dataclass(frozen=True)
class Gaussian(Metric):
    """Euclidean order with the similarity exp(-d^2 / sigma^2)."""

    sigma: float

    name = "gaussian"
    distance = EUCLIDEAN

    def __post_init__(self) -> None:
        _check_sigma("Gaussian", self.sigma)

    def score(self, distances: NDArray) -> NDArray:
        """exp(-d^2 / sigma^2)."""
        return np.exp(self.log_similarity(distances))

    def log_similarity(self, distances: NDArray) -> NDArray:
        """-d^2 / sigma^2."""
        return -np.square(distances / self.sigma)


@dataclass(frozen=True)
class Laplacian(Metric):
    """Manhattan order with the similarity exp(-d / sigma)."""

    sigma: float

    name = "laplacian"
    distance = MANHATTAN

    def __post_init__(self) -> None:
        _check_sigma("Laplacian", self.sigma)

    def score(self, distances: NDArray) -> NDArray:
        """exp(-d / sigma)."""
        return np.exp(self.log_similarity(distances))

    def log_similarity(self, distances: NDArray) -> NDArray:
        """-d / sigma."""
        return -distances / self.sigma


_KINDS: tuple[type[Metric], ...] = (Euclidean, Manhattan, Cosine, Dot, Hamming, Haversine, Gaussian, Laplacian)
METRICS: dict[str, Metric] = {
    kind.name: kind() for kind in (Manhattan, Euclidean, Cosine, Dot, Haversine, Hamming)
}  # the names that need no parameter


def pick_metric(metric: str | Metric) -> Metric:
    """The metric of a name, or the metric itself.

    >>> pick_metric("cosine")
    Cosine()
    >>> pick_metric("euclidian")
    Traceback (most recent call last):
    ...
    kway.errors.InputError: unknown metric 'euclidian'; did you mean 'euclidean'? Known: 'manhattan', 'euclidean', ...
    """
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, str) and metric in METRICS:
        return METRICS[metric]
    near = difflib.get_close_matches(str(metric).lower(), [*METRICS, "gaussian", "laplacian"], n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ";"
    known = ", ".join(map(repr, METRICS))
    raise InputError(f"unknown metric {metric!r}{hint} Known: {known}, Gaussian(sigma), Laplacian(sigma)")


def from_facts(facts: dict[str, Any]) -> Metric:
    """The metric that `facts()` described."""
    kinds = {kind.name: kind for kind in _KINDS}
    parameters = {key: value for key, value in facts.items() if key != "name"}
    return kinds[facts["name"]](**parameters)


def _check_sigma(name: str, sigma: float) -> None:
    if not above(0).allows(sigma):
        raise InputError(f"{name}(sigma) needs a positive width, got {sigma!r}; the median distance is a good start")


def _log_positive(values: NDArray) -> NDArray:
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(values, 0.0))
