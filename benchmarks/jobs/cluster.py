"""R1: exact search through 1, 2 and 3 shards on a Ray cluster of three nodes on this machine, beside one process.

The nodes share this machine's cores, so shards cannot add speed here: what is measured is what the way there and back
costs a call, and a query in a large batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

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
    alone = _seconds(here, queries, rounds)
    found: list[Row] = []
    with _nodes() as address, cluster(address):
        for shards in range(1, NODES + 1):
            index = Sharded(Flat(), shards).build(rows)
            same = bool((index.nearest(queries, K).ids == wanted).all())
            for (job, ours), (_, one) in zip(_seconds(index, queries, rounds).items(), alone.items()):
                data = f"{len(rows):,} x {FEATURES}, {shards} shards on {NODES} nodes of one machine"
                quality = "ids identical" if same else "ids differ"
                points = {"queries_per_second": (len(queries) if "queries" in job else 1) / ours, "shards": shards}
                found.append(Row("R1", job, data, "one process", ours, one, None, quality, same, points=points))
            index.close()
    return found


def _problem(n: int) -> Any:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(200, FEATURES)).astype(np.float32)
    rows = centres[rng.integers(200, size=n)] + 0.5 * rng.normal(size=(n, FEATURES)).astype(np.float32)
    return rows, rows[:QUERIES] + 0.1 * rng.normal(size=(QUERIES, FEATURES)).astype(np.float32)


def _seconds(index: Any, queries: Any, rounds: int) -> dict[str, float]:
    """Medians: of a call with one query, and of one with all."""
    index.nearest(queries[:1], K)
    one = [_timed(index, queries[i : i + 1]) for i in range(max(20, rounds))]
    many = [_timed(index, queries) for _ in range(rounds)]
    return {"one query": median(one), f"{len(queries):,} queries": median(many)}


def _timed(index: Any, queries: Any) -> float:
    start = time.perf_counter()
    index.nearest(queries, K)
    return time.perf_counter() - start


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
