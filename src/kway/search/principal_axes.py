"""Approximate principal axes, from which projections of rows are made.

Any orthonormal axes give valid bounds. Principal axes give the tightest bounds, and approximate axes nearly as tight
ones. A full eigendecomposition would take ten times as long (benchmarks T1f and T3).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, qr

from kway.threads import pmap, shares, single_blas, spans


def leading_axes(values: NDArray[np.float32], count: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return about the `count` leading principal axes (d, count) of values Z (s, d).

    Few axes are found by subspace iteration on Z'Z, more than half of them by its eigendecomposition.
    """

    forms_gram = values.shape[1] <= len(values)  # then Z'Z takes no more memory than Z
    gram = _cross(values, values) if forms_gram else values[:0]

    def multiply(basis: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return Z'Z basis."""
        return pooled_product(gram, basis) if forms_gram else _cross(values, pooled_product(values, basis))

    with single_blas():  # BLAS threads would slow down qr and eigh; the pool computes the products
        if forms_gram and 2 * count > values.shape[1]:  # all axes then take no longer than half of them
            return np.ascontiguousarray(
                eigh(gram.astype(np.float64), driver="evd")[1][:, : -count - 1 : -1], np.float32
            )
        basis = rng.standard_normal((values.shape[1], count)).astype(np.float32)
        basis = qr(multiply(multiply(basis)).astype(np.float64), mode="economic", overwrite_a=True)[0]
        rotation = eigh(basis.T @ multiply(basis.astype(np.float32)), driver="evd", overwrite_a=True)[1]
        return np.ascontiguousarray((basis @ rotation)[:, ::-1], np.float32)


def pooled_product(values: NDArray[np.float32], axes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return values (s, d) @ axes (d, p), computed by the thread pool."""
    parts = shares(len(values), least=128) if len(values) <= 8192 else spans(len(values), 4096)
    return np.concatenate(pmap(lambda part: values[part] @ axes, parts))


def _cross(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return left (s, a)' @ right (s, b), computed by the thread pool, one part per thread."""
    return np.add.reduce(pmap(lambda part: left[part].T @ right[part], shares(len(left), least=512)))
