"""Search over a real cluster of three nodes: the answers of one machine, whoever dies meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import kway
from kway.errors import ClusterError, InputError
from kway.search import LSH, Bits, Flat, Int8, KDTree, Landmarks, Sharded

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]  # ray's own warnings are not ours
ray = pytest.importorskip("ray")


def first_nodes(index):
    """The nodes of the first replica of each shard."""
    return ray.get([hosts[0].ready.remote() for hosts in index._shards.hosts])


def problem(n=6000, d=24, q=40, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d)).astype(np.float32)
    copies = min(50, n // 4)
    rows[n // 2 : n // 2 + copies] = rows[:copies]
    return rows, np.concatenate([rows[: q // 2], rng.normal(size=(q // 2, d)).astype(np.float32)])


STORES = [recipe(store=store) for recipe in (Flat, Landmarks) for store in (Int8(), Bits(1), Bits(4))]


@pytest.mark.parametrize("inner", [Flat(), Landmarks(), KDTree(), LSH(), *STORES], ids=str)
def test_the_cluster_answers_as_this_process(cluster, inner):
    rows, queries = problem()
    shards = 3 if inner == Flat() else 2  # a worker takes seconds to start
    here = Sharded(inner, shards).build(rows)
    wanted = here.nearest(queries, 6)
    with cluster():
        there = Sharded(inner, shards).build(rows)
        found = there.nearest(queries, 6)
        assert len(set(first_nodes(there))) == shards  # each on a node of its own
        assert there.why_ == f"{shards} shards of {inner.name} on 3 nodes of a cluster, 1 of each"
        assert there.nbytes == here.nbytes
        there.close()
    np.testing.assert_array_equal(found.ids, wanted.ids)
    np.testing.assert_array_equal(found.distances, wanted.distances)


def test_a_classifier_works_unchanged(cluster, tmp_path):
    rows, queries = problem()
    y = np.arange(len(rows)) % 11
    here = kway.NeighborsClassifier(5).fit(rows, y)
    with cluster():
        there = kway.NeighborsClassifier(5, index=Sharded(Flat(), 2, replicas=2)).fit(rows, y)
        np.testing.assert_array_equal(there.predict(queries), here.predict(queries))
        np.testing.assert_array_equal(there.predict_proba(queries), here.predict_proba(queries))
        assert there.index_.why_.endswith("2 of each: up to 2 of the 4 on one node")
        there.save(tmp_path / "m.kway")
        there.index_.close()
        classes = kway.CentroidClassifier(index=Sharded(Flat(), 2)).fit(rows, y)  # rows of the index are classes
        means = kway.CentroidClassifier(index=Flat()).fit(rows, y)
        np.testing.assert_array_equal(classes.predict(queries), means.predict(queries))
        assert classes.index_.why_ == "2 shards of flat on 3 nodes of a cluster, 1 of each"
        classes.index_.close()
    np.testing.assert_array_equal(kway.load(tmp_path / "m.kway").predict(queries), here.predict(queries))


def test_a_worker_killed_twenty_times_loses_no_query(cluster):
    rows, queries = problem()
    wanted = Flat().build(rows).nearest(queries, 5)
    with cluster():
        index = Sharded(Flat(), 3).build(rows)
        workers = [ray.get(hosts[0].process.remote()) for hosts in index._shards.hosts]
        assert len(set(workers)) == 3
        done, asked = threading.Event(), []

        def ask():
            while not done.is_set() or len(asked) < 20:
                asked.append(index.nearest(queries, 5))

        asking = threading.Thread(target=_in_context(ask))
        asking.start()
        took, killed = [], 0
        while killed < 20:  # once each alone, then all at once
            hit = index._shards.hosts[killed : killed + 1] if killed < 2 else index._shards.hosts
            victims = ray.get([hosts[0].process.remote() for hosts in hit])
            begun, killed = time.monotonic(), killed + len(victims)
            for victim in victims:
                os.kill(victim, signal.SIGKILL)
            while set(victims) & set(ray.get([hosts[0].process.remote() for hosts in hit])):
                time.sleep(0.01)
            took.append(time.monotonic() - begun)
        done.set()
        asking.join(600)
        assert not asking.is_alive()
        index.close()
    print(f"\n{killed} kills, {len(asked)} batches; one back after {took[0]:.1f} s, all three after {took[-1]:.1f} s")
    assert len(asked) >= 20
    for found in asked:
        np.testing.assert_array_equal(found.ids, wanted.ids)


def _in_context(f):
    """Threads start without the caller's context variables."""
    import contextvars

    context = contextvars.copy_context()
    return lambda: context.run(f)


def test_a_node_removed_during_search_and_during_build(nodes, cluster, tmp_path):
    rows, queries = problem()
    np.save(tmp_path / "rows.npy", rows)
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    wanted = Flat().build(rows).nearest(queries, 5)
    with cluster(folder=tmp_path):
        index = Sharded(Flat(), 3).build(rows)
        held = [mapped(ray.get(hosts[0].process.remote()), tmp_path) for hosts in index._shards.hosts]
        assert [len(files) for files in held] == [1, 1, 1]  # each its own file, and no longer the rows'
        assert set.union(*held) == set(tmp_path.glob("shard-*.kway"))
        lost = [
            node
            for node in nodes.list_all_nodes()
            if node.node_id in first_nodes(index) and node is not nodes.head_node
        ]
        begun = time.monotonic()
        nodes.remove_node(lost[0], allow_graceful=False)
        found = index.nearest(queries, 5)
        print(f"\na node removed under a search: right answers after {time.monotonic() - begun:.1f} s")
        np.testing.assert_array_equal(found.ids, wanted.ids)
        index.close()
        building = threading.Timer(0.3, lambda: nodes.remove_node(lost[1], allow_graceful=False))
        building.start()
        begun = time.monotonic()
        again = Sharded(Landmarks(), 3).build(rows)
        building.join()
        print(f"a node removed under a build: built after {time.monotonic() - begun:.1f} s")
        found = again.nearest(queries, 5)
        again.close()
    np.testing.assert_array_equal(found.ids, Sharded(Landmarks(), 3).build(rows).nearest(queries, 5).ids)


def mapped(process, folder):
    """The files of a folder that a process has mapped."""
    lines = Path(f"/proc/{process}/maps").read_text().splitlines()
    return {Path(line.split(maxsplit=5)[5]) for line in lines if str(folder) in line}


@contextmanager
def standing_still(hosts):
    """Workers that do not answer for the time being."""
    stopped = ray.get([host.process.remote() for host in hosts])
    for process in stopped:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in stopped:
            os.kill(process, signal.SIGCONT)


def test_a_slow_shard_is_asked_at_its_replica_and_a_lost_one_is_told(cluster):
    rows, queries = problem()
    wanted = Flat().build(rows).nearest(queries, 5)
    with cluster(patience=0.3):
        index = Sharded(Flat(), 2, replicas=2).build(rows)
        shards = index._shards
        with standing_still(shards.hosts[1][:1]):  # until it goes on nobody but its replica can answer
            found = index.nearest(queries, 5)
        np.testing.assert_array_equal(found.ids, wanted.ids)
        shards._home = replace(shards._home, give_up=3.0)
        with standing_still(shards.hosts[1]):
            with pytest.raises(ClusterError, match="shard 1 of 2 did not answer"):
                index.nearest(queries, 5)
            shards._home = replace(shards._home, strict=False)
            found = index.nearest(queries, 5)
        assert index.coverage_ == pytest.approx(1 / 2)
        assert found.ids.max() < 3000
        index.close()


def test_errors_of_a_worker_are_kways_own(cluster):
    rows, _ = problem(n=60)
    with cluster():
        index = Sharded(Flat(), 1).build(rows)
        with pytest.raises(ClusterError, match="no attribute 'nothing'"):
            index._shards.ask("nothing")
        with pytest.raises(InputError, match="columns"):
            index.nearest(rows[:, :3], 1)
        index.close()


def test_no_cluster_at_an_address_is_a_sentence():
    ray.shutdown()  # a process that is connected stays so
    with pytest.raises(ClusterError, match="no Ray cluster answers"), kway.cluster("127.0.0.1:1"):
        pass


OWN = """
import numpy as np, ray, kway
from kway.search import Flat, Sharded
rows = np.random.default_rng(0).normal(size=(300, 8))
with kway.cluster():
    index = Sharded(Flat(), 2).build(rows)
    assert index.why_ == "2 shards of flat on 1 node of a cluster, 1 of each: up to 2 of the 2 on one node", index.why_
    assert (index.nearest(rows, 1).ids[:, 0] == np.arange(300)).all()
assert not ray.is_initialized()
"""


def test_without_an_address_a_cluster_is_started_for_the_time_being():
    done = subprocess.run([sys.executable, "-c", OWN], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
