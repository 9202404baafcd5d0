"""Columns in units of their own size, for methods that take a step along whole rows and no penalty into account.

    z_ij = x_ij / unit_j,   theta = [W unit, b]

The perceptron adds rows to weights: a column measured in millionths would be a million times as heavy as the others.
The unit of a column is the root mean square of its entries other than zero, which sparse rows keep at about one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.gpu.far_rows import FarRows
from kway.data.gate import Rows
from kway.linear.objective.objective import Objective


@dataclass(frozen=True)
class OwnUnits:
    """The problem in its columns' own units (d,), and the way there and back."""

    objective: Objective
    units: NDArray[np.float64]
    dtype: np.dtype

    def into(self, theta: NDArray) -> NDArray:
        """theta (R, d + 1) of the columns given, in their units."""
        return np.hstack([theta[:, :-1] * self.units, theta[:, -1:]]).astype(self.dtype)

    def back(self, theta: NDArray) -> NDArray:
        """theta of the columns given."""
        return np.hstack([theta[:, :-1] / self.units, theta[:, -1:]]).astype(self.dtype)


def in_own_units(objective: Objective) -> OwnUnits:
    """The same rows with every column divided by its unit."""
    X, units = objective.X, _units(objective.X)
    if sp.issparse(X):
        data = (X.data / units[X.indices]).astype(X.dtype)
        scaled: Rows = sp.csr_matrix((data, X.indices, X.indptr), shape=X.shape)
    elif isinstance(X, FarRows):
        scaled = X.divided(units)
    else:
        scaled = (X / units).astype(X.dtype)
    return OwnUnits(replace(objective, X=scaled, turned=[]), units, X.dtype)


def _units(X: Rows) -> NDArray[np.float64]:
    """Root mean squares of the entries other than zero, the largest taken out first so that none overflows."""
    if isinstance(X, FarRows):
        return X.units()
    if sp.issparse(X):
        columns, data = X.indices, X.data.astype(np.float64)
        top = np.zeros(X.shape[1])
        np.maximum.at(top, columns, np.abs(data))
        top[top == 0] = 1
        squares = np.bincount(columns, np.square(data / top[columns]), minlength=X.shape[1])
        counts = np.bincount(columns, data != 0, minlength=X.shape[1])
    else:
        top = np.abs(X).max(axis=0).astype(np.float64)
        top[top == 0] = 1
        squares = np.square(X / top).sum(axis=0)
        counts = (X != 0).sum(axis=0)
    return np.where(counts > 0, top * np.sqrt(squares / np.maximum(counts, 1)), 1.0)
