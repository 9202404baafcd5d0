"""python -m benchmarks.shards: a search through many shards, simulated from what R1 measured through three.

A call of Q queries (d columns, k neighbours) through S shards over n rows costs

    at the caller    START + S (CALL + Q QUERY)                one shard after another: send, collect, merge
    at a shard       answer + Q (scan(n / S) + SKETCH)         all at once; the slowest counts
    between them     bytes / NETWORK + LATENCY                 4 d S Q bytes out, 16 k S Q back

START and the sums CALL + answer and QUERY + SKETCH are fitted to R1, where shards share one machine, so that what is at
once elsewhere is one after another there, but for the scan, which fills the cores that one process leaves idle:
max(alone / S, its processor time / CORES). CALL and QUERY are the caller's processor time in the same run, and never
more than the sums; a record without it leaves nothing to the shard. That costs grow in proportion to S beyond three
shards is assumed. Answers vary by JITTER, and one in `late` comes LATE seconds late; with a replica it is asked again
there after the patience.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.planning.costs import Size, bits
from kway.planning.rates import Rates

from .records import load

CLASSES = (1e9, 1e10, 1e11)
SHARDS = (8, 16, 32, 64, 128, 256, 512, 1024)
FEATURES, BEST = 512, 10
BATCH = 1000  # queries that travel together
NETWORK, LATENCY = 1.25e9, 1e-4  # bytes a second (10 Gbit) and seconds one way: what a rack has; not measured here
JITTER = 0.05  # standard deviation of the logarithm of an answer's time
LATE, ONE_IN = 1.0, 1000  # seconds that one answer in so many is late: a pause, a page read from disk, a restart
DRAWN = 2000  # calls simulated
CORES = 2  # of each machine, as where R1 was measured


class Traffic(NamedTuple):
    """Bytes from the caller to all shards, and back."""

    out: float
    back: float


def bytes_a_query(shards: int, d: int = FEATURES, k: int = BEST) -> Traffic:
    """A query to every shard as float32; k ids and distances of 8 bytes each from it.

    >>> bytes_a_query(8)
    Traffic(out=16384.0, back=1280.0)
    """
    return Traffic(4.0 * d * shards, 16.0 * k * shards)


def bytes_a_step(nodes: int, d: int, scores: int) -> Traffic:
    """A step of L-BFGS over row shards: the weights to every node, their gradient and the loss back, in float32.

    >>> bytes_a_step(3, d=784, scores=10)
    Traffic(out=94200.0, back=94224.0)
    """
    weights = 4.0 * scores * (d + 1)
    return Traffic(weights * nodes, (weights + 8) * nodes)


@dataclass(frozen=True)
class Costs:
    """Seconds: of a call whatever it asks, of a shard in it, of a query in that; at the caller, and at the shard."""

    start: float
    call: float
    query: float
    answer: float
    sketch: float


class Point(NamedTuple):
    """A call of R1: its seconds, processor seconds of the caller (inf: not measured), seconds of the scan alone."""

    shards: int
    queries: int
    seconds: float
    caller: float
    alone: float


def points(record: dict[str, Any]) -> list[Point]:
    """The points of a record of R1; all of a call is the caller's where its processor time was not measured."""
    found = []
    for r in record["rows"]:
        queries = round(r.points["queries_per_second"] * r.kway_seconds)
        caller = r.points.get("caller_seconds", np.inf)
        shards, busy = r.points["shards"], r.points.get("alone_processor_seconds", np.inf)
        alone = min(r.peer_seconds, max(r.peer_seconds / shards, busy / CORES))
        found.append(Point(shards, queries, r.kway_seconds, caller, alone))
    return found


def has_caller(record: dict[str, Any]) -> bool:
    """Whether the caller's processor time was measured."""
    return all("caller_seconds" in r.points for r in record["rows"])


def fitted(measured: list[Point]) -> Costs:
    """The costs by least squares of relative errors; none below zero."""
    from scipy.optimize import nnls

    S, Q, seconds, caller, alone = (np.array(column, float) for column in zip(*measured))
    terms = np.column_stack([np.ones(len(S)), S, S * Q])  # (points, 3)
    whole, _ = nnls(terms / seconds[:, None], (seconds - alone) / seconds)
    asked = nnls(terms / seconds[:, None], caller / seconds)[0] if np.isfinite(caller).all() else whole
    call, query = (float(v) for v in np.minimum(whole, asked)[1:])
    return Costs(float(whole[0]), call, query, float(whole[1]) - call, float(whole[2]) - query)


def on_one_machine(point: Point, found: Costs) -> float:
    """What the model says of a point of R1: nothing is at once there."""
    a_shard = found.call + found.answer + point.queries * (found.query + found.sketch)
    return point.alone + found.start + point.shards * a_shard


def scan_seconds(classes: float, shards: int) -> float:
    """Of one query at one shard: codes of 512 bits, by the rates of the plan."""
    n = int(-(-classes // shards))
    return bits(Size(n, FEATURES, n), Rates(cores=CORES)).predict_seconds


def shard_bytes(classes: float, shards: int) -> int:
    """Of the codes that a shard holds."""
    n = int(-(-classes // shards))
    return n * (FEATURES // 8 + 2)


class Simulated(NamedTuple):
    """Seconds of a call: the median, and what one call in a hundred exceeds."""

    median: float
    slow: float


def simulate(
    found: Costs, classes: float, shards: int, queries: int = 1, replicas: int = 1, late: int = ONE_IN, seed: int = 0
) -> Simulated:
    """Calls drawn at random; shards on machines of their own."""
    rng = np.random.default_rng([seed, shards, queries, replicas])
    work = found.answer + queries * (scan_seconds(classes, shards) + found.sketch)
    first = _answers(rng, work, shards, late)  # (calls, shards)
    if replicas > 1:
        patience = 2 * work
        first = np.minimum(first, patience + _answers(rng, work, shards, late))
    out, back = bytes_a_query(shards)
    between = 2 * LATENCY + queries * (out + back) / NETWORK
    calls = found.start + shards * (found.call + queries * found.query) + between + first.max(axis=1)
    return Simulated(float(np.median(calls)), float(np.quantile(calls, 0.99)))


def _answers(rng: np.random.Generator, work: float, shards: int, late: int) -> NDArray[np.float64]:
    """Seconds (calls, shards) until each shard has answered."""
    usual = work * np.exp(JITTER * rng.standard_normal((DRAWN, shards)))
    return usual + LATE * (rng.random((DRAWN, shards)) < 1 / late)


def main() -> int:
    """The page's tables, on a terminal."""
    from . import cluster_page

    print(cluster_page.text(load("R1")))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
