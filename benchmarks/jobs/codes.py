"""C1: the nearest of 100 million classes x 512 features by codes of one bit a feature.

Prototypes are isotropic, the worst case: there is nothing to exploit but the codes. They come from a counter-based
generator, block after block, and are never all in memory; queries lie at a cosine of 0.6 to one of them, its class.
Everything runs in a process of its own, whose peak of memory counts. `kway bench C1 --classes 1000000` is smaller.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.compute.threads import pmap

from .. import datasets
from ..child import spawn
from ..race import Row

CLASSES, QUICK, FEATURES = 100_000_000, 100_000, 512
COSINE = 0.6
CHUNK, CHUNKS = 8192, 8  # rows from one counter; chunks in a block
ALONE, TOGETHER = 32, 64  # queries asked one by one, and at once
MEMORY, ONE, EACH, RIGHT = 12_288.0, 0.2, 0.025, 0.99  # MB; seconds; seconds; share


def c1(rounds: int, quick: bool) -> list[Row]:
    """Memory, one query and many at once against their limits."""
    n = datasets.classes() or (QUICK if quick else CLASSES)
    said = json.loads(spawn("jobs.codes", str(n), str(rounds)))
    data = f"{n:,} x {FEATURES}, isotropic, cosine {COSINE}"
    quality = f"right {said['right']:.2%} of {said['asked']}, built at {said['rows_per_second']:,.0f} rows/s"
    good = said["right"] >= RIGHT
    lines = (
        ("memory, index and search", "MB", said["peak"], MEMORY),
        ("one query", "s", said["one"], ONE),
        (f"{TOGETHER} queries at once, each", "s", said["each"], EACH),
    )
    return [
        Row("C1", job, data, "limit", value, most, 1, quality, good, unit=unit, points=said)
        for job, unit, value, most in lines
    ]


def chunk(i: int, features: int = FEATURES) -> NDArray[np.float32]:
    """Unit rows (CHUNK, d), the same for every run."""
    rows = np.random.Generator(np.random.Philox(key=i)).standard_normal((CHUNK, features), dtype=np.float32)
    rows /= np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    return rows


def blocks(n: int) -> Iterator[NDArray[np.float32]]:
    """n prototypes in blocks."""
    for first in range(0, n, CHUNK * CHUNKS):
        last = min(n, first + CHUNK * CHUNKS)
        numbers = range(first // CHUNK, -(-last // CHUNK))
        yield np.concatenate(pmap(chunk, numbers))[: last - first]


def queries(truth: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.float32]:
    """Queries (q, d) at the cosine to the prototypes of these classes."""
    own = np.stack(pmap(lambda c: chunk(int(c) // CHUNK)[c % CHUNK].copy(), truth)).astype(np.float64)
    away = rng.standard_normal(own.shape)
    away -= np.einsum("ij,ij->i", away, own)[:, None] * own
    away /= np.linalg.norm(away, axis=1, keepdims=True)
    return (COSINE * own + np.sqrt(1 - COSINE**2) * away).astype(np.float32)


def measure(n: int, rounds: int) -> dict[str, Any]:
    """What the child does: build, then ask."""
    from kway.search import Bits, Flat

    from ..peak import MB, peak

    start = time.perf_counter()
    index = Flat(store=Bits(1, rerank=False)).build_blocks(blocks(n), "cosine")
    built = time.perf_counter() - start
    rng = np.random.default_rng(0)
    truth = rng.integers(0, n, 4 * TOGETHER)
    asked = queries(truth, rng)
    index.search(asked[:2], 1)  # compiles
    each, found = [], []
    one = [_seconds(lambda query=query: index.search(query[None], 1)) for query in asked[:ALONE]]
    for i in range(max(rounds, 4)):
        part = slice(TOGETHER * (i % 4), TOGETHER * (i % 4 + 1))
        start = time.perf_counter()
        found.append((index.search(asked[part], 1).ids[:, 0] == truth[part]).mean())
        each.append((time.perf_counter() - start) / TOGETHER)
    return {
        "one": median(one), "each": median(each), "right": float(np.mean(found[:4])), "asked": len(asked),
        "peak": peak(), "index": index.nbytes / MB, "rows_per_second": n / built, "estimated": index.touched_ / n,
    }  # fmt: skip


def _seconds(call: Any) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))
