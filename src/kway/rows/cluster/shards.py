"""Shards: objects made by functions, in this process or as Ray actors on the nodes of a cluster.

    shards = make_shards([maker_0, maker_1, ...])
    shards.ask("nearest", queries, k)    one answer per shard, in order; None if a shard is lost

Actors are made in parallel, each on the node that has the fewest actors and none of the same shard. Ray restarts an
actor whose worker or node died, on another node if necessary, and repeats its call. In addition:

    late    if a shard has not answered after `patience` seconds, its next replica is called; the first answer counts
    lost    if a shard has not answered after `give_up` seconds, this is an error, or the answer None without `strict`

Rows of a memory map are described by their file and offset, so that the other process maps the file itself. Other rows
are sent.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.errors import ClusterError, KwayError
from kway.rows.cluster.session import Cluster, current, format_nodes, import_ray, working_nodes


class LocalShards:
    """Members, one per shard, in this process, called one after another; each uses all cores."""

    place = "in this process"

    def __init__(self, makers: Sequence[Callable[[], Any]]) -> None:
        self.members = [make() for make in makers]

    def ask(self, method: str, *arguments: Any) -> list[Any]:
        """Return member.method(*arguments) for every member in order, called one after another."""
        return [getattr(member, method)(*arguments) for member in self.members]

    def close(self) -> None:
        """Release the members."""
        self.members = []


Shards: TypeAlias = "LocalShards | RayShards"  # both have `place`, `ask` and `close`


def make_shards(makers: Sequence[Callable[[], Any]], replicas: int = 1) -> Shards:
    """Make one member per maker: in this process, or as actors, `replicas` of each, on the nodes of the cluster."""
    home = current()
    if home is None or not makers:
        return LocalShards(makers)
    return RayShards(makers, replicas, home)


class Host:
    """The actor that holds a member and calls it."""

    def __init__(self, made_of: list[Any]) -> None:
        self.member = import_ray().get(made_of[0])()

    def call(self, method: str, *arguments: Any) -> Any:
        """Return member.method(*arguments)."""
        return getattr(self.member, method)(*arguments)

    def process(self) -> int:
        """Return the id of the process of the member."""
        return os.getpid()

    def ready(self) -> str:
        """Return the node of the member, once it is made."""
        return str(import_ray().get_runtime_context().get_node_id())


class RayShards:
    """Members, one per shard, as actors, `replicas` of each."""

    def __init__(self, makers: Sequence[Callable[[], Any]], replicas: int, home: Cluster) -> None:
        self._ray, self._home = import_ray(), home
        nodes = [working.node for working in working_nodes()]
        places = spread_over(len(makers), replicas, len(nodes))
        self.place = _describe_places(places, len(nodes))
        self._makers = [self._ray.put(make) for make in makers]  # stored, because Ray needs them to restart a member
        self.hosts = [
            [self._start_host(make, nodes[node]) for node in replica_nodes]
            for make, replica_nodes in zip(self._makers, places)
        ]
        self._wait_for_hosts()

    def _start_host(self, make: Any, node: str) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # Ray 2.60 places an actor that reserves no share of a core on any node
        options = {"num_cpus": 0.01, "max_restarts": -1, "max_task_retries": -1}
        strategy = NodeAffinitySchedulingStrategy(node_id=node, soft=True)  # another node if this one has failed
        return self._ray.remote(Host).options(scheduling_strategy=strategy, **options).remote([make])

    def _wait_for_hosts(self) -> None:
        """Wait until all replicas are made."""
        try:
            self._ray.get([host.ready.remote() for hosts in self.hosts for host in hosts])
        except self._ray.exceptions.RayError as error:
            self.close()
            raise as_kway_error(error) from error

    def ask(self, method: str, *arguments: Any) -> list[Any]:
        """Return member.method(*arguments) for every member in order; None if a member is lost.

        The members are called in parallel; arrays are sent once to each node.
        """
        shared = [self._ray.put(value) if isinstance(value, np.ndarray) else value for value in arguments]
        call = _Call(self, method, shared)
        while call.open:
            call.collect()
            call.retry_late_members()
        return call.answers

    def close(self) -> None:
        """End the actors."""
        for hosts in self.hosts:
            for host in hosts:
                self._ray.kill(host)
        self.hosts, self._makers = [], []


class _Call:
    """One call to all members: which replicas were called, and since when."""

    def __init__(self, shards: RayShards, method: str, shared: list[Any]) -> None:
        self._shards, self._ray = shards, shards._ray
        self._method, self._shared = method, shared
        self.answers: list[Any] = [None] * len(shards.hosts)
        self.open = set(range(len(shards.hosts)))
        self._n_called = dict.fromkeys(self.open, 0)  # number of replicas of each member that were called
        self._since = time.monotonic()
        self._waiting: dict[Any, int] = {}
        for member in self.open:
            self._call_next_replica(member)

    def _call_next_replica(self, member: int) -> None:
        hosts = self._shards.hosts[member]
        host = hosts[self._n_called[member] % len(hosts)]
        self._n_called[member] += 1
        self._waiting[host.call.remote(self._method, *self._shared)] = member

    def collect(self) -> None:
        """Collect the answers that have arrived."""
        done, _ = self._ray.wait(list(self._waiting), num_returns=1, timeout=self._seconds_left())
        for answer in done:
            member = self._waiting.pop(answer)
            if member not in self.open:
                continue  # another replica was faster
            try:
                self.answers[member] = self._ray.get(answer)
            except (self._ray.exceptions.ActorDiedError, self._ray.exceptions.ObjectLostError):
                if time.monotonic() - self._since < self._shards._home.give_up:
                    self._call_next_replica(member)
                    continue
                self._lose(member)
            except self._ray.exceptions.RayTaskError as error:
                raise as_kway_error(error) from error
            self.open.discard(member)

    def _seconds_left(self) -> float:
        """Return the seconds until the next member is late or lost."""
        home = self._shards._home
        n_called = [self._n_called[m] for m in self.open if self._n_called[m] < len(self._shards.hosts[m])]
        deadline = min([home.give_up, *(home.patience * n for n in n_called)])
        return max(0.001, self._since + deadline - time.monotonic())

    def retry_late_members(self) -> None:
        """Call the next replica of late members; count a member as lost after `give_up` seconds."""
        waited, home = time.monotonic() - self._since, self._shards._home
        for member in sorted(self.open):
            if waited > home.give_up:
                self._lose(member)
                self.open.discard(member)
            elif (
                self._n_called[member] < len(self._shards.hosts[member])
                and waited > home.patience * self._n_called[member]
            ):
                self._call_next_replica(member)

    def _lose(self, member: int) -> None:
        home = self._shards._home
        if home.strict:
            raise ClusterError(
                f"shard {member} of {len(self.answers)} did not answer within {home.give_up:g} s; see `kway cluster "
                "status`, or accept answers without it: kway.cluster(strict=False)"
            )


def spread_over(members: int, replicas: int, nodes: int) -> list[list[int]]:
    """Return the nodes of the replicas of every member: different nodes, and equally many per node, if possible.

    >>> spread_over(2, 2, 4), spread_over(3, 2, 3), spread_over(1, 2, 1)
    ([[0, 2], [1, 3]], [[0, 1], [1, 2], [2, 0]], [[0, 0]])
    """
    counts = [0] * nodes
    places: list[list[int]] = [[] for _ in range(members)]
    for _ in range(replicas):
        for replica_nodes in places:
            last = replica_nodes[-1] if replica_nodes else 0
            node = min(range(nodes), key=lambda n: (n in replica_nodes, counts[n], (n - last) % nodes))
            counts[node] += 1
            replica_nodes.append(node)
    return places


def _describe_places(places: list[list[int]], nodes: int) -> str:
    """Describe on which nodes the members are, with a warning if a node has too many."""
    counts = Counter(node for replica_nodes in places for node in replica_nodes)
    text = f"on {format_nodes(nodes)}, {len(places[0])} of each"
    if len(places[0]) > nodes:
        return f"{text}: more replicas than nodes, so a node that dies takes all of a shard with it"
    if counts.total() <= nodes:
        return text
    return f"{text}: up to {max(counts.values())} of the {counts.total()} on one node"


def as_kway_error(error: Any) -> Exception:
    """Return the kway error that a member raised, or a ClusterError with its message."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, KwayError):
        return cause
    lines = str(cause or error).strip().splitlines()
    return ClusterError(f"a worker of the cluster failed: {lines[-1] if lines else error!r}")


# ---- rows for another process


class FilePlace(NamedTuple):
    """C-contiguous rows (m, d) in a file, beginning at a byte offset."""

    path: str
    offset: int
    shape: tuple[int, int]
    dtype: str

    def rows(self) -> NDArray:
        """Map the rows."""
        return np.memmap(self.path, self.dtype, "r", self.offset, self.shape)


class Carried(NamedTuple):
    """Rows (m, d), dense or CSR, that are sent to the other process."""

    values: Any

    def rows(self) -> Any:
        """Return the rows."""
        return self.values


def row_source(rows: Any, run: slice) -> FilePlace | Carried:
    """Return the source of a run of rows: a place in a file, or the rows themselves."""
    part = rows[run]
    owner = None if sp.issparse(part) or not part.flags.c_contiguous else _mapped(part)
    if owner is None:
        return Carried(part)
    offset = owner.offset + part.ctypes.data - owner.ctypes.data
    return FilePlace(str(owner.filename), int(offset), part.shape, part.dtype.str)


def _mapped(rows: NDArray) -> np.memmap | None:
    """Return the memory map that an array is a view of, if any."""
    owner: Any = rows
    while isinstance(owner, np.ndarray) and isinstance(owner.base, np.ndarray):
        owner = owner.base
    return owner if isinstance(owner, np.memmap) and owner.filename is not None else None
