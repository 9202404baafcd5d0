"""The plan compared with measurements: time within a factor of 2, peak memory within 20%, for 33 sizes.

Each size runs in its own process: a small fit loads the kernels, rows are made, then the fit is timed and its peak
measured (rows included). The rates of the machine are measured again before each approach, because they change on a
busy machine.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..child import spawn
from ..race import Row

TIME, MEMORY = 2.0, 1.2  # factors


@dataclass(frozen=True)
class Case:
    """An approach of the plan and a size."""

    way: str
    rows: int
    features: int
    classes: int
    density: float = 1.0
    dtype: str = "float32"


CASES = (
    Case("softmax", 20_000, 64, 10),
    Case("softmax", 100_000, 256, 10),
    Case("softmax", 60_000, 784, 10),
    Case("softmax", 20_000, 128, 100),
    Case("softmax", 20_000, 256, 50),
    Case("softmax", 10_000, 64, 300),
    Case("softmax", 30_000, 256, 20, dtype="float64"),
    Case("softmax", 20_000, 5000, 50, density=0.005),
    Case("one-vs-all", 50_000, 256, 10),
    Case("one-vs-all", 20_000, 128, 50),
    Case("one-vs-all", 10_000, 512, 20),
    Case("centroids", 200_000, 64, 1000),
    Case("centroids", 100_000, 256, 1000),
    Case("centroids", 50_000, 784, 10),
    Case("centroids", 100_000, 128, 50_000),
    Case("kNN flat", 50_000, 64, 100),
    Case("kNN flat", 200_000, 64, 100),
    Case("kNN flat", 100_000, 256, 1000),
    Case("kNN flat", 50_000, 784, 10),
    Case("kNN flat", 200_000, 128, 50_000),
    Case("kNN landmarks", 50_000, 64, 100),
    Case("kNN bytes", 200_000, 64, 100),
    Case("kNN bytes", 200_000, 256, 1000),
    Case("kNN bytes", 50_000, 784, 10),
    Case("kNN landmarks", 100_000, 64, 1000),
    # the picture of docs/scale.md: 64 features, from ten classes on
    Case("softmax", 20_000, 64, 100),
    Case("softmax", 20_000, 64, 1000),
    Case("sampled softmax", 20_000, 64, 10_000),
    Case("sampled softmax", 200_000, 64, 100_000),
    Case("centroids", 20_000, 64, 10),
    Case("centroids", 20_000, 64, 10_000),
    Case("centroids", 2_000_000, 64, 1_000_000),
    Case("kNN bits", 1_000_000, 64, 1_000_000),
)


def plan(rounds: int, quick: bool) -> list[Row]:
    """Return two rows per size, for seconds and MB: measured and planned."""
    from kway.planning.rates import measure_rates

    rows: list[Row] = []
    by_way = sorted(CASES[::6] if quick else CASES, key=lambda case: case.way)
    for _, cases in groupby(by_way, lambda case: case.way):
        measure_rates.cache_clear()
        rates = measure_rates()
        rows += [row for case in cases for row in _rows(case, compared(case, rates))]
    return rows


def compared(case: Case, rates: Any) -> dict[str, Any]:
    """Compare the plan of one size at these rates with the measurement."""
    from kway.planning.plan import plan as make

    size = (case.rows, case.features, case.classes)
    way = make(*size, density=case.density, dtype=case.dtype, rates=rates)[case.way]
    said = json.loads(spawn("jobs.plan", json.dumps(vars(case))))
    return {**said, "rates": rates.record(), "planned_seconds": way.fit_seconds, "planned_answer": way.predict_seconds,
            "planned_megabytes": way.fit_bytes / 2**20, "planned_disk": way.disk_bytes / 2**20}  # fmt: skip


def _rows(case: Case, said: dict[str, Any]) -> list[Row]:
    data = f"{case.rows:,} x {case.features:,}, {case.classes:,} classes"
    points = {"case": vars(case), **said}
    pairs = (
        ("s", said["seconds"], said["planned_seconds"], TIME),
        ("MB", said["megabytes"], said["planned_megabytes"], MEMORY),
    )
    return [
        Row("plan", case.way, data, "plan", took, planned, None, f"planned {planned:.3g}, took {took:.3g} {unit}",
            within(took, planned, most), unit=unit, points=points)
        for unit, took, planned, most in pairs
    ]  # fmt: skip


def within(took: float, planned: float, most: float) -> bool:
    """Return whether the two differ by at most this factor."""
    return max(took / planned, planned / took) <= most


def measure(case: Case) -> dict[str, float]:
    """Run in the child process."""
    from ..peak import CLEAR, MB, peak, resident, tidy

    warnings.simplefilter("ignore")  # of convergence: time is all that is asked
    X, y = data_of(case, 2500, min(case.classes, 20))
    ask(fitted(case, X, y), X[:500])
    del X, y
    tidy()
    before = resident()
    X, y = data_of(case, case.rows, case.classes)
    queries = data_of(case, 1000, case.classes, seed=1)[0]
    tidy()
    if CLEAR.exists():
        CLEAR.write_text("5")
    begun = time.perf_counter()
    model = fitted(case, X, y)
    seconds = time.perf_counter() - begun
    most = peak() - before
    if case.density == 1:
        most -= (queries.nbytes + (X.nbytes if case.way == "kNN bits" else 0)) / MB  # bits are made of a stream of rows
    begun = time.perf_counter()
    ask(model, queries)
    return {"seconds": seconds, "megabytes": most, "answer": (time.perf_counter() - begun) / 1000}


def structured_rows(n: int, d: int, seed: int = 0, n_classes: int = 100) -> NDArray[np.float32]:
    """Return rows (n, d) with the structure of real ones: clusters in 32 hidden dimensions plus noise."""
    rng = np.random.default_rng(7)
    hidden = min(d, 32)
    centers = rng.standard_normal((n_classes, hidden), dtype=np.float32)
    basis = rng.standard_normal((hidden, d), dtype=np.float32) / np.float32(np.sqrt(hidden))
    rng = np.random.default_rng((8, seed))
    inside = centers[np.arange(n) % n_classes] + 0.7 * rng.standard_normal((n, hidden), dtype=np.float32)
    return inside @ basis + 0.3 * rng.standard_normal((n, d), dtype=np.float32)


def data_of(case: Case, n: int, n_classes: int, seed: int = 0) -> tuple[Any, np.ndarray]:
    """Return rows with structure, or sparse rows whose classes have their own words."""
    import scipy.sparse as sp

    y = np.arange(n) % n_classes
    if case.density == 1:
        X = np.empty((n, case.features), case.dtype)
        block = max(1, 10_000 // n_classes) * n_classes
        for start in range(0, n, block):
            part = X[start : start + block]
            part[:] = structured_rows(len(part), case.features, seed + 2 + start, n_classes)
        return X, y
    rng = np.random.default_rng(seed)
    words = int(case.features * case.density)
    own = rng.integers(case.features // n_classes, size=(n, words)) + (y * (case.features // n_classes))[:, None]
    columns = np.where(rng.random((n, words)) < 0.3, own, rng.integers(case.features, size=(n, words)))
    values = rng.random(n * words, dtype=np.float32)
    return sp.csr_matrix((values, columns.ravel(), np.arange(n + 1) * words), shape=(n, case.features)), y


def fitted(case: Case, X: Any, y: np.ndarray) -> Any:
    """Return the model, or the index if rows are codes."""
    import kway
    from kway.search import Bits, Flat, Int8

    models = {
        "softmax": kway.SoftmaxClassifier,
        "one-vs-all": kway.LogisticClassifier,
        "sampled softmax": lambda: kway.SoftmaxClassifier(solver="sampled", alpha=1e-3 / case.classes, random_state=0),
        "centroids": kway.CentroidClassifier,
        "kNN flat": lambda: kway.NeighborsClassifier(index="flat"),
        "kNN landmarks": lambda: kway.NeighborsClassifier(index="landmarks"),
    }
    if case.way == "kNN bytes":
        return Flat(store=Int8(rerank=False)).build(X)
    if case.way == "kNN bits":
        return Flat(store=Bits(1, rerank=False)).build_blocks(X, "cosine")
    return models[case.way]().fit(X, y)


def ask(model: Any, queries: Any) -> None:
    """Predict all queries."""
    model.predict(queries) if hasattr(model, "predict") else model.nearest(queries, 5)


if __name__ == "__main__":
    print(json.dumps(measure(Case(**json.loads(sys.argv[1])))))
