"""A Gram matrix weighted by curvature, [X 1]' diag(h) [X 1] / n, from rows drawn in proportion to their curvature.

A share of the plain one, [X 1]' [X 1] / n times the mean of h, is mixed in: no direction is without curvature, which
one that the draw missed would otherwise be, and get a huge step.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kway.linear.objective.curvature import add_rooted, rooted_rows
from kway.linear.objective.objective import Objective


def sampled_gram(
    rows: Objective, h: NDArray, n_drawn: int, rng: np.random.Generator, plain: NDArray, share: float
) -> NDArray:
    """(D, D), upper triangle in Fortran's order, in the precision of `plain`; h (n,) sample weights included."""
    chance = np.minimum(1.0, n_drawn * h / max(float(h.sum()), 1e-30))
    drawn = np.flatnonzero(rng.random(rows.n) < chance)
    A = np.asfortranarray(plain * plain.dtype.type(share * float(h.mean())))
    root = np.sqrt((1 - share) * h[drawn] / np.maximum(chance[drawn], 1e-30))
    add_rooted(A, rows.X[drawn], root, rows.fit_intercept, 1.0 / rows.n)
    return A


def all_grams(rows: Objective, h: NDArray, plain: NDArray, share: float) -> NDArray:
    """The same for every row of h (R, n), whole and from all rows, (R, D, D): one product with the z z' of the rows."""
    Z = rooted_rows(rows.X, None, plain.dtype, rows.fit_intercept)
    D = Z.shape[1]
    squares = (Z[:, :, None] * Z[:, None, :]).reshape(len(Z), D * D)
    grams = (h.astype(plain.dtype) @ squares).reshape(-1, D, D)
    grams *= plain.dtype.type((1 - share) / rows.n)
    grams += plain.dtype.type(share) * h.mean(axis=1)[:, None, None] * mirrored(plain)
    return grams


def mirrored(upper: NDArray) -> NDArray:
    """The symmetric matrix of an upper triangle."""
    return np.triu(upper) + np.triu(upper, 1).T
