"""Penalties: R(W) = ridge / 2 ||W||^2 + lasso ||W||_1, the bias left out.

none        ridge = lasso = 0
l2          ridge = 1
l1          lasso = 1
elasticnet  ridge = 1 - l1_ratio, lasso = l1_ratio

prox_s(v) = argmin_w ||w - v||^2 / 2 + s R(w) = sign(v) max(|v| - s lasso, 0) / (1 + s ridge): exact zeros
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kway.errors import InputError


@dataclass(frozen=True)
class Penalty:
    """ridge / 2 ||W||^2 + lasso ||W||_1."""

    ridge: float = 0.0
    lasso: float = 0.0

    @property
    def smooth(self) -> bool:
        """Whether R has a gradient everywhere."""
        return self.lasso == 0

    def times(self, alpha: float) -> Penalty:
        """alpha R."""
        return Penalty(self.ridge * alpha, self.lasso * alpha)

    def value(self, W: NDArray) -> float:
        """R(W); infinite where W is too far out for the squares of its numbers, from where a search turns back."""
        flat = W.ravel(order="K")  # no copy, in whatever order W lies
        with np.errstate(over="ignore"):
            squares = float(np.dot(flat, flat)) if self.ridge else 0.0
        return self.ridge / 2 * squares + (
            self.lasso * float(np.abs(flat).sum(dtype=np.float64)) if self.lasso else 0.0
        )

    def shift(self, W: NDArray) -> NDArray:
        """c (d,) that makes R(W - c) least, W (R, d): a column's mean under L2, its median under L1.

        Under both, of the R values w and the R + 1 values mean + (R - 2 i) lasso / (R ridge), i = 0 .. R, the median:
        there the slope R ridge (c - mean) + lasso (number below c - number above it) changes its sign.
        """
        if not self.lasso:
            return np.asarray(W.mean(axis=0))
        n = len(W)
        if not self.ridge:
            return np.asarray(np.partition(W, n // 2, axis=0)[n // 2])
        flat = W.mean(axis=0) + (n - 2 * np.arange(n + 1))[:, None] * (self.lasso / (n * self.ridge))
        return np.asarray(np.partition(np.concatenate((W, flat.astype(W.dtype))), n, axis=0)[n])

    def prox(self, V: NDArray, step: float | NDArray) -> NDArray:
        """The point that trades R against the distance to V; entries within step * lasso of zero become zero.

        `step` is one for all, or one a row: (R, 1).
        """
        shrunk = np.sign(V) * np.maximum(np.abs(V) - np.asarray(step * self.lasso, V.dtype), 0)
        return shrunk / np.asarray(1 + step * self.ridge, V.dtype)


def pick_penalty(name: str | None, l1_ratio: float) -> Penalty:
    """The penalty of a name: none (or None), l2, l1, elasticnet."""
    known = {
        "none": Penalty(),
        "l2": Penalty(ridge=1.0),
        "l1": Penalty(lasso=1.0),
        "elasticnet": Penalty(ridge=1.0 - l1_ratio, lasso=l1_ratio),
    }
    found = known.get("none" if name is None else str(name))
    if found is None:
        raise InputError(f"penalty must be one of {', '.join(known)}, got {name!r}")
    return found
