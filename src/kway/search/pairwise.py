"""`kway.pairwise(A, B, metric)`: all distances between the rows of A (n, d) and of B (m, d), as an (n, m) array.

    euclidean, manhattan, haversine, hamming, cosine, dot    the distance of a search: a smaller value means nearer
    Gaussian(sigma), Laplacian(sigma)                        the kernel matrix: a larger similarity means nearer

Each distance fills blocks of the array (distances.py), by a matrix product if it has one. Pairs that lose digits by
cancellation (rows that almost coincide) are computed again directly, so identical rows have distance exactly 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kway.errors import InputError
from kway.kernels.jit import frozen
from kway.search.metrics import Gaussian, Laplacian, Metric, pick_metric
from kway.search.power_scaling import Unit, max_abs
from kway.threads import pmap, shares, spans_of
from kway.validation import plain_rows


def pairwise(A: ArrayLike, B: ArrayLike | None = None, metric: str | Metric = "euclidean") -> NDArray[np.float64]:
    """Compute all distances between the rows of A and of B.

    Parameters
    ----------
    A : array-like of shape (n, d)
        Rows of any number type; differences are computed in float64, so uint8 images do not overflow.
    B : array-like of shape (m, d) or None, default=None
        Rows; None uses A.
    metric : str or Metric, default="euclidean"
        A distance, or a kernel: Gaussian(sigma) and Laplacian(sigma) give similarities.

    Returns
    -------
    ndarray of shape (n, m)
        Distances in float64, or the kernel matrix.

    Examples
    --------
    >>> pairwise([[0, 0], [3, 4]], [[0, 0]]).ravel().tolist()
    [0.0, 5.0]
    """
    metric = pick_metric(metric)
    left = plain_rows(A, "A")
    right = left if B is None else plain_rows(B, "B")
    if left.shape[1] != right.shape[1]:
        raise InputError(f"A has {left.shape[1]} columns and B has {right.shape[1]}; pass rows of the same length")
    metric.check(left.shape[1])
    a, b = (np.asarray(metric.prepare(rows), dtype=np.float64) for rows in (left, right))
    unit = Unit.of(a if len(a) and max_abs(a) >= max_abs(b) else b, metric.distance, narrow=False)
    a, b = frozen(unit.rows(a)), frozen(unit.rows(b))
    out = np.empty((len(a), len(b)))
    distance = metric.distance

    def work(span: slice) -> None:
        for part in spans_of(span, 256):
            distance.fill(a[part], b, out[part])

    pmap(work, shares(len(a), least=16))
    distances = metric.finish(unit.finish(out))
    return metric.score(distances) if isinstance(metric, Gaussian | Laplacian) else distances
