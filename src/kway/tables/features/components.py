"""Neighborhood components: columns weighted, or mixed, so that rows of a class lie together; learned from labels.

    z = (s (x - c)) A'                   c (d,) means, s (d,) scales, A (d, d), the identity if columns are not mixed
    p_ij = softmax_j(-|z_i - z_j|^2)     j among the drawn rows other than i
    loss = -mean_i log sum_j p_ij        over j of i's class: how sure a soft vote of the neighbors is

(Goldberger and others, 2004.) Each step draws other queries i and references j, so that its cost does not grow with n
and the map does not fit a few rows alone; Adam does the steps. scipy's L-BFGS on rows drawn once was tried instead: on
letter, 97.3 % of the test rows become 95.8 % (1,000 queries, twice the time) or 96.8 % (3,000 queries, eight times the
time). Scales start from the columns as given or standardized, whichever has the lower loss; mixtures start from the
scales.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.kernels.voting.soft_votes import vote_slopes
from kway.threads import pmap, single_blas, spans

REFERENCES = 3000  # rows drawn as neighbors in each step
_QUERIES = 256  # of these that vote; 512 took twice as long for the same accuracy on letter, covertype, texture
_STEPS = 40  # 60 took half as long again for the same accuracy on these
_RATE_SCALES = 0.1  # of Adam, in units of the first scales
_RATE_MIXED = 0.01  # at 0.02 mixtures lose 2 points on covertype
_LEAST = np.finfo(np.float32).eps  # share of the vote up to which a row is ignored: alone of its class, or far off
_SIZES = 2.0 ** np.arange(-4, 4)  # of the first scales: sharper or softer neighborhoods


@dataclass(frozen=True, eq=False)
class ColumnMap:
    """scale (d,); centre (d,), None: 0, as sparse rows need it; turn (r, d), None: columns are not mixed."""

    scale: NDArray[np.float64]
    centre: NDArray[np.float64] | None = None
    turn: NDArray[np.float64] | None = None

    def apply(self, X: Any) -> Any:
        """Rows (n, d), dense or CSR -> (n, r) or (n, d) of the same float type."""
        if sp.issparse(X):
            return sp.csr_matrix(X.multiply(self.scale.astype(X.dtype)).tocsr(), dtype=X.dtype)
        moved = X if self.centre is None else X - self.centre
        scaled = moved * self.scale  # float64: a row of 1e30 in float32 times 1e-30 loses nothing
        turned = scaled if self.turn is None else scaled @ self.turn.T
        return np.ascontiguousarray(turned.astype(X.dtype))


def learn_scales(X: NDArray, codes: NDArray[np.int64], seed: int = 0) -> ColumnMap:
    """One scale per column, from rows (n, d) with class codes (n,)."""
    with single_blas():
        first = _first_scales(X, codes, np.random.default_rng(seed))
        found = _minimize(X, codes, first, np.ones(X.shape[1]), _RATE_SCALES, seed)
    return ColumnMap(first.scale * found, first.centre)


def learn_mixtures(X: NDArray, codes: NDArray[np.int64], seed: int = 0, scales: ColumnMap | None = None) -> ColumnMap:
    """Mixtures of all columns; `scales` are learned first unless they are given."""
    first = learn_scales(X, codes, seed) if scales is None else scales
    with single_blas():
        found = _minimize(X, codes, first, np.eye(X.shape[1]), _RATE_MIXED, seed + 1)
    return ColumnMap(first.scale, first.centre, found)


def _first_scales(X: NDArray, codes: NDArray[np.int64], rng: np.random.Generator) -> ColumnMap:
    """The columns as given or standardized, at the size at which neighbors agree best."""
    peak = float(np.abs(X).max()) or 1.0
    inside = X[rng.permutation(len(X))[: 4 * REFERENCES]].astype(np.float64) / peak  # squares of 1e200 would overflow
    centre, spread = inside.mean(axis=0) * peak, inside.std(axis=0)
    whole = float(np.sqrt(np.mean(spread**2))) or 1.0
    as_given, standard = np.full(X.shape[1], 1 / whole), 1 / np.where(spread > 0, spread, whole)
    tried = [ColumnMap(size * scale / peak, centre) for scale in (as_given, standard) for size in _SIZES]
    drawn = rng.permutation(len(X))[:REFERENCES]
    losses = [_vote_loss(_mapped(X[drawn], each), codes[drawn], np.ones(X.shape[1])).loss for each in tried]
    return tried[int(np.argmin(losses))]


def _mapped(X: NDArray, by: ColumnMap) -> NDArray[np.float32]:
    return by.apply(X.astype(np.float64)).astype(np.float32)


def _minimize(
    X: NDArray, codes: NDArray[np.int64], first: ColumnMap, A: NDArray[np.float64], rate: float, seed: int
) -> NDArray[np.float64]:
    """Adam from A, scales (d,) or a matrix (d, d); the steps of the last half become smaller."""
    rng = np.random.default_rng(seed)
    mean, square = np.zeros_like(A), np.zeros_like(A)
    for step in range(1, _STEPS + 1):
        drawn = rng.permutation(len(X))[:REFERENCES]
        g = _vote_loss(_mapped(X[drawn], first), codes[drawn], A).gradient
        mean, square = 0.9 * mean + 0.1 * g, 0.99 * square + 0.01 * g * g
        towards = (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-12)
        A = A - rate * min(1.0, 2 * (1 - (step - 1) / _STEPS)) * towards
    return A


class _Loss(NamedTuple):
    """The loss and its gradient, of the shape of A."""

    loss: float
    gradient: NDArray[np.float64]


class _Part(NamedTuple):
    """A block of queries: its loss, the sums of G over its rows (q,) and columns (m,), and G R (q, d)."""

    loss: float
    by_query: NDArray
    by_reference: NDArray
    drawn_to: NDArray


def _vote_loss(
    R: NDArray[np.float32], codes: NDArray[np.int64], A: NDArray[np.float64], n_queries: int = _QUERIES
) -> _Loss:
    """Loss of the first rows of R (m, d) as queries.

    With G = d loss / d(-|z_i - z_j|^2) (q, m), the gradient is -2 A sum_ij G_ij (x_i - x_j)(x_i - x_j)'.
    """
    q, narrow = min(n_queries, len(R)), A.astype(np.float32)
    Z = R * narrow if A.ndim == 1 else R @ narrow.T  # (m, d)
    parts = pmap(lambda some: _part(Z, R, codes, some, q), spans(q, _QUERIES // 4))
    loss = float(sum(part.loss for part in parts))
    by_query, by_reference = np.concatenate([p.by_query for p in parts]), sum(p.by_reference for p in parts)
    GR, Q = np.concatenate([p.drawn_to for p in parts]), R[:q]  # (q, d) each
    if A.ndim == 1:
        return _Loss(loss, -2 * A * (by_query @ (Q * Q) + by_reference @ (R * R) - 2 * (GR * Q).sum(axis=0)))
    crossed = Q.T @ GR  # (d, d)
    moment = (Q.T * by_query) @ Q + (R.T * by_reference) @ R - crossed - crossed.T
    return _Loss(loss, -2 * A @ moment)


def _part(Z: NDArray, R: NDArray, codes: NDArray[np.int64], some: slice, q: int) -> _Part:
    """Queries `some` of the first q of the mapped rows Z (m, d)."""
    G = 2 * (Z[some] @ Z.T) - np.einsum("ij,ij->i", Z, Z)  # (b, m) scores; |z_i|^2 is the same along a row
    share = np.empty(len(G), np.float32)
    vote_slopes(G, codes, some.start, np.float32(_LEAST), 1 / q, share)
    loss = -float(np.log(np.maximum(share, _LEAST), dtype=np.float64).sum()) / q
    return _Part(loss, G.sum(axis=1), G.sum(axis=0), G @ R)
