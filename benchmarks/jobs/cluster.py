"""R1: exact search through 1, 2 and 3 shards, on three Ray nodes of this machine, compared with one process.

The nodes share this machine's cores, so shards cannot add speed. R1 measures the overhead
per call, and per query of a large batch.
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
ROUNDS = 30  # calls of the many queries; ten times as many of the one


def r1(rounds: int, quick: bool) -> list[Row]:
    """Time one query and many, in one process and through shards."""
    from kway import cluster
    from kway.search import Flat, Sharded

    rows, queries = _problem(ROWS // 20 if quick else ROWS)
    here = Flat().build(rows)
    wanted = here.nearest(queries, K).ids
    found: list[Row] = []
    with _nodes() as address, cluster(address):
        sharded = {shards: Sharded(Flat(), shards).build(rows) for shards in range(1, NODES + 1)}
        same = {shards: bool((index.nearest(queries, K).ids == wanted).all()) for shards, index in sharded.items()}
        for asked, calls in ((queries[:1], 10 * ROUNDS), (queries, ROUNDS)):
            alone, *there = _timed([here, *sharded.values()], asked, max(calls, rounds))
            found += [
                _row(len(rows), shards, len(asked), ours, alone, same[shards]) for shards, ours in zip(sharded, there)
            ]
        for index in sharded.values():
            index.close()
    return sorted(found, key=lambda row: row.points["shards"])


def _row(n: int, shards: int, queries: int, ours: Times, alone: Times, same: bool) -> Row:
    data = f"{n:,} x {FEATURES}, {count(shards)} on {NODES} nodes of one machine"
    job = "one query" if queries == 1 else f"{queries:,} queries"
    points = {"queries_per_second": queries / ours.seconds, "shards": shards, "queries": queries}
    points |= {"caller_seconds": ours.processor, "alone_processor_seconds": alone.processor}
    quality = "ids identical" if same else "ids differ"
    return Row("R1", job, data, "one process", ours.seconds, alone.seconds, None, quality, same, points=points)


def _problem(n: int) -> Any:
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(200, FEATURES)).astype(np.float32)
    rows = centers[rng.integers(200, size=n)] + 0.5 * rng.normal(size=(n, FEATURES)).astype(np.float32)
    return rows, rows[:QUERIES] + 0.1 * rng.normal(size=(QUERIES, FEATURES)).astype(np.float32)


class Times(NamedTuple):
    """A call: the median of its seconds, and the mean processor seconds of the caller."""

    seconds: float
    processor: float


def _timed(indexes: list[Any], queries: Any, calls: int) -> list[Times]:
    """Time each index in turn, so that a slow phase of the machine affects all."""
    for index in indexes:
        index.nearest(queries, K)
    spent = np.zeros((2, len(indexes), calls))  # seconds of the clock and of this process
    for call in range(calls):
        for which, index in enumerate(indexes):
            begun = np.array([time.perf_counter(), time.process_time()])
            index.nearest(queries, K)
            spent[:, which, call] = np.array([time.perf_counter(), time.process_time()]) - begun
    return [Times(median(clock), float(own.mean())) for clock, own in zip(*spent)]


def count(shards: int) -> str:
    """Return a number of shards as text.

    >>> count(1), count(3)
    ('1 shard', '3 shards')
    """
    return f"{shards} shard{'' if shards == 1 else 's'}"


@contextmanager
def _nodes() -> Iterator[str]:
    """Start three nodes on this machine and yield their address."""
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
