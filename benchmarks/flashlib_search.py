"""Compare exact search on a GPU with FlashLib, on fixed and on drawn shapes.

    python -m benchmarks.flashlib_search --out benchmarks/results/gpu_flashlib.json

Tensors go in, and ids come out. The methods take turns, and a time is the median between two events. Both are called
several times before, so that neither compiles a kernel or records a graph while it is timed. The ids of up to 64
queries are compared with those of float64 distances.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

K = 10
FIXED = (
    (100, 20_000, 128),
    (2_000, 5_000, 32),
    (10_000, 10_000, 64),
    (1, 1_000_000, 128),
    (64, 200_000, 768),
    (1_000, 1_000_000, 64),
    (10_000, 100_000, 128),
    (50_000, 50_000, 16),
    (8_192, 5_000_000, 96),
    (8_192, 3_000_000, 256),
    (4_096, 1_000_000, 384),
    (4_096, 1_000_000, 768),
    (4_096, 1_000_000, 1_536),
    (10_000, 10_000_000, 128),
)
COLUMNS = ["queries", "rows", "features", "kway", "flashlib float32", "flashlib tol=1e-2", "bfloat16 product alone"]


class Shape(NamedTuple):
    """Sizes of a search."""

    queries: int
    rows: int
    features: int


def draw_shapes(count: int, seed: int = 0) -> list[Shape]:
    """Return shapes drawn on logarithmic scales, with at most 1e13 products and 4 GB of rows."""
    rng, found = np.random.default_rng(seed), []
    while len(found) < count:
        sizes = (np.exp(rng.uniform(np.log(a), np.log(b))) for a, b in ((1, 10_000), (2_000, 2_000_000), (8, 1024)))
        shape = Shape(*map(int, sizes))
        if np.prod(shape, dtype=float) <= 1e13 and shape.rows * shape.features <= 1e9:
            found.append(shape)
    return found


def measure(shape: Shape) -> tuple[list[float], int]:
    """Return the milliseconds of kway, of FlashLib twice, and of the product alone, and the number of wrong ids."""
    import torch
    from flashlib import flash_knn

    from kway.search import Flat

    generator = torch.Generator(device="cuda").manual_seed(0)
    options = {"generator": generator, "device": "cuda"}
    rows = torch.randn((shape.rows, shape.features), **options)
    queries = torch.randn((shape.queries, shape.features), **options)
    index = Flat(device="cuda").build(rows, metric="euclidean")
    methods: list[Callable[[], Any]] = [
        lambda: index.nearest(queries, K).ids,
        lambda: flash_knn(queries, rows, K, return_distances=False),
        lambda: flash_knn(queries, rows, K, return_distances=False, tol=1e-2),
    ]
    work = float(np.prod(shape, dtype=float))
    times = _take_turns(methods, rounds=int(min(50, max(5, 2e12 / work))))
    return [*times, _product_alone(queries, rows)], _count_wrong(index, queries, rows)


def _take_turns(methods: list[Callable[[], Any]], rounds: int) -> list[float]:
    """Return the median milliseconds of each method."""
    import torch

    found: list[list[float]] = [[] for _ in methods]
    for turn in range(-3, rounds):
        for method, times in zip(methods, found):
            torch.cuda.synchronize()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            method()
            end.record()
            torch.cuda.synchronize()
            if turn >= 0:
                times.append(start.elapsed_time(end))
    return [round(median(times), 3) for times in found]


def _product_alone(queries: Any, rows: Any) -> float:
    """Return the milliseconds of the bfloat16 product of queries and rows, in parts of at most 8 GB."""
    import torch

    left, parts = queries.bfloat16(), rows.bfloat16().split(max(1, 2**32 // len(queries)))
    out = torch.empty((len(queries), len(parts[0])), dtype=torch.bfloat16, device="cuda")
    return _take_turns([lambda: [torch.mm(left, part.T, out=out[:, : len(part)]) for part in parts]], 5)[0]


def _count_wrong(index: Any, queries: Any, rows: Any) -> int:
    """Return how many rows of ids of up to 64 queries differ from those of float64 distances."""
    import torch

    asked = queries[:64]
    ids, wrong = index.nearest(asked, K).ids, 0
    for query, found in zip(asked.double(), ids):
        distances = torch.cat([(part.double() - query).square().sum(1) for part in rows.split(500_000)])
        rounded = distances.sqrt().float()
        wrong += int((rounded[found] != rounded.topk(K, largest=False).values).any())
    return wrong


def main() -> None:
    """Measure all shapes and write the file."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--drawn", type=int, default=10, help="number of drawn shapes")
    given = parser.parse_args()
    rows, wrong = [], 0
    for shape in [*map(Shape._make, FIXED), *draw_shapes(given.drawn)]:
        times, misses = measure(shape)
        rows.append([*shape, *times])
        wrong += misses
        print(*shape, *times, f"{misses} wrong", flush=True)
        torch.cuda.empty_cache()
    record = {
        "target": "gpu_flashlib",
        "date": datetime.date.today().isoformat(),
        "device": torch.cuda.get_device_name(),
        "flashlib": metadata.version("flashlib"),
        "torch": torch.__version__,
        "k": K,
        "unit": "ms, median between two events; tensors in, ids out",
        "columns": COLUMNS,
        "rows": rows[: len(FIXED)],
        "drawn": rows[len(FIXED) :],
        "checked": f"ids of up to 64 queries per shape compared with those of float64 distances: {wrong} wrong",
    }
    given.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
