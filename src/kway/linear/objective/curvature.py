"""What Hessians of a linear model are made of, for preconditioners and for the models of proximal steps.

curvatures     h (R, n): sample weight times the second derivative of each row's loss by each score
row_squares    ||x_i||^2 (n,)
mean_squares   mean_i h_ki x_ij^2, (R, d): the diagonals
gram           [X 1]' diag(weight) [X 1] / n
rooted_rows    diag(root) [X 1], (n, D) dense: its Gram matrix is [X 1]' diag(root^2) [X 1]
own_rows       sums of h_ki over all rows and over those of class k, and of h_ki [x_i 1] over those
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.gpu.far_rows import FarRows
from kway.compute.lapack import add_gram
from kway.compute.threads import pmap, shares, spans, spans_of
from kway.data.gate import Rows

if TYPE_CHECKING:
    from kway.linear.objective.objective import Objective

BLOCK_ROWS = 2048
_SPARSE_ROWS = 8192  # a pass over all columns for each so many


def curvatures(objective: Objective, theta: NDArray) -> NDArray:
    """Weighted second derivatives at theta, (R, n)."""
    out = np.empty((objective.n_scores, objective.n), theta.dtype)

    def part(rows: slice) -> None:
        h = objective.loss.curvatures(objective.scores(theta, rows), objective.block_targets(rows))
        out[:, rows] = (h if objective.weight is None else h * objective.weight[rows, None]).T

    pmap(part, spans(objective.n, BLOCK_ROWS), objective.n_jobs)
    return out


class OwnRows(NamedTuple):
    """Of each score k: sum_i h_ki (R,), the same over the rows of class k (R,), and their sum_i h_ki [x_i 1] (R, D)."""

    mass: NDArray
    own_mass: NDArray
    own_rows: NDArray


def own_rows(objective: Objective, theta: NDArray) -> OwnRows:
    """What the rows of a class are to the curvature of its score, in one pass that keeps no curvature."""
    D, dtype = objective.d + objective.fit_intercept, theta.dtype

    def part(share: slice) -> OwnRows:
        found = OwnRows(np.zeros(len(theta)), np.zeros(len(theta)), np.zeros((len(theta), D), dtype))
        for rows in spans_of(share, BLOCK_ROWS):
            h = objective.loss.curvatures(objective.scores(theta, rows), objective.block_targets(rows))
            h = h if objective.weight is None else h * objective.weight[rows, None]
            codes = objective.targets.codes[rows]
            here = np.flatnonzero((codes >= 0) & (codes < len(theta)))  # others' classes may be elsewhere
            own = sp.csr_matrix((h[here, codes[here]], (codes[here], here)), (len(theta), len(h)))
            found.mass[:] += h.sum(axis=0)
            found.own_mass[:] += np.asarray(own.sum(axis=1)).ravel()
            found.own_rows[:] += own @ rooted_rows(objective.X[rows], None, dtype, objective.fit_intercept)
        return found

    parts = pmap(part, shares(objective.n, objective.n_jobs, least=256), objective.n_jobs)
    return OwnRows(*(np.sum(sums, axis=0) for sums in zip(*parts, strict=True)))


def row_squares(X: Rows | FarRows, dtype: Any = np.float64) -> NDArray:
    """||x_i||^2 (n,), added up in a float type; that of the rows takes a fifth of the time where it is float32."""
    if isinstance(X, FarRows):
        return X.row_squares()
    if sp.issparse(X):
        return np.asarray(X.astype(dtype).power(2).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", X, X, dtype=dtype)


def mean_squares(objective: Objective, h: NDArray | None = None) -> NDArray:
    """mean_i h_ki x_ij^2, (R, d); without h (R, n) the sample weights stand for it, (1, d)."""
    if h is None and objective.weight is not None:
        h = objective.weight[None, :]

    if isinstance(objective.X, FarRows):
        return objective.X.squares(h) / objective.n

    def part(share: slice) -> NDArray:
        size = _SPARSE_ROWS if sp.issparse(objective.X) else BLOCK_ROWS
        return np.asarray(sum(map(block, spans_of(share, size))))

    def block(rows: slice) -> NDArray:
        X = objective.X[rows]
        if sp.issparse(X):
            squares = X.multiply(X)
            return np.asarray(squares.sum(axis=0)) if h is None else np.asarray((squares.T @ h[:, rows].T).T)
        return np.einsum("ij,ij->j", X, X)[None, :] if h is None else h[:, rows] @ np.square(X)

    total: NDArray = np.sum(pmap(part, shares(objective.n, objective.n_jobs, least=256), objective.n_jobs), axis=0)
    return total / total.dtype.type(objective.n)


def gram(objective: Objective, dtype: np.dtype) -> NDArray:
    """The weighted second moments of all rows (D, D), upper triangle in Fortran's order."""
    X, weight, n = objective.X, objective.weight, objective.n

    def part(share: slice) -> NDArray:
        D = objective.d + objective.fit_intercept
        A = np.zeros((D, D), dtype, order="F")
        for rows in spans_of(share, BLOCK_ROWS):
            root = None if weight is None else np.sqrt(weight[rows])
            add_rooted(A, X[rows], root, objective.fit_intercept, 1.0 / n)
        return A

    parts = pmap(part, shares(n, objective.n_jobs, least=256), objective.n_jobs)
    A = parts[0]
    for more in parts[1:]:
        A += more
    return A


def add_rooted(A: NDArray, X: Rows, root: NDArray | None, bias: bool, scale: float) -> None:
    """A += scale Z' Z, upper triangle at least, Z = diag(root) [X 1]; A (D, D) in Fortran's order."""
    if isinstance(X, FarRows):
        A += A.dtype.type(scale) * X.gram(root, bias, A.dtype)
    else:
        add_gram(A, rooted_rows(X, root, A.dtype, bias), scale)


def rooted_rows(X: Rows, root: NDArray | None, dtype: np.dtype, bias: bool) -> NDArray:
    """diag(root) [X 1], dense, (n, D)."""
    X = X.toarray() if sp.issparse(X) else X
    out = np.empty((len(X), X.shape[1] + bias), dtype)
    out[:, : X.shape[1]] = X
    if bias:
        out[:, -1] = 1
    if root is not None:
        out *= root[:, None].astype(dtype)
    return out
