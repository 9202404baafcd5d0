"""`kway cluster status` against a real cluster of three nodes, and without one."""

import json
import subprocess
import sys

import pytest

from kway.rows.cluster.session import node_status, working_nodes

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]


def kway(*arguments):
    return subprocess.run([sys.executable, "-m", "kway", *arguments], capture_output=True, text=True, timeout=600)


def test_the_nodes_are_listed(nodes, cluster, monkeypatch):
    with cluster():
        found = kway("cluster", "status", "--address", nodes.address, "--json")
        assert found.returncode == 0, found.stderr
        listed = json.loads(found.stdout)["nodes"]
        assert sum(node["alive"] for node in listed) >= 3
        monkeypatch.setenv("RAY_ADDRESS", nodes.address)  # what `auto` is
        said = kway("cluster", "status")
        assert said.returncode == 0
        assert "nodes alive" in said.stdout


def test_a_node_without_cores_is_listed_and_gets_no_work(nodes, cluster):
    """As the head of the manifest for Kubernetes."""
    with cluster():
        before = set(working_nodes())
        idle = nodes.add_node(num_cpus=0, num_gpus=0)
        try:
            nodes.wait_for_nodes()
            assert idle.node_id[:12] in {node.node for node in node_status(nodes.address) if node.alive}
            assert set(working_nodes()) == before
        finally:
            nodes.remove_node(idle)


@pytest.mark.parametrize("where", [("--address", "127.0.0.1:1"), ("--address", "ray://127.0.0.1:1"), ()])
def test_no_cluster_is_a_sentence(where, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")  # what `auto` looks at first: others may run on this machine
    found = kway("cluster", "status", *where)
    assert found.returncode == 1
    assert found.stderr.startswith("error: no Ray cluster answers")
    assert found.stderr.count("\n") == 1
    assert "ray start --head" in found.stderr
    assert found.stdout == ""
