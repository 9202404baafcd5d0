"""C2: softmax over a million classes x 1,000 features by sampling: rows per second and memory against their limits.

Rows lie around the unit centers of their classes, which come from a counter. One pass over ROWS of them, including the
exact loss of a sample at its end, is timed in its own process. The loss of accuracy by sampling is measured on a small
case (SMALL classes, SEEDS sets) against a softmax over all classes at its optimum, each with its own best alpha.
`python -m benchmarks C2 --classes 100000` is smaller.
"""

from __future__ import annotations

import json
import sys
import time
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.threads import pmap, spans

from .. import datasets
from ..child import spawn
from ..counter import fill_counted
from ..race import Row

CLASSES, QUICK, FEATURES, ROWS = 1_000_000, 20_000, 1000, 131_072
SMALL, SMALL_FEATURES, EACH, SEEDS = 1000, 64, 10, 3  # the case that both can run: classes, features, rows a class
ALPHAS = (1e-6, 1e-5, 1e-4)
RATE, POINT = 4000.0, 0.01  # rows a second; of accuracy
NOISE = 0.7  # of a row about its center of length 1


def c2(rounds: int, quick: bool) -> list[Row]:
    """Return rows per second and memory of the large case, and the loss of accuracy of the small one."""
    n_classes = datasets.classes() or (QUICK if quick else CLASSES)
    said = json.loads(spawn("jobs.sampled", str(n_classes), str(ROWS // (8 if quick else 1))))
    lost = accuracy(1 if quick else SEEDS)
    data = f"{n_classes:,} x {FEATURES:,}, {said['rows']:,} rows"
    seconds = (
        f"one pass in {said['seconds']:.0f} s, exact loss of a sample {said['loss']:.3f} (log K {said['start']:.2f})"
    )
    weights = 4 * n_classes * (FEATURES + 1) / 2**20
    small = f"{SMALL:,} classes x {SMALL_FEATURES}, {EACH} rows each"
    points = f"accuracy {lost['sampled']:.2%} sampled, {lost['full']:.2%} over all classes, {lost['sets']} sets"
    return [
        Row("C2", "one pass, seconds per row", data, "limit", 1 / said["rate"], 1 / RATE, 1, seconds, points=said),
        Row(
            "C2", "memory without the rows", data, "limit", said["peak"], 1.5 * weights + 512, 1, seconds, unit="MB",
            points=said,
        ),
        Row(
            "C2", "accuracy lost to sampling", small, "limit", max(0.0, lost["full"] - lost["sampled"]), POINT, 1,
            points, unit="share", points=lost,
        ),
    ]  # fmt: skip


def rows_of(codes: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.float32]:
    """Return rows (n, d) around the centers of their classes (n,)."""
    out, seeds = np.empty((len(codes), FEATURES), np.float32), rng.integers(2**31, size=len(codes))

    def work(part: slice) -> None:
        noise = np.empty((part.stop - part.start, FEATURES), np.float32)
        fill_counted(codes[part], out[part])
        fill_counted(2**31 + seeds[part], noise)
        for rows, length in ((out[part], 1.0), (noise, NOISE)):
            rows *= (length / np.sqrt(np.einsum("ij,ij->i", rows, rows)))[:, None].astype(np.float32)
        out[part] += noise

    pmap(work, spans(len(codes), 1024))
    return out


def measure(n_classes: int, n: int) -> dict[str, Any]:
    """Run one pass in the child process; classes without rows are among the labels too."""
    import warnings

    from kway.linear.losses import LOSSES, Targets
    from kway.linear.objective import Objective
    from kway.linear.penalties import Penalty
    from kway.linear.solvers.base import Control
    from kway.linear.solvers.sampled import Sampled
    from kway.threads import single_blas

    from ..peak import working_megabytes

    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    codes = rng.integers(n_classes, size=n)
    X = rows_of(codes, rng)
    solver = Sampled()

    def fit(rows: int, K: int) -> Any:
        objective = Objective(X[:rows], Targets(codes[:rows] % K), K, LOSSES["softmax"].joint, Penalty(1e-3 / K))
        start = time.perf_counter()
        with single_blas():
            found = solver.solve(objective, solver.cold_start(objective), Control(max_iter=1))
        return found, time.perf_counter() - start

    fit(512, 2000)  # compiles
    (found, seconds), peak = working_megabytes(lambda: fit(n, n_classes))
    return {
        "rows": n, "seconds": seconds, "rate": n / seconds, "peak": peak, "loss": found.history[-1],
        "start": float(np.log(n_classes)),
    }  # fmt: skip


def accuracy(seeds: int) -> dict[str, Any]:
    """Return the mean test accuracy of sampled and full softmax, each at its best alpha."""
    import warnings

    import kway

    warnings.simplefilter("ignore")
    found: dict[str, list[float]] = {"sampled": [], "full": []}
    for seed in range(seeds):
        data = kway.datasets.many_classes(SMALL, SMALL_FEATURES, EACH, 4000, 1.0, seed)
        some, others = slice(0, 2000), slice(2000, None)
        for name, solver in (("sampled", "sampled"), ("full", "lbfgs")):
            models = [
                kway.SoftmaxClassifier(solver=solver, alpha=alpha, max_iter=200, random_state=seed).fit(
                    data.x_train, data.y_train
                )
                for alpha in ALPHAS
            ]
            best = max(models, key=lambda model: model.score(data.x_test[some], data.y_test[some]))
            found[name].append(best.score(data.x_test[others], data.y_test[others]))
    return {"sampled": mean(found["sampled"]), "full": mean(found["full"]), "sets": seeds, "each": found}


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))
