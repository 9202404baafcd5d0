"""Shards: objects made by functions, in this process or as Ray actors on the nodes of a cluster, all asked the same.

    shards = make_shards([maker_0, maker_1, ...])
    shards.ask("nearest", queries, k)    one answer per shard, in order; None if a shard is lost

Actors are made all at once, each on the node that has the fewest and none of the same shard. Ray makes an actor of a
dead worker or node again, on another node if need be, and repeats what it was asked. Beyond that:

    slow    a shard that has not answered after `patience` seconds is asked again at its next replica; the first answer
            counts
    lost    one that has not answered after `give_up` seconds: an error, or None if the cluster is not strict

Rows of a memory map are named by file and place, so that the process that holds them maps the file; others are sent.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.errors import ClusterError, KwayError
from kway.rows.cluster.session import Cluster, current, format_nodes, import_ray, working_nodes

_TICK = 0.05  # seconds between two checks for late answers (tests/cluster)


class Shards(ABC):
    """Members that answer."""

    place: str  # where the members live, in words

    @abstractmethod
    def ask(self, method: str, *arguments: Any) -> list[Any]:
        """What `member.method(*arguments)` gives, for every member in order; None where a member is lost."""

    @abstractmethod
    def close(self) -> None:
        """Let the members go."""


class LocalShards(Shards):
    """Members in this process, asked one after another: each uses all cores."""

    place = "in this process"

    def __init__(self, makers: Sequence[Callable[[], Any]]) -> None:
        self.members = [make() for make in makers]

    def ask(self, method: str, *arguments: Any) -> list[Any]:
        """One after another."""
        return [getattr(member, method)(*arguments) for member in self.members]

    def close(self) -> None:
        """Nothing is held elsewhere."""
        self.members = []


def make_shards(makers: Sequence[Callable[[], Any]], replicas: int = 1) -> Shards:
    """Members, one a maker: in this process, or as actors, `replicas` of each, on the nodes of the cluster."""
    home = current()
    if home is None or not makers:
        return LocalShards(makers)
    return RayShards(makers, replicas, home)


class Host:
    """What runs in an actor: a member and the questions to it."""

    def __init__(self, made_of: list[Any]) -> None:
        self.member = import_ray().get(made_of[0])()

    def call(self, method: str, *arguments: Any) -> Any:
        """member.method(*arguments)."""
        return getattr(self.member, method)(*arguments)

    def process(self) -> int:
        """The process that the member lives in."""
        return os.getpid()

    def ready(self) -> str:
        """Answers once the member is made: the node it lives on."""
        return str(import_ray().get_runtime_context().get_node_id())


class RayShards(Shards):
    """Members as actors, `replicas` of each."""

    def __init__(self, makers: Sequence[Callable[[], Any]], replicas: int, home: Cluster) -> None:
        self._ray, self._home = import_ray(), home
        nodes = [found.node for found in working_nodes()]
        places = spread_over(len(makers), replicas, len(nodes))
        self.place = _said(places, len(nodes))
        self._kept = [self._ray.put(make) for make in makers]  # what a member is made of again: Ray drops it otherwise
        self.hosts = [[self._host(make, nodes[node]) for node in own] for make, own in zip(self._kept, places)]
        self.where = self._made()

    def _host(self, make: Any, node: str) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # a share of a core: an actor that asks for nothing is put anywhere, near or not (seen with Ray 2.60)
        options = {"num_cpus": 0.01, "max_restarts": -1, "max_task_retries": -1}
        near = NodeAffinitySchedulingStrategy(node_id=node, soft=True)  # elsewhere where that node is gone
        return self._ray.remote(Host).options(scheduling_strategy=near, **options).remote([make])

    def _made(self) -> list[str]:
        """The node of every first replica, once all replicas are made."""
        try:
            found = self._ray.get([host.ready.remote() for hosts in self.hosts for host in hosts])
        except self._ray.exceptions.RayError as error:
            self.close()
            raise _meant(error) from error
        return found[:: len(self.hosts[0])]

    def ask(self, method: str, *arguments: Any) -> list[Any]:
        """All at once; large arguments travel once to each node."""
        shared = [self._ray.put(value) if isinstance(value, np.ndarray) else value for value in arguments]
        asking = _Question(self, method, shared)
        while asking.open:
            asking.collect()
            asking.look_at_the_late()
        return asking.answers

    def close(self) -> None:
        """End the actors."""
        for hosts in self.hosts:
            for host in hosts:
                self._ray.kill(host)
        self.hosts, self._kept = [], []


class _Question:
    """One question under way: who was asked where, since when."""

    def __init__(self, shards: RayShards, method: str, shared: list[Any]) -> None:
        self._shards, self._ray = shards, shards._ray
        self._method, self._shared = method, shared
        self.answers: list[Any] = [None] * len(shards.hosts)
        self.open = set(range(len(shards.hosts)))
        self._asked = dict.fromkeys(self.open, 0)  # replicas of a member that were asked
        self._since = time.monotonic()
        self._waiting: dict[Any, int] = {}
        for member in self.open:
            self._ask_next(member)

    def _ask_next(self, member: int) -> None:
        hosts = self._shards.hosts[member]
        host = hosts[self._asked[member] % len(hosts)]
        self._asked[member] += 1
        self._waiting[host.call.remote(self._method, *self._shared)] = member

    def collect(self) -> None:
        """Take the answers that are there."""
        done, _ = self._ray.wait(list(self._waiting), num_returns=1, timeout=_TICK)
        for answer in done:
            member = self._waiting.pop(answer)
            if member not in self.open:
                continue  # another replica was quicker
            try:
                self.answers[member] = self._ray.get(answer)
            except (self._ray.exceptions.ActorDiedError, self._ray.exceptions.ObjectLostError):
                if time.monotonic() - self._since < self._shards._home.give_up:
                    self._ask_next(member)
                    continue
                self._lose(member)
            except self._ray.exceptions.RayTaskError as error:
                raise _meant(error) from error
            self.open.discard(member)

    def look_at_the_late(self) -> None:
        """Ask again at the next replica, or give up."""
        waited, home = time.monotonic() - self._since, self._shards._home
        for member in sorted(self.open):
            if waited > home.give_up:
                self._lose(member)
                self.open.discard(member)
            elif self._asked[member] < len(self._shards.hosts[member]) and waited > home.patience * self._asked[member]:
                self._ask_next(member)

    def _lose(self, member: int) -> None:
        home = self._shards._home
        if home.strict:
            raise ClusterError(
                f"shard {member} of {len(self.answers)} did not answer within {home.give_up:g} s; see `kway cluster "
                "status`, or take what the others know: kway.cluster(strict=False)"
            )


def spread_over(members: int, replicas: int, nodes: int) -> list[list[int]]:
    """The nodes of every member's replicas: none twice, and no node with more than others, as far as that goes.

    >>> spread_over(2, 2, 4), spread_over(3, 2, 3), spread_over(1, 2, 1)
    ([[0, 2], [1, 3]], [[0, 1], [1, 2], [2, 0]], [[0, 0]])
    """
    held = [0] * nodes
    found: list[list[int]] = [[] for _ in range(members)]
    for _ in range(replicas):
        for own in found:
            last = own[-1] if own else 0
            node = min(range(nodes), key=lambda n: (n in own, held[n], (n - last) % nodes))
            held[node] += 1
            own.append(node)
    return found


def _said(places: list[list[int]], nodes: int) -> str:
    """Where the members live, and what that lacks."""
    held = Counter(node for own in places for node in own)
    said = f"on {format_nodes(nodes)}, {len(places[0])} of each"
    if len(places[0]) > nodes:
        return f"{said}: more replicas than nodes, so a node that dies takes all of a shard with it"
    return said if held.total() <= nodes else f"{said}: up to {max(held.values())} of the {held.total()} on one node"


def _meant(error: Any) -> Exception:
    """The kway error that a member raised, or one that says what went wrong there."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, KwayError):
        return cause
    return ClusterError(f"a worker of the cluster failed: {str(cause or error).strip().splitlines()[-1]}")


# ---- rows that another process is to hold


class FilePlace(NamedTuple):
    """Rows (m, d), C-contiguous, from a byte of a file on."""

    path: str
    offset: int
    shape: tuple[int, int]
    dtype: str

    def rows(self) -> NDArray:
        """Mapped, not read."""
        return np.memmap(self.path, self.dtype, "r", self.offset, self.shape)


class Carried(NamedTuple):
    """Rows (m, d) as they are, dense or CSR."""

    held: Any

    def rows(self) -> Any:
        """As they are."""
        return self.held


def row_source(rows: Any, run: slice) -> FilePlace | Carried:
    """Where a run of rows comes from."""
    part = rows[run]
    owner = None if sp.issparse(part) or not part.flags.c_contiguous else _mapped(part)
    if owner is None:
        return Carried(part)
    offset = owner.offset + part.ctypes.data - owner.ctypes.data
    return FilePlace(str(owner.filename), int(offset), part.shape, part.dtype.str)


def _mapped(rows: NDArray) -> np.memmap | None:
    """The whole memory map that an array is a view of."""
    owner: Any = rows
    while isinstance(owner, np.ndarray) and isinstance(owner.base, np.ndarray):
        owner = owner.base
    return owner if isinstance(owner, np.memmap) and owner.filename is not None else None
