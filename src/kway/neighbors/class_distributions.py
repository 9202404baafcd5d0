"""What rows of a class look like about its mean: round clouds of one common width, in a space of their own.

    euclidean   Gaussian                      z_c = -||x - mu_c||^2 / (2 s^2)   s^2 = mean squared deviation / d
    cosine      von Mises-Fisher, a sphere    z_c = kappa cos(x, mu_c)          kappa from the mean resultant R

z_c = scale (x . m_c + o_c - the same for all classes), m_c the means as queries meet them: shifted by a centre that is
common to all, so that an offset of the data costs no digits, or of unit length.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.rows.gpu.device import Device
from kway.rows.gpu.tensor_rows import TensorRows
from kway.search.distances import COSINE, EUCLIDEAN, Distance, squares, unit
from kway.search.power_scaling import NARROW, Unit
from kway.threads import spans

_BLOCK = 2**22  # numbers of the means that are copied at a time


class Constants(NamedTuple):
    """Columns (c,) that hold one value each, and the values (c,)."""

    columns: NDArray[np.int64]
    values: NDArray


def constants_of(X: Any) -> Constants:
    """Those of an array (n, d): the mean of such a column is its value, which sums of 1e17 would round."""
    if not X.shape[0]:
        return Constants(np.empty(0, np.int64), np.empty(0))
    if sp.issparse(X):
        alike = np.flatnonzero(X.getnnz(axis=0) == X.shape[0])  # columns of zeros have their mean anyway
        full = X[:, alike].toarray()
    else:
        alike = np.flatnonzero(X[0] == X[-1])  # few, as a rule, so that hardly anything is read twice
        full = X[:, alike]
    same = (full == full[0]).all(axis=0)
    return Constants(alike[same], full[0, same])


class ClassMeans(NamedTuple):
    """Means (K, d) of classes, the weights (K,) of their rows, and the sum of squared deviations from them."""

    means: NDArray
    weights: NDArray[np.float64]
    spread: float


class Lines(NamedTuple):
    """Rows m (K, d) and offsets o (K,) of scores x . m_c + o_c."""

    rows: NDArray
    offset: NDArray


class Cloud(ABC):
    """How rows of a class lie about its mean, and what follows for scores."""

    distance: ClassVar[Distance]

    @abstractmethod
    def unit_of(self, X: Any) -> Unit:
        """The unit that sums of the rows X are kept in."""

    @abstractmethod
    def summed(self, X: Any, taken: Any) -> Any:
        """What a mean is taken of: rows as they are given, or as taken in their unit."""

    @abstractmethod
    def summed_there(self, device: Device, X: Any, taken: Any) -> Any:
        """The same on a device."""

    @abstractmethod
    def scale(self, known: ClassMeans) -> float:
        """What scores are multiplied by: 1 / s^2 or kappa."""

    def centre(self, known: ClassMeans) -> NDArray[np.float64] | None:
        """What rows and means are shifted by (d,), if by anything."""
        return None

    @abstractmethod
    def lines(self, known: ClassMeans, sparse: bool) -> Lines:
        """Of the means; offsets carry the shift where a sparse query cannot."""

    @abstractmethod
    def placed(self, kept_in: Unit, rows: Any) -> Any:
        """Queries in the unit of the means."""

    @abstractmethod
    def moved(self, known: ClassMeans, kept_in: Unit, rows: Any) -> Any:
        """Queries as the lines meet them."""

    @abstractmethod
    def moved_there(self, known: ClassMeans, rows: TensorRows) -> TensorRows:
        """The same of queries on a device, in the unit of the means."""

    @abstractmethod
    def z(self, gaps: Any) -> Any:
        """Scores, but for the scale, of distances to means: an array or a tensor."""


class RoundCloud(Cloud):
    """Rows lie about their mean alike in all directions."""

    distance = EUCLIDEAN

    def unit_of(self, X: Any) -> Unit:
        """That in which squares of these rows neither overflow nor vanish."""
        narrow = X.dtype == np.float32
        if isinstance(X, TensorRows):
            return Unit.again(0, X.dtype, EUCLIDEAN, narrow)
        return Unit.of(X, EUCLIDEAN, narrow)

    def summed(self, X: Any, taken: Any) -> Any:
        """Rows in their unit."""
        return taken

    def summed_there(self, device: Device, X: Any, taken: Any) -> Any:
        """The same on a device."""
        return device.put(taken.tensor if isinstance(taken, TensorRows) else taken)

    def scale(self, known: ClassMeans) -> float:
        """1 / s^2, s^2 the mean squared deviation a column."""
        (_, d), size, centre = known.means.shape, 0.0, self.centre(known)
        for part in spans(len(known.means), max(1, _BLOCK // d)):
            filled = known.weights[part] > 0
            size += float(np.square(known.means[part][filled] - centre).sum()) / known.means.size
        # where every row lies at its mean the width is rounding, not zero
        return 1.0 / max(known.spread / (known.weights.sum() * d), 1e-12 * size, 1e-300)

    def centre(self, known: ClassMeans) -> NDArray[np.float64]:
        """The mean of all rows (d,)."""
        total = np.zeros(known.means.shape[1])
        for part in spans(len(known.means), max(1, _BLOCK // len(total))):  # a float64 copy of a part at a time
            total += known.weights[part] @ known.means[part]
        total /= known.weights.sum()
        means = known.means if known.weights.all() else known.means[known.weights > 0]
        same = constants_of(means)
        total[same.columns] = same.values
        return total

    def lines(self, known: ClassMeans, sparse: bool) -> Lines:
        """Means less the centre, and half of their squares; zeros of a class without rows."""
        centre = self.centre(known)
        rows = known.means - centre
        rows[known.weights == 0] = 0.0
        return Lines(rows, -0.5 * squares(rows) - (rows @ centre if sparse else 0.0))

    def placed(self, kept_in: Unit, rows: Any) -> Any:
        """Queries in the unit of the means."""
        return kept_in.queries(rows).rows

    def moved(self, known: ClassMeans, kept_in: Unit, rows: Any) -> Any:
        """Queries less the centre; sparse ones stay sparse."""
        placed = self.placed(kept_in, rows)
        return placed if sp.issparse(rows) else placed - self.centre(known)

    def moved_there(self, known: ClassMeans, rows: TensorRows) -> TensorRows:
        """Queries less the center."""
        return rows.shifted(self.centre(known))

    def z(self, gaps: Any) -> Any:
        """-gap^2 / 2."""
        return -0.5 * gaps**2


class SphereCloud(Cloud):
    """Directions lie about their mean."""

    distance = COSINE

    def unit_of(self, X: Any) -> Unit:
        """Directions have none: any unit does."""
        return Unit(COSINE, NARROW)

    def summed(self, X: Any, taken: Any) -> Any:
        """Rows of length one."""
        return unit(X)

    def summed_there(self, device: Device, X: Any, taken: Any) -> Any:
        """The same on a device."""
        return device.put(X.unit().tensor if isinstance(X, TensorRows) else unit(X))

    def scale(self, known: ClassMeans) -> float:
        """kappa, by Banerjee's estimate from the mean resultant R."""
        d = known.means.shape[1]
        lengths = np.sqrt(squares(known.means))
        resultant = min(float(known.weights @ lengths / known.weights.sum()), 1 - 1e-6)
        return resultant * (d - resultant**2) / (1 - resultant**2)

    def lines(self, known: ClassMeans, sparse: bool) -> Lines:
        """Means of length one; no offsets."""
        lengths = np.sqrt(np.maximum(squares(known.means), 1e-300))
        return Lines(known.means / lengths[:, None], np.zeros(len(lengths)))

    def placed(self, kept_in: Unit, rows: Any) -> Any:
        """Queries as they are."""
        return rows

    def moved(self, known: ClassMeans, kept_in: Unit, rows: Any) -> Any:
        """Queries of length one."""
        return unit(rows)

    def moved_there(self, known: ClassMeans, rows: TensorRows) -> TensorRows:
        """Queries of length one."""
        return rows.unit()

    def z(self, gaps: Any) -> Any:
        """-gap, the gap being one less the cosine."""
        return -gaps


CLOUDS: dict[str, Cloud] = {"euclidean": RoundCloud(), "cosine": SphereCloud()}
