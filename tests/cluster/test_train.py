"""Shards of classes as workers of Ray Train that talk by torch.distributed (gloo here, NCCL on GPUs)."""

from __future__ import annotations

import numpy as np
import pytest

from kway.linear.losses import LOSSES, Targets
from kway.linear.objective.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.solvers.base import Control
from kway.linear.solvers.class_shards import class_edges, shard_parts
from kway.linear.solvers.diary import StepsFile, mark_of
from kway.linear.solvers.lbfgs import LBFGS
from kway.linear.solvers.trained_classes import train_classes

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("ray.train", reason="ray[train] is not installed", exc_type=ImportError)
TOL = 1e-4


def problem(n=4000, d=12, K=30):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)).astype(np.float32)
    y = (X @ rng.normal(size=(d, K)) + rng.gumbel(size=(n, K))).argmax(axis=1)
    return Objective(X, Targets(y.astype(np.int64)), K, LOSSES["softmax"].joint, Penalty(1e-4))


def test_the_optimum_of_one_machine(cluster, tmp_path):
    objective, control = problem(), Control(tol=TOL)
    here = LBFGS().solve(objective, objective.zeros(), control)
    steps = StepsFile.of(tmp_path / "fit", mark_of(objective, TOL), 2)
    with cluster(folder=tmp_path):
        parts = shard_parts(objective, steps, control, class_edges(30, 2))
        there = train_classes(objective, parts, steps, None, gpu=False)
    assert there.converged
    assert there.n_iter == len(there.history) - 1
    assert objective.value(there.theta) == pytest.approx(objective.value(here.theta), rel=2 * TOL)
    assert there.history[-1] == pytest.approx(objective.value(there.theta), rel=TOL)
