"""T9: memory of predictions: at most 256 MB in addition to the index and the results.

Each case runs in its own process: the model is fitted, a few rows are predicted to load the kernels, the peak is reset,
and all queries are predicted. The peak minus the memory before and minus the results is compared with the limit.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..child import spawn
from ..datasets import smooth_clusters
from ..race import Row

LIMIT = 256.0  # MB in addition to index and results
TWICE = 2.0  # the index against its rows


@dataclass(frozen=True)
class Case:
    """A model, its size and the predictions."""

    what: str  # a key of MODELS
    rows: int
    features: int
    classes: int
    queries: int


def cases(quick: bool) -> list[Case]:
    """Return cases with more and more queries, then classes."""
    few = 10 if quick else 1
    neighbors = [
        Case(what, 20_000, 64, 100, queries // few)
        for what in ("flat", "landmarks")
        for queries in (10_000, 100_000, 500_000)
    ]
    classes = [Case("classes", 0, 64, k // few, 20_000 // few) for k in (1_000, 30_000, 300_000)]
    every = [*neighbors, *classes, Case("classes", 0, 64, 30_000 // few, 200_000 // few)]
    return every[1::3] if quick else every


def t9(rounds: int, quick: bool) -> list[Row]:
    """Return one row per case against the limit, and the size of the index against its rows."""
    rows = []
    for case in cases(quick):
        said = alone(case)
        data = f"{case.rows or case.classes:,} x {case.features}, {case.classes:,} classes, {case.queries:,} queries"
        quality = f"answers {said['answers']:.1f} MB, index {said['index']:.1f} MB for {said['rows']:.1f} MB of rows"
        good = said["index"] <= TWICE * said["rows"]
        points = {"case": vars(case), **said}
        rows.append(
            Row("T9", JOBS[case.what], data, "limit", said["above"], LIMIT, 1, quality, good, unit="MB", points=points)
        )
    return rows


JOBS = {
    "flat": "exact neighbors, predict",
    "landmarks": "landmarks, predict",
    "classes": "linear, predict_topk(5)",
}


def alone(case: Case) -> dict[str, float]:
    """Measure one case in a child process."""
    return json.loads(spawn("jobs.memory", json.dumps(vars(case))))


def measure(case: Case) -> dict[str, float]:
    """Run in the child process; return MB."""
    from ..peak import MB, working_megabytes

    rng = np.random.default_rng(0)
    queries = 2 * rng.standard_normal((case.queries, case.features), dtype=np.float32)
    model, index_bytes, row_bytes = fitted(case, rng)
    ask = (lambda Q: model.predict_topk(Q, 5)) if case.what == "classes" else model.predict
    ask(queries[:500])
    answer, used = working_megabytes(lambda: ask(queries))
    answers = sum(np.asarray(part).nbytes for part in (answer if isinstance(answer, tuple) else (answer,))) / MB
    return {"above": used - answers, "answers": answers, "index": index_bytes / MB, "rows": row_bytes / MB}


def fitted(case: Case, rng: np.random.Generator) -> tuple[Any, int, int]:
    """Return the model, the bytes of its index and those of its rows."""
    import kway

    if case.what == "classes":
        model = linear(case.classes, case.features, rng)
        return model, model.coef_.nbytes, model.coef_.nbytes
    X = smooth_clusters(case.rows, case.features, 1).X
    model = kway.NeighborsClassifier(5, index=case.what).fit(X, np.arange(len(X)) % case.classes)
    return model, int(model.index_.nbytes), X.nbytes


def linear(classes: int, features: int, rng: np.random.Generator) -> Any:
    """Return a softmax classifier of many classes with random weights."""
    import kway

    model = kway.SoftmaxClassifier(alpha=1.0).fit(np.eye(3, features, dtype=np.float32), np.arange(3))
    model.coef_ = rng.standard_normal((classes, features), dtype=np.float32)
    model.intercept_ = np.zeros(classes, np.float32)
    model.classes_ = np.arange(classes)
    return model


if __name__ == "__main__":
    print(json.dumps(measure(Case(**json.loads(sys.argv[1])))))
