"""Principal axes of a sample: (d, p) float32, nearly orthonormal columns, largest variance first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, qr

from kway.compute.threads import pmap, shares, single_blas, spans

MOST_FULL = 1024  # columns up to which all axes are found: 0.3 s here, and the cube of it beyond
MOST_AXES = 512  # axes found above that, by two rounds of subspace iteration


def principal_axes(
    values: NDArray[np.float32], rng: np.random.Generator, n_jobs: int | None = None
) -> NDArray[np.float32]:
    """Axes of values (s, d); any orthonormal axes keep the bounds true, these make them tight."""
    d = values.shape[1]
    with single_blas():  # several threads are slower in all that follows, but for the products
        if d <= MOST_FULL:
            return _descending(_cross(values, values, n_jobs))
        basis = rng.standard_normal((d, MOST_AXES)).astype(np.float32)
        for _ in range(2):
            basis = qr(_cross(values, products(values, basis, n_jobs), n_jobs), mode="economic", overwrite_a=True)[0]
        lead = products(values, basis, n_jobs)  # (s, MOST_AXES)
        return np.ascontiguousarray(basis @ _descending(_cross(lead, lead, n_jobs)), np.float32)


def products(values: NDArray[np.float32], axes: NDArray[np.float32], n_jobs: int | None) -> NDArray[np.float32]:
    """values (s, d) @ axes (d, p) on the pool."""
    return np.concatenate(pmap(lambda part: values[part] @ axes, spans(len(values), 1024), n_jobs))


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
