"""Distance matrix D_ij = ||a_i - b_j|| of A (n, d) and B (m, d), float64; 3 n m d operations when done as written.

Without a loop it is ||a||^2 + ||b||^2 - 2 a.b: a matrix product, 2 n m d operations, and no (n, m, d) array.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import kway

from .digits import Digits
from .products import Pair
from .rungs import Ladder, Rung


def scalar(p: Pair) -> NDArray:
    """Three loops over numbers."""
    B = p.B.tolist()
    out = []
    for a in p.A.tolist():
        line = []
        for b in B:
            total = 0.0
            for k in range(len(a)):
                total += (a[k] - b[k]) * (a[k] - b[k])
            line.append(total**0.5)
        out.append(line)
    return np.array(out)


def two_loops(p: Pair) -> NDArray:
    """A loop over the rows of both sides."""
    out = np.empty((len(p.A), len(p.B)))
    for i, a in enumerate(p.A):
        for j, b in enumerate(p.B):
            out[i, j] = np.sqrt(((a - b) ** 2).sum())
    return out


def one_loop(p: Pair) -> NDArray:
    """A loop over the rows of one side."""
    out = np.empty((len(p.A), len(p.B)))
    for i, a in enumerate(p.A):
        out[i] = np.sqrt(((p.B - a) ** 2).sum(axis=1))
    return out


def no_loop(p: Pair) -> NDArray:
    """A matrix product."""
    aa, bb = (p.A**2).sum(axis=1), (p.B**2).sum(axis=1)  # (n,), (m,)
    return np.sqrt(np.maximum(aa[:, None] + bb - 2 * (p.A @ p.B.T), 0.0))  # (n, m)


def ladder(n: int = 500, m: int = 5000) -> Ladder:
    """Test digits against training digits."""
    digits = Digits.load()
    A, B = digits.x_test[:n].astype(np.float64), digits.x_train[:m].astype(np.float64)
    (n, d), m = A.shape, len(B)
    pair = 3 * d / (16 * d)  # operations a byte: a row of each side read
    several = 3 * d / (8 * 5 * d)  # temporaries: written, read, written, read
    whole = 2 * n * m * d / (8 * (n * d + m * d + 4 * n * m))
    rungs = (
        Rung("three loops, interpreted", scalar, pair, part=1),
        Rung("two loops over rows", two_loops, several, part=10),
        Rung("one loop", one_loop, several, part=50),
        Rung("no loop", no_loop, whole),
        Rung("kway.pairwise", lambda p: kway.pairwise(p.A, p.B), whole, note="computes nearly equal rows directly"),
    )
    work = f"{n:,} digits against {m:,}, {d} pixels, float64"
    return Ladder("distances", "Distance matrix", work, 2.0 * n * m * d, Pair(A, B), one_loop, rungs, 1e-6)
