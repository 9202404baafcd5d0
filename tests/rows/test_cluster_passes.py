"""A problem whose rows lie in shards: values and gradients of the one in one piece, for every loss and kind of rows.

The shards are in this process; tests/cluster/test_fit.py asks those of real nodes.
"""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from kway.linear.losses import LOSSES, Targets
from kway.linear.objective import Objective
from kway.linear.penalties import Penalty
from kway.rows.cluster import linear_passes as passes
from kway.rows.passes import wrap_rows

SOFT = [name for name in LOSSES if LOSSES[name].joint.cross_entropy]  # that take soft targets
CASES = [(loss, kind) for kind in ("dense", "csr", "soft") for loss in (SOFT if kind == "soft" else LOSSES)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("loss", "kind"), CASES)
def test_sums_over_shards_are_those_of_one_piece(monkeypatch, loss, kind, seed):
    rng = np.random.default_rng(seed)
    n, d, K = int(rng.integers(5, 300)), int(rng.integers(1, 20)), int(rng.integers(2, 7))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-3, 4)
    X = sp.csr_matrix(X * (rng.random((n, d)) < 0.4)) if kind == "csr" else X
    targets = Targets(rng.integers(K, size=n), rng.dirichlet(np.ones(K), n) if kind == "soft" else None)
    one = Objective(X, targets, K, LOSSES[loss].joint, Penalty(0.1), weight=rng.random(n) + 0.1)
    monkeypatch.setattr(passes, "n_nodes", lambda: int(rng.integers(1, 9)))
    apart = replace(one, rows=wrap_rows(X, cluster=True))
    theta = rng.normal(size=(K, d + 1)) / (1 + np.abs(X).max())
    assert apart.value(theta) == pytest.approx(one.value(theta), rel=1e-12)
    for ours, wanted in zip(apart.value_gradient(theta), one.value_gradient(theta), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-9, atol=1e-12 * np.abs(wanted).max())
    if one.loss.smooth:
        V = rng.normal(size=theta.shape)
        ours, wanted = apart.hessian_at(theta), one.hessian_at(theta)
        product = wanted.product(V)
        np.testing.assert_allclose(ours.product(V), product, rtol=1e-9, atol=1e-12 * np.abs(product).max())
