"""In addition to G2: steps of sampled softmax over a million classes on a GPU, and the ten best of a million.

Weights and rows are synthetic and on the device; draws, which the host makes, are counted. The ten best are
compared with float64 on some rows.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any, NamedTuple

import numpy as np

SAMPLED_EPOCHS = 3
CHECKED_ROWS = 8
_BEST = 10


class SampledTimes(NamedTuple):
    """Seconds of the median epoch after the first, rows per second, and GB of device memory at the peak."""

    seconds: float
    rows_a_second: float
    peak: float


class TopKTimes(NamedTuple):
    """Milliseconds of each round, the peak in GB, and the share of rows whose ids are those of float64."""

    rounds: list[float]
    peak: float
    same: float


def sampled_times(n: int, K: int, d: int, batch: int = 1) -> SampledTimes:
    """Epochs of sampled softmax from W = 0, in steps of so many rows; 1: as many as it takes by itself."""
    from kway.linear.losses import LOSSES, Targets
    from kway.linear.objective import Objective
    from kway.linear.penalties import Penalty
    from kway.linear.solvers.base import Control
    from kway.linear.solvers.sampled import Sampled, SampledRun
    from kway.rows.passes import wrap_rows

    rng = np.random.default_rng(2)
    X, y = rng.standard_normal((n, d), dtype=np.float32), rng.integers(0, K, n)
    device = _device()
    problem = Objective(wrap_rows(X, device), Targets(y), K, LOSSES["softmax"].joint, Penalty(ridge=1e-9))
    run = SampledRun(Sampled(), problem, Control(batch_size=batch), problem.zeros())
    seconds = []
    for _ in range(SAMPLED_EPOCHS):
        begun = time.perf_counter()
        run.epoch()
        device.wait()
        seconds.append(time.perf_counter() - begun)
    took = median(seconds[1:])
    return SampledTimes(took, n / took, _peak(device))


def topk_times(B: int, K: int, d: int, rounds: int = 3) -> TopKTimes:
    """The ten best classes with their probabilities, tensors in and out."""
    import torch

    from kway.probabilities import Shares
    from kway.rows.gpu.class_scores import DeviceClasses

    device = _device()
    g = torch.Generator(device.name).manual_seed(0)
    X, W = (torch.randn((m, d), generator=g, device=device.name) for m in (B, K))
    classes = DeviceClasses(device, W.mul_(0.1), torch.zeros(K, device=device.name))
    times = []
    for _ in range(rounds + 1):
        device.wait()
        begun = time.perf_counter()
        codes, _ = classes.best_answers(X, _BEST, Shares())
        device.wait()
        times.append(1e3 * (time.perf_counter() - begun))
    peak = _peak(device)  # before the check, whose weights in float64 are twice as large
    true = (X[:CHECKED_ROWS].double() @ W.double().T).topk(_BEST, dim=1).indices
    same = float((codes[:CHECKED_ROWS] == true).all(1).double().mean())
    return TopKTimes(times[1:], peak, same)


def _device() -> Any:
    """The GPU, else torch on the processor; its peak is counted anew."""
    import torch

    from kway.rows.gpu.device import Device

    if not torch.cuda.is_available():
        return Device("cpu")
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return Device("cuda")


def _peak(device: Any) -> float:
    """GB at the peak."""
    return device.torch.cuda.max_memory_allocated() / 1e9 if device.is_gpu else 0.0


def sentences(n: int, sizes: tuple[int, int, int]) -> dict[str, Any]:
    """Job -> seconds and quality of both, for rows of a record."""
    B, K, d = sizes
    steps, best = sampled_times(n, K, d), topk_times(B, K, d)
    return {
        f"sampled softmax, an epoch of {n:,} rows": (
            steps.seconds, f"{steps.rows_a_second:,.0f} rows/s, draws included; {steps.peak:.1f} GB",
        ),
        "predict_topk, k=10, float32": (
            median(best.rounds) / 1e3, f"ids of float64 for {best.same:.0%} of {CHECKED_ROWS} rows; {best.peak:.1f} GB",
        ),
    }  # fmt: skip
