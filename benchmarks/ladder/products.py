"""Matrix product C = A B^T of A (n, d) and B (m, d), float64: C_ij = sum_k A_ik B_jk, 2 n m d operations.

B is kept by rows, so that every rung reads both operands in the order in which they lie.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .compiled import c_product, numba_product
from .rungs import Ladder, Rung


@dataclass(frozen=True)
class Pair:
    """Rows A (n, d) against rows B (m, d)."""

    A: NDArray
    B: NDArray

    @property
    def rows(self) -> int:
        return len(self.A)

    def some(self, rows: int) -> Pair:
        return Pair(self.A[:rows], self.B)


def scalar(p: Pair) -> NDArray:
    """Three loops over Python's own numbers."""
    A, B = p.A.tolist(), p.B.tolist()
    out = []
    for a in A:
        line = []
        for b in B:
            total = 0.0
            for k in range(len(a)):
                total += a[k] * b[k]
            line.append(total)
        out.append(line)
    return np.array(out)


def dots(p: Pair) -> NDArray:
    """One dot product per element: vector with vector, BLAS level 1."""
    out = np.empty((len(p.A), len(p.B)))
    for i, a in enumerate(p.A):
        for j, b in enumerate(p.B):
            out[i, j] = a.dot(b)
    return out


def matrix_vector(p: Pair) -> NDArray:
    """One product of a matrix with a vector per row: BLAS level 2."""
    out = np.empty((len(p.A), len(p.B)))
    for i, a in enumerate(p.A):
        np.dot(p.B, a, out=out[i])
    return out


def matrix_matrix(p: Pair) -> NDArray:
    """One call: BLAS level 3."""
    return p.A @ p.B.T


def ladder(n: int = 1024) -> Ladder:
    """n x n times n x n."""
    rng = np.random.default_rng(0)
    problem = Pair(rng.standard_normal((n, n)), rng.standard_normal((n, n)))
    per_dot, per_row = 2 * n / (16 * n), 2 * n * n / (8 * n * n)  # operations a byte read
    in_c = c_product()
    rungs = [
        Rung("three loops, interpreted", scalar, per_dot, part=2),
        Rung("three loops, compiled (numba)", lambda p: numba_product()(p.A, p.B), per_dot, part=128),
        Rung("three loops, compiled (C)", lambda p: in_c(p.A, p.B), per_dot, part=128) if in_c else None,
        Rung("dot: BLAS 1", dots, per_dot, part=128),
        Rung("matrix-vector: BLAS 2", matrix_vector, per_row),
        Rung("matrix-matrix: BLAS 3", matrix_matrix, 2 * n**3 / (3 * 8 * n * n)),
    ]
    return Ladder(
        "products", "Matrix product", f"{n:,} x {n:,} times {n:,} x {n:,}, float64", 2.0 * n**3, problem,
        matrix_matrix, tuple(r for r in rungs if r is not None), 1e-9,
    )  # fmt: skip
