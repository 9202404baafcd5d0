"""Shards of classes as workers of Ray Train that talk by torch.distributed (gloo here, NCCL on GPUs)."""

from __future__ import annotations

import numpy as np
import pytest

from kway.compute.cluster import train
from kway.compute.cluster.train import OWN_GPUS, PROCESSORS, SHARED_GPUS, train_together, wire_for
from kway.linear.losses import LOSSES, Targets
from kway.linear.objective.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.solvers.base import Control
from kway.linear.solvers.lbfgs import LBFGS
from kway.linear.solvers.shards.class_shards import class_edges, shard_parts
from kway.linear.solvers.shards.step_files import StepsFile, mark_of
from kway.linear.solvers.shards.trained_classes import train_classes

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
    steps = StepsFile.of(tmp_path / "fit", mark_of(objective, TOL, "lbfgs"), 2)
    with cluster(folder=tmp_path):
        parts = shard_parts(objective, steps, control, class_edges(30, 2))
        there = train_classes(objective, parts, steps, None, wire_for(2))
    assert there.converged
    assert there.n_iter == len(there.history) - 1
    assert objective.value(there.theta) == pytest.approx(objective.value(here.theta), rel=2 * TOL)
    assert there.history[-1] == pytest.approx(objective.value(there.theta), rel=TOL)


def test_workers_talk_by_what_is_chosen(cluster, tmp_path, monkeypatch):
    def program(reach, device):  # carried by value: the workers cannot import this file
        import numpy as np
        import torch.distributed as dist

        talk = reach(lambda what: None)
        total = talk.total(np.array([dist.get_rank() + 1.0]))
        (tmp_path / f"rank-{dist.get_rank()}").write_text(f"{dist.get_backend()} {device} {total[0]:g}")

    with cluster(folder=tmp_path):
        assert wire_for(2) is PROCESSORS
        train_together([program, program], tmp_path / "train", wire_for(2))
    assert [(tmp_path / f"rank-{rank}").read_text() for rank in (0, 1)] == ["gloo cpu 3"] * 2
    monkeypatch.setattr(train, "n_gpus", lambda: 2)
    assert [wire_for(workers) for workers in (1, 2, 3)] == [OWN_GPUS, OWN_GPUS, SHARED_GPUS]
