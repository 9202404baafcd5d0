"""`with kway.cluster(...)`: inside the block, work that can be distributed runs on a Ray cluster.

The cluster is a context variable, so that threads and tasks see the one they were started in. Ray is imported when the
block is entered, not before.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kway.errors import ClusterError, InputError

_INSTALL = "pip install 'ray[client]'"


@dataclass(frozen=True)
class Cluster:
    """The settings of `kway.cluster`, which describes them."""

    strict: bool = True
    patience: float = 1.0
    give_up: float = 120.0
    folder: Path | None = None
    split: str = "auto"


_SERVERS = 3  # servers that a client tries to start before it gives up (tests/cluster/test_client.py)
_SPLITS = ("auto", "rows")
_current: ContextVar[Cluster | None] = ContextVar("kway_cluster", default=None)


def current() -> Cluster | None:
    """Return the cluster of the current block; None outside of one."""
    return _current.get()


def shared_folder() -> Path | None:
    """Return the folder for the files of shards, if the cluster has one."""
    home = current()
    return None if home is None else home.folder


def n_nodes() -> int:
    """Return the number of nodes that have cores; 1 without a cluster."""
    return 1 if current() is None else len(working_nodes())


def format_nodes(count: int) -> str:
    """Return a number of nodes as text.

    >>> format_nodes(1), format_nodes(3)
    ('1 node of a cluster', '3 nodes of a cluster')
    """
    return f"{count} node{'' if count == 1 else 's'} of a cluster"


class WorkingNode(NamedTuple):
    """A living node with at least one core; under KubeRay the head often has none."""

    node: str
    cores: float


def working_nodes() -> list[WorkingNode]:
    """Return the nodes with cores; raise ClusterError if there is none."""
    living = [node for node in import_ray().nodes() if node["Alive"]]
    nodes = [WorkingNode(node["NodeID"], node["Resources"].get("CPU", 0.0)) for node in living]
    working = [node for node in nodes if node.cores > 0]
    if not working:
        raise ClusterError("no node of the cluster has a free core; see `kway cluster status`")
    return working


class NodeCores(NamedTuple):
    """The cores that a worker reserves to have a node for itself, and how many such workers fit."""

    each: float
    workers: int


def node_cores() -> NodeCores:
    """Return more than half of the cores of the smallest node, so that one worker fits on it beside small actors."""
    cores = [node.cores for node in working_nodes()]
    smallest = min(cores)
    each = smallest // 2 + 1 if smallest > 2 else smallest / 2  # above 1, Ray accepts only integers
    return NodeCores(each, sum(int(n // each) for n in cores))


@contextmanager
def cluster(
    address: str | None = None,
    *,
    strict: bool = True,
    patience: float = 1.0,
    give_up: float = 120.0,
    folder: str | Path | None = None,
    split: str = "auto",
) -> Iterator[Cluster]:
    """Run work that can be distributed on a Ray cluster.

    Parameters
    ----------
    address : str, default=None
        None starts a cluster on this machine until the block ends, or uses the one that this process is connected to.
        "auto" is the cluster that runs on this machine, "ray://host:10001" another one.
    strict : bool, default=True
        Whether an answer with a missing shard is an error. If False, the answer is returned and tells how many rows it
        covers.
    patience : float, default=1.0
        Seconds after which a shard that has replicas is asked again at its next replica.
    give_up : float, default=120.0
        Seconds after which a shard counts as lost.
    folder : str or Path, default=None
        Folder for the files of shards and the last weights of fits; every node must see it.
    split : {"auto", "rows"}, default="auto"
        "rows" splits the rows of every linear fit over the nodes, "auto" only large ones.

    Yields
    ------
    Cluster
        The settings.

    Examples
    --------
    >>> import kway
    >>> with kway.cluster():  # doctest: +SKIP
    ...     kway.SoftmaxClassifier().fit_folder("rows", "label")
    """
    if not (patience > 0 and give_up >= patience):
        raise InputError(f"patience must be above 0 and give_up no smaller, got {patience!r} and {give_up!r} seconds")
    if split not in _SPLITS:
        raise InputError(f"split must be one of {', '.join(_SPLITS)}, got {split!r}")
    ray = import_ray()
    starts_here = not ray.is_initialized()
    if starts_here:
        _connect(ray, address)
    shared = None if folder is None else Path(folder).absolute()
    if shared is not None:
        shared.mkdir(parents=True, exist_ok=True)
    home = Cluster(strict, float(patience), float(give_up), shared, split)
    token = _current.set(home)
    try:
        yield home
    finally:
        _current.reset(token)
        if starts_here:
            ray.shutdown()


def import_ray() -> Any:
    """Return the ray module; raise ClusterError if it is not installed."""
    try:
        import ray
    except ImportError as error:
        raise ClusterError(f"a cluster needs Ray, which is not installed; {_INSTALL}") from error
    return ray


def _connect(ray: Any, address: str | None) -> None:
    try:
        _check_address(address)
        _init(ray, address or "local")
    except (OSError, ValueError, RuntimeError) as error:
        raise ClusterError(
            f"no Ray cluster answers at {address!r} ({str(error).splitlines()[0]}); start one with `ray start --head`, "
            "or give another address; 'local' starts one on this machine"
        ) from error


def _init(ray: Any, address: str) -> None:
    """Connect to Ray; ray:// starts one server process per client, and another one if it dies at its start."""
    for attempts_left in reversed(range(_SERVERS)):
        try:
            ray.init(address=address, log_to_driver=False, logging_level="error", include_dashboard=None)
        except ConnectionAbortedError:
            if not attempts_left:
                raise
        else:
            return


def _check_address(address: str | None) -> None:
    """Raise OSError at once if no process listens at the address; Ray would try for minutes."""
    target = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address or ""
    host, _, port = target.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()


class NodeStatus(NamedTuple):
    """The state of one node."""

    node: str
    address: str
    alive: bool
    cores: float
    memory: int  # bytes
    gpus: float
    actors: int  # alive on it


def node_status(address: str | None = "auto") -> list[NodeStatus]:
    """Return the status of every node, living nodes first."""
    ray = import_ray()
    with cluster(address):
        from ray.util.state import list_actors

        nodes, actors = ray.nodes(), _count_actors(list_actors)
    statuses = [
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
    return sorted(statuses, key=lambda status: (not status.alive, status.address, status.node))


def _count_actors(list_actors: Any) -> dict[str, int]:
    """Return the living actors per node; empty if the state of the cluster cannot be read (it needs the dashboard)."""
    counts: dict[str, int] = {}
    try:
        actors = list_actors(filters=[("state", "=", "ALIVE")])
    except Exception:  # ray raises whatever its state service does
        return counts
    for actor in actors:
        counts[actor["node_id"]] = counts.get(actor["node_id"], 0) + 1
    return counts
