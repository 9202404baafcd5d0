"""Neighborhood components: columns scaled, or mixed, so that rows of the same class are near each other.

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

from kway.errors import BudgetError
from kway.kernels.features.soft_votes import vote_slopes
from kway.memory import available_bytes, has_room
from kway.threads import pmap, single_blas, spans
from kway.units import format_bytes

REFERENCES = 3000  # rows drawn as neighbors in each step (accuracy on letter, covertype and texture, T11)
_QUERIES = REFERENCES // 12  # queries among them; twice as many took twice as long for the same accuracy
_STEPS = 40  # steps of Adam; 60 took half as long again for the same accuracy (T11)
_RATE = 0.1  # step size of Adam for scales, in units of the first scales; a tenth for mixtures, else covertype is worse
_LEAST = np.finfo(np.float32).eps  # share of the vote up to which a row is ignored: alone in its class, or far away
_MATRICES = (
    8  # float64 matrices (d, d) that a step of mixtures holds: A, two moments, and temporary ones (no benchmark)
)
_SIZES = 2.0 ** np.arange(-4, 4)  # factors of the first scales: softer or sharper neighborhoods


@dataclass(frozen=True, eq=False)
class ColumnMap:
    """scale (d,); center (d,), None for 0 (sparse rows); rotation (r, d), None if columns are not mixed."""

    scale: NDArray[np.float64]
    center: NDArray[np.float64] | None = None
    rotation: NDArray[np.float64] | None = None

    def apply(self, X: Any) -> Any:
        """Map rows (n, d), dense or CSR, to (n, r) or (n, d) of the same float type."""
        if sp.issparse(X):
            return sp.csr_matrix(X.multiply(self.scale.astype(X.dtype)).tocsr(), dtype=X.dtype)
        centered = X if self.center is None else X - self.center
        scaled = centered * self.scale  # in float64, so that 1e30 * 1e-30 does not overflow
        mixed = scaled if self.rotation is None else scaled @ self.rotation.T
        return np.ascontiguousarray(mixed.astype(X.dtype))


def learn_scales(X: NDArray, codes: NDArray[np.int64], seed: int = 0) -> ColumnMap:
    """Learn one scale per column from rows (n, d) with class codes (n,)."""
    with single_blas():
        first = _first_scales(X, codes, np.random.default_rng(seed))
        found = _minimize(X, codes, first, np.ones(X.shape[1]), _RATE, seed)
    return ColumnMap(first.scale * found, first.center)


def learn_mixtures(X: NDArray, codes: NDArray[np.int64], seed: int = 0, scales: ColumnMap | None = None) -> ColumnMap:
    """Learn mixtures of all columns, starting from `scales`, which are learned first if they are not given."""
    d = X.shape[1]
    need = _MATRICES * 8 * d * d
    if not has_room(need):
        raise BudgetError(
            f"mixtures of {d:,} columns need {format_bytes(need)}, there is {format_bytes(available_bytes())}; "
            "use map='scales', which learns one weight per column"
        )
    first = learn_scales(X, codes, seed) if scales is None else scales
    with single_blas():
        found = _minimize(X, codes, first, np.eye(d), _RATE / 10, seed + 1)
    return ColumnMap(first.scale, first.center, found)


def _first_scales(X: NDArray, codes: NDArray[np.int64], rng: np.random.Generator) -> ColumnMap:
    """Return the given or standardized columns, in the size with the lowest loss."""
    peak = float(np.abs(X).max()) or 1.0
    inside = X[rng.permutation(len(X))[: 4 * REFERENCES]].astype(np.float64) / peak  # squares of 1e200 would overflow
    center, spread = inside.mean(axis=0) * peak, inside.std(axis=0)
    whole = float(np.sqrt(np.mean(spread**2))) or 1.0
    as_given, standard = np.full(X.shape[1], 1 / whole), 1 / np.where(spread > 0, spread, whole)
    tried = [ColumnMap(size * scale / peak, center) for scale in (as_given, standard) for size in _SIZES]
    drawn = rng.permutation(len(X))[:REFERENCES]
    losses = [_vote_loss(_mapped(X[drawn], each), codes[drawn], np.ones(X.shape[1])).loss for each in tried]
    return tried[int(np.argmin(losses))]


def _mapped(X: NDArray, by: ColumnMap) -> NDArray[np.float32]:
    return by.apply(X.astype(np.float64)).astype(np.float32)


def _minimize(
    X: NDArray, codes: NDArray[np.int64], first: ColumnMap, A: NDArray[np.float64], rate: float, seed: int
) -> NDArray[np.float64]:
    """Minimize the loss with Adam from A, scales (d,) or a matrix (d, d); steps shrink in the second half."""
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


class _Part(NamedTuple):
    """A block of queries: its loss, the sums of G over its rows (q,) and columns (m,), and G R (q, d)."""

    loss: float
    by_query: NDArray
    by_reference: NDArray
    drawn_to: NDArray


def _vote_loss(
    R: NDArray[np.float32], codes: NDArray[np.int64], A: NDArray[np.float64], n_queries: int = _QUERIES
) -> _Loss:
    """Return the loss with the first rows of R (m, d) as queries, and its gradient.

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
    """Compute the part of the queries `some` among the first q of the mapped rows Z (m, d)."""
    G = 2 * (Z[some] @ Z.T) - np.einsum("ij,ij->i", Z, Z)  # (b, m) scores; |z_i|^2 is the same along a row
    share = np.empty(len(G), np.float32)
    vote_slopes(G, codes, some.start, np.float32(_LEAST), 1 / q, share)
    loss = -float(np.log(np.maximum(share, _LEAST), dtype=np.float64).sum()) / q
    return _Part(loss, G.sum(axis=1), G.sum(axis=0), G @ R)
