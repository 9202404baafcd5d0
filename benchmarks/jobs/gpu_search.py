"""G1 and G3, on a GPU: exact neighbors among 10M rows, and the nearest of 1.0 and 1.4 billion classes by codes.

Times are medians between two events on the device, and rows and queries are tensors on it. They are compared with a
limit (a bfloat16 product at its measured rate) and with plain torch on the same rows, in the best of several block
sizes. Ids are compared with those of the search by float32 products (rows/gpu/exact_search.py), and for a million rows
with those of the CPU.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from importlib.util import find_spec
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from ..models import NotInstalled
from ..race import Row, absent
from .gpu_bits import coded_rows

TARGET = "gpu_search"
K, FEATURES = 10, 128
EXACT_SECONDS = 0.030  # G1
BLOCKS = (2**14, 2**16, 2**18, 2**20)  # rows of a block of plain torch; the fastest size counts
PEERS = {"faiss": "faiss-gpu-cu12", "cuvs": "cuvs-cu12"}
HOST = (1_000_000, 1000)  # rows and queries of the comparison with the CPU
CODES = {1_000_000_000: (0.016, 0.020, 0.00025), 1_400_000_000: (0.022, 0.028, 0.00035)}  # G3: 1 query, 64, 1,024 each
RIGHT = {0.6: 0.9999, 0.4: 0.90}  # smallest accuracy by the cosine between a query and its class


class Sizes(NamedTuple):
    """The sizes of the measurements."""

    rows: int
    queries: int
    checked: int
    codes: dict[int, tuple[float, float, float]]
    asked: int


FULL = Sizes(10_000_000, 10_000, 2048, CODES, 16_384)
QUICK = Sizes(400_000, 1000, 256, {4_000_000: (1.0, 1.0, 1.0)}, 1024)


def gpu_search(rounds: int, quick: bool) -> list[Row]:
    """Measure exact search and search by codes."""
    try:
        import torch
    except ImportError:
        raise NotInstalled("torch") from None
    if not torch.cuda.is_available():
        raise NotInstalled("a GPU that torch sees")
    sizes = QUICK if quick else FULL
    rows = [*_exact(sizes, rounds), *_absent(), *_on_host(quick, rounds), *_codes(sizes, rounds)]
    rows += coded_rows(10_000_000 if quick else 100_000_000, rounds)
    rows[0].points |= {"machine": gpu_facts()}
    return rows


def gpu_facts() -> dict[str, Any]:
    """Return the GPU, its driver and the versions of the libraries."""
    import torch

    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    versions = {name: metadata.version(name) for name in ("torch", "triton")}
    return {"gpu": torch.cuda.get_device_name(), "driver": driver, "cuda": torch.version.cuda, **versions}


def seconds(call: Callable[[], Any], rounds: int) -> list[float]:
    """Return the seconds of each round between two events on the device, after one call to warm up."""
    import torch

    call()
    times = []
    for _ in range(rounds):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        call()
        last.record()
        torch.cuda.synchronize()
        times.append(first.elapsed_time(last) / 1000)
    return times


# ---------------------------------------------------------------- G1


def _exact(sizes: Sizes, rounds: int) -> Iterator[Row]:
    import torch

    from kway.rows.gpu.device import Device
    from kway.rows.gpu.int8_search import build_exact_search

    device = Device("cuda")
    floor = 2.0 * sizes.rows * sizes.queries * FEATURES / _bf16_rate(rounds)
    for name, rows, queries in _sets(sizes):
        data = f"{sizes.queries:,} x {sizes.rows:,} x {FEATURES}, {name}"
        start = time.perf_counter()
        engine = build_exact_search(device, rows, "euclidean")
        torch.cuda.synchronize()
        built = time.perf_counter() - start
        index_bytes = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        ours = seconds(lambda e=engine, q=queries: e.nearest(q, K), max(rounds, 7))
        added = (torch.cuda.max_memory_allocated() - index_bytes) / 1e9
        checked = torch.randperm(sizes.queries, device="cuda")[: sizes.checked]
        ids, exact = engine.nearest(queries, K).ids[checked], engine.rows.nearest(queries[checked], K).ids
        same = float((ids == exact).all(1).float().mean())
        quality = (
            f"same ids for {same:.2%} of {len(checked):,} queries; {index_bytes / 1e9:.1f} GB, "
            f"search adds {added:.1f} GB, built in {built:.2f} s"
        )
        plain = min((seconds(lambda b=b, x=rows, q=queries: _plain_torch(x, q, b), 2) for b in BLOCKS), key=median)
        job = f"exact euclidean, k={K}, on the GPU"
        peers = {"limit": [EXACT_SECONDS], "bfloat16 product alone": [floor], "torch, topk of blocks": plain}
        for peer, theirs in peers.items():
            least = None if theirs is plain else 1.0
            times = {"kway": ours, peer: theirs}
            yield Row(TARGET, job, data, peer, median(ours), median(theirs), least, quality, same == 1.0, times)
        del engine, rows, queries, ids, exact
        torch.cuda.empty_cache()


def _sets(sizes: Sizes) -> Iterator[tuple[str, Any, Any]]:
    import torch

    def normal(m: int) -> Any:
        return torch.randn((m, FEATURES), generator=source, device="cuda")

    source = torch.Generator(device="cuda").manual_seed(1)
    yield "isotropic", normal(sizes.rows), normal(sizes.queries)
    centers = normal(10_000)

    def drawn(m: int) -> Any:
        return centers[torch.randint(10_000, (m,), generator=source, device="cuda")] + 0.5 * normal(m)

    yield "10,000 clusters", drawn(sizes.rows), drawn(sizes.queries)


def _bf16_rate(rounds: int) -> float:
    """Return the operations per second of a bfloat16 product of random numbers."""
    import torch

    a = torch.randn((8192, 8192), device="cuda").bfloat16()
    return 2.0 * 8192**3 / median(seconds(lambda: a @ a.T, max(rounds, 5)))


def _plain_torch(rows: Any, queries: Any, block: int) -> Any:
    """What one writes in ten lines: float32 keys of a block of rows, its k least, merged."""
    import torch

    best = None
    for first in range(0, len(rows), block):
        x = rows[first : first + block]
        keys = torch.addmm(0.5 * x.square().sum(1), queries, x.T, alpha=-1)
        values, ids = keys.topk(K, 1, largest=False)
        ids = ids + first
        if best is not None:
            values, at = torch.cat([best[0], values], 1).topk(K, 1, largest=False)
            ids = torch.cat([best[1], ids], 1).gather(1, at)
        best = values, ids
    return best


def _absent() -> list[Row]:
    """Return the peers that are not installed, by name."""
    return [
        absent(TARGET, f"exact euclidean, k={K}, on the GPU", "-", name, NotInstalled(name))
        for module, name in PEERS.items()
        if find_spec(module) is None
    ]


def _on_host(quick: bool, rounds: int) -> Iterator[Row]:
    """Flat(device="cuda") against Flat() with numpy arrays: the answers to the last digit."""
    from kway.search import Flat

    n, q = (200_000, 200) if quick else HOST
    rng = np.random.default_rng(0)
    rows, queries = (rng.standard_normal((m, FEATURES), dtype=np.float32) for m in (n, q))
    indexes = {"kway": Flat(device="cuda").build(rows), "kway on the CPU": Flat().build(rows)}
    times: dict[str, list[float]] = {name: [] for name in indexes}
    answers: dict[str, Any] = {}
    for i in range(3):
        for name, index in indexes.items():
            start = time.perf_counter()
            answers[name] = index.nearest(queries, K)
            if i:  # the first compiles
                times[name].append(time.perf_counter() - start)
    ours, theirs = answers.values()
    same = bool((ours.ids == theirs.ids).all() and (ours.distances == theirs.distances).all())
    said = f"ids and distances of {q:,} queries {'identical' if same else 'DIFFER'}"
    data = f"{q:,} x {n:,} x {FEATURES}, isotropic"
    yield Row(
        TARGET, f"exact euclidean, k={K}, numpy in and out", data, "kway on the CPU",
        median(times["kway"]), median(times["kway on the CPU"]), None, said, same, times,
    )  # fmt: skip


# ---------------------------------------------------------------- G3


def _codes(sizes: Sizes, rounds: int) -> Iterator[Row]:
    import torch

    from kway.rows.gpu.generated_rows import CounterRows
    from kway.rows.gpu.sign_codes import SignCodes

    made = CounterRows("cuda")
    made.codes(2**20)  # compiles
    torch.cuda.synchronize()
    start = time.perf_counter()
    largest = made.codes(max(sizes.codes))
    torch.cuda.synchronize()
    filled = time.perf_counter() - start
    for n, limits in sizes.codes.items():
        codes = SignCodes.build(made.device, largest.words[: n // 64 * 64])
        right = {cosine: _right(made, codes, cosine, sizes.asked if cosine > 0.5 else 2048) for cosine in RIGHT}
        good = all(right[cosine] >= least for cosine, least in RIGHT.items())
        torch.cuda.reset_peak_memory_stats()
        said = ", ".join(f"{share:.2%} correct at cosine {cosine}" for cosine, share in right.items())
        for (m, job), limit in zip(((1, "one query"), (64, "64 queries"), (1024, "1,024 queries, per query")), limits):
            truth = torch.randint(0, codes.rows, (m,), device="cuda")
            queries = made.queries(truth, 0.6, seed=m)
            times = seconds(lambda q=queries, c=codes: c.nearest(q), max(rounds, 7))
            each = [t / (m if m == 1024 else 1) for t in times]
            peak = torch.cuda.max_memory_allocated() / 1e9
            note = f"{said}; {peak:.1f} GB; {max(sizes.codes):,} codes made in {filled:.2f} s"
            data = f"{n:,} classes x 512 bits"
            yield Row(
                TARGET, f"nearest by codes, {job}", data, "limit", median(each), limit, 1, note, good, {"kway": each}
            )


def _right(made: Any, codes: Any, cosine: float, asked: int) -> float:
    """Return the share of queries at this cosine whose own class is found."""
    import torch

    source, found = torch.Generator(device="cuda").manual_seed(3), 0
    for first in range(0, asked, 1024):
        truth = torch.randint(0, codes.rows, (1024,), generator=source, device="cuda")
        answer = codes.nearest(made.queries(truth, cosine, seed=first + 1)).ids[:, 0]
        found += int((answer == truth).sum())
    return found / asked
