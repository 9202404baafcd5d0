"""The nodes of a cluster: cores, memory, what runs there."""

from __future__ import annotations

from typing import Any, NamedTuple

from kway.compute.cluster.session import cluster, import_ray


class NodeStatus(NamedTuple):
    """One node."""

    node: str
    address: str
    alive: bool
    cores: float
    memory: int  # bytes
    gpus: float
    actors: int  # alive on it


def node_status(address: str | None = "auto") -> list[NodeStatus]:
    """Every node that the cluster knows, the living first."""
    ray = import_ray()
    with cluster(address):
        from ray.util.state import list_actors

        nodes, actors = ray.nodes(), _counted(list_actors)
    found = [
        NodeStatus(
            node["NodeID"][:12],
            node["NodeManagerAddress"],
            bool(node["Alive"]),
            node["Resources"].get("CPU", 0.0),
            int(node["Resources"].get("memory", 0)),
            node["Resources"].get("GPU", 0.0),
            actors.get(node["NodeID"], 0),
        )
        for node in nodes
    ]
    return sorted(found, key=lambda status: (not status.alive, status.address, status.node))


def _counted(list_actors: Any) -> dict[str, int]:
    """Living actors of each node; none where the state of the cluster cannot be read (it needs the dashboard)."""
    counts: dict[str, int] = {}
    try:
        actors = list_actors(filters=[("state", "=", "ALIVE")])
    except Exception:  # ray raises whatever its state service does
        return counts
    for actor in actors:
        counts[actor["node_id"]] = counts.get(actor["node_id"], 0) + 1
    return counts
