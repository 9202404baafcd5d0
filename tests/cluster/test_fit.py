"""Linear models whose rows live on the nodes of a real cluster: the optimum of one machine, whoever dies meanwhile."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp

import kway
from kway.linear import placing
from kway.linear.objective import on_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]
ray = pytest.importorskip("ray")


@pytest.fixture
def spread(monkeypatch):
    """Every problem is large enough."""
    monkeypatch.setattr(placing, "LEAST_SPREAD", 0)


def problem(seed, n=1500, d=30, K=5, dtype=np.float32, sparse=False):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).astype(dtype) * (rng.random((n, d)) < 0.3 if sparse else 1)
    y = (X @ rng.normal(size=(d, K)) + rng.gumbel(size=(n, K))).argmax(axis=1)
    return (sp.csr_matrix(X.astype(dtype)) if sparse else X), y, rng.random(n) + 0.1


MODELS = [
    kway.SoftmaxClassifier(solver="lbfgs"),
    kway.LogisticClassifier(solver="lbfgs"),
    kway.SoftmaxClassifier(penalty="l1", alpha=1e-3, solver="proximal"),
    kway.SVMClassifier(multiclass="joint", solver="lbfgs", alpha=1e-2),
]


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("model", MODELS, ids=lambda m: f"{type(m).__name__}-{m.penalty}")
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


def test_a_worker_killed_during_a_fit_costs_one_pass(cluster, spread, monkeypatch):
    X, y, _ = problem(2, n=6000, d=60)
    here = kway.SoftmaxClassifier(solver="lbfgs", alpha=1e-7, tol=1e-6).fit(X, y)
    crews = []
    made = on_cluster.make_crew
    monkeypatch.setattr(on_cluster, "make_crew", lambda makers: crews.append(made(makers)) or crews[-1])
    killed = []

    def kill():
        while not crews:
            time.sleep(0.01)
        for _ in range(3):
            victim = ray.get(crews[0].hosts[1][0].process.remote())
            os.kill(victim, signal.SIGKILL)
            killed.append(victim)
            time.sleep(0.3)

    with cluster():
        killer = threading.Thread(target=kill)
        killer.start()
        begun = time.monotonic()
        there = kway.SoftmaxClassifier(solver="lbfgs", alpha=1e-7, tol=1e-6).fit(X, y)
        took = time.monotonic() - begun
        killer.join()
    print(f"\n{len(killed)} workers killed under a fit of {there.n_iter_} steps: {took:.1f} s")
    assert there.objective_ == pytest.approx(here.objective_, rel=3e-6)
    assert killed
