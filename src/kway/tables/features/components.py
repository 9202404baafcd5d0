"""Neighborhood components analysis: scale or mix columns so that rows of the same class are near each other.

    z = (s (x - c)) A'                   c (d,) means, s (d,) scales, A (d, d), the identity if columns are not mixed
    p_ij = softmax_j(-|z_i - z_j|^2)     j among the drawn rows other than i
    loss = -mean_i log sum_j p_ij        over the rows j of the class of i

Each step draws new queries i and references j, so that its cost does not grow with n and the map does not overfit a few
rows. Adam takes the steps. scipy's L-BFGS on rows that are drawn once is worse: on letter, an accuracy of 97.3% becomes
95.8% (1,000 queries, twice the time) or 96.8% (3,000 queries, eight times the time). Scales start from the given or the
standardized columns, whichever have the lower loss. Mixtures start from the scales.

References
----------
J. Goldberger, S. Roweis, G. Hinton and R. Salakhutdinov, "Neighbourhood Components Analysis", NIPS 2004.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.kernels.features.soft_votes import vote_slopes
from kway.memory import check_room
from kway.threads import pmap, single_blas, spans

REFERENCES = 3000  # rows drawn as neighbors in each step; decided by the accuracy on letter, covertype and texture
_QUERIES = REFERENCES // 12  # queries among them; twice as many took twice as long for the same accuracy
_STEPS = 40  # steps of Adam; 60 took half as long again for the same accuracy on these datasets
_RATE = 0.1  # step size of Adam for scales, in units of the first scales; mixtures need a tenth of it on covertype
_MIN_SHARE = np.finfo(np.float32).eps  # rows with a smaller share are ignored: alone in their class, or far away
_SIZES = 2.0 ** np.arange(-4, 4)  # factors of the first scales that are tried: softer or sharper neighborhoods


@dataclass(frozen=True, eq=False)
class ColumnMap:
    """A linear map of columns: z = (scale * (x - center)) rotation'.

    Attributes
    ----------
    scale : ndarray of shape (d,)
        Factors of the columns.
    center : ndarray of shape (d,) or None
        Subtracted from the rows; None for sparse rows, which would lose their zeros.
    rotation : ndarray of shape (r, d) or None
        None if columns are not mixed.
    """

    scale: NDArray[np.float64]
    center: NDArray[np.float64] | None = None
    rotation: NDArray[np.float64] | None = None

    def apply(self, X: Any) -> Any:
        """Map rows (n, d), dense or CSR, to (n, r) or (n, d) of the same float type."""
        if sp.issparse(X):
            return sp.csr_matrix(X.multiply(self.scale.astype(X.dtype)).tocsr(), dtype=X.dtype)
        centered = X if self.center is None else X - self.center
        mapped = centered * self.scale  # in float64, so that 1e30 * 1e-30 does not overflow
        if self.rotation is not None:
            mapped = mapped @ self.rotation.T
        return np.ascontiguousarray(mapped.astype(X.dtype))


def learn_scales(X: NDArray, codes: NDArray[np.int64], seed: int = 0) -> ColumnMap:
    """Learn one scale per column from rows (n, d) with class codes (n,)."""
    with single_blas():
        first = _first_scales(X, codes, np.random.default_rng(seed))
        factors = _minimize(X, codes, first, np.ones(X.shape[1]), _RATE, seed)
    return ColumnMap(first.scale * factors, first.center)


def learn_mixtures(X: NDArray, codes: NDArray[np.int64], seed: int = 0, scales: ColumnMap | None = None) -> ColumnMap:
    """Learn mixtures of all columns, starting from `scales`, which are learned first if they are not given."""
    d = X.shape[1]
    # a step has eight float64 matrices (d, d): A, its two moments, and temporary ones
    advice = "use map='scales', which learns one weight per column"
    check_room(8 * (8 * d * d), f"map='mixtures' of {d:,} columns", advice)
    first = learn_scales(X, codes, seed) if scales is None else scales
    with single_blas():
        rotation = _minimize(X, codes, first, np.eye(d), _RATE / 10, seed + 1)
    return ColumnMap(first.scale, first.center, rotation)


def _first_scales(X: NDArray, codes: NDArray[np.int64], rng: np.random.Generator) -> ColumnMap:
    """Return the map with the lowest loss among the given and the standardized columns, each times `_SIZES`."""
    max_abs = float(np.abs(X).max()) or 1.0
    sample = X[rng.permutation(len(X))[: 4 * REFERENCES]].astype(np.float64) / max_abs  # squares of 1e200 overflow
    center, spread = sample.mean(axis=0) * max_abs, sample.std(axis=0)
    common_spread = float(np.sqrt(np.mean(spread**2))) or 1.0
    unscaled = np.full(X.shape[1], 1 / common_spread)
    standardized = 1 / np.where(spread > 0, spread, common_spread)
    maps = [ColumnMap(size * scale / max_abs, center) for scale in (unscaled, standardized) for size in _SIZES]
    drawn = rng.permutation(len(X))[:REFERENCES]
    losses = [_vote_loss(_mapped(X[drawn], each), codes[drawn], np.ones(X.shape[1])).loss for each in maps]
    return maps[int(np.argmin(losses))]


def _mapped(X: NDArray, by: ColumnMap) -> NDArray[np.float32]:
    return by.apply(X.astype(np.float64)).astype(np.float32)


def _minimize(
    X: NDArray, codes: NDArray[np.int64], first: ColumnMap, A: NDArray[np.float64], rate: float, seed: int
) -> NDArray[np.float64]:
    """Minimize the loss with Adam from scales A (d,) or a matrix A (d, d); steps shrink in the second half."""
    rng = np.random.default_rng(seed)
    mean, square = np.zeros_like(A), np.zeros_like(A)
    for step in range(1, _STEPS + 1):
        drawn = rng.permutation(len(X))[:REFERENCES]
        g = _vote_loss(_mapped(X[drawn], first), codes[drawn], A).gradient
        mean, square = 0.9 * mean + 0.1 * g, 0.99 * square + 0.01 * g * g
        direction = (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-12)
        A = A - rate * min(1.0, 2 * (1 - (step - 1) / _STEPS)) * direction
    return A


class _Loss(NamedTuple):
    """The loss and its gradient, which has the shape of A."""

    loss: float
    gradient: NDArray[np.float64]


class _BlockSums(NamedTuple):
    """Sums over a block of b queries: its loss, the row sums (b,) and column sums (m,) of G, and G R (b, d)."""

    loss: float
    row_sums: NDArray
    column_sums: NDArray
    GR: NDArray


def _vote_loss(
    R: NDArray[np.float32], codes: NDArray[np.int64], A: NDArray[np.float64], n_queries: int = _QUERIES
) -> _Loss:
    """Return the loss with the first rows of R (m, d) as queries, and its gradient.

    With G = d loss / d(-|z_i - z_j|^2) (q, m), the gradient is -2 A sum_ij G_ij (x_i - x_j)(x_i - x_j)'.
    """
    q = min(n_queries, len(R))
    A32 = A.astype(np.float32)
    Z = R * A32 if A.ndim == 1 else R @ A32.T  # (m, d)
    blocks = pmap(lambda queries: _block_sums(Z, R, codes, queries, q), spans(q, _QUERIES // 4))
    loss = float(sum(block.loss for block in blocks))
    row_sums = np.concatenate([block.row_sums for block in blocks])  # (q,)
    column_sums = sum(block.column_sums for block in blocks)  # (m,)
    GR, Q = np.concatenate([block.GR for block in blocks]), R[:q]  # (q, d) each
    if A.ndim == 1:
        return _Loss(loss, -2 * A * (row_sums @ (Q * Q) + column_sums @ (R * R) - 2 * (GR * Q).sum(axis=0)))
    cross = Q.T @ GR  # (d, d)
    moment = (Q.T * row_sums) @ Q + (R.T * column_sums) @ R - cross - cross.T
    return _Loss(loss, -2 * A @ moment)


def _block_sums(Z: NDArray, R: NDArray, codes: NDArray[np.int64], queries: slice, q: int) -> _BlockSums:
    """Compute the sums of a slice of the q queries, which are the first of the mapped rows Z (m, d)."""
    G = 2 * (Z[queries] @ Z.T) - np.einsum("ij,ij->i", Z, Z)  # (b, m) scores; |z_i|^2 is the same along a row
    share = np.empty(len(G), np.float32)
    vote_slopes(G, codes, queries.start, np.float32(_MIN_SHARE), 1 / q, share)
    loss = -float(np.log(np.maximum(share, _MIN_SHARE), dtype=np.float64).sum()) / q
    return _BlockSums(loss, G.sum(axis=1), G.sum(axis=0), G @ R)
