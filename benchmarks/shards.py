"""`python -m benchmarks.shards`: simulate a search through many shards from the costs that R1 measured with three.

A call of Q queries (d columns, k neighbors) through S shards over n rows costs

    at the caller    START + S (CALL + Q QUERY)                one shard after another: send, collect, merge
    at a shard       answer + Q (scan(n / S) + SKETCH)         all at once; the slowest counts
    between them     bytes / NETWORK + LATENCY                 4 d S Q bytes out, 16 k S Q back

START and the sums CALL + answer and QUERY + SKETCH are fitted to R1. There the shards share one machine, so work that
is parallel elsewhere runs one after another, except the scan, which uses idle cores: max(alone / S, its processor time
/ CORES). CALL and QUERY are the processor time of the caller in the same run, and at most the sums. The simulation
assumes that costs stay proportional to S beyond three shards. Response times vary by JITTER, and one in `late` is LATE
seconds late; with a replica, the query is sent again after a timeout.
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
BATCH = 1000  # queries per call
NETWORK, LATENCY = 1.25e9, 1e-4  # bytes per second (10 Gbit) and seconds one way, typical of a rack; not measured
JITTER = 0.05  # standard deviation of the logarithm of a response time
LATE, ONE_IN = 1.0, 1000  # delay in seconds, and one in how many responses has it
DRAWN = 2000  # calls simulated
CORES = 2  # cores per machine, as in R1


class Traffic(NamedTuple):
    """Bytes from the caller to all shards, and back."""

    out: float
    back: float


def bytes_a_query(shards: int, d: int = FEATURES, k: int = BEST) -> Traffic:
    """Return the bytes of a query: float32 to every shard, k ids and distances of 8 bytes each back.

    >>> bytes_a_query(8)
    Traffic(out=16384.0, back=1280.0)
    """
    return Traffic(4.0 * d * shards, 16.0 * k * shards)


def bytes_a_step(nodes: int, d: int, scores: int) -> Traffic:
    """Return the bytes of a step of L-BFGS over shards of rows: weights out, gradient and loss back, in float32.

    >>> bytes_a_step(3, d=784, scores=10)
    Traffic(out=94200.0, back=94224.0)
    """
    weights = 4.0 * scores * (d + 1)
    return Traffic(weights * nodes, (weights + 8) * nodes)


@dataclass(frozen=True)
class Costs:
    """Seconds per call, per shard of a call, and per query of a shard; at the caller and at the shard."""

    start: float
    call: float
    query: float
    answer: float
    sketch: float


class Point(NamedTuple):
    """A call of R1: its seconds, processor seconds of the caller (inf if not measured), and seconds of the scan."""

    shards: int
    queries: int
    seconds: float
    caller: float
    alone: float


def points(record: dict[str, Any]) -> list[Point]:
    """Return the points of a record of R1; without processor times, all time of a call counts for the caller."""
    found = []
    for r in record["rows"]:
        queries = round(r.points["queries_per_second"] * r.kway_seconds)
        caller = r.points.get("caller_seconds", np.inf)
        shards, busy = r.points["shards"], r.points.get("alone_processor_seconds", np.inf)
        alone = min(r.peer_seconds, max(r.peer_seconds / shards, busy / CORES))
        found.append(Point(shards, queries, r.kway_seconds, caller, alone))
    return found


def has_caller(record: dict[str, Any]) -> bool:
    """Return whether the processor time of the caller was measured."""
    return all("caller_seconds" in r.points for r in record["rows"])


def fitted(measured: list[Point]) -> Costs:
    """Fit the costs by non-negative least squares of relative errors."""
    from scipy.optimize import nnls

    S, Q, seconds, caller, alone = (np.array(column, float) for column in zip(*measured))
    terms = np.column_stack([np.ones(len(S)), S, S * Q])  # (points, 3)
    whole, _ = nnls(terms / seconds[:, None], (seconds - alone) / seconds)
    asked = nnls(terms / seconds[:, None], caller / seconds)[0] if np.isfinite(caller).all() else whole
    call, query = (float(v) for v in np.minimum(whole, asked)[1:])
    return Costs(float(whole[0]), call, query, float(whole[1]) - call, float(whole[2]) - query)


def on_one_machine(point: Point, found: Costs) -> float:
    """Predict a point of R1, where nothing runs in parallel."""
    a_shard = found.call + found.answer + point.queries * (found.query + found.sketch)
    return point.alone + found.start + point.shards * a_shard


def scan_seconds(classes: float, shards: int) -> float:
    """Return the seconds of one query at one shard: codes of 512 bits, at the rates of the plan."""
    n = int(-(-classes // shards))
    return bits(Size(n, FEATURES, n), Rates(cores=CORES)).predict_seconds


def shard_bytes(classes: float, shards: int) -> int:
    """Return the bytes of the codes of a shard."""
    n = int(-(-classes // shards))
    return n * (FEATURES // 8 + 2)


class Simulated(NamedTuple):
    """Seconds of a call: the median and the 99% quantile."""

    median: float
    slow: float


def simulate(
    found: Costs, classes: float, shards: int, queries: int = 1, replicas: int = 1, late: int = ONE_IN, seed: int = 0
) -> Simulated:
    """Simulate random calls to shards on separate machines."""
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
    """Return the seconds (calls, shards) until each shard responds."""
    usual = work * np.exp(JITTER * rng.standard_normal((DRAWN, shards)))
    return usual + LATE * (rng.random((DRAWN, shards)) < 1 / late)


def main() -> int:
    """Print the tables of the page."""
    from . import cluster_page

    print(cluster_page.text(load("R1")))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
