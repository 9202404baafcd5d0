"""Penalties: R(W) = ridge / 2 ||W S||^2 + lasso ||W S||_1, without the bias; S = I unless columns were scaled.

none        ridge = lasso = 0
l2          ridge = 1
l1          lasso = 1
elasticnet  ridge = 1 - l1_ratio, lasso = l1_ratio

prox_s(v) = argmin_w ||w - v||^2 / 2 + s R(w) = sign(v) max(|v| - s lasso, 0) / (1 + s ridge): exact zeros
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kway.errors import InputError


@dataclass(frozen=True)
class Penalty:
    """ridge / 2 ||W S||^2 + lasso ||W S||_1, S = diag(scale).

    A solver that divides the columns of X by units works with W unit instead of W; scale = 1 / unit keeps the penalty
    what it was (`standard_columns`).
    """

    ridge: float = 0.0
    lasso: float = 0.0
    scale: NDArray | None = field(default=None, compare=False)  # (d,)

    @property
    def smooth(self) -> bool:
        """Whether R has a gradient everywhere."""
        return self.lasso == 0

    def times(self, alpha: float) -> Penalty:
        """alpha R."""
        return Penalty(self.ridge * alpha, self.lasso * alpha, self.scale)

    def at(self, columns: NDArray[np.int64]) -> Penalty:
        """R on some of the columns."""
        return Penalty(self.ridge, self.lasso, None if self.scale is None else self.scale[columns])

    @property
    def smooth_part(self) -> Penalty:
        """R without its L1 part."""
        return Penalty(self.ridge, 0.0, self.scale)

    @property
    def lasso_part(self) -> Penalty:
        """R without its L2 part."""
        return Penalty(0.0, self.lasso, self.scale)

    def ridges(self, d: int) -> NDArray[np.float64]:
        """The ridge of each of d columns."""
        return np.full(d, self.ridge) if self.scale is None else self.ridge * np.square(self.scale)

    def lassos(self, d: int) -> NDArray[np.float64]:
        """The lasso of each of d columns."""
        return np.full(d, self.lasso) if self.scale is None else self.lasso * self.scale

    def add_slope(self, gradient: NDArray, W: NDArray) -> None:
        """gradient (R, d) += the slope of the smooth part at W (R, d)."""
        if self.ridge:
            ridges = self.ridge if self.scale is None else self.ridges(W.shape[1])
            gradient += np.asarray(ridges, gradient.dtype) * W

    def value(self, W: NDArray) -> float:
        """R(W); infinite where W is too far out for the squares of its numbers, from where a search turns back."""
        W = W if self.scale is None else W * self.scale
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
        ratio = self.lasso / (n * self.ridge) / (1.0 if self.scale is None else self.scale)
        flat = W.mean(axis=0) + (n - 2 * np.arange(n + 1))[:, None] * ratio
        return np.asarray(np.partition(np.concatenate((W, flat.astype(W.dtype))), n, axis=0)[n])

    def prox(self, V: NDArray, step: float | NDArray) -> NDArray:
        """The point that trades R against the distance to V; entries within step * lasso of zero become zero.

        `step` is one number, or one per row of V: (R, 1).
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
