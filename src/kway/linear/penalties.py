"""Penalties on the weights: R(W) = ridge / 2 ||W S||^2 + lasso ||W S||_1. The bias has no penalty.

    none        ridge = lasso = 0
    l2          ridge = 1
    l1          lasso = 1
    elasticnet  ridge = 1 - l1_ratio, lasso = l1_ratio

S = diag(scale) is the identity unless a solver scaled the columns of X. The proximal operator is a soft threshold
followed by a shrinkage, so that weights become exactly zero:

    prox_s(v) = argmin_w ||w - v||^2 / 2 + s R(w) = sign(v) max(|v| - s lasso, 0) / (1 + s ridge)

Shapes: W (R, d) has one row of weights per score.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kway.errors import InputError


@dataclass(frozen=True)
class Penalty:
    """The penalty ridge / 2 ||W S||^2 + lasso ||W S||_1 with S = diag(scale).

    A solver that divides the columns of X by units works with W unit instead of W. scale = 1 / unit keeps the value of
    the penalty (linear/equivalent.py).
    """

    ridge: float = 0.0
    lasso: float = 0.0
    scale: NDArray | None = field(default=None, compare=False)  # (d,)

    @property
    def smooth(self) -> bool:
        """Return whether R has a gradient everywhere."""
        return self.lasso == 0

    def times(self, alpha: float) -> Penalty:
        """Return alpha R."""
        return Penalty(self.ridge * alpha, self.lasso * alpha, self.scale)

    @property
    def smooth_part(self) -> Penalty:
        """Return R without its L1 part."""
        return Penalty(self.ridge, 0.0, self.scale)

    @property
    def lasso_part(self) -> Penalty:
        """Return R without its L2 part."""
        return Penalty(0.0, self.lasso, self.scale)

    def ridges(self, d: int, bias: bool = False) -> NDArray[np.float64]:
        """Return the ridge of each of d columns, (d,), or (d + 1,) with a zero for the bias."""
        ridges = np.full(d, self.ridge) if self.scale is None else self.ridge * np.square(self.scale)
        return np.append(ridges, 0.0) if bias else ridges

    def lassos(self, d: int, bias: bool = False) -> NDArray[np.float64]:
        """Return the L1 weight of each of d columns, (d,), or (d + 1,) with a zero for the bias."""
        lassos = np.full(d, self.lasso) if self.scale is None else self.lasso * self.scale
        return np.append(lassos, 0.0) if bias else lassos

    def add_slope(self, gradient: NDArray, W: NDArray) -> None:
        """Add the gradient of the smooth part at W (R, d) to `gradient` (R, d), in place."""
        if self.ridge:
            ridges = self.ridge if self.scale is None else self.ridges(W.shape[1])
            gradient += np.asarray(ridges, gradient.dtype) * W

    def value(self, W: NDArray) -> float:
        """Return R(W); infinity if a square overflows, so that line searches turn back."""
        W = W if self.scale is None else W * self.scale
        flat = W.ravel(order="K")  # in memory order, so that nothing is copied
        value = 0.0
        if self.ridge:
            with np.errstate(over="ignore"):
                value += self.ridge / 2 * float(np.dot(flat, flat))
        if self.lasso:
            value += self.lasso * float(np.abs(flat).sum(dtype=np.float64))
        return value

    def shift(self, W: NDArray) -> NDArray:
        """Return the row c (d,) that minimizes R(W - c): the mean of each column under L2, its median under L1.

        Under an elastic net, it is the median of the R values w of a column and of the R + 1 values
        mean + (R - 2 i) lasso / (R ridge), i = 0 .. R. There, the slope R ridge (c - mean) + lasso (number of w below c
        - number of w above c) changes its sign.
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
        """Return prox_step(V); `step` is one number, or one per row of V (R, 1)."""
        shrunk = np.sign(V) * np.maximum(np.abs(V) - np.asarray(step * self.lasso, V.dtype), 0)
        return shrunk / np.asarray(1 + step * self.ridge, V.dtype)


def pick_penalty(name: str | None, l1_ratio: float) -> Penalty:
    """Return the penalty of a name ("none" or None, "l2", "l1", "elasticnet"), without its weight alpha."""
    penalties = {
        "none": Penalty(),
        "l2": Penalty(ridge=1.0),
        "l1": Penalty(lasso=1.0),
        "elasticnet": Penalty(ridge=1.0 - l1_ratio, lasso=l1_ratio),
    }
    penalty = penalties.get("none" if name is None else str(name))
    if penalty is None:
        raise InputError(f"penalty must be one of {', '.join(penalties)}, got {name!r}")
    return penalty
