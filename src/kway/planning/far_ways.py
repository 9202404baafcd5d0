"""Ways beyond this machine's processor: a GPU where there is one, whose rate was measured; m machines, by arithmetic.

A softmax on a GPU never writes the scores: weights, one number a class of Adagrad, a block of rows.
On m machines rows are split, each searches its share exactly, the k best of each are merged.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from math import ceil

from kway.planning import words
from kway.planning.linear_ways import SAMPLED_PASSES, softmax_way, stochastic
from kway.planning.rates import Rates
from kway.planning.row_ways import flat_way
from kway.planning.size import LABEL, Size
from kway.planning.way import Way

GPU_START = 5.0  # seconds of a fit on the CPU from which a GPU is worth loading torch and sending the rows
GPU_TYPICAL = 4e14  # operations a second in bfloat16 of a GPU that was not measured
GPU_FULL = 1 / 16  # of that rate, what products in float32 reach
GPU_SHARE = 0.5  # of the product's rate that a whole step reaches
GPU_BLOCK = 2**30  # bytes of a block of rows and of slopes
ROUND_TRIP = 2e-3  # seconds that a question to the machines and back takes


def gpu_softmax(size: Size, rates: Rates) -> Way | None:
    """Softmax over all classes on a GPU; None where there is none."""
    if not rates.gpu:
        return None
    operations = 4.0 * size.n * size.d * size.scores * SAMPLED_PASSES
    held = size.parameters * 4 + size.K * 4 + GPU_BLOCK
    model = size.parameters * size.itemsize + LABEL * size.K
    seconds = operations / (GPU_SHARE * rates.gpu)
    answer = 2.0 * size.d * size.scores / (GPU_SHARE * rates.gpu)
    return Way(
        "softmax, GPU", "SoftmaxClassifier(device='cuda')", size.parameters, held, model, model, operations, seconds,
        answer, "gives up the optimum, which is approached and not reached", _unless("kway.compute.gpu"),
    )  # fmt: skip


def gpu_fit(size: Size, rates: Rates) -> Way:
    """A linear fit whose rows are on a GPU: what stays on the host, and the passes there; batches where K is large."""
    gpu = rates.gpu or GPU_TYPICAL
    batches = stochastic(size, rates)
    way = softmax_way(size, rates)
    if way.fit_bytes > 4 * batches.fit_bytes:  # theta and its gradient alone, where L-BFGS would remember too much
        return replace(batches, fit_seconds=4.0 * size.n * size.d * size.scores * SAMPLED_PASSES / (GPU_SHARE * gpu))
    return replace(way, fit_seconds=way.operations / (GPU_FULL * gpu))


def gpu_pays(size: Size, rates: Rates) -> bool:
    """Whether a linear fit is long enough on the CPU for a GPU to be worth its start; sparse rows stay on the CPU."""
    return not size.sparse and softmax_way(size, rates).fit_seconds > GPU_START


def split_softmax(size: Size, rates: Rates) -> Way:
    """Softmax with its classes on the nodes of a cluster: here are the rows, the weights and the model made of them."""
    way = softmax_way(size, rates)
    return replace(way, fit_bytes=size.data_bytes + 3 * size.parameters * size.itemsize)


def on_machines(size: Size, rates: Rates, machines: int, memory: int) -> Way:
    """Exact neighbours, the rows on so many machines like this one; bytes are those of one machine."""
    share = replace(size, n=ceil(size.n / machines), K=min(size.K, ceil(size.n / machines)))
    one = flat_way(share, rates)
    enough = ceil(flat_way(size, rates).fit_bytes / memory)
    gives_up = (
        f"takes {words.count(enough)} machines like this one to hold it all"
        if enough > 1
        else "gives up nothing: one is enough"
    )
    return replace(
        one, name=f"kNN {machines} machine{'s' if machines > 1 else ''}", call="index=Sharded(...) on Ray",
        parameters=size.n * size.d, predict_seconds=one.predict_seconds + ROUND_TRIP, gives_up=gives_up,
        operations=2.0 * size.values, missing=_unless("kway.compute.cluster"),
    )  # fmt: skip


def _unless(module: str) -> str:
    """Why a way is missing; empty where the module that does it is there."""
    return "" if find_spec(module) else "not yet in this version"
