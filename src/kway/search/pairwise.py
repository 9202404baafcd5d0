"""`kway.pairwise(A, B, metric)`: all distances between the rows of A (n, d) and of B (m, d), as an (n, m) array.

    euclidean, manhattan, haversine, hamming, cosine, dot    the distance that searches use, lower is nearer
    Gaussian(sigma), Laplacian(sigma)                        the kernel matrix: similarities, higher is nearer

||a - b||^2 = ||a||^2 + ||b||^2 - 2 a.b is one matrix product; where it cancels (rows that almost coincide) the pair is
measured again directly, so identical rows are exactly 0 apart and nothing is the root of a negative number.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kway.compute.kernels.distances import COSINE, EUCLIDEAN, HAVERSINE, hamming_tile, manhattan_tile, refine
from kway.compute.kernels.jit import frozen
from kway.compute.threads import pmap, shares, spans
from kway.data.gate import plain_rows
from kway.errors import InputError
from kway.search.blocks import unit
from kway.search.metrics import Gaussian, Laplacian, Metric, pick_metric

CANCELLED = 1e-4  # share of ||a||^2 + ||b||^2 below which a squared distance has lost too many digits


def pairwise(A: ArrayLike, B: ArrayLike | None = None, metric: str | Metric = "euclidean") -> NDArray[np.float64]:
    """Distances (n, m) in float64 between the rows of A and of B (of A itself where B is None).

    Any number type may come in: differences are taken in floating point, so uint8 images do not wrap.

    >>> pairwise([[0, 0], [3, 4]], [[0, 0]]).ravel().tolist()
    [0.0, 5.0]
    """
    picked = pick_metric(metric)
    left = plain_rows(A, "A")
    right = left if B is None else plain_rows(B, "B")
    if left.shape[1] != right.shape[1]:
        raise InputError(f"A has {left.shape[1]} columns and B has {right.shape[1]}; pass rows of the same length")
    picked.check(left.shape[1])
    a, b = (frozen(np.asarray(picked.prepare(rows), dtype=np.float64)) for rows in (left, right))
    out = np.empty((len(a), len(b)))

    def work(where: slice) -> None:
        for some in spans(where.stop - where.start, 256):
            part = slice(where.start + some.start, where.start + some.stop)
            _fill(picked.base, a[part], b, out[part])

    pmap(work, shares(len(a), least=16))
    distances = picked.finish(out)
    return picked.score(distances) if isinstance(picked, Gaussian | Laplacian) else distances


def _fill(base: str, a: NDArray, b: NDArray, out: NDArray) -> None:
    """out (n, m) = distances under a base distance."""
    if base == "manhattan":
        manhattan_tile(a, b, out)
    elif base == "hamming":
        hamming_tile(a, b, out)
        out /= a.shape[1]
    elif base == "dot":
        np.matmul(-a, b.T, out=out)
    elif base == "cosine":
        np.subtract(1.0, unit(a) @ unit(b).T, out=out)
        np.clip(out, 0.0, 2.0, out=out)
        refine(COSINE, a, b, np.full(len(a), CANCELLED), np.zeros(len(b)), out)
    elif base == "haversine":
        out.fill(0.0)
        refine(HAVERSINE, a, b, np.zeros(len(a)), np.zeros(len(b)), out)  # there is no product to start from
    else:
        _euclidean(a, b, out)


def _euclidean(a: NDArray, b: NDArray, out: NDArray) -> None:
    middle = b.mean(axis=0)
    moved_a, moved_b = a - middle, b - middle  # far from the origin the squares would drown the differences
    aa, bb = (np.einsum("ij,ij->i", rows, rows) for rows in (moved_a, moved_b))
    np.matmul(moved_a, moved_b.T, out=out)
    out *= -2.0
    out += aa[:, None]
    out += bb
    np.maximum(out, 0.0, out=out)
    cancelled = out <= CANCELLED * (aa[:, None] + bb)
    np.sqrt(out, out=out)
    if cancelled.any():
        out[cancelled] = -1.0
        refine(EUCLIDEAN, a, b, np.full(len(a), -0.5), np.zeros(len(b)), out)
