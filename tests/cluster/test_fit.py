"""Linear models whose rows live on the nodes of a real cluster: the optimum of one machine, whoever dies meanwhile."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import kway
from kway.linear import plan as planning
from kway.rows.cluster import linear_passes as passes

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]
ray = pytest.importorskip("ray")


@pytest.fixture
def spread(monkeypatch):
    """Every problem is large enough."""
    monkeypatch.setattr(planning, "BLOCK_BYTES", 0)


def problem(seed, n=1500, d=30, K=5, dtype=np.float32, sparse=False):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).astype(dtype) * (rng.random((n, d)) < 0.3 if sparse else 1)
    y = (X @ rng.normal(size=(d, K)) + rng.gumbel(size=(n, K))).argmax(axis=1)
    return (sp.csr_matrix(X.astype(dtype)) if sparse else X), y, rng.random(n) + 0.1


# tests/rows/test_cluster_passes.py has every loss with every kind of rows, in shards of this process
MODELS = [
    (kway.SoftmaxClassifier(solver="lbfgs"), False),
    (kway.LogisticClassifier(solver="lbfgs"), True),
    (kway.SoftmaxClassifier(penalty="l1", alpha=1e-3, solver="proximal"), True),
    (kway.SVMClassifier(multiclass="joint", solver="lbfgs", alpha=1e-2), False),
]


@pytest.mark.parametrize(
    ("model", "sparse"), MODELS, ids=[f"{type(m).__name__}-{m.penalty}-{'csr' if s else 'dense'}" for m, s in MODELS]
)
def test_the_optimum_of_one_machine(cluster, spread, model, sparse):
    X, y, weight = problem(1, sparse=sparse, dtype=np.float64)
    here = kway.LinearClassifier(**_whole(model)).fit(X, y, weight)
    with cluster():
        there = kway.LinearClassifier(**_whole(model)).fit(X, y, weight)
    assert "nodes of a cluster" in there.why_
    assert there.objective_ == pytest.approx(here.objective_, rel=2 * here.tol)
    assert (there.predict(X) == here.predict(X)).mean() > 0.99


def _whole(model):
    known = kway.LinearClassifier().get_params()
    loss = {"SoftmaxClassifier": "softmax", "LogisticClassifier": "logistic", "SVMClassifier": "hinge"}
    return {k: v for k, v in model.get_params().items() if k in known} | {"loss": loss[type(model).__name__]}


def test_workers_and_a_node_lost_during_a_fit_cost_a_pass_each(cluster, nodes, spread, monkeypatch):
    X, y, _ = problem(2, n=6000, d=60)
    wishes = {"solver": "lbfgs", "alpha": 1e-7, "tol": 1e-6}
    here = kway.SoftmaxClassifier(**wishes).fit(X, y)
    made, took = passes.make_shards, []

    def watched(makers):
        shards = made(makers)
        ask = shards.ask

        def asking(method, *arguments):
            begun = time.monotonic()
            if len(took) in (4, 8):
                os.kill(ray.get(shards.hosts[1][0].process.remote()), signal.SIGKILL)
            if len(took) == 12:
                lives = {ray.get(host.ready.remote()): ray.get(host.process.remote()) for (host,) in shards.hosts}
                ours = [node for node in nodes.list_all_nodes() if node.node_id in lives and not node.head]
                nodes.remove_node(ours[0], allow_graceful=False)
                while Path(f"/proc/{lives[ours[0].node_id]}").exists():  # it would answer some more
                    time.sleep(0.01)
            found = ask(method, *arguments)
            took.append(time.monotonic() - begun)
            return found

        shards.ask = asking
        return shards

    monkeypatch.setattr(passes, "make_shards", watched)
    with cluster():
        there = kway.SoftmaxClassifier(**wishes).fit(X, y)
    print(
        f"\na pass of {len(took)}: {np.median(took):.2f} s; with a worker killed {took[4]:.1f} and {took[8]:.1f} s, "
        f"with a node removed {took[12]:.1f} s"
    )
    assert there.objective_ == pytest.approx(here.objective_, rel=3e-6)
