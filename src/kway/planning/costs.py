"""The cost of each approach to a classification problem: parameters, memory and time, one formula per approach.

Notation: n rows, d features, K classes, R scores per row (K, or 1 for two classes), P = R (d + 1) parameters,
s bytes per number, D = d + 1.

    linear fit by passes    4 n d R operations and n R exponentials per pass over the rows; L-BFGS remembers 2 m P
                            numbers (m pairs of vectors); the preconditioner is one matrix of D^2 numbers for all
                            classes, or one per class if these fit in 1 GiB
    sampled softmax         each row is compared with its class and 1,024 sampled classes
    nearest neighbors       the stored rows, as numbers, bytes or bits, and the index
    GPU                     the same operations at the rate of the GPU, in float32 at a 16th of it; the rows are sent
                            once, at the rate of the memory

Seconds are operations / rates.product + bytes / rates.memory (rates.py). Work other than matrix products counts as the
number of operations, or bytes, that take as long. Seconds are within a factor of 10, bytes within about 20%.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from math import ceil, sqrt
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from kway.errors import BudgetError, InputError
from kway.memory import available_bytes, has_room
from kway.planning.rates import Rates
from kway.units import ByteUnit, format_bytes, format_count, format_rough_time

LABEL_BYTES = np.dtype(np.int64).itemsize  # bytes of a label, and of the code that replaces it
GIB, MIB = ByteUnit.GiB, ByteUnit.MiB

# Work other than float32 matrix products, as operations or bytes that take as long (benchmark row "plan").
EXPONENTIAL = SPARSE_PRODUCT = 250  # operations per exponential, and per stored value and score of CSR rows
LABELED_ROW = 15_000  # bytes moved in the time to check a row and encode its label, about a microsecond
INDEXED_VALUE = 400  # bytes moved per value of a row when an index with bounds, or cells, is built
SCANNED_ROW = 33  # bytes moved per row that an exact search with bounds passes over

# The work of a fit (benchmark rows "plan" and T4).
LBFGS_PAIRS = 10  # pairs of vectors that L-BFGS remembers; with 20, no row of T4 and T4b takes fewer iterations
PASSES = 40  # passes of a softmax fit until tol = 1e-3, line searches included: 15 to 80 were measured
PASS_SECONDS = 1e-3  # seconds per pass that do not depend on the size
MAX_FACTOR_BYTES = GIB  # memory of one preconditioner per class; above it, all classes share one
MAX_FACTOR_FEATURES = 4000  # features above which a preconditioner is diagonal
SAMPLED_CLASSES = 1024  # classes that a row of sampled softmax is compared with (row C2)

# A GPU that has not been measured (benchmark rows G1 and G2).
TYPICAL_GPU = 4e14  # operations per second in bfloat16
GPU_START_SECONDS = 5.0  # seconds on the CPU above which it pays to load torch and send the rows


@dataclass(frozen=True)
class Size:
    """Rows (n, d) with `itemsize` bytes per number, K classes, k neighbors.

    `density` is the share of numbers that are not zero; rows with a density below 1 are CSR.
    """

    n: int
    d: int
    K: int
    k: int = 5
    density: float = 1.0
    itemsize: int = 4

    @property
    def sparse(self) -> bool:
        """Return whether the rows are CSR."""
        return self.density < 1

    @property
    def scores(self) -> int:
        """Return R, the number of scores per row: one for two classes."""
        return 1 if self.K == 2 else self.K

    @property
    def parameters(self) -> int:
        """Return the number of weights and biases of a linear classifier."""
        return self.scores * (self.d + 1)

    @property
    def values(self) -> float:
        """Return how many numbers of the rows are not zero."""
        return self.n * self.d * self.density

    @property
    def rows_bytes(self) -> int:
        """Return the bytes of the rows; CSR has a 4-byte column per value and a 4-byte start per row."""
        if self.sparse:
            return int(self.values * (self.itemsize + 4)) + 4 * self.n
        return self.n * self.d * self.itemsize

    @property
    def data_bytes(self) -> int:
        """Return the bytes of rows, labels and codes."""
        return self.rows_bytes + 2 * LABEL_BYTES * self.n


def check_size(
    n_samples: float, n_features: float, n_classes: float, n_neighbors: float, density: float, itemsize: int
) -> Size:
    """Return the Size, or raise InputError if a number makes no sense; 1e9 counts as a whole number."""
    given = {"n_samples": (n_samples, 1), "n_features": (n_features, 1), "n_classes": (n_classes, 2)}
    given["n_neighbors"] = (n_neighbors, 1)
    n, d, K, k = (_check_whole(name, value, least) for name, (value, least) in given.items())
    if n < K:
        raise InputError(
            f"n_classes must be at most n_samples, as each class needs a row, got {K:,} classes, {n:,} rows"
        )
    if not isinstance(density, Real) or not 0 < density <= 1:
        raise InputError(f"density must be a share above 0 and at most 1, got {density!r}")
    return Size(n, d, K, k, float(density), itemsize)


def _check_whole(name: str, value: float, least: int) -> int:
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not least <= value < 1e18 or int(value) != value:
        raise InputError(f"{name} must be a whole number of at least {least} and below 1e18, got {value!r:.40}")
    return int(value)


@dataclass(frozen=True)
class Cost:
    """The cost of one approach for one size; seconds are estimates for typical data on this machine."""

    name: str
    call: str  # the Python call that uses it
    parameters: int  # numbers that are learned or stored
    fit_bytes: int  # memory while fitting, rows included
    model_bytes: int  # memory while predicting
    disk_bytes: int
    operations: float  # multiplications and additions of a fit
    fit_seconds: float
    predict_seconds: float  # per row, if many rows are predicted at once
    quality: str  # exact or approximate, and how
    missing: str = ""  # why it cannot be used; empty if it can
    device_bytes: int = 0  # memory on the GPU while fitting, rows included

    def record(self) -> dict[str, Any]:
        """Return the cost as a dict."""
        return asdict(self)

    def summarize(self) -> str:
        """Return memory, parameters and time as a clause."""
        return (
            f"{format_bytes(self.fit_bytes)} of memory while fitting for {format_count(self.parameters)} parameters "
            f"and about {format_rough_time(self.fit_seconds)}"
        )


Formula = Callable[[Size, Rates], Cost]


# ---- linear models: one row of weights per class


def softmax(size: Size, rates: Rates) -> Cost:
    """Return the cost of softmax over all classes, by preconditioned L-BFGS."""
    fit_bytes = lbfgs_bytes(size, rates.cores)
    return _passes_cost(size, rates, "softmax", "SoftmaxClassifier()", PASSES, fit_bytes, "exact optimum")


def one_vs_all(size: Size, rates: Rates) -> Cost:
    """Return the cost of one binary problem per class, which takes twice the passes: a class is rarer than the rest."""
    call = "LogisticClassifier(), SVMClassifier(multiclass='one-vs-all')"
    fit_bytes, why = (
        lbfgs_bytes(size, rates.cores),
        "exact optimum of each class on its own, so scores of classes are less comparable",
    )
    return _passes_cost(size, rates, "one-vs-all", call, 2 * PASSES, fit_bytes, why)


def stochastic(size: Size, rates: Rates) -> Cost:
    """Return the cost of softmax by SGD, which keeps the weights and a running gradient only."""
    fit_bytes = size.data_bytes + 4 * size.parameters * size.itemsize
    call = "SoftmaxClassifier(solver='sgd', batch_size=256)"
    why = "approximate: the fit comes close to the optimum"
    return _passes_cost(size, rates, "softmax by SGD", call, PASSES, fit_bytes, why)


def sampled_softmax(size: Size, rates: Rates) -> Cost:
    """Return the cost of softmax that compares each row with its class and a sample of the others."""
    weights = size.parameters * size.itemsize
    copies = 2 if weights <= GIB // 4 else 1  # small weights are copied once at the end
    call = "SoftmaxClassifier(solver='sampled')"
    return _sampled_cost(size, rates, "sampled softmax", call, _sampled_bytes(size) + copies * weights)


def mapped_softmax(size: Size, rates: Rates) -> Cost:
    """Return the cost of sampled softmax with its weights in a file."""
    call = "SoftmaxClassifier(solver=Sampled(weights=FOLDER))"
    return _sampled_cost(size, rates, "mapped softmax", call, _sampled_bytes(size))


def centroids(size: Size, rates: Rates) -> Cost:
    """Return the cost of one mean per class."""
    fit_bytes = size.data_bytes + 4 * size.parameters * 8 + 64 * MIB  # means in float64, and blocks of rows
    seconds = (LABELED_ROW * size.n + 4 * size.rows_bytes) / rates.memory
    why = "coarse: every class is described by its mean alone"
    return _linear_cost(size, rates, "centroids", "CentroidClassifier()", fit_bytes, 2.0 * size.values, seconds, why)


def lbfgs_bytes(size: Size, threads: int) -> int:
    """Return the bytes of a fit by L-BFGS, including the rows."""
    P, R = size.parameters, size.scores
    transposed = size.rows_bytes if size.sparse else 0  # CSR rows are also stored by column
    block = max(64, min(2048, MIB // size.d, 2 * MIB // R)) * R
    numbers = (2 * LBFGS_PAIRS + 8 + 3 * threads) * P + threads * block + _sample_rows(size) * size.d * size.density
    fit_bytes = size.data_bytes + transposed + numbers * size.itemsize + LABEL_BYTES * size.n
    return int(fit_bytes + _factor_bytes(size, threads) + 3 * MIB)


def _factor_bytes(size: Size, threads: int) -> float:
    """Return the bytes of the preconditioners and of the curvatures (R, n) that those of the classes come from."""
    R, D, s = size.scores, size.d + 1, size.itemsize
    curvatures = min(R * size.n * s, MAX_FACTOR_BYTES)
    if size.d > MAX_FACTOR_FEATURES:
        return 4.0 * R * D * s + curvatures
    shared, own = (threads + 3) * D * D * s, R * D * D * s
    return shared + own + curvatures if own <= MAX_FACTOR_BYTES else shared


def _sample_rows(size: Size) -> int:
    """Return the number of rows of the sample on which a fit starts; 0 if it starts on all rows."""
    drawn = 8 * size.d + 1000
    return drawn if size.n > 2 * drawn else 0


def pass_operations(size: Size) -> float:
    """Return the operations of one value and gradient over all rows and classes."""
    if size.sparse:
        return 2.0 * SPARSE_PRODUCT * size.values * size.scores + EXPONENTIAL * size.n * size.scores
    return (size.itemsize / 4) * 4.0 * size.values * size.scores + EXPONENTIAL * size.n * size.scores


def pass_seconds(size: Size, rates: Rates) -> float:
    """Return the seconds of one value and gradient, and of the step of L-BFGS that follows."""
    moved = size.rows_bytes + 80.0 * size.parameters * size.itemsize
    return pass_operations(size) / rates.product + moved / rates.memory


def _passes_cost(size: Size, rates: Rates, name: str, call: str, passes: int, fit_bytes: float, quality: str) -> Cost:
    """Return the cost of a linear fit by so many passes and the shared preconditioner."""
    factor = 0.0 if size.d > MAX_FACTOR_FEATURES else min(size.n, 8 * size.d + 1000) * (size.d + 1.0) ** 2
    operations = passes * 4.0 * size.values * size.scores + factor
    seconds = passes * (PASS_SECONDS + pass_seconds(size, rates)) + factor / rates.product
    return _linear_cost(size, rates, name, call, fit_bytes, operations, seconds, quality)


def count_epochs(size: Size) -> float:
    """Return the epochs of sampled softmax: the fewer rows a class has, the more (5 to 52 were measured)."""
    return 12.5 * size.K**0.12 * (size.n / size.K) ** -0.36


def _sampled_bytes(size: Size) -> float:
    return size.data_bytes + LABEL_BYTES * (size.n + size.K) + 18 * MIB


def _sampled_cost(size: Size, rates: Rates, name: str, call: str, fit_bytes: float) -> Cost:
    """Return the cost of steps of 256 rows against SAMPLED_CLASSES classes, and of the loss of 1,000 rows per epoch."""
    seen, steps, epochs = min(size.K, SAMPLED_CLASSES), size.n / 256, count_epochs(size)
    products = 4.0 * size.n * size.d * seen
    moved = 25.0 * seen * (size.d + 1) * size.itemsize  # per step: class rows are gathered, moved and decayed
    checked = min(size.n, 1000) * size.K * (2.0 * size.d + 3 * EXPONENTIAL)
    operations = 2 * products + size.n * seen * EXPONENTIAL + checked  # thin products reach half of the rate
    seconds = epochs * (operations / rates.product + steps * (PASS_SECONDS + moved / rates.memory))
    why = "approximate: the sum over all classes is estimated from a sample"
    return _linear_cost(size, rates, name, call, fit_bytes, epochs * (products + checked), seconds, why)


def _linear_cost(
    size: Size, rates: Rates, name: str, call: str, fit_bytes: float, operations: float, seconds: float, quality: str
) -> Cost:
    """Return the cost of a linear model from the bytes, operations and seconds of its fit."""
    model = size.parameters * size.itemsize + LABEL_BYTES * size.K
    row_seconds = size.scores * (2.0 * size.d * size.density + EXPONENTIAL) / rates.product
    row_seconds += (LABELED_ROW + 40.0 * size.d * size.density) / rates.memory
    return Cost(name, call, size.parameters, int(fit_bytes), model, model, operations, seconds, row_seconds, quality)


# ---- nearest neighbors: the rows themselves


class StoredRows(NamedTuple):
    """Bytes of the stored rows, of the index, and of the additional memory while it is built."""

    rows: float
    lookup: float
    build: float


def flat(size: Size, rates: Rates) -> Cost:
    """Return the cost of exact neighbors."""
    if size.sparse:
        stored, seconds = StoredRows(size.rows_bytes, 0, 0), 0.0
        row_seconds = SPARSE_PRODUCT * size.values / rates.product
    else:
        codes = -(-size.d // 32) * 32  # rows as bytes, padded
        stored = StoredRows(size.rows_bytes, size.n * (46 + codes), size.n * (240 + codes) + 10 * MIB)
        seconds = size.n * ((size.d + 44) * INDEXED_VALUE + LABELED_ROW) / rates.memory
        row_seconds = SCANNED_ROW * (size.n + 33_000 + 120.0 * size.d) / rates.memory  # 33,000: the first cells
    why = "exact neighbors"
    return _rows_cost("kNN flat", "NeighborsClassifier()", size, rates, stored, seconds, row_seconds, why)


def landmarks(size: Size, rates: Rates) -> Cost:
    """Return the cost of neighbors in the nearest cells, tuned on training rows."""
    from kway.search.landmarks import PROBES  # loads kernels

    cells, short, values = 2 * sqrt(size.n), min(size.d, 48), size.n * size.d  # 48: columns of a row's projection
    index = size.n * (short * 4 + 16) + cells * size.d * 4
    row_seconds = 4.0 * cells * short / rates.product
    row_seconds += PROBES * size.rows_bytes / cells / rates.memory
    tuned = min(4000, size.n / 10) * size.rows_bytes  # training rows that are searched in all cells
    seconds = (values * INDEXED_VALUE * 1.5 + tuned) / rates.memory
    stored = StoredRows(size.rows_bytes, index, size.rows_bytes + size.n * 450 + 60 * MIB)
    call, why = (
        "NeighborsClassifier(index='landmarks')",
        "approximate: about 2 votes in 1,000 differ from exact search",
    )
    cost = _rows_cost("kNN landmarks", call, size, rates, stored, seconds, row_seconds, why)
    return _dense_only(cost, size, "landmarks need dense rows")


def int8(size: Size, rates: Rates) -> Cost:
    """Return the cost of rows stored as one byte per number, all scanned."""
    rows = size.n * (size.d + 4)
    seconds = size.n * (LABELED_ROW / 2 + 60 * size.d) / rates.memory
    stored = StoredRows(rows, 0, rows + min(20 * MIB, 2 * size.rows_bytes))
    call = "kway.search.Flat(store=Int8(rerank=False))"
    why = "approximate: distances are those of rows rounded to bytes"
    cost = _rows_cost("kNN bytes", call, size, rates, stored, seconds, size.n * size.d / rates.memory, why)
    return _dense_only(cost, size)


def bits(size: Size, rates: Rates) -> Cost:
    """Return the cost of rows stored as one bit per number after a rotation; the rows come as a stream."""
    wide = _padded_bits(size)
    rows = size.n * (wide // 8 + 2)
    why = "approximate: about 1 answer in 100 differs, more if neighbors are far"
    call, row_seconds = "kway.search.Flat(store=Bits(1))", 4.0 * size.n / rates.memory
    cost = _rows_cost(
        "kNN bits", call, size, rates, StoredRows(rows, 0, 0), _coding_seconds(size, rates), row_seconds, why
    )
    cost = replace(cost, fit_bytes=max(cost.model_bytes, rows + min(36 * MIB, 8 * size.n * size.d)))
    return _dense_only(cost, size)


def bit_cells(size: Size, rates: Rates) -> Cost:
    """Return the cost of bits relative to the landmark of a cell; a query looks into the nearest cells."""
    from kway.search.landmarks import PROBES  # loads kernels

    cells, short, wide = 2 * sqrt(size.n), min(size.d, 48), _padded_bits(size)
    rows, index = size.n * (wide // 8 + 16), cells * (4 * size.d + 4 * wide)
    seconds = _coding_seconds(size, rates) + 4.0 * size.n * cells * short / rates.product
    row_seconds = 4.0 * cells * short / rates.product + (3e6 + PROBES * size.n / cells * 8) / rates.memory
    why = "approximate: only the nearest cells are searched, so rows should form clusters"
    call, stored = "kway.search.Landmarks(store=Bits(1))", StoredRows(rows, index, 0)
    cost = _rows_cost("kNN bit cells", call, size, rates, stored, seconds, row_seconds, why)
    sorting = int(1.5 * cost.model_bytes)
    return _dense_only(replace(cost, fit_bytes=sorting + min(GIB // 4, 8 * size.n * size.d)), size)


def sharded(size: Size, rates: Rates, machines: int, memory: int) -> Cost:
    """Return the cost of exact neighbors with the rows on so many machines; bytes are those of one machine."""
    share = replace(size, n=ceil(size.n / machines), K=min(size.K, ceil(size.n / machines)))
    one, needed = flat(share, rates), ceil(flat(size, rates).fit_bytes / memory)
    why = f"exact neighbors; the rows need {format_count(needed)} machines like this one"
    if needed <= 1:
        why = "exact neighbors, but one machine is enough"
    return replace(
        one, name=f"kNN {machines} machine{'s' if machines > 1 else ''}", call="index=Sharded(...) on Ray",
        parameters=size.n * size.d, predict_seconds=one.predict_seconds + 2e-3, quality=why,
        operations=2.0 * size.values, missing="" if find_spec("ray") else "install kway[cluster]",
    )  # fmt: skip


def _padded_bits(size: Size) -> int:
    return -(-size.d // 64) * 64


def _coding_seconds(size: Size, rates: Rates) -> float:
    """Return the seconds to rotate and code the rows: 1.5 s for 100,000 rows of 512 on two cores."""
    return 140.0 * size.n * _padded_bits(size) / rates.memory


def _dense_only(cost: Cost, size: Size, why: str = "codes need dense rows") -> Cost:
    return replace(cost, missing=why) if size.sparse else cost


def _rows_cost(
    name: str,
    call: str,
    size: Size,
    rates: Rates,
    stored: StoredRows,
    seconds: float,
    row_seconds: float,
    quality: str,
) -> Cost:
    labels = LABEL_BYTES * (size.n + 2 * size.K)
    fit_bytes = size.data_bytes + stored.lookup + stored.build + LABEL_BYTES * 2 * size.K
    model, disk = int(stored.rows + stored.lookup + labels), int(stored.rows + labels)
    return Cost(
        name, call, size.n * size.d, int(fit_bytes), model, disk, 2.0 * size.values, seconds, row_seconds, quality
    )


# ---- the same on a GPU


class Verdict(NamedTuple):
    """Whether a GPU pays for a fit, and why."""

    pays: bool
    why: str


def gpu_softmax(size: Size, rates: Rates) -> Cost:
    """Return the cost of a linear fit on a GPU: passes, or batches over all classes if L-BFGS remembers too much."""
    cost, batches = softmax(size, rates), stochastic(size, rates)
    device_bytes = _gpu_rows_bytes(size) + 4 * size.parameters * size.itemsize + GIB
    if cost.fit_bytes > 4 * batches.fit_bytes:
        cost, why = (
            replace(batches, operations=_gpu_step_operations(size)),
            "approximate: the fit comes close to the optimum",
        )
        seconds = gpu_step_seconds(size, rates)
    else:
        device_bytes += min(MAX_FACTOR_BYTES, 2 * size.scores * (size.d + 1) ** 2 * size.itemsize)
        seconds, why = cost.operations / _gpu_rate(rates) * size.itemsize / 4, "exact optimum"
    return _gpu_cost(cost, "softmax, GPU", "SoftmaxClassifier(device='cuda')", size, rates, device_bytes, seconds, why)


def gpu_sampled(size: Size, rates: Rates) -> Cost:
    """Return the cost of sampled softmax with weights and rows on a GPU."""
    device_bytes = _gpu_rows_bytes(size) + size.parameters * size.itemsize + 16 * size.K + GIB
    epochs = count_epochs(size)
    operations = 6.0 * size.n * size.d * min(size.K, SAMPLED_CLASSES) * epochs
    seconds = epochs * size.n / 256 * PASS_SECONDS + operations / _gpu_rate(rates)
    cost = replace(sampled_softmax(size, rates), operations=operations)
    call = "SoftmaxClassifier(solver='sampled', device='cuda')"
    why = "approximate: the sum over all classes is estimated from a sample"
    return _gpu_cost(cost, "sampled softmax, GPU", call, size, rates, device_bytes, seconds, why)


def gpu_flat(size: Size, rates: Rates) -> Cost:
    """Return the cost of exact neighbors on a GPU: the rows, one byte per number as a filter, a block of queries."""
    cost = flat(size, rates)
    device_bytes = _gpu_rows_bytes(size) + size.n * (size.d + 16) + GIB
    call = "NeighborsClassifier(device='cuda')"
    found = _gpu_cost(cost, "kNN flat, GPU", call, size, rates, device_bytes, 0.0, "exact neighbors")
    row_seconds = 2.0 * size.n * size.d / (1.25 * (rates.gpu or TYPICAL_GPU))  # the int8 filter beats bfloat16 products
    missing = "a GPU searches dense rows" if size.sparse else ""
    return replace(found, predict_seconds=row_seconds, missing=missing)


def gpu_step_seconds(size: Size, rates: Rates) -> float:
    """Return the seconds of 8 epochs of softmax steps over all classes, in bfloat16."""
    return _gpu_step_operations(size) / (rates.gpu or TYPICAL_GPU)


def _gpu_step_operations(size: Size) -> float:
    return 8 * 4.0 * size.n * size.d * size.scores


def judge_gpu(size: Size, rates: Rates, formula: Formula, free: float) -> Verdict:
    """Return whether a linear fit is slow on the CPU, faster on the GPU, and fits into its `free` bytes."""
    cpu_seconds, gpu_cost = softmax(size, rates).fit_seconds, formula(size, rates)
    if size.sparse:
        return Verdict(False, "sparse rows stay on the CPU: they would be dense on a GPU")
    if cpu_seconds <= GPU_START_SECONDS or gpu_cost.fit_seconds >= cpu_seconds:
        return Verdict(False, f"too small to pay for a GPU: about {format_rough_time(cpu_seconds)} on the CPU")
    if gpu_cost.device_bytes > free:
        need = format_bytes(gpu_cost.device_bytes)
        return Verdict(False, f"the fit needs {need} on the GPU, {format_bytes(free)} are free")
    return Verdict(
        True,
        f"about {format_rough_time(gpu_cost.fit_seconds)}, {format_rough_time(cpu_seconds)} on the CPU",
    )


def gpu_pays_for_predictions(size: Size, rates: Rates) -> bool:
    """Return whether predicting n rows takes long enough on the CPU to send rows and weights to a GPU."""
    return size.n * softmax(size, rates).predict_seconds > GPU_START_SECONDS / 10


def _gpu_cost(
    cost: Cost, name: str, call: str, size: Size, rates: Rates, device_bytes: float, seconds: float, quality: str
) -> Cost:
    dense_bytes = size.n * size.d * size.itemsize
    too_large = size.sparse and dense_bytes > 4 * GIB
    return replace(
        cost, name=name, call=call, device_bytes=int(device_bytes), fit_seconds=dense_bytes / rates.memory + seconds,
        predict_seconds=2.0 * size.d * size.scores / _gpu_rate(rates),
        quality=f"{quality}; {format_bytes(device_bytes)} on the GPU",
        missing="a GPU takes dense rows, and these are too large to be made dense" if too_large else "",
    )  # fmt: skip


def _gpu_rows_bytes(size: Size) -> int:
    return size.n * size.d * size.itemsize + 2 * LABEL_BYTES * size.n


def _gpu_rate(rates: Rates) -> float:
    """Return the operations per second of products in float32."""
    return (rates.gpu or TYPICAL_GPU) / 16


COSTS: tuple[Formula, ...] = (
    softmax, one_vs_all, sampled_softmax, centroids, flat, landmarks, int8, bits, bit_cells
)  # fmt: skip
GPU_COSTS: tuple[Formula, ...] = (gpu_softmax, gpu_sampled, gpu_flat)


# ---- checks before a fit, at the default rates, so that the same data get the same solver on every machine

DEFAULT_RATES = Rates()
MAX_FIT_SECONDS = 3600.0  # an approach that takes longer is advised only if none is faster; softmax then samples (C2)


def size_of(X: Any, n_classes: int, n_neighbors: int = 5) -> Size:
    """Return the Size of checked rows (n, d)."""
    n, d = X.shape
    density = min(X.nnz / max(1, n * d), 1 - 1e-9) if sp.issparse(X) else 1.0
    return Size(n, d, max(2, n_classes), n_neighbors, density, X.dtype.itemsize)


def check_fit(name: str, formula: Formula, size: Size) -> Cost:
    """Return the cost at the default rates; raise BudgetError if the fit needs more memory than is available.

    The rows are already in memory and do not count.
    """
    cost = formula(size, DEFAULT_RATES)
    need = cost.fit_bytes - size.rows_bytes
    if has_room(need):
        return cost
    from kway.planning.plan import make_plan  # only for the message

    free = available_bytes()
    advised = make_plan(size, DEFAULT_RATES, free + size.rows_bytes).advised
    advice = "No approach fits."
    if advised is not None:
        advice = f"Use {advised.name}, which fits ({advised.call}: {advised.summarize()})."
    raise BudgetError(
        f"{name} on {size.n:,} rows x {size.d:,} features with {size.K:,} classes ({format_count(cost.parameters)} "
        f"parameters) needs {format_bytes(need)} in addition to the data, but only {format_bytes(free)} is available. "
        f"{advice} kway.plan({size.n}, {size.d}, {size.K}) lists the approaches, and $KWAY_MEMORY sets the limit."
    )


def check_gpu_fit(name: str, formula: Formula, size: Size, free: int, device: str) -> int:
    """Return the bytes of a fit on a GPU; raise BudgetError if fewer are free."""
    cost = formula(size, DEFAULT_RATES)
    if cost.device_bytes <= free:
        return cost.device_bytes
    raise BudgetError(
        f"{name} on {size.n:,} rows x {size.d:,} features with {size.K:,} classes ({format_count(cost.parameters)} "
        f"parameters) needs {format_bytes(cost.device_bytes)} on {device}, which has {format_bytes(free)} free; use "
        f"device='cpu', or fewer rows; kway.plan({size.n}, {size.d}, {size.K}) lists the approaches"
    )


def exceeds_softmax(size: Size) -> bool:
    """Return whether a softmax over all classes would take hours, or more memory than is available."""
    cost = softmax(size, DEFAULT_RATES)
    need = cost.fit_bytes - size.rows_bytes
    return cost.fit_seconds > MAX_FIT_SECONDS or not has_room(need)


def exceeds_gpu_steps(size: Size) -> bool:
    """Return whether SGD over all classes would take hours on a typical GPU."""
    return gpu_step_seconds(size, DEFAULT_RATES) > MAX_FIT_SECONDS
