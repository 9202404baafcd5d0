"""Shards of classes as workers of Ray Train that talk by torch.distributed (gloo here, NCCL on GPUs)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

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


def known_steps(folder):
    """The values that a fit has kept so far."""
    file = folder / "steps.json"
    return json.loads(file.read_text())["history"] if file.is_file() else []


def train_workers():
    """Processes of Ray Train on this machine, by their title."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if b"RayTrainWorker" in (place / "cmdline").read_bytes():
                yield int(place.name)
        except OSError:
            continue


def test_the_optimum_of_one_machine_though_a_worker_dies(cluster, tmp_path):
    objective, control = problem(), Control(tol=TOL)
    here = LBFGS().solve(objective, objective.zeros(), control)
    steps = StepsFile.of(tmp_path / "fit", mark_of(objective, TOL, "lbfgs"), 2)
    killed = []

    def kill():
        while len(known_steps(tmp_path / "fit")) < 4:
            time.sleep(0.001)
        os.kill(next(train_workers()), signal.SIGKILL)
        killed.append(known_steps(tmp_path / "fit"))

    threading.Thread(target=kill, daemon=True).start()
    with cluster(folder=tmp_path):
        parts = shard_parts(objective, steps, control, class_edges(30, 2))
        there = train_classes(objective, parts, steps, None, wire_for(2))
    (kept,) = killed
    assert there.history[: len(kept)] == kept  # gone on from there, not begun anew
    assert there.converged
    assert there.n_iter == len(there.history) - 1
    assert objective.value(there.theta) == pytest.approx(objective.value(here.theta), rel=2 * TOL)
    assert there.history[-1] == pytest.approx(objective.value(there.theta), rel=TOL)


DRIVER = """
import sys
import numpy as np
import kway
from kway.linear.solvers.shards import class_shards
class_shards.n_gpus = lambda: 2  # as if: the wire is that of processors
held = np.load(sys.argv[2] + "/rows.npz")
with kway.cluster(sys.argv[1], split="classes", folder=sys.argv[2] + "/steps"):
    model = kway.SoftmaxClassifier(solver="lbfgs", tol=1e-4).fit(held["X"], held["y"])
print(model.objective_)
"""


def test_a_driver_killed_in_the_middle_is_begun_again(cluster, nodes, tmp_path):
    objective = problem()
    np.savez(tmp_path / "rows.npz", X=objective.X, y=objective.targets.codes)

    def driver():
        line = [sys.executable, "-c", DRIVER, nodes.address, str(tmp_path)]
        return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def kept():
        return next((known_steps(fit) for fit in (tmp_path / "steps").glob("fit-*")), [])

    with cluster():
        first = driver()
        while len(kept()) < 4:
            assert first.poll() is None, first.stderr.read()
            time.sleep(0.001)
        first.kill()
        first.communicate()
        before = seen = kept()
        again = driver()
        while again.poll() is None and len(seen) <= len(before):
            seen = kept() or seen
            time.sleep(0.002)
        out, err = again.communicate(timeout=600)
    assert again.returncode == 0, err
    assert seen[: len(before)] == before  # gone on from there
    here = LBFGS().solve(objective, objective.zeros(), Control(tol=TOL))
    assert float(out.split()[-1]) == pytest.approx(objective.value(here.theta), rel=2 * TOL)


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
