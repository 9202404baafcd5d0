"""Distributions of the rows of a class about its mean, with one common width for all classes.

    euclidean   Gaussian                      z_c = -||x - mu_c||^2 / (2 s^2)   s^2 = mean squared deviation / d
    cosine      von Mises-Fisher, a sphere    z_c = kappa cos(x, mu_c)          kappa from the mean resultant R

z_c = scale (x . m_c + o_c - a term common to all classes). m_c are the means minus a common center, so that an offset
of the data costs no digits, or the means at unit length. Kappa is the estimate of Banerjee, Dhillon, Ghosh and Sra
(2005).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.memory import rows_per_block
from kway.rows.gpu.device import Device
from kway.rows.gpu.tensor_rows import TensorRows
from kway.search.distances import COSINE, EUCLIDEAN, squares, unit
from kway.search.power_scaling import NARROW, Unit
from kway.threads import spans


class ConstantColumns(NamedTuple):
    """Columns (c,) that hold one value each, and the values (c,)."""

    columns: NDArray[np.int64]
    values: NDArray


def constant_columns(X: Any) -> ConstantColumns:
    """Return the constant columns of X (n, d): the mean of such a column is its value, which a sum would round."""
    if not X.shape[0]:
        return ConstantColumns(np.empty(0, np.int64), np.empty(0))
    if sp.issparse(X):
        candidates = np.flatnonzero(X.getnnz(axis=0) == X.shape[0])  # the sum of a column of zeros is exact
        values = X[:, candidates].toarray()
    else:
        candidates = np.flatnonzero(X[0] == X[-1])  # usually few columns, so that little is read twice
        values = X[:, candidates]
    constant = (values == values[0]).all(axis=0)
    return ConstantColumns(candidates[constant], values[0, constant])


class ClassMeans(NamedTuple):
    """Means (K, d) of classes, the weights (K,) of their rows, and the sum of squared deviations from them."""

    means: NDArray
    weights: NDArray[np.float64]
    spread: float


class Lines(NamedTuple):
    """Rows m (K, d) and offsets o (K,) of scores x . m_c + o_c."""

    rows: NDArray
    offset: NDArray


class GaussianClasses:
    """The rows of a class have a Gaussian distribution about their mean, with the same width in all directions."""

    distance = EUCLIDEAN

    def unit_of(self, X: Any) -> Unit:
        """Return the scaling in which squares of rows X neither overflow nor underflow."""
        narrow = X.dtype == np.float32
        if isinstance(X, TensorRows):
            return Unit.from_exponent(0, X.dtype, EUCLIDEAN, narrow)
        return Unit.of(X, EUCLIDEAN, narrow)

    def summed(self, X: Any, scaled: Any) -> Any:
        """Return the rows whose mean is taken: the scaled rows."""
        return scaled

    def summed_on_gpu(self, device: Device, X: Any, scaled: Any) -> Any:
        """Return the rows whose mean is taken, as a tensor."""
        return device.put(scaled.tensor if isinstance(scaled, TensorRows) else scaled)

    def scale(self, known: ClassMeans) -> float:
        """Return 1 / s^2, s^2 the mean squared deviation per column."""
        (_, d), size, center = known.means.shape, 0.0, self.center(known)
        for part in spans(len(known.means), rows_per_block(8 * d)):
            filled = known.weights[part] > 0
            size += float(np.square(known.means[part][filled] - center).sum()) / known.means.size
        # the lower bound is the rounding of the means: the spread of rows that equal their mean is 0
        return 1.0 / max(known.spread / (known.weights.sum() * d), 1e-12 * size, 1e-300)

    def center(self, known: ClassMeans) -> NDArray[np.float64]:
        """Return the mean of all rows (d,)."""
        total = np.zeros(known.means.shape[1])
        for part in spans(len(known.means), rows_per_block(8 * len(total))):  # a float64 copy of a part at a time
            total += known.weights[part] @ known.means[part]
        total /= known.weights.sum()
        means = known.means if known.weights.all() else known.means[known.weights > 0]
        constant = constant_columns(means)
        total[constant.columns] = constant.values
        return total

    def lines(self, known: ClassMeans, sparse: bool) -> Lines:
        """Return the means minus the center, and minus half of their squares; zeros for a class without rows.

        For sparse queries, which are not centered, the offsets contain the center.
        """
        center = self.center(known)
        rows = known.means - center
        rows[known.weights == 0] = 0.0
        return Lines(rows, -0.5 * squares(rows) - (rows @ center if sparse else 0.0))

    def scaled_queries(self, unit: Unit, rows: Any) -> Any:
        """Return queries in the scaling of the means."""
        return unit.queries(rows).rows

    def centered_queries(self, known: ClassMeans, unit: Unit, rows: Any) -> Any:
        """Return queries minus the center; sparse queries are only scaled."""
        scaled = self.scaled_queries(unit, rows)
        return scaled if sp.issparse(rows) else scaled - self.center(known)

    def centered_on_gpu(self, known: ClassMeans, rows: TensorRows) -> TensorRows:
        """Return queries on a GPU minus the center."""
        return rows.shifted(self.center(known))

    def z(self, distances: Any) -> Any:
        """Return scores, without the scale, of distances to means: -d^2 / 2."""
        return -0.5 * distances**2


class DirectionalClasses:
    """The directions of the rows of a class have a von Mises-Fisher distribution about their mean direction."""

    distance = COSINE

    def unit_of(self, X: Any) -> Unit:
        """Return a scaling that changes nothing, because directions do not depend on the length of rows."""
        return Unit(COSINE, NARROW)

    def summed(self, X: Any, scaled: Any) -> Any:
        """Return rows of length one."""
        return unit(X)

    def summed_on_gpu(self, device: Device, X: Any, scaled: Any) -> Any:
        """Return rows of length one as a tensor."""
        return device.put(X.unit().tensor if isinstance(X, TensorRows) else unit(X))

    def scale(self, known: ClassMeans) -> float:
        """Return kappa, estimated from the mean resultant R."""
        d = known.means.shape[1]
        lengths = np.sqrt(squares(known.means))
        resultant = min(float(known.weights @ lengths / known.weights.sum()), 1 - 1e-6)
        return resultant * (d - resultant**2) / (1 - resultant**2)

    def lines(self, known: ClassMeans, sparse: bool) -> Lines:
        """Return the means at length one, and zero offsets."""
        lengths = np.sqrt(np.maximum(squares(known.means), 1e-300))
        return Lines(known.means / lengths[:, None], np.zeros(len(lengths)))

    def scaled_queries(self, unit: Unit, rows: Any) -> Any:
        """Return queries as they are."""
        return rows

    def centered_queries(self, known: ClassMeans, kept_in: Unit, rows: Any) -> Any:
        """Return queries of length one."""
        return unit(rows)

    def centered_on_gpu(self, known: ClassMeans, rows: TensorRows) -> TensorRows:
        """Return queries on a GPU at length one."""
        return rows.unit()

    def z(self, distances: Any) -> Any:
        """Return scores, without the scale and up to a constant: -d, with d = 1 - cos."""
        return -distances


ClassDistribution = GaussianClasses | DirectionalClasses
DISTRIBUTIONS: dict[str, ClassDistribution] = {"euclidean": GaussianClasses(), "cosine": DirectionalClasses()}
