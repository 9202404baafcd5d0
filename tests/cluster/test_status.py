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


def test_no_cluster_is_a_sentence():
    found = kway("cluster", "status", "--address", "127.0.0.1:1")
    assert found.returncode == 1
    assert "no Ray cluster answers" in found.stderr
    assert "Traceback" not in found.stderr
