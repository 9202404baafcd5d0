"""Softmax whose classes live on the nodes of a real cluster: the optimum of one machine, whoever dies meanwhile."""

from __future__ import annotations

import itertools
import os
import signal
import time

import numpy as np
import pytest
import scipy.sparse as sp

import kway
from kway.linear.losses import LOSSES, Targets
from kway.linear.objective.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.solvers.base import Control
from kway.linear.solvers.lbfgs import LBFGS
from kway.linear.solvers.shards import class_shards
from kway.linear.solvers.shards.class_shards import ClassSharded

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]
ray = pytest.importorskip("ray")
TOL = 1e-5


def rows_and_labels(seed, n=6000, d=20, K=24):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).astype(np.float32)
    return X, (X @ rng.normal(size=(d, K)) + rng.gumbel(size=(n, K))).argmax(axis=1)


def problem(seed):
    X, y = rows_and_labels(seed)
    return Objective(X, Targets(y.astype(np.int64)), 24, LOSSES["softmax"].joint, Penalty(1e-5))


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
def test_the_optimum_of_one_machine(cluster, sparse):
    X, y = rows_and_labels(0, n=4000)
    X = sp.csr_matrix(X * (np.abs(X) > 1)) if sparse else X
    here = kway.SoftmaxClassifier(tol=TOL).fit(X, y)
    with cluster(split="classes"):
        there = kway.SoftmaxClassifier(tol=TOL).fit(X, y)
    assert there.why_ == "classes on the 3 nodes of a cluster"
    assert there.objective_ == pytest.approx(here.objective_, rel=2 * TOL)
    assert (there.predict(X) == here.predict(X)).mean() > 0.995


def test_a_worker_and_a_node_lost_during_a_fit_cost_a_step_each(cluster, nodes, monkeypatch):
    objective = problem(1)
    here = LBFGS().solve(objective, objective.zeros(), Control(tol=TOL))
    crews, steps = [], []
    made = class_shards.make_crew
    monkeypatch.setattr(class_shards, "make_crew", lambda makers: crews.append(made(makers)) or crews[-1])

    def killing(iteration, value):
        steps.append((iteration, time.monotonic()))
        if iteration == 2:
            os.kill(ray.get(crews[0].hosts[1][0].process.remote()), signal.SIGKILL)
        if iteration == 5:
            ours = [node for node in nodes.list_all_nodes() if node.node_id in crews[0].where and not node.head]
            nodes.remove_node(ours[0])
        return False

    with cluster():
        there = ClassSharded().solve(objective, objective.zeros(), Control(tol=TOL, progress=killing))
    took = {iteration: at - before for (_, before), (iteration, at) in itertools.pairwise(steps)}
    print(
        f"\na step of {there.n_iter}: {np.median(list(took.values())):.2f} s; "
        f"with a worker killed {took[3]:.1f} s, with its node removed {took[6]:.1f} s"
    )
    assert [i for i, _ in steps] == list(range(len(steps)))  # nothing that was kept is done again
    assert there.value == pytest.approx(objective.value(here.theta), rel=2 * TOL)
