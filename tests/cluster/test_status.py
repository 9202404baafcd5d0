"""`kway cluster status` against a real cluster of three nodes, and without one."""

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]


def kway(*arguments):
    return subprocess.run([sys.executable, "-m", "kway.cli", *arguments], capture_output=True, text=True, timeout=120)


def test_the_nodes_are_listed(nodes, cluster):
    with cluster():
        found = kway("cluster", "status", "--address", nodes.address, "--json")
        assert found.returncode == 0, found.stderr
        listed = json.loads(found.stdout)["nodes"]
        assert sum(node["alive"] for node in listed) >= 3
        said = kway("cluster", "status", "--address", nodes.address)
        assert said.returncode == 0
        assert "nodes alive" in said.stdout


@pytest.mark.parametrize("where", [("--address", "127.0.0.1:1"), ("--address", "ray://127.0.0.1:1"), ()])
def test_no_cluster_is_a_sentence(where, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")  # what `auto` looks at first: others may run on this machine
    found = kway("cluster", "status", *where)
    assert found.returncode == 1
    assert found.stderr.startswith("error: no Ray cluster answers")
    assert found.stderr.count("\n") == 1
    assert "ray start --head" in found.stderr
    assert found.stdout == ""
