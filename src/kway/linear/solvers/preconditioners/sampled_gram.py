"""A Gram matrix weighted by curvature, [X 1]' diag(h) [X 1] / n, from rows drawn in proportion to their curvature.

A share of the plain one, [X 1]' [X 1] / n times the mean of h, is mixed in: no direction is without curvature, which
one that the draw missed would otherwise be, and get a huge step.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kway.compute.threads import pmap, shares, spans
from kway.data.gate import Rows
from kway.linear.objective.curvature import add_rooted, rooted_rows
from kway.linear.objective.objective import Objective

_STRIP = 64  # columns that stay in the cache
_PAIRS = 1 << 17  # products z_i z_j of a block of rows: 1 MB, which stays in the cache


def sampled_gram(
    rows: Objective,
    h: NDArray,
    n_drawn: int,
    rng: np.random.Generator,
    plain: NDArray,
    share: float,
    at: NDArray[np.int64] | None = None,
) -> NDArray:
    """(D, D), upper triangle in Fortran's order, in the precision of `plain`; h (n,) sample weights included.

    `at`: of some coordinates, in order, and the bias where there is one; else of all.
    """
    chance = np.minimum(1.0, n_drawn * h / max(float(h.sum()), 1e-30))
    drawn = np.flatnonzero(rng.random(rows.n) < chance)
    part, X = (plain, rows.X[drawn]) if at is None else (plain[np.ix_(at, at)], columns_at(rows.X[drawn], at))
    A = np.asfortranarray(part * part.dtype.type(share * float(h.mean())))
    root = np.sqrt((1 - share) * h[drawn] / np.maximum(chance[drawn], 1e-30))
    add_rooted(A, X, root, rows.fit_intercept, 1.0 / rows.n)
    return A


def columns_at(X: Rows, at: NDArray[np.int64]) -> Rows:
    """The columns of X (n, d) among the coordinates `at`, which may name the bias, too; X itself where all are."""
    columns = at[: int(np.searchsorted(at, X.shape[1]))]
    return X if len(columns) == X.shape[1] else X[:, columns]


def all_grams(rows: Objective, h: NDArray, plain: NDArray, share: float) -> NDArray:
    """The same for every row of h (R, n), whole and from all rows, (R, D, D): one product with the z z' of the rows.

    On 16,000 rows of 17 columns with 26 scores it takes a fifth of what a Gram matrix a score does.
    """
    D, dtype = len(plain), plain.dtype
    upper = np.triu_indices(D)
    size = max(64, _PAIRS // len(upper[0]))

    def part(where: slice) -> NDArray:
        total, pairs = np.zeros((len(h), len(upper[0])), dtype), np.empty((len(upper[0]), size), dtype)
        for s in spans(where.stop - where.start, size):
            block = slice(where.start + s.start, where.start + s.stop)
            products = pairs[:, : block.stop - block.start]
            _fill_pairs(rooted_rows(rows.X[block], None, dtype, rows.fit_intercept), products)
            total += h[:, block].astype(dtype) @ products.T
        return total

    found = pmap(part, shares(rows.n, rows.n_jobs, least=1024), rows.n_jobs)
    grams = np.empty((len(h), D, D), dtype)
    grams[:, upper[0], upper[1]] = sum(found[1:], found[0]) * dtype.type((1 - share) / rows.n)
    grams[:, upper[1], upper[0]] = grams[:, upper[0], upper[1]]
    grams += dtype.type(share) * h.mean(axis=1, dtype=dtype)[:, None, None] * mirrored(plain)
    return grams


def _fill_pairs(Z: NDArray, products: NDArray) -> None:
    """z_i z_j of each row of Z (m, D), i <= j, in the order of triu_indices, into products (D (D + 1) / 2, m)."""
    columns, at = np.ascontiguousarray(Z.T), 0
    for i, column in enumerate(columns):
        end = at + len(columns) - i
        np.multiply(columns[i:], column, out=products[at:end])
        at = end


def mirrored(upper: NDArray) -> NDArray:
    """The symmetric matrix of an upper triangle, (D, D) in Fortran's order, made a strip at a time."""
    whole = np.array(upper, order="F")
    for strip in spans(len(whole), _STRIP):
        corner = whole[strip, strip]
        whole[strip, strip] = np.triu(corner) + np.triu(corner, 1).T
        whole[strip.stop :, strip] = whole[strip, strip.stop :].T
    return whole
