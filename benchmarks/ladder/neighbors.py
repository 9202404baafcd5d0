"""The 5 nearest training digits of each test digit: distances (q, 5), nearest first. 2 q n d operations when all
distances are computed; kway proves of most rows that they cannot be among the nearest and never computes theirs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import kway

from .digits import Digits
from .rungs import Ladder, Rung

K = 5


@dataclass(frozen=True)
class Search:
    """Queries Q (q, d), rows X (n, d), and kway's index over those rows."""

    Q: NDArray
    X: NDArray
    index: kway.search.Index

    @property
    def rows(self) -> int:
        return len(self.Q)

    def some(self, rows: int) -> Search:
        return Search(self.Q[:rows], self.X, self.index)


def scalar(p: Search) -> NDArray:
    """Loops over queries, rows and pixels, then a sort."""
    X = p.X.tolist()
    out = []
    for q in p.Q.tolist():
        found = []
        for x in X:
            total = 0.0
            for j in range(len(q)):
                total += (q[j] - x[j]) * (q[j] - x[j])
            found.append(total**0.5)
        out.append(sorted(found)[:K])
    return np.array(out)


def one_loop(p: Search) -> NDArray:
    """A loop over queries, and a sort of all distances."""
    return np.array([np.sort(np.sqrt(((p.X - q) ** 2).sum(axis=1)))[:K] for q in p.Q])


def no_loop(p: Search) -> NDArray:
    """One matrix product, then the smallest of each row by partition."""
    squares = (p.Q**2).sum(axis=1)[:, None] + (p.X**2).sum(axis=1) - 2 * (p.Q @ p.X.T)  # (q, n)
    least = np.partition(squares, K, axis=1)[:, :K]
    return np.sqrt(np.maximum(np.sort(least, axis=1), 0))


def engine(p: Search) -> NDArray:
    """kway's exact index."""
    return p.index.nearest(p.Q, K).distances


def ladder(q: int = 1000, n: int = 5000) -> Ladder:
    """Test digits against training digits."""
    digits = Digits.load()
    Q, X = digits.x_test[:q], digits.x_train[:n]
    (q, d), n = Q.shape, len(X)
    whole = 2 * q * n * d / (4 * (q * d + n * d + 6 * q * n))
    rungs = (
        Rung("loops over numbers, interpreted", scalar, 3 / 8, part=1),
        Rung("one loop over queries", one_loop, 3 / 20, part=50),
        Rung("no loop: one product", no_loop, whole),
        Rung("kway's exact index", engine, whole, note="computes few of the distances, with proof"),
    )
    problem = Search(Q, X, kway.search.Flat().build(X))
    work = f"{q:,} digits against {n:,}, the {K} nearest, float32"
    return Ladder("neighbors", "Nearest neighbors", work, 2.0 * q * n * d, problem, one_loop, rungs)
