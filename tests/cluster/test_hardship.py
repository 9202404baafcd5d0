"""What goes wrong on clusters: a caller killed while it builds, two of them at once, all nodes but one gone."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import kway
from kway.search import Flat, Landmarks, Sharded

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]
ray = pytest.importorskip("ray")

BUILD = """
import sys
import numpy as np
import kway
from kway.search import Landmarks, Sharded
rows = np.load(sys.argv[2] + "/rows.npy")
with kway.cluster(sys.argv[1], folder=sys.argv[2] + "/shards"):
    index = Sharded(Landmarks(), 3).build(rows)
    print(*index.nearest(rows[:100], 5).ids.ravel())
"""


def problem(n=20_000, d=24):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, d)).astype(np.float32)


def test_a_caller_killed_while_it_builds_and_two_callers_of_one_folder(cluster, nodes, tmp_path):
    rows, shards = problem(), tmp_path / "shards"
    np.save(tmp_path / "rows.npy", rows)
    wanted = Sharded(Landmarks(), 3).build(rows).nearest(rows[:100], 5).ids

    def caller():
        line = [sys.executable, "-c", BUILD, nodes.address, str(tmp_path)]
        return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    killed = caller()
    while not list(shards.glob("shard-*.kway")):
        time.sleep(0.01)
        assert killed.poll() is None, killed.stderr.read()
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    kept = {file: file.stat().st_mtime_ns for file in shards.glob("shard-*.kway")}
    for one in [caller(), caller()]:
        out, err = one.communicate(timeout=600)
        assert one.returncode == 0, err
        np.testing.assert_array_equal(np.array(out.split(), int).reshape(100, 5), wanted)
    assert len(list(shards.glob("*.kway"))) == 3
    assert all(file.stat().st_mtime_ns == at for file, at in kept.items())  # what was done is not done again


def test_a_cluster_that_shrinks_to_one_node(cluster, nodes, tmp_path):
    rows = problem(n=3000)
    y = (rows @ np.random.default_rng(1).normal(size=(24, 4))).argmax(axis=1)
    wanted = Flat().build(rows).nearest(rows[:50], 5)
    here = kway.SoftmaxClassifier(solver="lbfgs", tol=1e-4).fit(rows, y)
    with cluster(folder=tmp_path, split="rows"):
        index = Sharded(Flat(), 3, replicas=2).build(rows)
        for node in [node for node in nodes.list_all_nodes() if not node.head and node.all_processes]:
            nodes.remove_node(node, allow_graceful=False)
            begun = time.monotonic()
            found = index.nearest(rows[:50], 5)
            print(f"\na node of replicas removed: right answers after {time.monotonic() - begun:.1f} s")
            np.testing.assert_array_equal(found.ids, wanted.ids)
            assert index.coverage_ == 1
        index.close()
        there = kway.SoftmaxClassifier(solver="lbfgs", tol=1e-4).fit(rows, y)
        again = Sharded(Flat(), 3, replicas=2).build(rows)
        assert again.why_.startswith("3 shards of flat on 1 node of a cluster, 2 of each: more replicas than nodes")
        np.testing.assert_array_equal(again.nearest(rows[:50], 5).ids, wanted.ids)
        again.close()
    assert there.why_ == "rows on the 1 node of a cluster"
    assert there.objective_ == pytest.approx(here.objective_, rel=2e-4)
