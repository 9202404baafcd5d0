"""A cluster reached through Ray's client server, ray://host:port: the answers of one machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kway.cli import run as cli

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("ray")
pytest.importorskip("grpc", reason="ray:// needs grpcio: pip install 'ray[client]'")

# in a process of its own: this one may be a part of the cluster already
CLIENT = """
import sys
import numpy as np
import kway
from kway.search import Flat, Sharded
rng = np.random.default_rng(0)
rows = rng.normal(size=(4000, 24)).astype(np.float32)
y = (rows @ rng.normal(size=(24, 5)) + rng.gumbel(size=(4000, 5))).argmax(axis=1)
one = Flat().build(rows).nearest(rows[:50], 5)
model = kway.SoftmaxClassifier(solver="lbfgs", tol=1e-4)
here = kway.SoftmaxClassifier(**model.get_params()).fit(rows, y)
with kway.cluster(sys.argv[1], split="rows"):
    index = Sharded(Flat(), 3, replicas=2).build(rows)
    found = index.nearest(rows[:50], 5)
    assert "cluster" in index.why_
    index.close()
    model.fit(rows, y)
assert (found.ids == one.ids).all() and (found.distances == one.distances).all()
assert model.why_ == "rows on the 3 nodes of a cluster", model.why_
assert abs(model.objective_ / here.objective_ - 1) < 2e-4
"""


def run(*line):
    done = subprocess.run([sys.executable, *map(str, line)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done


def test_search_and_fit(cluster, nodes):
    run("-c", CLIENT, nodes.client)


def kill_first_server(killed, over):
    """SIGKILL the process that Ray starts for the next client, as soon as it is seen."""
    before = servers()
    while not killed and not over.wait(0.005):
        for process in servers() - before:
            os.kill(process, signal.SIGKILL)
            killed.append(process)


def servers():
    """Processes that serve one client each, those still on their way to it among them."""
    found = set()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            line = (place / "cmdline").read_bytes()
        except OSError:
            continue  # gone in between
        if b"specific-server" in line:
            found.add(int(place.name))
    return found


def test_a_server_that_dies_at_its_start_is_replaced(cluster, nodes):
    killed, over = [], threading.Event()
    killer = threading.Thread(target=kill_first_server, args=(killed, over))
    killer.start()
    try:
        run("-c", "import sys, kway\nwith kway.cluster(sys.argv[1]): pass", nodes.client)
    finally:
        over.set()
        killer.join()
    assert killed


def test_the_command_line(cluster, nodes, tmp_path, capfd):
    rng = np.random.default_rng(1)
    (tmp_path / "big").mkdir()
    for number in range(3):
        X = rng.normal(size=(300, 3)).round(3)
        columns = {f"x{j}": X[:, j] for j in range(3)} | {"label": np.where(X[:, 0] > 0, "yes", "no").tolist()}
        pq.write_table(pa.table(columns), tmp_path / "big" / f"{number}.parquet")
    there = ("--cluster", "--address", nodes.client)

    def here(*line):
        capfd.readouterr()
        assert cli(list(map(str, line))) == 0
        return capfd.readouterr().out

    learned = (
        "fit",
        tmp_path / "big" / "0.parquet",
        "-t",
        "label",
        "-m",
        "softmax,centroid",
        "--also",
        "none",
        "--json",
    )
    outputs = ("-o", tmp_path / "m.kway", "--report", tmp_path / "r.html")
    one = json.loads(here(*learned, *outputs))
    other = json.loads(run("-m", "kway", *learned, *outputs, "--force", *there).stdout)
    assert other["best"] == one["best"]
    assert [m["fold_accuracy"] for m in other["models"]] == [m["fold_accuracy"] for m in one["models"]]
    asked = ("predict", tmp_path / "m.kway", tmp_path / "big", "-t", "label")
    here(*asked, "-o", tmp_path / "one.parquet")
    run("-m", "kway", *asked, "-o", tmp_path / "parts", *there)
    assert pq.read_table(tmp_path / "parts").equals(pq.read_table(tmp_path / "one.parquet"))
