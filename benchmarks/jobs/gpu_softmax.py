"""G2: one softmax step over a million classes on a GPU with weights updated in place, and the products that it needs.

    B = 8192 rows, d = 1024 features, K = 1,000,000 classes; weights in bfloat16 (2 GB) or float32 (4 GB)

Floors are the library's own products on the same arrays: scores and dW (two), scores twice and dW (three). Contestants
take turns, because the GPU slows down when it is hot; times are those of CUDA events. Loss and gradient are first
compared with float64 on a small case. Then a whole fit by L-BFGS is timed on the GPU and on the CPU. All data is
synthetic.
"""

from __future__ import annotations

import subprocess
import time
import warnings
from collections.abc import Callable
from importlib import metadata
from importlib.util import find_spec
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from ..models import NotInstalled
from ..race import Row
from .gpu_linear import sentences
from .gpu_peers import STEP_PEERS, Absent, Loss, errors_told, exact_steps, largest_step, peer_errors, peer_steps

BATCH, CLASSES, FEATURES = 8192, 1_000_000, 1024
QUICK = (1024, 20_000, 256)
PRODUCT = 65536  # classes a product of a floor
KEPT, FREE, ROOM = 1.2, 1.15, 20.0  # times two products within so many GB; times three, within 1 GB above the weights
MANY = (1_000_000, 256, 200_000)  # rows, features, classes of the fit by steps
EPOCHS, CLASS_SPREAD = 6, 1.0
FIT = (400_000, 512, 100)  # rows, features, classes of the whole fit


class Measured(NamedTuple):
    """Milliseconds per round, and the peak of GPU memory in GB."""

    rounds: list[float]
    peak: float


def g2(rounds: int, quick: bool) -> list[Row]:
    """Time both kinds of step against their floors, other update rules and weights, plain torch, and a whole fit."""
    if find_spec("torch") is None:
        raise NotInstalled("torch")
    import torch

    if not torch.cuda.is_available():
        raise NotInstalled("a GPU that torch sees")
    sizes = QUICK if quick else (BATCH, CLASSES, FEATURES)
    here, absent = peer_steps()
    measured = _steps(sizes, max(rounds, 3), here, absent)
    rows = _rows(measured, sizes, _errors({name: loss for name, loss in here.items() if name in measured}))
    return [*rows, *_absent(sizes, absent), *_whole_fit(quick), *_many_classes(quick), *_beside(quick)]


# ---------------------------------------------------------------- a step


def _steps(
    sizes: tuple[int, int, int], rounds: int, peers: dict[str, Loss], absent: dict[str, Absent]
) -> dict[str, Measured]:
    """Time all contestants; a peer that fails is listed as absent."""
    import torch

    B, K, d = sizes
    g = torch.Generator("cuda").manual_seed(0)
    X = torch.randn((B, d), generator=g, device="cuda").to(torch.bfloat16)
    codes = torch.randint(0, K, (B,), generator=g, device="cuda")
    found: dict[str, Measured] = {}
    half, full = torch.bfloat16, torch.float32
    groups = {_kept_group: half, _free_group: half, _kept_float: full, _free_float: full}
    groups |= {_peer_group(name, loss, absent): half for name, loss in peers.items()}
    for group, kind in groups.items():
        W = torch.empty((K, d), device="cuda", dtype=kind)
        for c in range(0, K, PRODUCT):
            W[c : c + PRODUCT] = torch.randn((min(PRODUCT, K - c), d), generator=g, device="cuda") * 0.02
        contestants = group(X, codes, W)
        found |= _race(contestants, rounds)
        del contestants, W
        torch.cuda.empty_cache()
    return found


def _peer_group(name: str, loss: Loss, absent: dict[str, Absent]) -> Callable[[Any, Any, Any], dict[str, Any]]:
    """Try a peer once; if it fails, its error is recorded. If fewer classes fit, kway is timed with as many."""
    from kway.rows.gpu.softmax_step import Batch, SoftmaxStep

    def group(X: Any, codes: Any, W: Any) -> dict[str, Callable[[], Any]]:
        try:
            run, weights = largest_step(loss, X, W, codes)
        except Exception as error:  # another library may raise anything
            absent[name] = Absent(name, f"failed here: {type(error).__name__}: {str(error).splitlines()[0][:100]}")
            return {}
        if len(weights) == len(W):
            return {name: run}
        step, batch = SoftmaxStep(weights.clone(), keep=True), Batch(X, codes % len(weights))
        return {name: run, f"{name}: {len(weights)}": lambda: step(batch, 1e-3)}

    return group


def _kept_group(X: Any, codes: Any, W: Any) -> dict[str, Callable[[], Any]]:
    """Time two products, and the steps that store their exponentials in a shared buffer."""
    import torch

    from kway.rows.gpu.softmax_step import Batch, RowAdagrad, SoftmaxStep

    step = SoftmaxStep(W, keep=True)
    E = step._exp_buffer(len(X))[:, : len(W)]
    adagrad = SoftmaxStep(W, keep=True, rule=RowAdagrad(torch.ones(len(W), device=W.device)), _buffers=step._buffers)
    batch = Batch(X, codes)

    def scores() -> None:
        for c in range(0, len(W), PRODUCT):
            torch.mm(X, W[c : c + PRODUCT].T, out=E[:, c : c + PRODUCT])

    def gradient() -> None:
        for c in range(0, len(W), PRODUCT):
            W[c : c + PRODUCT].addmm_(E[:, c : c + PRODUCT].T, X, alpha=-1e-9)

    return {
        "scores": scores,
        "kept": lambda: step(batch, 1e-3),
        "gradient": gradient,
        "kept, row Adagrad": lambda: adagrad(batch, 1e-3),
    }


def _free_group(X: Any, codes: Any, W: Any) -> dict[str, Callable[[], Any]]:
    import torch

    from kway.rows.gpu.softmax_step import Batch, RowAdagrad, SoftmaxStep

    step, batch = SoftmaxStep(W, keep=False), Batch(X, codes)
    adagrad = SoftmaxStep(W, keep=False, rule=RowAdagrad(torch.ones(len(W), device=W.device)), _buffers=step._buffers)
    return {"free": lambda: step(batch, 1e-3), "free, row Adagrad": lambda: adagrad(batch, 1e-3)}


def _kept_float(X: Any, codes: Any, W: Any) -> dict[str, Callable[[], Any]]:
    from kway.rows.gpu.softmax_step import Batch, SoftmaxStep

    step, batch = SoftmaxStep(W, keep=True), Batch(X, codes)
    return {"kept, float32 weights": lambda: step(batch, 1e-3)}


def _free_float(X: Any, codes: Any, W: Any) -> dict[str, Callable[[], Any]]:
    from kway.rows.gpu.softmax_step import Batch, SoftmaxStep

    step, batch = SoftmaxStep(W, keep=False), Batch(X, codes)
    return {"free, float32 weights": lambda: step(batch, 1e-3)}


def _race(contestants: dict[str, Callable[[], Any]], rounds: int) -> dict[str, Measured]:
    """Run each contestant once per round, in turn, after one run that is not counted."""
    import torch

    times: dict[str, list[float]] = {name: [] for name in contestants}
    peaks: dict[str, float] = {}
    for number in range(rounds + 1):
        for name, run in contestants.items():
            torch.cuda.reset_peak_memory_stats()
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            run()
            end.record()
            torch.cuda.synchronize()
            peaks[name] = torch.cuda.max_memory_allocated() / 1e9
            if number:
                times[name].append(begin.elapsed_time(end))
    return {name: Measured(times[name], peaks[name]) for name in contestants}


def _errors(peers: dict[str, Loss]) -> dict[str, str]:
    """Return the relative errors of loss and gradient against float64, the worst of two spreads of scores."""
    import torch

    from kway.rows.gpu.softmax_step import Batch, SoftmaxStep

    exact, found = exact_steps(), {}
    for name, keep, kind in (
        ("kept", True, torch.bfloat16),
        ("free", False, torch.bfloat16),
        ("kept, float32 weights", True, torch.float32),
        ("free, float32 weights", False, torch.float32),
    ):
        errors = []
        for one in exact:
            step, rate = SoftmaxStep(one.W.clone().to(kind), keep), 1e3 * one.spread
            off = abs(float(step(Batch(one.X, one.codes), rate)) - one.loss) / one.loss
            moved = (one.W.double() - step.W.double()) / rate
            errors.append((off, float((moved - one.gradient).norm() / one.gradient.norm())))
        found[name] = errors_told(errors)
    return found | {name: peer_errors(loss, exact) for name, loss in peers.items()}


# ---------------------------------------------------------------- as rows


def _rows(measured: dict[str, Measured], sizes: tuple[int, int, int], errors: dict[str, str]) -> list[Row]:
    B, K, d = sizes
    scores, gradient = (np.array(measured[name].rounds) for name in ("scores", "gradient"))
    floors = {"two products": (scores + gradient).tolist(), "three products": (2 * scores + gradient).tolist()}
    data, facts = f"{B:,} x {K:,} classes x {d:,}", _gpu_facts()
    rows = []
    for name, most in (("kept", KEPT), ("free", FREE), ("kept, float32 weights", None), ("free, float32 weights", None),
                       ("kept, row Adagrad", None), ("free, row Adagrad", None)):  # fmt: skip
        ours, floor = measured[name], "two products" if name.startswith("kept") else "three products"
        weights = K * d * (4e-9 if "float32" in name else 2e-9)
        memory = f"{ours.peak:.1f} GB, {ours.peak - weights:.2f} above the weights"
        quality = f"{errors.get(name, errors[name.split(',')[0]])}; {memory}"
        rows.append(_row(f"softmax step, {name}", data, floor, ours.rounds, floors[floor], quality, most, facts))
    for peer in STEP_PEERS:
        if peer in measured:
            data = f"{B:,} x {K:,} classes x {d:,}"
            ours, theirs = measured["kept"], measured[peer]
            for fewer in (name for name in measured if name.startswith(f"{peer}: ")):  # all classes did not fit
                ours, data = measured[fewer], f"{B:,} x {int(fewer.split(': ')[1]):,} classes x {d:,}"
            quality = f"peer: {errors[peer]}; kway {ours.peak:.1f} GB, {peer} {theirs.peak:.1f} GB"
            rows.append(_row("softmax step, kept", data, peer, ours.rounds, theirs.rounds, quality, None, facts))
    return rows


def _row(
    job: str, data: str, peer: str, ours: list[float], theirs: list[float], quality: str, most: float | None, facts: Any
) -> Row:  # fmt: skip
    seconds = {"kway": [t / 1e3 for t in ours], peer: [t / 1e3 for t in theirs]}
    least = None if most is None else round(1 / most, 3)
    return Row(
        "gpu_softmax", job, data, peer, median(seconds["kway"]), median(seconds[peer]), least, quality,
        rounds=seconds, points=facts,
    )  # fmt: skip


def _absent(sizes: tuple[int, int, int], absent: dict[str, Absent]) -> list[Row]:
    """Return the peers that were not measured, and why."""
    data, nan = f"{sizes[0]:,} x {sizes[1]:,} classes x {sizes[2]:,}", float("nan")
    return [
        Row("gpu_softmax", "softmax step, kept", data, name, nan, nan, None, gone.why, missing=gone.package)
        for name, gone in absent.items()
    ]


def _gpu_facts() -> dict[str, Any]:
    """Return the GPU, its driver and the versions of the libraries."""
    import torch

    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    versions = {name: metadata.version(name) for name in ("torch", "triton")}
    facts = {"gpu": torch.cuda.get_device_name(), "driver": driver, "cuda": torch.version.cuda, **versions}
    return {"machine": facts}


def _beside(quick: bool) -> list[Row]:
    """Time sampled steps and predictions over as many classes."""
    sizes = QUICK if quick else (BATCH, CLASSES, FEATURES)
    data, facts, nan = f"{sizes[1]:,} classes x {sizes[2]:,}", _gpu_facts(), float("nan")
    found = sentences(16 * sizes[0], sizes)
    return [
        Row("gpu_softmax", job, data, "-", seconds, nan, None, quality, points=facts)
        for job, (seconds, quality) in found.items()
    ]


# ---------------------------------------------------------------- a whole fit


def _whole_fit(quick: bool) -> list[Row]:
    """Time SoftmaxClassifier by L-BFGS on the GPU, from arrays and from GPU tensors, and on the CPU."""
    import torch

    import kway

    n, d, K = (20_000, 64, 20) if quick else FIT
    rng = np.random.default_rng(0)
    y = rng.integers(0, K, n)
    X = rng.standard_normal((K, d), dtype=np.float32)[y] * np.float32(0.25) + rng.standard_normal(
        (n, d), dtype=np.float32
    )
    sent = tuple(torch.from_numpy(array).cuda() for array in (X, y))
    ways = {"whole fit": ("cuda", X, y), "whole fit of tensors": ("cuda", *sent), "kway on the CPU": ("cpu", X, y)}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    values = {}
    for number in range(3):
        for name, (device, *given) in ways.items():
            start = time.perf_counter()
            values[name] = kway.SoftmaxClassifier(device=device, solver="lbfgs").fit(*given).objective_
            if number:  # the first loads torch and compiles kernels
                seconds[name].append(time.perf_counter() - start)
    here = ways.popitem()[0]
    return [
        Row(
            "gpu_softmax", f"softmax, L-BFGS to tol, {name}", f"{n:,} x {d} x {K} classes", here,
            median(seconds[name]), median(seconds[here]), None,
            f"objectives {values[name]:.6f} and {values[here]:.6f}", values[name] <= values[here] * 1.001,
            rounds={"kway": seconds[name], here: seconds[here]}, points=_gpu_facts(),
        )
        for name in ways
    ]  # fmt: skip


def _many_classes(quick: bool) -> list[Row]:
    """Time SoftmaxClassifier by steps over all classes, and test it on new rows of the same classes."""
    import kway
    from kway.linear.solvers.sgd import SGD

    n, d, K = (40_000, 64, 20_000) if quick else MANY
    rng = np.random.default_rng(1)
    centers = rng.standard_normal((K, d), dtype=np.float32)
    y = np.arange(n) % K
    X = centers[y] + np.float32(CLASS_SPREAD) * rng.standard_normal((n, d), dtype=np.float32)
    model = kway.SoftmaxClassifier(
        solver=SGD(adagrad=True), device="cuda", alpha=1e-9, batch_size=8192, max_iter=EPOCHS, tol=1e-4, random_state=0
    )
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is stopped after so many epochs
        model.fit(X, y)
    seconds = time.perf_counter() - start
    asked = rng.integers(0, K, 2000)
    fresh = centers[asked] + np.float32(CLASS_SPREAD) * rng.standard_normal((2000, d), dtype=np.float32)
    right = float((model.predict(fresh) == asked).mean())
    nearest = float(
        (kway.NeighborsClassifier(1, metric="euclidean").fit(centers, np.arange(K)).predict(fresh) == asked).mean()
    )
    quality = (
        f"{right:.1%} of 2,000 new rows correct, nearest true center {nearest:.1%}; {EPOCHS} epochs, "
        f"{n * EPOCHS / seconds:,.0f} rows/s, loss {model.history_[0]:.3f} to {model.history_[-1]:.3f}"
    )
    return [
        Row(
            "gpu_softmax", "softmax over all classes by steps, row Adagrad, whole fit", f"{n:,} x {d} x {K:,} classes",
            "-", seconds, float("nan"), None, quality, points=_gpu_facts(),
        )
    ]  # fmt: skip
