"""C1: the nearest of 100 million classes x 512 features by codes of one bit per feature.

    isotropic    uniformly random directions, the worst case
    clustered    prototypes around CLUSTERS centers, at a cosine of 0.71; more cells than clusters

Prototypes come from a counter, block after block, and are never all in memory; queries lie at a cosine of 0.6 to one of
them, its class. Each kind runs in its own process, whose peak memory includes the build.
Parts that are made are kept in the cache folder until the end, so that a run that was killed goes on behind them; the
seconds of building are then those of the last run alone, and said to be.
`python -m benchmarks C1 --classes 1000000` is smaller.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.tables.outputs import cache_folder
from kway.threads import pmap, spans

from .. import datasets
from ..child import spawn
from ..counter import fill_counted
from ..race import Row

CLASSES, QUICK, FEATURES = 100_000_000, 100_000, 512
COSINE = 0.6
CHUNK, CHUNKS = 2048, 32  # rows made at a time; chunks in a block
ALONE, TOGETHER, BATCHES = 64, 64, 4  # queries asked one by one, and at once
CLUSTERS, LANDMARKS = 500, 700
PROBES = 3  # of 1,500 queries 1,496 were right with 3, all with 4; each costs a 700th of the rows
MEMORY, EACH, RIGHT = 12e9 / 2**20, 0.025, 0.99  # MB; seconds; share
ONE = {"isotropic": 0.2, "clustered": 0.01}  # seconds
FIRST_CENTER = 2**31  # counters of centers, beyond those of prototypes


def c1(rounds: int, quick: bool) -> list[Row]:
    """Compare memory, one query and many queries with their limits."""
    n = datasets.classes() or (QUICK if quick else CLASSES)
    rows: list[Row] = []
    for kind in ONE:
        said = json.loads(spawn("jobs.codes", kind, str(n), str(rounds)))
        data = f"{n:,} x {FEATURES}, {kind}, cosine {COSINE}"
        built = f"built in {said['build_seconds']:,.0f} s" + (", some parts earlier" if said["resumed"] else "")
        quality = f"{said['right']:.2%} of {said['asked']} correct, {built}"
        lines = [
            ("memory, build and search", "MB", said["peak"], MEMORY),
            ("one query", "s", said["one"], ONE[kind]),
            (f"{TOGETHER} queries at once, per query", "s", said["each"], EACH),
        ]
        good = said["right"] >= RIGHT
        rows += [
            Row("C1", job, data, "limit", v, most, 1, quality, good, unit=u, points=said) for job, u, v, most in lines
        ]
    return rows


@dataclass(frozen=True)
class Prototypes:
    """Prototypes first..last, made when they are read: a block whose part is there already costs nothing."""

    kind: str
    first: int
    last: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.last - self.first, FEATURES

    def __len__(self) -> int:
        return self.last - self.first

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[np.float32]:
        out = np.empty(self.shape, dtype=np.float32)
        pmap(
            lambda part: prototypes(self.kind, np.arange(self.first, self.last)[part], out[part]),
            spans(len(self), CHUNK),
        )
        return out


def blocks(kind: str, n: int) -> Iterator[Prototypes]:
    """Return n prototypes in blocks."""
    return (Prototypes(kind, part.start, part.stop) for part in spans(n, CHUNK * CHUNKS))


def prototypes(kind: str, classes: NDArray[np.int64], out: NDArray[np.float32]) -> None:
    """Write the prototypes of classes (m,) to out (m, d): of length 1, or sqrt(2) around a unit center."""
    fill_counted(classes, out)
    out /= np.sqrt(np.einsum("ij,ij->i", out, out))[:, None]
    if kind == "clustered":
        out += _centers()[classes * 48_271 % CLUSTERS]


_made: list[NDArray[np.float32]] = []


def _centers() -> NDArray[np.float32]:
    """Return the centers of the clusters (c, d), rows of unit length."""
    if not _made:
        out = np.empty((CLUSTERS, FEATURES), dtype=np.float32)
        fill_counted(np.arange(FIRST_CENTER, FIRST_CENTER + CLUSTERS), out)
        _made.append(out / np.sqrt(np.einsum("ij,ij->i", out, out))[:, None])
    return _made[0]


def queries(kind: str, truth: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.float32]:
    """Return queries (q, d) at a fixed cosine to the prototypes of these classes."""
    made = np.empty((len(truth), FEATURES), dtype=np.float32)
    prototypes(kind, truth, made)
    own = made / np.linalg.norm(made.astype(np.float64), axis=1, keepdims=True)
    away = rng.standard_normal(own.shape)
    away -= np.einsum("ij,ij->i", away, own)[:, None] * own
    away /= np.linalg.norm(away, axis=1, keepdims=True)
    return (COSINE * own + np.sqrt(1 - COSINE**2) * away).astype(np.float32)


def built(kind: str, n: int, folder: Any) -> Any:
    """Build the index over n prototypes."""
    from kway.search import Bits, Flat, Landmarks

    store = Bits(1, rerank=False)
    recipe = Flat(store=store) if kind == "isotropic" else Landmarks(LANDMARKS, PROBES, store=store)
    return recipe.build_blocks(blocks(kind, n), "cosine", folder)


def measure(kind: str, n: int, rounds: int) -> dict[str, Any]:
    """Run in the child process: build the index, then search."""
    from ..peak import MB, peak

    folder = cache_folder() / "bench" / f"C1-{kind}-{n}"
    resumed, start = folder.is_dir(), time.perf_counter()
    index = built(kind, n, folder)
    seconds = time.perf_counter() - start
    rng = np.random.default_rng(0)
    truth = rng.integers(0, n, BATCHES * TOGETHER)
    asked, each, found = queries(kind, truth, rng), [], []
    index.search(asked[:2], 1)  # compiles
    one = [_seconds(lambda query=query: index.search(query[None], 1)) for query in asked[:ALONE]]
    for i in range(max(rounds, BATCHES)):
        part = slice(TOGETHER * (i % BATCHES), TOGETHER * (i % BATCHES + 1))
        start = time.perf_counter()
        found.append((index.search(asked[part], 1).ids[:, 0] == truth[part]).mean())
        each.append((time.perf_counter() - start) / TOGETHER)
    shutil.rmtree(folder)
    return {
        "one": median(one), "each": median(each), "right": float(np.mean(found[:BATCHES])), "asked": len(asked),
        "peak": peak(), "index": index.nbytes / MB, "build_seconds": seconds, "resumed": resumed,
        "estimated": index.touched_ / n,
    }  # fmt: skip


def _seconds(call: Any) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
