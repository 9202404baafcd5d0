"""The cost of each approach to a classification problem: parameters, memory and time, one formula per approach.

Notation: n rows, d features, D = d + 1, K classes, R scores per row (K, or 1 for two classes), P = R D parameters, s
bytes per number.

    linear fit by passes    4 n d R operations and n R exponentials per pass over the rows. L-BFGS stores 2 m P numbers
                            (m pairs of vectors). The preconditioner is one matrix of D^2 numbers for all classes, or
                            one per class if these fit in 1 GiB
    sampled softmax         each row is compared with its class and 1,024 sampled classes
    nearest neighbors       the stored rows, as numbers, bytes or bits, and the index
    GPU                     the same operations at the rate of the GPU, which is 16 times lower in float32 than in
                            bfloat16. The rows are sent once, at the rate of the memory

Seconds are operations / rates.product + bytes / rates.memory (rates.py). Work other than matrix products is expressed
as the number of operations, or of bytes, that would take the same time. Seconds are within a factor of 10, bytes within
about 20%. tests/planning compares them with small fits, and the benchmark `plan` (benchmarks/jobs/plan.py) with large
ones, from which the numbers without another explanation come.
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

LABEL_BYTES = np.dtype(np.int64).itemsize  # bytes of a label, and of the class code that replaces it
GIB, MIB = ByteUnit.GiB, ByteUnit.MiB

# Work other than matrix products in float32, decided by the benchmark `plan`.
EXPONENTIAL = 250  # operations that take as long as an exponential
SPARSE_PRODUCT = EXPONENTIAL  # operations that take as long as a stored value of CSR rows times one weight
ROW_OVERHEAD_BYTES = 15_000  # bytes moved in the time to check a row and encode its label, about a microsecond
INDEXED_VALUE_BYTES = 400  # bytes moved per value of a row when an index with bounds, or cells, is built
SCANNED_ROW_BYTES = 33  # bytes moved per row that an exact search with bounds excludes

# The work of a fit, decided by the benchmarks `plan` and T4.
LBFGS_PAIRS = 10  # pairs of vectors that L-BFGS stores; with 20, no row of T4 and T4b takes fewer iterations
PASSES = 40  # passes over the rows of a softmax fit to tol = 1e-3, line searches included; 15 to 80 were measured
CALL_SECONDS = 1e-3  # seconds of a pass, or of a step of sampled softmax, that do not depend on its size
MAX_FACTOR_BYTES = GIB  # memory of the preconditioners per class; if they need more, all classes share one
MAX_FACTOR_FEATURES = 4000  # features above which preconditioners are diagonal: a matrix takes 64 MB in float32
SAMPLED_CLASSES = 1024  # classes that a row of sampled softmax is compared with: batch + hard + negatives of `Sampled`

# A GPU that has not been measured, decided by the GPU benchmarks (G1, G2).
TYPICAL_GPU = 4e14  # operations per second in bfloat16
GPU_START_SECONDS = 5.0  # seconds on the CPU from which on it pays to load torch and send the rows


@dataclass(frozen=True)
class Size:
    """Rows (n, d) with `itemsize` bytes per number, K classes, k neighbors.

    `density` is the share of numbers that are not zero. Rows with a density below 1 are CSR.
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
        """Return P, the number of weights and biases of a linear classifier."""
        return self.scores * (self.d + 1)

    @property
    def values(self) -> float:
        """Return the number of values of the rows that are not zero."""
        return self.n * self.d * self.density

    @property
    def rows_bytes(self) -> int:
        """Return the bytes of the rows; CSR has a 4-byte column per value and a 4-byte start per row."""
        if self.sparse:
            return int(self.values * (self.itemsize + 4)) + 4 * self.n
        return self.n * self.d * self.itemsize

    @property
    def data_bytes(self) -> int:
        """Return the bytes of rows, labels and class codes."""
        return self.rows_bytes + 2 * LABEL_BYTES * self.n


def check_size(
    n_samples: float, n_features: float, n_classes: float, n_neighbors: float, density: float, itemsize: int
) -> Size:
    """Return the Size, or raise InputError if a number is out of its range; 1e9 counts as a whole number."""
    n, d = _check_whole("n_samples", n_samples, 1), _check_whole("n_features", n_features, 1)
    K, k = _check_whole("n_classes", n_classes, 2), _check_whole("n_neighbors", n_neighbors, 1)
    if n < K:
        raise InputError(
            f"n_classes must be at most n_samples, as each class needs a row, got {K:,} classes, {n:,} rows"
        )
    if not isinstance(density, Real) or not 0 < density <= 1:
        raise InputError(f"density must be a share above 0 and at most 1, got {density!r}")
    return Size(n, d, K, k, float(density), itemsize)


def _check_whole(name: str, value: float, minimum: int) -> int:
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not minimum <= value < 1e18 or int(value) != value:
        raise InputError(f"{name} must be a whole number of at least {minimum} and below 1e18, got {value!r:.40}")
    return int(value)


@dataclass(frozen=True)
class Cost:
    """The cost of one approach for one size; seconds are estimates for typical data on this machine."""

    name: str
    call: str  # the Python call that uses it
    quality: str  # exact or approximate, and how
    parameters: int  # numbers that are learned or stored
    fit_bytes: int  # memory while fitting, rows included
    model_bytes: int  # memory while predicting
    disk_bytes: int
    operations: float  # multiplications and additions of a fit
    fit_seconds: float
    predict_seconds: float  # per row, if many rows are predicted at once
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
    return _passes_cost(size, rates, "softmax", "SoftmaxClassifier()", "exact optimum", fit_bytes, PASSES)


def one_vs_all(size: Size, rates: Rates) -> Cost:
    """Return the cost of one binary problem per class, which takes twice the passes because its classes are unequal."""
    call = "LogisticClassifier(), SVMClassifier(multiclass='one-vs-all')"
    quality = "exact optimum of each class on its own, so scores of classes are less comparable"
    return _passes_cost(size, rates, "one-vs-all", call, quality, lbfgs_bytes(size, rates.cores), 2 * PASSES)


def stochastic(size: Size, rates: Rates) -> Cost:
    """Return the cost of softmax by SGD, which stores only the weights and a few vectors of their size."""
    fit_bytes = size.data_bytes + 4 * size.parameters * size.itemsize
    call = "SoftmaxClassifier(solver='sgd', batch_size=256)"
    quality = "approximate: the fit comes close to the optimum"
    return _passes_cost(size, rates, "softmax by SGD", call, quality, fit_bytes, PASSES)


def sampled_softmax(size: Size, rates: Rates) -> Cost:
    """Return the cost of softmax that compares each row with its class and a sample of the others."""
    weights = size.parameters * size.itemsize
    copies = 2 if weights <= GIB // 4 else 1  # small weights are copied once, at the end
    call = "SoftmaxClassifier(solver='sampled')"
    return _sampled_cost(size, rates, "sampled softmax", call, _sampled_bytes(size) + copies * weights)


def mapped_softmax(size: Size, rates: Rates) -> Cost:
    """Return the cost of sampled softmax with its weights in a file."""
    call = "SoftmaxClassifier(solver=Sampled(weights=FOLDER))"
    return _sampled_cost(size, rates, "mapped softmax", call, _sampled_bytes(size))


def centroids(size: Size, rates: Rates) -> Cost:
    """Return the cost of one mean per class."""
    fit_bytes = size.data_bytes + 4 * size.parameters * 8 + 64 * MIB  # means in float64, and blocks of rows
    seconds = (ROW_OVERHEAD_BYTES * size.n + 4 * size.rows_bytes) / rates.memory
    quality = "coarse: every class is described by its mean alone"
    operations = 2.0 * size.values
    return _linear_cost(size, rates, "centroids", "CentroidClassifier()", quality, fit_bytes, operations, seconds)


def lbfgs_bytes(size: Size, threads: int) -> int:
    """Return the bytes of a fit by L-BFGS, including the rows."""
    P, R = size.parameters, size.scores
    transposed = size.rows_bytes if size.sparse else 0  # CSR rows are also stored by column
    block_rows = max(64, min(2048, MIB // size.d, 2 * MIB // R))
    vectors = 2 * LBFGS_PAIRS + 8 + 3 * threads  # of P numbers: the pairs, points and directions, sums per thread
    numbers = vectors * P + threads * block_rows * R + _sample_rows(size) * size.d * size.density
    fit_bytes = size.data_bytes + transposed + numbers * size.itemsize + LABEL_BYTES * size.n
    return int(fit_bytes + _factor_bytes(size, threads) + 3 * MIB)


def _factor_bytes(size: Size, threads: int) -> float:
    """Return the bytes of the preconditioners, and of the curvatures (R, n) from which those per class are computed."""
    R, D, s = size.scores, size.d + 1, size.itemsize
    curvatures = min(R * size.n * s, MAX_FACTOR_BYTES)
    if size.d > MAX_FACTOR_FEATURES:
        return 4.0 * R * D * s + curvatures
    shared, per_class = (threads + 3) * D * D * s, R * D * D * s
    return shared + per_class + curvatures if per_class <= MAX_FACTOR_BYTES else shared


def _max_sample_rows(size: Size) -> int:
    """Return the rows of a sample of a large problem (solvers/base.py: sample_size, for more features than classes)."""
    return 8 * size.d + 1000


def _sample_rows(size: Size) -> int:
    """Return the number of rows of the sample on which a fit starts; 0 if it starts on all rows."""
    return _max_sample_rows(size) if size.n > 2 * _max_sample_rows(size) else 0


def pass_operations(size: Size) -> float:
    """Return the operations of one value and gradient over all rows and classes."""
    if size.sparse:
        return 2.0 * SPARSE_PRODUCT * size.values * size.scores + EXPONENTIAL * size.n * size.scores
    return (size.itemsize / 4) * 4.0 * size.values * size.scores + EXPONENTIAL * size.n * size.scores


def pass_seconds(size: Size, rates: Rates) -> float:
    """Return the seconds of one value and gradient, and of the step of L-BFGS that follows."""
    vectors = 80.0  # of P numbers that a step reads or writes: each of the 2 m vectors twice, and their sums
    moved = size.rows_bytes + vectors * size.parameters * size.itemsize
    return pass_operations(size) / rates.product + moved / rates.memory


def _passes_cost(size: Size, rates: Rates, name: str, call: str, quality: str, fit_bytes: float, passes: int) -> Cost:
    """Return the cost of a linear fit by `passes` passes, with the preconditioner that all classes share."""
    factor = 0.0
    if size.d <= MAX_FACTOR_FEATURES:
        factor = min(size.n, _max_sample_rows(size)) * (size.d + 1.0) ** 2
    operations = passes * 4.0 * size.values * size.scores + factor
    seconds = passes * (CALL_SECONDS + pass_seconds(size, rates)) + factor / rates.product
    return _linear_cost(size, rates, name, call, quality, fit_bytes, operations, seconds)


def count_epochs(size: Size) -> float:
    """Return the epochs of sampled softmax, a fit to 5 to 52 measured epochs: fewer rows per class take more."""
    return 12.5 * size.K**0.12 * (size.n / size.K) ** -0.36


def _sampled_bytes(size: Size) -> float:
    """Return the bytes of a fit without its weights: the data, codes, a state per class, and 18 MiB of batches."""
    return size.data_bytes + LABEL_BYTES * (size.n + size.K) + 18 * MIB


def _sampled_cost(size: Size, rates: Rates, name: str, call: str, fit_bytes: float) -> Cost:
    """Return the cost of epochs of steps, each of 256 rows, and of the exact loss of 1,000 rows after each epoch."""
    n_classes = min(size.K, SAMPLED_CLASSES)
    n_steps, epochs = size.n / 256, count_epochs(size)
    products = 4.0 * size.n * size.d * n_classes
    moved = (
        25.0 * n_classes * (size.d + 1) * size.itemsize
    )  # bytes per step: class rows are gathered, moved and decayed
    exact_loss = min(size.n, 1000) * size.K * (2.0 * size.d + 3 * EXPONENTIAL)
    operations = 2 * products + size.n * n_classes * EXPONENTIAL + exact_loss  # thin products reach half of the rate
    seconds = epochs * (operations / rates.product + n_steps * (CALL_SECONDS + moved / rates.memory))
    quality = "approximate: the sum over all classes is estimated from a sample"
    return _linear_cost(size, rates, name, call, quality, fit_bytes, epochs * (products + exact_loss), seconds)


def _linear_cost(
    size: Size, rates: Rates, name: str, call: str, quality: str, fit_bytes: float, operations: float, seconds: float
) -> Cost:
    """Return the cost of a linear model from the bytes, operations and seconds of its fit."""
    model_bytes = size.parameters * size.itemsize + LABEL_BYTES * size.K
    row_seconds = size.scores * (2.0 * size.d * size.density + EXPONENTIAL) / rates.product
    row_seconds += (ROW_OVERHEAD_BYTES + 40.0 * size.d * size.density) / rates.memory
    return Cost(
        name, call, quality, parameters=size.parameters, fit_bytes=int(fit_bytes), model_bytes=model_bytes,
        disk_bytes=model_bytes, operations=operations, fit_seconds=seconds, predict_seconds=row_seconds,
    )  # fmt: skip


# ---- nearest neighbors: the rows themselves


class StoredRows(NamedTuple):
    """Bytes of the stored rows, of the index (`lookup`), and of the additional memory while the index is built."""

    rows: float
    lookup: float = 0.0
    build: float = 0.0


def flat(size: Size, rates: Rates) -> Cost:
    """Return the cost of exact neighbors."""
    if size.sparse:
        stored, seconds = StoredRows(size.rows_bytes), 0.0
        row_seconds = SPARSE_PRODUCT * size.values / rates.product
    else:
        codes = _round_up(size.d, 32)  # bytes per row
        # 46 bytes per row of projections, norms and bounds; 240 of temporary arrays while they are computed
        stored = StoredRows(size.rows_bytes, size.n * (46 + codes), size.n * (240 + codes) + 10 * MIB)
        seconds = size.n * ((size.d + 44) * INDEXED_VALUE_BYTES + ROW_OVERHEAD_BYTES) / rates.memory
        exact_rows = 33_000 + 120.0 * size.d  # the rows of the first cells, and those that bounds do not exclude
        row_seconds = SCANNED_ROW_BYTES * (size.n + exact_rows) / rates.memory
    return _rows_cost(size, "kNN flat", "NeighborsClassifier()", "exact neighbors", stored, seconds, row_seconds)


def landmarks(size: Size, rates: Rates) -> Cost:
    """Return the cost of neighbors in the nearest cells, tuned on training rows."""
    n_cells, width = _cells(size)
    index = size.n * (width * 4 + 16) + n_cells * size.d * 4
    row_seconds = 4.0 * n_cells * width / rates.product + _probed_share(size) * size.rows_bytes / rates.memory
    tuning = min(4000, size.n / 10) * size.rows_bytes  # bytes: these training rows are searched in all cells
    seconds = (1.5 * size.n * size.d * INDEXED_VALUE_BYTES + tuning) / rates.memory
    stored = StoredRows(size.rows_bytes, index, size.rows_bytes + size.n * 450 + 60 * MIB)
    call = "NeighborsClassifier(index='landmarks')"
    quality = "approximate: about 2 votes in 1,000 differ from exact search"
    cost = _rows_cost(size, "kNN landmarks", call, quality, stored, seconds, row_seconds)
    return _dense_only(cost, size, "landmarks need dense rows")


def int8(size: Size, rates: Rates) -> Cost:
    """Return the cost of rows stored as one byte per number, all scanned."""
    rows = size.n * (size.d + 4)
    seconds = size.n * (ROW_OVERHEAD_BYTES / 2 + 60 * size.d) / rates.memory
    stored = StoredRows(rows, build=rows + min(20 * MIB, 2 * size.rows_bytes))
    call = "kway.search.Flat(store=Int8(rerank=False))"
    quality = "approximate: distances are those of rows rounded to bytes"
    row_seconds = size.n * size.d / rates.memory
    return _dense_only(_rows_cost(size, "kNN bytes", call, quality, stored, seconds, row_seconds), size)


def bits(size: Size, rates: Rates) -> Cost:
    """Return the cost of rows stored as one bit per number after a rotation; the rows come as a stream."""
    rows = size.n * (_round_up(size.d, 64) // 8 + 2)
    quality = "approximate: about 1 answer in 100 differs, more if neighbors are far"
    call, row_seconds = "kway.search.Flat(store=Bits(1))", 4.0 * size.n / rates.memory
    cost = _rows_cost(size, "kNN bits", call, quality, StoredRows(rows), _coding_seconds(size, rates), row_seconds)
    cost = replace(cost, fit_bytes=max(cost.model_bytes, rows + min(36 * MIB, 8 * size.n * size.d)))
    return _dense_only(cost, size)


def bit_cells(size: Size, rates: Rates) -> Cost:
    """Return the cost of bits relative to the landmark of a cell; a query searches the nearest cells."""
    n_cells, width = _cells(size)
    n_bits = _round_up(size.d, 64)
    stored = StoredRows(size.n * (n_bits // 8 + 16), n_cells * (4 * size.d + 4 * n_bits))
    seconds = _coding_seconds(size, rates) + 4.0 * size.n * n_cells * width / rates.product
    # 3 MB: the query is rotated once per probed cell; 8 bytes per row of these cells
    row_seconds = 4.0 * n_cells * width / rates.product + (3e6 + 8 * size.n * _probed_share(size)) / rates.memory
    quality = "approximate: only the nearest cells are searched, so rows should form clusters"
    call = "kway.search.Landmarks(store=Bits(1))"
    cost = _rows_cost(size, "kNN bit cells", call, quality, stored, seconds, row_seconds)
    sorting = int(1.5 * cost.model_bytes)
    return _dense_only(replace(cost, fit_bytes=sorting + min(GIB // 4, 8 * size.n * size.d)), size)


def sharded(size: Size, rates: Rates, machines: int, memory: int) -> Cost:
    """Return the cost of exact neighbors with the rows on several machines; bytes are those of one machine."""
    n = ceil(size.n / machines)
    one = flat(replace(size, n=n, K=min(size.K, n)), rates)
    needed = ceil(flat(size, rates).fit_bytes / memory)
    quality = f"exact neighbors; the rows need {format_count(needed)} machines like this one"
    if needed <= 1:
        quality = "exact neighbors, but one machine is enough"
    return replace(
        one, name=f"kNN {machines} machine{'s' if machines > 1 else ''}", call="index=Sharded(...) on Ray",
        parameters=size.n * size.d, predict_seconds=one.predict_seconds + 2e-3, quality=quality,
        operations=2.0 * size.values, missing="" if find_spec("ray") else "pip install 'ray[client]'",
    )  # fmt: skip


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _cells(size: Size) -> tuple[float, int]:
    """Return the number of cells of an IVF index, and the columns of the projection by which they are ranked."""
    return 2 * sqrt(size.n), min(size.d, 48)


def _probed_share(size: Size) -> float:
    """Return the share of the rows that are in the cells that a query searches."""
    from kway.search.landmarks import PROBES  # loads kernels

    return PROBES / _cells(size)[0]


def _coding_seconds(size: Size, rates: Rates) -> float:
    """Return the seconds to rotate and code the rows: 1.5 s for 100,000 rows of 512 on two cores."""
    return 140.0 * size.n * _round_up(size.d, 64) / rates.memory


def _dense_only(cost: Cost, size: Size, reason: str = "codes need dense rows") -> Cost:
    return replace(cost, missing=reason) if size.sparse else cost


def _rows_cost(
    size: Size, name: str, call: str, quality: str, stored: StoredRows, seconds: float, row_seconds: float
) -> Cost:
    """Return the cost of stored rows from the bytes and seconds of their index."""
    labels = LABEL_BYTES * (size.n + 2 * size.K)
    fit_bytes = size.data_bytes + stored.lookup + stored.build + LABEL_BYTES * 2 * size.K
    return Cost(
        name, call, quality, parameters=size.n * size.d, fit_bytes=int(fit_bytes),
        model_bytes=int(stored.rows + stored.lookup + labels), disk_bytes=int(stored.rows + labels),
        operations=2.0 * size.values, fit_seconds=seconds, predict_seconds=row_seconds,
    )  # fmt: skip


# ---- the same on a GPU


class Verdict(NamedTuple):
    """Whether a GPU pays for a fit, and why."""

    pays: bool
    why: str


def gpu_softmax(size: Size, rates: Rates) -> Cost:
    """Return the cost of a linear fit on a GPU: L-BFGS, or SGD over all classes if L-BFGS needs too much memory."""
    cost, sgd_cost = softmax(size, rates), stochastic(size, rates)
    device_bytes = _gpu_rows_bytes(size) + 4 * size.parameters * size.itemsize + GIB
    if cost.fit_bytes > 4 * sgd_cost.fit_bytes:
        cost = replace(sgd_cost, operations=_gpu_step_operations(size))
        seconds = gpu_step_seconds(size, rates)
    else:
        device_bytes += min(MAX_FACTOR_BYTES, 2 * size.scores * (size.d + 1) ** 2 * size.itemsize)
        seconds = cost.operations / _gpu_rate(rates) * size.itemsize / 4
    call = "SoftmaxClassifier(device='cuda')"
    return _gpu_cost(cost, "softmax, GPU", call, size, rates, device_bytes, seconds)


def gpu_sampled(size: Size, rates: Rates) -> Cost:
    """Return the cost of sampled softmax with weights and rows on a GPU."""
    device_bytes = _gpu_rows_bytes(size) + size.parameters * size.itemsize + 16 * size.K + GIB
    epochs = count_epochs(size)
    operations = 6.0 * size.n * size.d * min(size.K, SAMPLED_CLASSES) * epochs
    seconds = epochs * size.n / 256 * CALL_SECONDS + operations / _gpu_rate(rates)
    cost = replace(sampled_softmax(size, rates), operations=operations)
    call = "SoftmaxClassifier(solver='sampled', device='cuda')"
    return _gpu_cost(cost, "sampled softmax, GPU", call, size, rates, device_bytes, seconds)


def gpu_flat(size: Size, rates: Rates) -> Cost:
    """Return the cost of exact neighbors on a GPU: the rows, one byte per number as a filter, a block of queries."""
    device_bytes = _gpu_rows_bytes(size) + size.n * (size.d + 16) + GIB
    call = "NeighborsClassifier(device='cuda')"
    cost = _gpu_cost(flat(size, rates), "kNN flat, GPU", call, size, rates, device_bytes, 0.0)
    rate = 1.25 * (rates.gpu or TYPICAL_GPU)  # products of the int8 filter are faster than those in bfloat16
    missing = "a GPU searches dense rows" if size.sparse else ""
    return replace(cost, predict_seconds=2.0 * size.n * size.d / rate, missing=missing)


def gpu_step_seconds(size: Size, rates: Rates) -> float:
    """Return the seconds of SGD steps over all classes, in bfloat16."""
    return _gpu_step_operations(size) / (rates.gpu or TYPICAL_GPU)


def _gpu_step_operations(size: Size) -> float:
    """Return the operations of 8 epochs, which most fits by SGD on a GPU take (row G2)."""
    return 8 * 4.0 * size.n * size.d * size.scores


def judge_gpu(size: Size, rates: Rates, formula: Formula, free: float) -> Verdict:
    """Return whether a linear fit is slow on the CPU, faster on the GPU, and fits into its `free` bytes."""
    if size.sparse:
        return Verdict(False, "sparse rows stay on the CPU: they would be dense on a GPU")
    cpu_seconds, gpu_cost = softmax(size, rates).fit_seconds, formula(size, rates)
    if cpu_seconds <= GPU_START_SECONDS or gpu_cost.fit_seconds >= cpu_seconds:
        return Verdict(False, f"too small to pay for a GPU: about {format_rough_time(cpu_seconds)} on the CPU")
    if gpu_cost.device_bytes > free:
        needed = format_bytes(gpu_cost.device_bytes)
        return Verdict(False, f"the fit needs {needed} on the GPU, {format_bytes(free)} are free")
    gpu_time = format_rough_time(gpu_cost.fit_seconds)
    return Verdict(True, f"about {gpu_time}, {format_rough_time(cpu_seconds)} on the CPU")


def gpu_pays_for_predictions(size: Size, rates: Rates) -> bool:
    """Return whether predicting n rows takes long enough on the CPU to send rows and weights to a GPU."""
    return size.n * softmax(size, rates).predict_seconds > GPU_START_SECONDS / 10


def _gpu_cost(cost: Cost, name: str, call: str, size: Size, rates: Rates, device_bytes: float, seconds: float) -> Cost:
    """Return the cost on a GPU from that on the CPU; `seconds` do not include the transfer of the rows."""
    dense_bytes = size.n * size.d * size.itemsize
    too_large = size.sparse and dense_bytes > 4 * GIB
    return replace(
        cost, name=name, call=call, device_bytes=int(device_bytes), fit_seconds=dense_bytes / rates.memory + seconds,
        predict_seconds=2.0 * size.d * size.scores / _gpu_rate(rates),
        quality=f"{cost.quality}; {format_bytes(device_bytes)} on the GPU",
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


# ---- checks before a fit. Their seconds are those of the default rates, so that they are the same on every machine.
# Only the available memory can make the solver depend on the machine.

DEFAULT_RATES = Rates()
# Seconds of a fit above which another approach is advised if one is faster. "auto" then uses sampled softmax.
MAX_FIT_SECONDS = 3600.0


def size_of(X: Any, n_classes: int, n_neighbors: int = 5) -> Size:
    """Return the Size of checked rows (n, d)."""
    n, d = X.shape
    density = min(X.nnz / max(1, n * d), 1 - 1e-9) if sp.issparse(X) else 1.0  # below 1 also for CSR without zeros
    return Size(n, d, max(2, n_classes), n_neighbors, density, X.dtype.itemsize)


def check_fit(name: str, formula: Formula, size: Size) -> Cost:
    """Return the cost at the default rates; raise BudgetError if the fit needs more memory than is available.

    The rows are already in memory and do not count.
    """
    cost = formula(size, DEFAULT_RATES)
    needed = cost.fit_bytes - size.rows_bytes
    if has_room(needed):
        return cost
    from kway.planning.plan import make_plan  # only for the message

    free = available_bytes()
    advised = make_plan(size, DEFAULT_RATES, free + size.rows_bytes).advised
    advice = "No approach fits."
    if advised is not None:
        advice = f"Use {advised.name}, which fits ({advised.call}: {advised.summarize()})."
    raise BudgetError(
        f"{name} on {size.n:,} rows x {size.d:,} features with {size.K:,} classes ({format_count(cost.parameters)} "
        f"parameters) needs {format_bytes(needed)} besides the data, but only {format_bytes(free)} is available. "
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
    """Return whether a softmax over all classes would take hours, or more memory than this machine has available."""
    cost = softmax(size, DEFAULT_RATES)
    return cost.fit_seconds > MAX_FIT_SECONDS or not has_room(cost.fit_bytes - size.rows_bytes)


def exceeds_gpu_steps(size: Size) -> bool:
    """Return whether SGD over all classes would take hours on a typical GPU."""
    return gpu_step_seconds(size, DEFAULT_RATES) > MAX_FIT_SECONDS
