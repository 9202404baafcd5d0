"""The speed of this machine: two rates, measured in under a second in the process that plans.

    product   operations per second of float32 matrix products on all cores
    memory    bytes per second read and written on all cores

Nothing is stored on disk, because a rate that was measured on a busy machine would stay wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from math import inf
from typing import Any

import numpy as np

from kway.errors import InputError
from kway.threads import cores, pmap, single_blas


@dataclass(frozen=True)
class Rates:
    """Rates of a machine. The defaults are those of two AVX-512 cores, which all decisions about a fit use.

    Parameters
    ----------
    product : float
        Operations per second of a float32 matrix product on all cores.
    memory : float
        Bytes per second read and written on all cores.
    gpu : float
        Operations per second of a bfloat16 matrix product on the GPU; 0 if there is none.
    gpu_memory : float
        Bytes of GPU memory; 0 if there is no GPU or it is not known.
    cores : int
        Threads of a fit.
    """

    product: float = 110e9
    memory: float = 10e9
    gpu: float = 0.0
    gpu_memory: float = 0.0
    cores: int = 2

    def record(self) -> dict[str, float]:
        """Return the rates as a dict."""
        return asdict(self)


def check_rates(rates: Rates | Mapping[str, float] | None) -> Rates:
    """Return the given rates, with defaults for those that a mapping does not name, or the measured rates if None."""
    if rates is None:
        return measure_rates()
    if isinstance(rates, Rates):
        return rates
    names = Rates().record()
    is_valid_mapping = isinstance(rates, Mapping) and set(rates) <= set(names)
    numbers = is_valid_mapping and all(isinstance(value, int | float) and 0 <= value < inf for value in rates.values())
    if not numbers or not all(rates.get(name, 1) > 0 for name in ("product", "memory", "cores")):
        raise InputError(f"rates must be Rates, or positive numbers by the names {', '.join(names)}; got {rates!r:.80}")
    return Rates(**{**names, **rates})  # type: ignore[arg-type]


@cache
def measure_rates() -> Rates:
    """Measure this machine once per process, its GPU included if there is one."""
    gpu, gpu_memory = _measure_gpu()
    return Rates(_measure_product(), _measure_memory(), gpu, gpu_memory, cores())


def _best_seconds(run: Callable[[], Any], runs: int = 5) -> float:
    """Return the seconds of the fastest run, after one that loads code and touches memory pages."""
    run()
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return max(min(seconds), 1e-9)


def _measure_product() -> float:
    """Multiply blocks of the size that a gradient has, one per thread."""
    rows, features, classes, times = 2048, 512, 256, 6
    X, W = np.ones((rows, features), np.float32), np.ones((features, classes), np.float32)
    outputs = np.empty((cores(), rows, classes), np.float32)

    def multiply(thread: int) -> None:
        for _ in range(times):
            np.matmul(X, W, out=outputs[thread])

    with single_blas():
        seconds = _best_seconds(lambda: pmap(multiply, range(cores())))
    return 2.0 * rows * features * classes * times * cores() / seconds


def _measure_memory() -> float:
    source = np.ones((cores(), 2**23), np.float32)  # 32 MiB per thread, more than caches hold
    target = np.empty_like(source)
    seconds = _best_seconds(lambda: pmap(lambda thread: np.copyto(target[thread], source[thread]), range(cores())))
    return 2 * source.nbytes / seconds


def _measure_gpu() -> tuple[float, float]:
    """Return the bfloat16 rate and the memory of the first GPU; zeros without one."""
    from kway.rows.gpu.device import Device, has_gpu, load_torch

    if not has_gpu():
        return 0.0, 0.0
    torch, device = load_torch(), Device("cuda")
    half = torch.randn((8192, 8192), device="cuda").to(torch.bfloat16)

    def multiply() -> None:
        torch.matmul(half, half)
        device.wait()

    return 2.0 * 8192**3 / _best_seconds(multiply), float(torch.cuda.mem_get_info()[1])
