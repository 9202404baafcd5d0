"""The rates of this machine, each from a small run of the very code that a fit runs: some seconds in all.

Every figure is the median of a few runs after one that is not counted (kernels load, pages are touched), so that
a machine that is busy now is planned for as it is now.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import sqrt
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.gpu.device import Device, has_gpu, load_torch
from kway.compute.kernels.linear.losses import softmax_rows
from kway.compute.threads import cores, pmap, single_blas
from kway.planning.rates import Rates
from kway.planning.row_ways import A_ROW, looked_at
from kway.search.cells.kmeans import nearest_centres
from kway.search.flat import Flat
from kway.search.landmarks import PROBES, Landmarks
from kway.search.stores.int8 import Int8

RUNS = 3
_ROWS, _FEATURES, _QUERIES = 40_000, 128, 400  # of the searches: large enough that bounds pay


def calibrate() -> Rates:
    """Measure."""
    rows, queries = structured_rows(_ROWS, _FEATURES), structured_rows(_QUERIES, _FEATURES, seed=1)
    exact, cells = Flat().build(rows), Landmarks().build(rows)
    opened = PROBES / (2 * sqrt(_ROWS))  # share of the cells that an answer looks into
    coded = Flat(store=Int8(rerank=False)).build(rows[: _ROWS // 4])
    passed = _QUERIES * rows.size
    return Rates(
        product=_product(),
        memory=_memory(),
        fresh=_fresh(),
        exps=_exps(),
        sparse=_sparse(),
        assign=_assign(rows),
        certify=_ROWS * (_FEATURES + A_ROW) / _seconds(lambda: Flat().build(rows), 1),
        certified=_QUERIES * looked_at(_ROWS, _FEATURES) / _seconds(lambda: exact.nearest(queries, 5)),
        cells=rows.size / _seconds(lambda: Landmarks().build(rows), 1),
        probed=passed * opened / _seconds(lambda: cells.nearest(queries, 5)),
        bytes_scan=passed / 4 / _seconds(lambda: coded.nearest(queries, 5)),
        cores=cores(),
        **gpu_rates()._asdict(),
    )


def structured_rows(n: int, d: int, seed: int = 0, n_classes: int = 100) -> NDArray[np.float32]:
    """Rows (n, d) as real ones are: clusters in 32 hidden dimensions, some noise in all."""
    rng = np.random.default_rng(7)
    hidden = min(d, 32)
    centres = rng.standard_normal((n_classes, hidden), dtype=np.float32)
    basis = rng.standard_normal((hidden, d), dtype=np.float32) / np.float32(np.sqrt(hidden))
    rng = np.random.default_rng((8, seed))
    inside = centres[np.arange(n) % n_classes] + 0.7 * rng.standard_normal((n, hidden), dtype=np.float32)
    return inside @ basis + 0.3 * rng.standard_normal((n, d), dtype=np.float32)


def _seconds(run: Callable[[], Any], runs: int = RUNS) -> float:
    """Of one run: the median; the first is not counted where there are several."""
    if runs > 1:
        run()
    found = []
    for _ in range(runs):
        begun = time.perf_counter()
        run()
        found.append(time.perf_counter() - begun)
    return max(median(found), 1e-9)


def _product() -> float:
    """Operations a second of blocks as a gradient has them, a block a thread."""
    m, d, K, times, threads = 2048, 512, 256, 6, cores()
    X, W = np.ones((m, d), np.float32), np.ones((d, K), np.float32)

    def one(_: int) -> None:
        room = np.empty((m, K), np.float32)
        for _ in range(times):
            np.matmul(X, W, out=room)

    with single_blas():
        took = _seconds(lambda: pmap(one, range(threads), threads))
    return 2.0 * m * d * K * times * threads / took


def _memory() -> float:
    big = np.ones((cores(), 2**23), np.float32)
    into = np.empty_like(big)
    return 2 * big.nbytes / _seconds(lambda: pmap(lambda i: np.copyto(into[i], big[i]), range(len(big))))


def _fresh() -> float:
    """Bytes a second of arrays that are new, which the system hands out page by page."""
    return 2**26 / _seconds(lambda: np.ones(2**24, np.float32))


def _exps() -> float:
    """Slopes of scores that lie in the cache, as they do in a gradient."""
    m, K, times = 512, 256, 8
    scores = np.zeros((cores(), m, K), np.float32)
    codes, soft, value = np.zeros(m, np.int64), np.empty((0, 0), np.float32), np.empty((cores(), m))

    def one(i: int) -> None:
        for _ in range(times):
            softmax_rows(scores[i], codes, soft, True, value[i], scores[i])

    return times * scores.size / _seconds(lambda: pmap(one, range(cores())))


def _sparse() -> float:
    n, d, K = 4000, 5000, 64
    X = sp.random(n, d, 0.005, "csr", np.float32, np.random.default_rng(0))
    W = np.ones((d, K), np.float32)
    return cores() * X.nnz * K / _seconds(lambda: pmap(lambda _: X @ W, range(cores())))


def _assign(rows: NDArray[np.float32]) -> float:
    centres = rows[:400]
    return 2.0 * rows.size * len(centres) / _seconds(lambda: nearest_centres(rows, centres))


class GpuRates(NamedTuple):
    """Operations a second of products in bfloat16 and in float32, bytes a second on the way there, its memory."""

    gpu: float = 0.0
    gpu_full: float = 0.0
    gpu_sent: float = 0.0
    gpu_memory: float = 0.0


def gpu_rates() -> GpuRates:
    """Of the first GPU; zeros without one."""
    if not has_gpu():
        return GpuRates()
    torch, device = load_torch(), Device("cuda")
    half = torch.randn((8192, 8192), device="cuda").to(torch.bfloat16)  # of ones it runs a tenth faster than of data
    full, rows = half.float(), np.ones((64, 2**20), np.float32)

    def timed(work: Callable[[], Any]) -> float:
        def run() -> None:
            work()
            device.wait()

        return _seconds(run)

    with device.full_precision():
        in_full = 2.0 * 8192**3 / timed(lambda: torch.matmul(full, full))
    return GpuRates(
        2.0 * 8192**3 / timed(lambda: torch.matmul(half, half)),
        in_full,
        rows.nbytes / timed(lambda: device.put(rows)),
        float(torch.cuda.mem_get_info()[1]),
    )
