"""Principal axes of a sample: (d, p) float32, nearly orthonormal columns, largest variance first.

Any orthonormal axes keep the bounds true; these make them tight, and nearly these nearly as tight. So beyond FULL
columns only the leading ones are found, by subspace iteration on the sample's spread Z'Z: 20 ms for 256 of 784 axes,
where all of them take 70 ms.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, qr

from kway.compute.threads import pmap, shares, single_blas, spans

FULL = 400  # columns up to which all axes are found at once
MOST_GRAM = 4096  # columns up to which Z'Z is written down: 64 MB

Spread = Callable[[NDArray[np.float32]], NDArray[np.float32]]  # B (d, p) -> Z'Z B (d, p)


def spread_of(values: NDArray[np.float32], n_jobs: int | None = None) -> Spread:
    """B -> Z'Z B of values Z (s, d)."""
    if values.shape[1] > MOST_GRAM:
        return lambda basis: _cross(values, pooled_product(values, basis, n_jobs), n_jobs)
    gram = _cross(values, values, n_jobs)
    return lambda basis: pooled_product(gram, basis, n_jobs)


def leading_axes(spread: Spread, d: int, count: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """The `count` leading axes (d, count) of a spread; all d of them where there are at most FULL."""
    with single_blas():  # several threads are slower in all that follows, but for the products
        if d <= FULL:
            return _descending(spread(np.eye(d, dtype=np.float32)))
        basis = rng.standard_normal((d, min(d, count))).astype(np.float32)
        basis = qr(spread(spread(basis)), mode="economic", overwrite_a=True)[0]
        return np.ascontiguousarray(basis @ _descending(basis.T @ spread(basis)), np.float32)


def pooled_product(values: NDArray[np.float32], axes: NDArray[np.float32], n_jobs: int | None) -> NDArray[np.float32]:
    """values (s, d) @ axes (d, p) on the pool."""
    parts = shares(len(values), n_jobs, 128) if len(values) <= 8192 else spans(len(values), 4096)
    return np.concatenate(pmap(lambda part: values[part] @ axes, parts, n_jobs))


def _cross(left: NDArray[np.float32], right: NDArray[np.float32], n_jobs: int | None) -> NDArray[np.float32]:
    """left (s, a)' @ right (s, b) on the pool, a part a thread."""
    return np.add.reduce(pmap(lambda part: left[part].T @ right[part], shares(len(left), n_jobs, 512), n_jobs))


def _descending(gram: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.ascontiguousarray(eigh(gram, driver="evd", overwrite_a=True)[1][:, ::-1], np.float32)


def flaw(axes: NDArray[np.float32]) -> float:
    """Bounds the distance (2-norm) of the axes to the nearest orthonormal ones: |V'V - I| in float64."""
    wide = axes.astype(np.float64)
    with single_blas():
        return float(np.linalg.norm(wide.T @ wide - np.eye(wide.shape[1]))) + 1e-12


def random_turn(width: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """A random rotation (width, width): coordinates of one range, so that one step fits them all."""
    return np.ascontiguousarray(np.linalg.qr(rng.standard_normal((width, width)))[0], np.float32)
