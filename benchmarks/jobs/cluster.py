"""R1: exact search through 1, 2 and 3 shards on a Ray cluster of three nodes on this machine, beside one process.

The nodes share this machine's cores, so shards cannot add speed here: what is measured is what the way there and back
costs a call, and a query in a large batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from ..models import NotInstalled
from ..race import Row

ROWS, FEATURES, QUERIES, K = 200_000, 64, 1_000, 10
NODES = 3


def r1(rounds: int, quick: bool) -> list[Row]:
    """One query and many, here and through shards: the ratio is that of one process."""
    from kway import cluster
    from kway.search import Flat, Sharded

    rows, queries = _problem(ROWS // 20 if quick else ROWS)
    here = Flat().build(rows)
    wanted = here.nearest(queries, K).ids
    alone = _times(here, queries, rounds)
    found: list[Row] = []
    with _nodes() as address, cluster(address):
        for shards in range(1, NODES + 1):
            index = Sharded(Flat(), shards).build(rows)
            same = bool((index.nearest(queries, K).ids == wanted).all())
            for ours, one in zip(_times(index, queries, rounds), alone):
                data = f"{len(rows):,} x {FEATURES}, {count(shards)} on {NODES} nodes of one machine"
                quality = "ids identical" if same else "ids differ"
                points = {"queries_per_second": ours.queries / ours.seconds, "shards": shards}
                points |= {"queries": ours.queries, "caller_seconds": ours.caller}
                job = "one query" if ours.queries == 1 else f"{ours.queries:,} queries"
                row = Row("R1", job, data, "one process", ours.seconds, one.seconds, None, quality, same, points=points)
                found.append(row)
            index.close()
    return found


def _problem(n: int) -> Any:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(200, FEATURES)).astype(np.float32)
    rows = centres[rng.integers(200, size=n)] + 0.5 * rng.normal(size=(n, FEATURES)).astype(np.float32)
    return rows, rows[:QUERIES] + 0.1 * rng.normal(size=(QUERIES, FEATURES)).astype(np.float32)


class Times(NamedTuple):
    """A call with so many queries: the median of its seconds, and the processor seconds of whoever calls."""

    queries: int
    seconds: float
    caller: float


def _times(index: Any, queries: Any, rounds: int) -> list[Times]:
    """Of calls with one query, and of calls with all."""
    return [_timed(index, queries[:1], max(200, rounds)), _timed(index, queries, rounds)]


def _timed(index: Any, queries: Any, rounds: int) -> Times:
    index.nearest(queries, K)
    seconds, begun = [], time.process_time()
    for _ in range(rounds):
        start = time.perf_counter()
        index.nearest(queries, K)
        seconds.append(time.perf_counter() - start)
    return Times(len(queries), median(seconds), (time.process_time() - begun) / rounds)


def count(shards: int) -> str:
    """In words.

    >>> count(1), count(3)
    ('1 shard', '3 shards')
    """
    return f"{shards} shard{'' if shards == 1 else 's'}"


@contextmanager
def _nodes() -> Iterator[str]:
    """The address of three nodes on this machine."""
    try:
        import ray
        from ray.cluster_utils import Cluster
    except ImportError as error:
        raise NotInstalled("ray") from error
    size = {"num_cpus": 1, "object_store_memory": 500 * 2**20}
    home = Cluster(initialize_head=True, head_node_args=size)
    try:
        for _ in range(NODES - 1):
            home.add_node(**size)
        home.wait_for_nodes()
        yield home.address
    finally:
        ray.shutdown()
        home.shutdown()
