"""Whoever called fit is killed in the middle: the same call again goes on behind the last step, to the same optimum."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import numpy as np
import pytest

import kway
from kway.linear.solvers.shards.step_files import StepsFile

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("ray")

DRIVER = """
import json, os, signal, sys
import numpy as np
import kway
from kway.linear.solvers.shards.step_files import StepsFile
address, split, place, wishes, dies_at = sys.argv[1:]
add = StepsFile.add
def told(self, value):
    add(self, value)
    print(len(self.history) - 1, flush=True)
    told.left -= 1
    if not told.left:
        os.kill(os.getpid(), signal.SIGKILL)
told.left, StepsFile.add = int(dies_at), told
held = np.load(place + "/rows.npz")
model = kway.LinearClassifier(**json.loads(wishes))
with kway.cluster(address, split=split.replace("files", "rows"), folder=place + "/steps"):
    model.fit_folder(place + "/big") if split == "files" else model.fit(held["X"], held["y"])
"""

# split, wishes, the step that it is killed after
FITS = {
    "lbfgs": ("rows", {"loss": "softmax", "solver": "lbfgs", "alpha": 1e-5, "tol": 1e-5}, 5),
    "folder": ("files", {"loss": "softmax", "solver": "lbfgs", "alpha": 1e-5, "tol": 1e-5}, 5),
    "classes": ("classes", {"loss": "softmax", "solver": "lbfgs", "alpha": 1e-5, "tol": 1e-5}, 5),
    "proximal": ("rows", {"loss": "softmax", "solver": "proximal", "penalty": "l1", "alpha": 1e-3, "tol": 1e-5}, 5),
    "hinge": ("rows", {"loss": "hinge", "solver": "lbfgs", "multiclass": "joint", "alpha": 1e-2, "tol": 1e-3}, 12),
    "proximal-hinge": (
        "rows",
        {"loss": "hinge", "solver": "proximal", "penalty": "l1", "alpha": 1e-2, "tol": 1e-2},
        12,
    ),
}


def rows_and_labels(n=3000, d=20, K=12):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(n, d)).astype(np.float32)
    return X, (X @ rng.normal(size=(d, K)) + rng.gumbel(size=(n, K))).argmax(axis=1)


@pytest.mark.parametrize("name", FITS)
def test_the_same_call_again_goes_on(cluster, nodes, tmp_path, monkeypatch, name):
    split, wishes, dies_at = FITS[name]
    X, y = rows_and_labels()
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    (tmp_path / "big").mkdir()
    for number, rows in enumerate(np.array_split(X, 3)):
        np.save(tmp_path / "big" / f"rows-{number}.npy", rows)
    np.save(tmp_path / "big" / "labels.npy", y)
    line = [sys.executable, "-c", DRIVER, nodes.address, split, str(tmp_path), json.dumps(wishes), str(dies_at)]
    killed = subprocess.run(line, capture_output=True, text=True, timeout=600)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    before, after, add = list(map(int, killed.stdout.split())), [], StepsFile.add
    assert len(before) == dies_at
    monkeypatch.setattr(StepsFile, "add", lambda steps, v: add(steps, v) or after.append(len(steps.history) - 1))
    there = kway.LinearClassifier(**wishes)
    with cluster(split=split.replace("files", "rows"), folder=tmp_path / "steps"):
        there.fit_folder(tmp_path / "big") if split == "files" else there.fit(X, y)
    assert after[0] == before[-1] + ("proximal" not in name)  # which does its last step again
    here = kway.LinearClassifier(**wishes).fit(X, y)
    assert there.objective_ == pytest.approx(here.objective_, rel=2 * wishes["tol"])
    assert not list((tmp_path / "steps").iterdir())
