"""Ways on a GPU, at its measured rates: what they hold there, and what a fit and an answer take.

    passes    rows, four times the weights, factors, two blocks of scores; products in float32
    steps     rows, three times the weights, a chunk of exponentials; products in bfloat16, all classes in every step
    sampled   rows, the weights, two numbers a class; a step waits for its launches, not for its products
    search    rows, one byte a number of them as a filter, a block of queries

`fit` on a device asks these for the memory there (guard.py), `device="auto"` for the time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from kway.planning import words
from kway.planning.linear_ways import MOST_FACTORS, sampled_passes, sampled_softmax, softmax_way, stochastic
from kway.planning.rates import Rates
from kway.planning.row_ways import flat_way
from kway.planning.size import LABEL_BYTES, Size
from kway.planning.way import Formula, Way

GPU_START = 5.0  # seconds of a fit on the CPU from which a GPU is worth loading torch and sending the rows
GPU_ANSWER = 0.5  # seconds of a block of answers on the CPU from which a GPU pays for sending rows and weights
GPU_TYPICAL = 4e14  # operations a second in bfloat16 of a GPU that was not measured
GPU_FULL = 1 / 16  # of that rate, what products in float32 reach
GPU_SENT = 3e9  # bytes a second on the way to it
GPU_SHARE = 0.5  # of the product's rate that a whole step reaches
GPU_BLOCK = 2**30  # bytes of blocks of scores and of slopes
FILTERED = 1.25  # of the product's rate, what a filter of bytes passes
GPU_EPOCHS = 8  # of steps over all classes
A_STEP = 1e-3  # seconds of a sampled step beside its products, estimated: 2.2 ms, profiled, when it had more launches
STEP_ROWS = (256, 2048, 64)  # its rows, at least and at most, and the steps that an epoch has where rows are that many
BESIDE = 768  # classes that a step draws or holds hard, beside those of its rows
MOST_DENSE = 2**32  # bytes of sparse rows made dense, which is what a device multiplies


class GpuVerdict(NamedTuple):
    """Whether a GPU pays for a fit, and why in a clause."""

    pays: bool
    why: str


def gpu_fit(size: Size, rates: Rates) -> Way:
    """A linear fit whose rows are on a GPU: passes there; steps over all classes where L-BFGS remembers too much."""
    way, batches = softmax_way(size, rates), stochastic(size, rates)
    steps = way.fit_bytes > 4 * batches.fit_bytes
    if steps:
        held = _rows_there(size) + 12 * size.parameters + GPU_BLOCK
        operations = 4.0 * size.n * size.d * size.scores * GPU_EPOCHS
        seconds, why = gpu_steps_seconds(size, rates.gpu or GPU_TYPICAL), "the optimum, which is approached"
    else:
        factors = min(MOST_FACTORS, 2 * size.scores * (size.d + 1) ** 2 * size.itemsize)
        held = _rows_there(size) + 4 * size.parameters * size.itemsize + factors + GPU_BLOCK
        operations, why = way.operations, "nothing"
        seconds = operations / (GPU_SHARE * _full(rates)) * size.itemsize / 4
    chosen = batches if steps else way
    return _there(
        replace(chosen, operations=operations), "softmax, GPU", "SoftmaxClassifier(device='cuda')", size, rates, held,
        seconds, why,
    )  # fmt: skip


def gpu_sampled(size: Size, rates: Rates) -> Way:
    """Sampled softmax, weights and rows on a GPU."""
    way = sampled_softmax(size, rates)
    held = _rows_there(size) + size.parameters * size.itemsize + 16 * size.K + GPU_BLOCK
    least, most, steps = STEP_ROWS
    rows = max(least, min(most, size.n // steps))
    operations = 6.0 * size.n * size.d * min(size.K, rows + BESIDE) * sampled_passes(size)
    seconds = sampled_passes(size) * size.n / rows * A_STEP + operations / (GPU_SHARE * _full(rates))
    call = "SoftmaxClassifier(solver='sampled', device='cuda')"
    way = replace(way, operations=operations)
    return _there(way, "sampled softmax, GPU", call, size, rates, held, seconds, "the exact sum over classes")


def gpu_search(size: Size, rates: Rates) -> Way:
    """Exact neighbours, rows on a GPU."""
    way = flat_way(size, rates)
    held = 4 * size.n * size.d + size.n * (size.d + 16) + GPU_BLOCK
    found = _there(way, "kNN flat, GPU", "NeighborsClassifier(device='cuda')", size, rates, held, 0.0, "nothing")
    answer = 2.0 * size.n * size.d / (FILTERED * (rates.gpu or GPU_TYPICAL))
    missing = "a GPU searches dense rows" if size.sparse else ""
    return replace(found, operations=way.operations, predict_seconds=answer, missing=missing)


GPU_WAYS: tuple[Formula, ...] = (gpu_fit, gpu_sampled, gpu_search)


def gpu_steps_seconds(size: Size, gpu: float) -> float:
    """Of epochs of softmax whose steps sum over all classes, at so many operations a second."""
    return 4.0 * size.n * size.d * size.scores * GPU_EPOCHS / (GPU_SHARE * gpu)


def gpu_verdict(size: Size, rates: Rates, formula: Formula, free: int) -> GpuVerdict:
    """Whether a linear fit is long enough on the CPU for a GPU with so many bytes free, and shorter there."""
    here, there = softmax_way(size, rates).fit_seconds, formula(size, rates)
    if size.sparse:
        return GpuVerdict(False, "sparse rows are read as they are there, and would be dense on a GPU")
    if here <= GPU_START or there.fit_seconds >= here:
        return GpuVerdict(False, f"too small to pay for a GPU: about {words.time(here)} by the plan")
    if there.device_bytes > free:
        short = f"{words.size(there.device_bytes)} there, which has {words.size(free)} free"
        return GpuVerdict(False, f"the plan takes {short}")
    return GpuVerdict(True, f"about {words.time(there.fit_seconds)} by the plan, {words.time(here)} on the CPU")


def gpu_answers(size: Size, rates: Rates) -> bool:
    """Whether a block of rows takes long enough on the CPU to be answered on a GPU that torch is loaded for."""
    return size.n * softmax_way(size, rates).predict_seconds > GPU_ANSWER


def _there(way: Way, name: str, call: str, size: Size, rates: Rates, held: float, seconds: float, gives_up: str) -> Way:
    """A way of the host, done on the GPU: its bytes there, its seconds with the way of the rows."""
    sent = size.n * size.d * size.itemsize / (rates.gpu_sent or GPU_SENT)
    dense = size.n * size.d * size.itemsize > MOST_DENSE
    return replace(
        way, name=name, call=call, device_bytes=int(held), fit_seconds=sent + seconds,
        predict_seconds=2.0 * size.d * size.scores / (GPU_SHARE * _full(rates)),
        gives_up=f"gives up {gives_up}; {words.size(held)} on the GPU",
        missing="a GPU takes dense rows, and these are too many to be made dense" if size.sparse and dense else "",
    )  # fmt: skip


def _rows_there(size: Size) -> int:
    return size.n * size.d * size.itemsize + 2 * LABEL_BYTES * size.n


def _full(rates: Rates) -> float:
    """Operations a second in float32."""
    return rates.gpu_full or GPU_FULL * (rates.gpu or GPU_TYPICAL)
