"""Objectives of linear models on drawn rows."""

import numpy as np

from kway.linear.losses import LOSSES, Targets
from kway.linear.objective import Objective


def draw_objective(loss, form, penalty, n=60, d=4, K=3, seed=0, weighted=False, bias=True, units=1.0):
    """Return an objective on n rows around one center per class; every class occurs."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(K), rng.integers(0, K, n - K)])
    X = (rng.normal(size=(n, d)) + rng.normal(size=(K, d))[y]) * units
    weight = rng.uniform(0.5, 1.5, n) if weighted else None
    weight = None if weight is None else weight / weight.mean()
    R = 1 if K == 2 and form == "columns" else K
    return Objective(X, Targets(y), R, getattr(LOSSES[loss], form), penalty, bias, weight)
