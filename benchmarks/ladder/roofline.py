"""The roofline of this machine: no code is faster than min(peak, bandwidth x intensity).

peak        operations per second: a large matrix product by BLAS on all cores
bandwidth   bytes per second: a copy of arrays, from memory and from the cache, on all cores
intensity   operations per byte that is moved
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kway.threads import cores, pmap

from .rungs import timed

SIDE = 2048
MEMORY_BYTES = 1 << 27  # an array that no cache holds
CACHE_BYTES = 1 << 18  # two of them lie in a core's second-level cache


def measure() -> dict[str, Any]:
    """Measure GFLOP/s per number type and GB/s of memory and cache."""
    return {
        "peak_gflops": {kind: peak(kind) for kind in ("float32", "float64")},
        "bandwidth_gb": {"memory": bandwidth(MEMORY_BYTES), "cache": bandwidth(CACHE_BYTES)},
        "cores": cores(),
    }


def peak(kind: str, side: int = SIDE) -> float:
    """Measure the GFLOP/s of a side x side product."""
    A = np.random.default_rng(0).standard_normal((side, side)).astype(kind)
    out = np.empty_like(A)
    np.matmul(A, A, out=out)
    return 2 * side**3 / timed(lambda: np.matmul(A, A, out=out)) / 1e9


def bandwidth(size: int) -> float:
    """Measure the GB/s of copying arrays of `size` bytes, one pair per core."""
    again = max(1, MEMORY_BYTES // size)
    pairs = [(np.ones(size, np.uint8), np.ones(size, np.uint8)) for _ in range(cores())]

    def copy(pair: tuple[np.ndarray, np.ndarray]) -> None:
        source, to = pair
        for _ in range(again):
            np.copyto(to, source)

    return 2 * size * again * len(pairs) / timed(lambda: pmap(copy, pairs)) / 1e9
