"""Rows with labels."""

import numpy as np


def blobs(n=400, d=6, K=4, seed=0, dtype=np.float32, spread=1.0, distance=2.0):
    """Return X (n, d) around one center per class, and codes (n,) in which every class occurs.

    `spread` is the standard deviation around a center, and `distance` that of the centers.
    """
    rng = np.random.default_rng(seed)
    y = np.r_[np.arange(K), rng.integers(0, K, n - K)]
    return (distance * rng.standard_normal((K, d))[y] + spread * rng.standard_normal((n, d))).astype(dtype), y


def draw_labels(p, rng):
    """Return labels (n,) drawn from probabilities (n, K)."""
    return (p.cumsum(axis=1) < rng.random((len(p), 1))).sum(axis=1).clip(0, p.shape[1] - 1)
