"""Search among a billion classes, with one bit per feature and 64 bytes per class.

    python examples/billion_classes.py                              a million classes on two cores, in a minute
    python examples/billion_classes.py --classes 1e9 --device cuda  a billion on a GPU with 80 GB (1.4e9: 100 GB)

The prototypes have 512 features and are generated from a counter: a prototype is a hash of its number, computed when it
is needed and never stored. The index stores the signs of the rotated prototypes. The queries are prototypes with noise,
at a cosine of 0.6 to the prototype of their class. The script prints the share of correct results, the times and the
memory.
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

RUSAGE_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes per unit of ru_maxrss
BLOCK = 2**15  # prototypes that are computed at once on the CPU


@dataclass(frozen=True)
class Run:
    """The result of a run."""

    accuracy: float  # share of the queries
    build_seconds: float
    single_seconds: float  # of one query alone
    batch_seconds: float  # per query of a batch
    bytes: int  # peak memory


def prototypes(n: int) -> Iterator[NDArray[np.float32]]:
    """Yield n prototypes (m, 512) in blocks."""
    for first in range(0, n, BLOCK):
        yield counter_rows(np.arange(first, min(n, first + BLOCK)))


def noisy_queries(classes: NDArray[np.int64], cosine: float, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return queries (q, 512) at a cosine to the prototypes of their classes (q,)."""
    targets = counter_rows(classes).astype(np.float64)
    targets /= np.linalg.norm(targets, axis=1, keepdims=True)
    noise = rng.standard_normal(targets.shape)
    noise -= (noise * targets).sum(axis=1, keepdims=True) * targets
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    return (cosine * targets + np.sqrt(1 - cosine**2) * noise).astype(np.float32)


def on_cpu(n_classes: int, n_queries: int, cosine: float) -> Run:
    """Search with `Flat(store=Bits(1))` on the CPU."""
    rng = np.random.default_rng(0)
    classes = rng.integers(0, n_classes, n_queries)
    started = time.perf_counter()
    index = Flat(store=Bits(1, rerank=False)).build_blocks(prototypes(n_classes), "cosine")
    build_seconds = time.perf_counter() - started
    queries = noisy_queries(classes, cosine, rng)
    index.search(queries[:2], 1)  # compiles the kernels
    ids, batch_seconds = _timed(lambda: index.search(queries, 1).ids[:, 0], n_queries)
    _, single_seconds = _timed(lambda: index.search(queries[:1], 1), 1)
    peak = RUSAGE_UNIT * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Run(float((ids == classes).mean()), build_seconds, single_seconds, batch_seconds, peak)


def on_gpu(n_classes: int, n_queries: int, cosine: float) -> Run:
    """Compute the codes on the GPU and search them there."""
    import torch

    rows = CounterRows("cuda")
    rows.codes(128)  # compiles the kernels
    started = time.perf_counter()
    codes = rows.codes(n_classes)
    torch.cuda.synchronize()
    build_seconds = time.perf_counter() - started
    classes = torch.randint(0, n_classes, (n_queries,), device="cuda")
    queries = rows.queries(classes, cosine)

    def nearest(batch: Any) -> Any:
        ids = codes.nearest(batch).ids[:, 0]
        torch.cuda.synchronize()
        return ids

    nearest(queries[:1]), nearest(queries)  # compiles the kernels
    ids, batch_seconds = _timed(lambda: nearest(queries), n_queries)
    _, single_seconds = _timed(lambda: nearest(queries[:1]), 1)
    accuracy = float((ids == classes).float().mean())
    return Run(accuracy, build_seconds, single_seconds, batch_seconds, int(torch.cuda.max_memory_allocated()))


def _timed(call: Callable[[], Any], n_queries: int) -> tuple[Any, float]:
    """Return the result of a call and its seconds per query."""
    started = time.perf_counter()
    result = call()
    return result, (time.perf_counter() - started) / n_queries


def main() -> None:
    """Parse the options, run, and print the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=float, default=1e6)
    parser.add_argument("--queries", type=int, default=1024)
    parser.add_argument("--cosine", type=float, default=0.6)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    run = {"cpu": on_cpu, "cuda": on_gpu}[options.device](int(options.classes), options.queries, options.cosine)
    print(
        f"{int(options.classes):,} classes x 512 features on {options.device}, queries at a cosine of {options.cosine}"
    )
    print(f"correct            {run.accuracy:.2%} of {options.queries:,} queries")
    print(f"building           {run.build_seconds:.1f} s")
    print(f"one query          {1000 * run.single_seconds:.1f} ms")
    print(f"per query of all   {1000 * run.batch_seconds:.2f} ms")
    print(f"peak memory        {run.bytes / 2**30:.1f} GiB")


if __name__ == "__main__":
    main()
