"""Which of a billion classes is this? One bit a feature, 64 bytes a class.

    python examples/billion_classes.py                              a million classes, on two cores in a minute
    python examples/billion_classes.py --classes 1e9 --device cuda  a billion, on a GPU of 80 GB (1.4e9: 100 GB)

Prototypes of 512 features come from a counter: each is a hash of its number, made when it is needed and never stored.
What is kept of a class are the signs of its turned prototype. Queries are prototypes with so much noise that the cosine
to their own is 0.6. Printed are the right answers, the time and the memory.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.datasets import CounterRows, counter_rows
from kway.search import Bits, Flat

UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
BLOCK = 2**15  # prototypes made at once on the CPU


@dataclass(frozen=True)
class Run:
    """What a run showed."""

    right: float  # share of the queries
    build_seconds: float
    one: float  # seconds of one query
    each: float  # and of one of many
    bytes: int


def prototypes(n: int) -> Iterator[NDArray[np.float32]]:
    """n prototypes (m, 512) in blocks."""
    for first in range(0, n, BLOCK):
        yield counter_rows(np.arange(first, min(n, first + BLOCK)))


def noisy(truth: NDArray[np.int64], cosine: float, rng: np.random.Generator) -> NDArray[np.float32]:
    """Queries (q, 512) at this cosine to the prototypes of their classes."""
    own = counter_rows(truth).astype(np.float64)
    own /= np.linalg.norm(own, axis=1, keepdims=True)
    away = rng.standard_normal(own.shape)
    away -= (away * own).sum(axis=1, keepdims=True) * own
    away /= np.linalg.norm(away, axis=1, keepdims=True)
    return (cosine * own + np.sqrt(1 - cosine**2) * away).astype(np.float32)


def on_cpu(n: int, asked: int, cosine: float) -> Run:
    """By kway's own codes: Flat(store=Bits(1))."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, n, asked)
    started = time.perf_counter()
    index = Flat(store=Bits(1, rerank=False)).build_blocks(prototypes(n), "cosine")
    built = time.perf_counter() - started
    queries = noisy(truth, cosine, rng)
    index.search(queries[:2], 1)  # compiles
    answers, each = _timed(lambda: index.search(queries, 1).ids[:, 0], asked)
    _, one = _timed(lambda: index.search(queries[:1], 1), 1)
    peak = UNIT * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Run(float((answers == truth).mean()), built, one, each, peak)


def on_gpu(n: int, asked: int, cosine: float) -> Run:
    """Codes made in the GPU's registers, searched on its matrix unit."""
    import torch

    made = CounterRows("cuda")
    made.codes(128)  # compiles
    started = time.perf_counter()
    codes = made.codes(n)
    torch.cuda.synchronize()
    built = time.perf_counter() - started
    truth = torch.randint(0, n, (asked,), device="cuda")
    queries = made.queries(truth, cosine)

    def nearest(some: Any) -> Any:
        found = codes.nearest(some).ids[:, 0]
        torch.cuda.synchronize()
        return found

    nearest(queries[:1]), nearest(queries)  # compiles
    answers, each = _timed(lambda: nearest(queries), asked)
    _, one = _timed(lambda: nearest(queries[:1]), 1)
    right = float((answers == truth).float().mean())
    return Run(right, built, one, each, int(torch.cuda.max_memory_allocated()))


def _timed(call: Callable[[], Any], share: int) -> tuple[Any, float]:
    started = time.perf_counter()
    answer = call()
    return answer, (time.perf_counter() - started) / share


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=float, default=1e6)
    parser.add_argument("--queries", type=int, default=1024)
    parser.add_argument("--cosine", type=float, default=0.6)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    asked = parser.parse_args()
    run = {"cpu": on_cpu, "cuda": on_gpu}[asked.device](int(asked.classes), asked.queries, asked.cosine)
    print(f"{int(asked.classes):,} classes x 512 features on {asked.device}, queries at a cosine of {asked.cosine}")
    print(f"right              {run.right:.2%} of {asked.queries:,}")
    print(f"built in           {run.build_seconds:.1f} s")
    print(f"one query          {1000 * run.one:.1f} ms")
    print(f"one of {asked.queries:,}       {1000 * run.each:.2f} ms")
    print(f"memory at most     {run.bytes / 2**30:.1f} GiB")


if __name__ == "__main__":
    main()
