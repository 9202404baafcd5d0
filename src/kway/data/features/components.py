"""Neighbourhood components: columns weighed, or mixed, so that rows of a class lie together; learned from labels.

    z = (s (x - c)) A'                   c (d,) means, s (d,) scales, A (d, d), the identity where columns are not mixed
    p_ij = softmax_j(-|z_i - z_j|^2)     j among the drawn rows other than i
    loss = -mean_i log sum_j p_ij        over j of i's class: how sure a soft vote of the neighbours is of the right one

(Goldberger and others, 2004.) Each step draws QUERIES rows i and REFERENCES rows j anew, so its cost does not grow with
n; Adam does the rest. Scales start from the columns as given or standardised, whichever has the lower loss; mixtures
start from the scales.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.threads import pmap, single_blas, spans
from kway.data.features.column_map import ColumnMap

_QUERIES = 256  # 512 cost twice as much and gave the same accuracy on letter, covertype, texture
REFERENCES = 3000
_STEPS = 40  # 60 cost half as much again and gave the same accuracy on letter, covertype, texture
# scores that a worker takes at a time: they stay in a core's cache, and sums do not depend on cores
_BLOCK = 64 * REFERENCES
_SMALL = 1 << 19  # queries x references up to which a step takes less than handing it to threads
_SIZES = 2.0 ** np.arange(-4, 4)  # of the first scales: sharper or softer neighbourhoods
_RATE_SCALES = 0.1  # of Adam, in units of the first scales
_RATE_MIXED = 0.01  # at 0.02 mixtures lose 2 points on covertype
_LEAST = 1e-6  # share of the vote under which a row counts as lost: alone of its class among those drawn, or far off


def learn_scales(X: NDArray, codes: NDArray[np.int64], seed: int = 0, n_jobs: int | None = None) -> ColumnMap:
    """A scale a column, from rows (n, d) with class codes (n,)."""
    with single_blas():  # small products beside the pool's: BLAS's own threads would only wait for a core
        start = _start(X, codes, np.random.default_rng(seed), n_jobs)
        t = _descend(start, codes, np.ones(X.shape[1]), _RATE_SCALES, seed, n_jobs)
    return ColumnMap(start.scale * t, start.centre)


def learn_mixtures(
    X: NDArray, codes: NDArray[np.int64], seed: int = 0, n_jobs: int | None = None, scales: ColumnMap | None = None
) -> ColumnMap:
    """Mixtures of all columns; `scales` are learned first where they are not given."""
    first = learn_scales(X, codes, seed, n_jobs) if scales is None else scales
    assert first.centre is not None
    with single_blas():
        A = _descend(_Rows(X, first.centre, first.scale), codes, np.eye(X.shape[1]), _RATE_MIXED, seed + 1, n_jobs)
    return ColumnMap(first.scale, first.centre, A)


class _Rows(NamedTuple):
    """Rows (n, d) and where learning starts: their centre and first scales (d,)."""

    X: NDArray
    centre: NDArray[np.float64]
    scale: NDArray[np.float64]

    def drawn(self, which: NDArray[np.int64]) -> NDArray[np.float32]:
        """Some rows, moved and scaled."""
        return ((self.X[which] - self.centre) * self.scale).astype(np.float32)


def _start(X: NDArray, codes: NDArray[np.int64], rng: np.random.Generator, n_jobs: int | None) -> _Rows:
    """Columns as given or standardised, at the size at which neighbours agree best."""
    peak = float(np.abs(X).max()) or 1.0
    inside = X[rng.permutation(len(X))[: 4 * REFERENCES]].astype(np.float64) / peak  # squares of 1e200 would overflow
    centre, spread = inside.mean(axis=0) * peak, inside.std(axis=0)
    whole = float(np.sqrt(np.mean(spread**2))) or 1.0
    as_given, standard = np.full(X.shape[1], 1 / whole), 1 / np.where(spread > 0, spread, whole)
    queries, references = _draw(len(X), rng)
    tried = [_Rows(X, centre, size * scale / peak) for scale in (as_given, standard) for size in _SIZES]
    ones = np.ones(X.shape[1])
    losses = [_slope(t, codes, ones, queries, references, n_jobs, only_loss=True).loss for t in tried]
    return tried[int(np.argmin(losses))]


def _draw(n: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows that ask, and those that are asked: the former are the first of the latter."""
    references = rng.permutation(n)[:REFERENCES]
    return references[:_QUERIES], references


def _descend(
    rows: _Rows, codes: NDArray[np.int64], A: NDArray[np.float64], rate: float, seed: int, n_jobs: int | None
) -> NDArray[np.float64]:
    """Adam from A, scales (d,) or a matrix (d, d); the last half of the steps grows ever smaller."""
    rng = np.random.default_rng(seed)
    mean, square = np.zeros_like(A), np.zeros_like(A)
    for step in range(1, _STEPS + 1):
        g = _slope(rows, codes, A, *_draw(len(codes), rng), n_jobs).gradient
        mean, square = 0.9 * mean + 0.1 * g, 0.99 * square + 0.01 * g * g
        towards = (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-12)
        A = A - rate * min(1.0, 2 * (1 - (step - 1) / _STEPS)) * towards
    return A


class _Slope(NamedTuple):
    """Loss of a drawn set of rows and its gradient, of the shape of A."""

    loss: float
    gradient: NDArray[np.float64]


class _Part(NamedTuple):
    """A block of queries: its loss, the sums of G over its rows (q,) and columns (m,), and G R (q, d)."""

    loss: float
    by_query: NDArray
    by_reference: NDArray
    drawn_to: NDArray


def _slope(
    rows: _Rows,
    codes: NDArray[np.int64],
    A: NDArray[np.float64],
    queries: NDArray[np.int64],
    references: NDArray[np.int64],
    n_jobs: int | None,
    only_loss: bool = False,
) -> _Slope:
    """With G = d loss / d(-|z_i - z_j|^2) (q, m): the gradient is -2 A sum_ij G_ij (x_i - x_j)(x_i - x_j)'."""
    R, narrow = rows.drawn(references), A.astype(np.float32)
    Z = R * narrow if A.ndim == 1 else R @ narrow.T  # (m, d)
    own, q = codes[references], len(queries)
    threads = n_jobs if q * len(R) > _SMALL else 1
    blocks = spans(q, max(64, _BLOCK // len(R)))  # by the rows alone: sums do not depend on cores
    parts = pmap(lambda s: _part(Z, R, own, s, q, only_loss), blocks, threads)
    loss = float(sum(part.loss for part in parts))
    if only_loss:
        return _Slope(loss, np.zeros(0))
    by_query, by_reference = np.concatenate([p.by_query for p in parts]), sum(p.by_reference for p in parts)
    GR, Q = np.concatenate([p.drawn_to for p in parts]), R[:q]  # (q, d) each
    if A.ndim == 1:
        return _Slope(loss, -2 * A * (by_query @ (Q * Q) + by_reference @ (R * R) - 2 * (GR * Q).sum(axis=0)))
    crossed = Q.T @ GR  # (d, d)
    moment = (Q.T * by_query) @ Q + (R.T * by_reference) @ R - crossed - crossed.T
    return _Slope(loss, -2 * A @ moment)


def _part(Z: NDArray, R: NDArray, own: NDArray[np.int64], some: slice, q: int, only_loss: bool) -> _Part:
    """Queries `some`, of the first q of the references Z (m, d), of classes own (m,)."""
    from kway.compute.kernels.voting.soft_votes import vote_slopes

    G = 2 * (Z[some] @ Z.T) - np.einsum("ij,ij->i", Z, Z)  # (b, m) scores; |z_i|^2 is the same along a row
    share = np.empty(len(G), np.float32)
    vote_slopes(G, own, some.start, np.float32(_LEAST), 1 / q, share)
    loss = -float(np.log(np.maximum(share, _LEAST), dtype=np.float64).sum()) / q
    if only_loss:
        return _Part(loss, share, share, share)
    return _Part(loss, G.sum(axis=1), G.sum(axis=0), G @ R)
