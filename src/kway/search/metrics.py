"""Metrics that users choose. Every search minimizes a distance d(q, x).

    "euclidean"   ||q - x||_2                          "manhattan"  ||q - x||_1
    "cosine"      1 - q.x / (||q|| ||x||)              "dot"        -q.x
    "hamming"     share of coordinates that differ     "haversine"  great-circle angle, columns latitude, longitude
    Gaussian(s)   ||q - x||_2, similarity exp(-d^2 / s^2)
    Laplacian(s)  ||q - x||_1, similarity exp(-d / s)

A zero vector has cosine distance 1 to every row, as in scikit-learn. `score` turns distances into scores, higher is
better. `log_similarity` weights votes, in log space so that no kernel underflows.

A metric consists of a distance that the engine computes (distances.py), units and a similarity. To add one, write a
class, and add it to `_NAMED` if it needs no parameter. To store it in model files, also list it in modelfile/values.py.
A metric that is not listed can be used, but not saved.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kway.errors import CombinationError, InputError
from kway.parameters import above
from kway.search.distances import COSINE, DOT, EUCLIDEAN, GREAT_CIRCLE, HAMMING, MANHATTAN, Distance

EARTH_RADIUS_KM = 6371.0088  # mean radius of the IUGG


@dataclass(frozen=True)
class Metric:
    """Base class of metrics: the distance that the engine computes, its units, and its similarity."""

    name: ClassVar[str]
    distance: ClassVar[Distance]
    best_score: ClassVar[float] = 0.0  # score of rows at distance 0

    @property
    def is_plain_distance(self) -> bool:
        """Whether distances and scores are those of the engine: no method that converts them is overridden."""
        hooks = ("prepare", "finish", "score")
        return all(getattr(type(self), hook) is getattr(Metric, hook) for hook in hooks)

    def check(self, n_features: int) -> None:
        """Raise InputError if the metric cannot measure rows with this number of columns.

        Parameters
        ----------
        n_features : int
            Number of columns.
        """

    def prepare(self, rows: Any) -> Any:
        """Convert rows to the units of the engine.

        Parameters
        ----------
        rows : ndarray or CSR matrix of shape (n, d)
            Rows.

        Returns
        -------
        ndarray or CSR matrix of shape (n, d)
            Rows in the units of the engine.
        """
        return rows

    def finish(self, distances: NDArray) -> NDArray:
        """Convert the engine's distances to the units of the metric.

        Parameters
        ----------
        distances : ndarray
            Distances in the units of the engine.

        Returns
        -------
        ndarray
            Distances in the units of the metric.
        """
        return distances

    def score(self, distances: NDArray) -> NDArray:
        """Convert distances to scores.

        Parameters
        ----------
        distances : ndarray
            Distances in the units of the metric.

        Returns
        -------
        ndarray
            Scores, higher is better.
        """
        return self.best_score - distances  # -distances would give -0.0 for a perfect match

    def log_similarity(self, distances: NDArray) -> NDArray:
        """Return the logarithm of the similarity of rows at these distances.

        Parameters
        ----------
        distances : ndarray
            Distances in the units of the metric.

        Returns
        -------
        ndarray
            Logarithms; -inf if the similarity is not positive.
        """
        raise CombinationError(
            f"the metric {self.name!r} has no similarity; use weights='distance', or a metric with a similarity: "
            "'cosine', 'dot', Gaussian(sigma), Laplacian(sigma)"
        )


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
    """1 - cos(q, x); the similarity is cos(q, x), clipped at 0 in votes."""

    name = "cosine"
    distance = COSINE
    best_score = 1.0  # so that scores are cos(q, x)

    def log_similarity(self, distances: NDArray) -> NDArray:
        """Return log max(0, cos(q, x))."""
        return _log_positive(1.0 - distances)


@dataclass(frozen=True)
class Dot(Metric):
    """-q.x; the similarity is q.x, clipped at 0 in votes. It can be negative, so it is not a true distance."""

    name = "dot"
    distance = DOT

    def log_similarity(self, distances: NDArray) -> NDArray:
        """Return log max(0, q.x)."""
        return _log_positive(-distances)


@dataclass(frozen=True)
class Hamming(Metric):
    """Share of coordinates that differ."""

    name = "hamming"
    distance = HAMMING


@dataclass(frozen=True)
class Haversine(Metric):
    """Great-circle distance of places (latitude, longitude).

    Parameters
    ----------
    degrees : bool, default=False
        False: rows and distances are in radians. True: rows are in degrees and distances in kilometers.

    Examples
    --------
    >>> from kway import pairwise
    >>> float(pairwise([[52.5, 13.4]], [[48.9, 2.4]], Haversine(degrees=True)).round()[0, 0])
    871.0
    """

    degrees: bool = False

    name = "haversine"
    distance = GREAT_CIRCLE

    def check(self, n_features: int) -> None:
        """Raise InputError unless there are two columns.

        Parameters
        ----------
        n_features : int
            Number of columns.
        """
        if n_features != 2:
            raise InputError(f"haversine needs 2 columns (latitude, longitude), got {n_features}; pass only those two")

    def prepare(self, rows: NDArray) -> NDArray:
        """Convert rows to radians in float64, because float32 would round a place on earth by up to half a meter.

        Parameters
        ----------
        rows : ndarray of shape (n, 2)
            Latitudes and longitudes.

        Returns
        -------
        ndarray of shape (n, 2)
            Radians in float64.
        """
        rows = np.ascontiguousarray(rows, dtype=np.float64)
        return np.radians(rows) if self.degrees else rows

    def finish(self, distances: NDArray) -> NDArray:
        """Convert radians to kilometers if rows are in degrees.

        Parameters
        ----------
        distances : ndarray
            Distances in radians.

        Returns
        -------
        ndarray
            Distances in kilometers if rows are in degrees, else in radians.
        """
        return distances * EARTH_RADIUS_KM if self.degrees else distances


@dataclass(frozen=True)
class _Kernel(Metric):
    """Base class of distances whose similarity is a kernel of width sigma."""

    sigma: float

    def __post_init__(self) -> None:
        if not above(0).allows(self.sigma):
            raise InputError(
                f"sigma of {type(self).__name__} must be a number > 0, got {self.sigma!r}; the median distance is a "
                "good start"
            )

    def score(self, distances: NDArray) -> NDArray:
        """Return the similarity of rows at these distances.

        Parameters
        ----------
        distances : ndarray
            Distances in the units of the metric.

        Returns
        -------
        ndarray
            Similarities, 1 at distance 0.
        """
        return np.exp(self.log_similarity(distances))


@dataclass(frozen=True)
class Gaussian(_Kernel):
    """Euclidean distance with the similarity exp(-d^2 / sigma^2).

    Parameters
    ----------
    sigma : float
        Width of the kernel, > 0; the median distance is a good start.

    Examples
    --------
    >>> from kway import pairwise
    >>> pairwise([[0.0]], [[0.0], [1.0]], Gaussian(1.0)).round(3)
    array([[1.   , 0.368]])
    """

    name = "gaussian"
    distance = EUCLIDEAN

    def log_similarity(self, distances: NDArray) -> NDArray:
        """Return the logarithm of the similarity of rows at these distances.

        Parameters
        ----------
        distances : ndarray
            Distances in the units of the metric.

        Returns
        -------
        ndarray
            -d^2 / sigma^2.
        """
        with np.errstate(over="ignore"):  # a row whose squared distance overflows has similarity 0
            return -np.square(distances / self.sigma)


@dataclass(frozen=True)
class Laplacian(_Kernel):
    """Manhattan distance with the similarity exp(-d / sigma).

    Parameters
    ----------
    sigma : float
        Width of the kernel, > 0; the median distance is a good start.

    Examples
    --------
    >>> from kway import pairwise
    >>> pairwise([[0.0]], [[0.0], [1.0]], Laplacian(2.0)).round(3)
    array([[1.   , 0.607]])
    """

    name = "laplacian"
    distance = MANHATTAN

    def log_similarity(self, distances: NDArray) -> NDArray:
        """Return the logarithm of the similarity of rows at these distances.

        Parameters
        ----------
        distances : ndarray
            Distances in the units of the metric.

        Returns
        -------
        ndarray
            -d / sigma.
        """
        return -distances / self.sigma


_NAMED = (Manhattan, Euclidean, Cosine, Dot, Haversine, Hamming)  # metrics that need no parameter
METRICS: dict[str, Metric] = {kind.name: kind() for kind in _NAMED}


def pick_metric(metric: str | Metric) -> Metric:
    """Return the metric with this name, or the metric itself.

    Parameters
    ----------
    metric : str or Metric
        A name of METRICS, or a metric such as Gaussian(2.0).

    Returns
    -------
    Metric
        The metric.

    Examples
    --------
    >>> pick_metric("cosine")
    Cosine()
    >>> pick_metric("euclidian")
    Traceback (most recent call last):
    ...
    kway.errors.InputError: unknown metric 'euclidian'; did you mean 'euclidean'? Use one of 'manhattan', ...
    """
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, str) and metric in METRICS:
        return METRICS[metric]
    similar = difflib.get_close_matches(str(metric).lower(), [*METRICS, "gaussian", "laplacian"], n=1)
    hint = f"; did you mean {similar[0]!r}? Use" if similar else "; use"
    names = ", ".join(map(repr, METRICS))
    raise InputError(f"unknown metric {metric!r}{hint} one of {names}, Gaussian(sigma), Laplacian(sigma)")


def _log_positive(values: NDArray) -> NDArray:
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(values, 0.0))
