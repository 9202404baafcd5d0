"""The process that called fit is killed: the same call, made again, begins from its last weights."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import numpy as np
import pytest

import kway
from kway.rows.cluster.linear_passes import SavedTheta

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("ray")

DRIVER = """
import json, os, signal, sys
import numpy as np
import kway
from kway.rows.cluster.linear_passes import SavedTheta
address, split, place, settings, dies_at = sys.argv[1:]
save = SavedTheta.save
def saved(self, theta):
    save(self, theta)
    saved.left -= 1
    if not saved.left:
        os.kill(os.getpid(), signal.SIGKILL)
saved.left, SavedTheta.save = int(dies_at), saved
held = np.load(place + "/rows.npz")
model = kway.LinearClassifier(**json.loads(settings))
with kway.cluster(address, split="rows", folder=place + "/steps"):
    model.fit_folder(place + "/big") if split == "files" else model.fit(held["X"], held["y"])
"""

# where the rows are, settings, the pass that it is killed after
FITS = {
    "lbfgs": ("rows", {"loss": "softmax", "solver": "lbfgs", "alpha": 1e-5, "tol": 1e-5}, 5),
    "folder": ("files", {"loss": "softmax", "solver": "lbfgs", "alpha": 1e-5, "tol": 1e-5}, 5),
    "proximal": ("rows", {"loss": "softmax", "solver": "proximal", "penalty": "l1", "alpha": 1e-3, "tol": 1e-5}, 5),
    "hinge": ("rows", {"loss": "hinge", "solver": "lbfgs", "multiclass": "joint", "alpha": 1e-2, "tol": 1e-3}, 12),
    "proximal-hinge": (
        "rows",
        {"loss": "hinge", "solver": "proximal", "penalty": "l1", "alpha": 1e-2, "tol": 1e-2},
        12,
    ),
}


def rows_and_labels(n=14_000, d=80, K=12):  # a smaller problem is solved in the process that called fit
    rng = np.random.default_rng(2)
    X = rng.normal(size=(n, d)).astype(np.float32)
    return X, (X @ rng.normal(size=(d, K)) + rng.gumbel(size=(n, K))).argmax(axis=1)


@pytest.mark.parametrize("name", FITS)
def test_the_same_call_again_begins_from_the_last_weights(cluster, nodes, tmp_path, monkeypatch, name):
    split, settings, dies_at = FITS[name]
    X, y = rows_and_labels()
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    (tmp_path / "big").mkdir()
    for number, rows in enumerate(np.array_split(X, 3)):
        np.save(tmp_path / "big" / f"rows-{number}.npy", rows)
    np.save(tmp_path / "big" / "labels.npy", y)
    line = [sys.executable, "-c", DRIVER, nodes.address, split, str(tmp_path), json.dumps(settings), str(dies_at)]
    killed = subprocess.run(line, capture_output=True, text=True, timeout=600)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(list((tmp_path / "steps").iterdir())) == 1
    loaded, load = [], SavedTheta.load
    monkeypatch.setattr(SavedTheta, "load", lambda saved: loaded.append(load(saved)) or loaded[-1])
    there = kway.LinearClassifier(**settings)
    with cluster(split="rows", folder=tmp_path / "steps"):
        there.fit_folder(tmp_path / "big") if split == "files" else there.fit(X, y)
    assert loaded[0].any()
    here = kway.LinearClassifier(**settings).fit(X, y)
    assert there.objective_ == pytest.approx(here.objective_, rel=2 * settings["tol"])
    assert not list((tmp_path / "steps").iterdir())
