"""T1, T1b, T2, T2b: exact search with all results compared; T1f: the same including the build (fit and one predict).

A case is a dataset, a metric and its peers, each a function that builds queries -> ids (q, k). T1, T1b, T2 and T2b
build before the clock starts and time the searches; T1f times both together.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

import kway

from .. import datasets
from ..models import NotInstalled, faiss_flat, sklearn_knn
from ..race import WITH_FIT, Row, Timing, absent, race, row

K = 5
SAME = 0.999  # share of neighbors that must be equal for a ratio to be printed
CLOSE = 1e-5  # relative difference of distances that float32 peers cannot order

Search = Callable[[np.ndarray], np.ndarray]


class Case(NamedTuple):
    """Rows, queries, a metric, and the peers."""

    data: datasets.Data
    metric: str
    peers: dict[str, Callable[[], Search]]
    rounds: int

    @property
    def job(self) -> str:
        return f"exact {self.metric} k={K}, {len(self.data.Q):,} queries"


def same_neighbors(case: Case, ours: np.ndarray, theirs: np.ndarray) -> float:
    """Return the share of results with equal ids, or with equal distances in float64."""
    equal = ours == theirs
    for q, place in zip(*np.nonzero(~equal)):
        pair = case.data.X[[ours[q, place], theirs[q, place]]].astype(np.float64)
        a, b = kway.pairwise(case.data.Q[q : q + 1].astype(np.float64), pair, case.metric)[0]
        equal[q, place] = abs(a - b) <= CLOSE * max(abs(a), abs(b), CLOSE)
    return float(equal.mean())


def ours(case: Case) -> Search:
    """Build the exact search of kway."""
    model = kway.NeighborsClassifier(K, metric=case.metric, index="flat").fit(case.data.X, case.data.y)
    return lambda Q: model.kneighbors(Q)[1]


def exact_rows(target: str, case: Case) -> list[Row]:
    """Time the searches alone."""
    search = ours(case)
    search(case.data.Q[:64])  # compiles
    contestants: dict[str, Callable] = {"kway": functools.partial(search, case.data.Q)}
    rows = []
    for name, build in case.peers.items():
        try:
            contestants[name] = functools.partial(build(), case.data.Q)
        except NotInstalled as error:
            rows.append(absent(target, case.job, case.data.name, name, error))
    timings = race(contestants, case.rounds)
    return rows + compared(target, case.job, case, timings)


def compared(target: str, job: str, case: Case, timings: dict[str, Timing]) -> list[Row]:
    """Return one line per peer, with its neighbors compared with kway's."""
    rows, found = [], {name: np.asarray(_ids(t.answer)) for name, t in timings.items()}
    for name in list(timings)[1:]:
        same = same_neighbors(case, found["kway"], found[name])
        rows.append(row(target, job, case.data.name, name, timings, f"same neighbors {same:.3%}", same >= SAME))
    return rows


def _ids(answer):
    return answer if isinstance(answer, np.ndarray) else answer.ids


def whole(build: Callable[[], Search], Q: np.ndarray) -> SimpleNamespace:
    """Build and search once; return the seconds of the build too."""
    start = time.perf_counter()
    search = build()
    built = time.perf_counter() - start
    return SimpleNamespace(ids=np.asarray(search(Q)), build=np.array(built))


def whole_rows(target: str, case: Case) -> list[Row]:
    """Time build and search together; the seconds of both parts of the last round are saved for the page."""
    job = WITH_FIT + case.job
    ours(case)(case.data.Q[:64])  # compiles
    builders, rows = {"kway": functools.partial(ours, case)}, []
    for name, build in case.peers.items():
        try:
            build()
        except NotInstalled as error:
            rows.append(absent(target, job, case.data.name, name, error))
            continue
        builders[name] = build
    timings = race(
        {name: functools.partial(whole, build, case.data.Q) for name, build in builders.items()}, case.rounds
    )
    for r in compared(target, job, case, timings):
        r.points["build"] = {name: float(timings[name].answer.build) for name in ("kway", r.peer)}
        rows.append(r)
    return rows


def l2_images(rounds: int) -> Case:
    """Return the case of MNIST with all peers."""
    data = datasets.images("mnist")
    peers = {
        faiss_flat.NAME: lambda: faiss_flat.exact(data.X, K),
        sklearn_knn.NAME: lambda: sklearn_knn.exact(data.X, K),
        sklearn_knn.INTEL: lambda: sklearn_knn.exact_intel(data.X, K),
    }
    return Case(data, "euclidean", peers, min(rounds, 3))


def l2_others(rounds: int) -> list[Case]:
    """Return the cases of the other datasets."""
    sets = [datasets.images("fashion_mnist"), datasets.images("omniglot")]
    sets += [datasets.embeddings("clinc150"), datasets.embeddings("banking77"), datasets.glove()]
    flat = lambda data: {faiss_flat.NAME: lambda: faiss_flat.exact(data.X, K)}  # noqa: E731
    return [Case(data, "euclidean", flat(data), rounds) for data in sets]


def l1_images(rounds: int) -> Case:
    """Return the case of MNIST with L1; the peers get 1,000 queries, because all would take minutes."""
    data = datasets.images("mnist")
    few = data._replace(Q=data.Q[:1000], yq=data.yq[:1000])
    peers = {
        faiss_flat.NAME: lambda: faiss_flat.exact(data.X, K, "manhattan"),
        sklearn_knn.NAME: lambda: sklearn_knn.exact(data.X, K, "manhattan"),
    }
    return Case(few, "manhattan", peers, min(rounds, 2))


def cosine_texts(rounds: int) -> list[Case]:
    """Return the cases of embeddings with cosine."""

    def peers(X: np.ndarray) -> dict[str, Callable[[], Search]]:
        return {
            faiss_flat.NAME: lambda: faiss_flat.exact(X, K, "cosine"),
            sklearn_knn.NAME: lambda: sklearn_knn.exact(X, K, "cosine"),
        }

    sets = [datasets.embeddings(name) for name in ("clinc150", "banking77")]
    return [Case(data, "cosine", peers(data.X), rounds) for data in sets]


def t1(rounds: int, quick: bool) -> list[Row]:
    """Exact L2 on MNIST."""
    return exact_rows("T1", l2_images(rounds))


def t1b(rounds: int, quick: bool) -> list[Row]:
    """Exact L2 elsewhere."""
    return [r for case in l2_others(rounds) for r in exact_rows("T1b", case)]


def t2(rounds: int, quick: bool) -> list[Row]:
    """Exact L1 on MNIST."""
    return exact_rows("T2", l1_images(rounds))


def t2b(rounds: int, quick: bool) -> list[Row]:
    """Exact cosine on embeddings."""
    return [r for case in cosine_texts(rounds) for r in exact_rows("T2b", case)]


def t1f(rounds: int, quick: bool) -> list[Row]:
    """All of these including the build; a quick run has only the images."""
    others = [] if quick else [*l2_others(rounds), *cosine_texts(rounds)]
    return [r for case in (l2_images(rounds), l1_images(rounds), *others) for r in whole_rows("T1f", case)]
