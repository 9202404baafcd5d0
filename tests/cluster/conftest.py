"""A real Ray cluster of three nodes on this machine."""

import os
import random
import socket
from contextlib import suppress

import pytest

ray = pytest.importorskip("ray")


def free_port():
    """None that the system gives to connections: Ray makes many before it binds this one.

    Nor one of Ray's own: 10002 to 19999 are for workers, 23000 to 23999 for those who serve clients.
    """
    for port in random.sample(range(20_000, 23_000), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("0.0.0.0", port))
            return port
    raise OSError("no port from 20000 to 22999 is free")


@pytest.fixture(scope="session")
def nodes():
    """The cluster; nodes can be added and removed."""
    from ray.cluster_utils import Cluster

    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    os.environ.setdefault("RAY_health_check_period_ms", "500")  # a dead node is missed after 5 of these; Ray's are 3 s
    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's 15 leaves its workers next to nothing on a busy machine
    size = {"num_cpus": 2, "num_gpus": 0, "object_store_memory": 120 * 2**20}
    port = free_port()
    home = Cluster(initialize_head=True, head_node_args=size | {"ray_client_server_port": port})
    home.client = f"ray://127.0.0.1:{port}"  # where those who are no part of it are served
    home.add_node(**size)
    home.add_node(**size)
    home.wait_for_nodes()
    yield home
    ray.shutdown()
    home.shutdown()


@pytest.fixture
def cluster(nodes):
    """Connected to the three nodes, whoever was killed before replaced; the connection outlives the test."""
    import kway

    while len([n for n in nodes.list_all_nodes() if n.all_processes]) < 3:
        nodes.add_node(num_cpus=2, num_gpus=0, object_store_memory=120 * 2**20)
    nodes.wait_for_nodes()
    if not ray.is_initialized():
        ray.init(nodes.address, log_to_driver=False, logging_level="error")

    def enter(**options):
        return kway.cluster(nodes.address, **options)

    return enter
