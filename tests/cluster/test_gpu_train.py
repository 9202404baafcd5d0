"""Shards of classes as workers of Ray Train on a GPU: NCCL where each has one of its own, gloo where two share one."""

from __future__ import annotations

import numpy as np
import pytest

import kway
from kway.compute.cluster.train import OWN_GPUS, SHARED_GPUS, wire_for
from kway.linear.losses import LOSSES, Targets
from kway.linear.objective.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.solvers.base import Control
from kway.linear.solvers.shards.class_shards import class_edges, shard_parts
from kway.linear.solvers.shards.step_files import StepsFile, mark_of
from kway.linear.solvers.shards.trained_classes import train_classes

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]
ray = pytest.importorskip("ray")
torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU here", allow_module_level=True)
TOL = 1e-4


@pytest.fixture
def one_gpu(tmp_path):
    """Inside a cluster of this machine that has a GPU, with a folder for its steps."""
    ray.shutdown()  # the cluster of the other tests has none
    ray.init("local", num_cpus=4, num_gpus=1, log_to_driver=False, logging_level="error")
    with kway.cluster(folder=tmp_path / "steps", split="classes"):
        yield tmp_path / "steps"
    ray.shutdown()


def problem(n=4000, d=24, K=60):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)).astype(np.float32)
    return X, (X @ rng.normal(size=(d, K)) + rng.gumbel(size=(n, K))).argmax(axis=1)


def test_one_worker_by_nccl(one_gpu):
    X, y = problem()
    assert wire_for(1) is OWN_GPUS
    there = kway.SoftmaxClassifier(solver="lbfgs", tol=TOL).fit(X, y)
    with kway.cluster(split="rows"):
        here = kway.SoftmaxClassifier(solver="lbfgs", tol=TOL).fit(X, y)
    assert there.why_ == "classes on the 1 node of a cluster"
    assert there.objective_ == pytest.approx(here.objective_, rel=2 * TOL)
    assert not list(one_gpu.iterdir())  # the steps went with the fit


def test_two_workers_share_the_gpu_by_gloo(one_gpu):
    X, y = problem()
    objective, control = Objective(X, Targets(y), 60, LOSSES["softmax"].joint, Penalty(1e-4)), Control(tol=TOL)
    steps = StepsFile.of(one_gpu / "fit", mark_of(objective, TOL, "lbfgs"), 2)
    parts = shard_parts(objective, steps, control, class_edges(60, 2))
    assert wire_for(2) is SHARED_GPUS
    there = train_classes(objective, parts, steps, None, wire_for(2))
    here = kway.SoftmaxClassifier(alpha=1e-4, tol=TOL).fit(X, y)  # by one worker
    assert there.converged
    assert there.history[-1] == pytest.approx(here.objective_, rel=2 * TOL)
