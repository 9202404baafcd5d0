"""T1-T3, T7: nearest neighbours; kway's answers are compared with the peers' before a ratio is quoted."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import kway

from .. import datasets
from ..models import NotInstalled, faiss_flat, faiss_hnsw, faiss_ivf, hnsw, sklearn_knn
from ..race import Row, absent, race, row, settled

K = 5
SAME = 0.999  # share of neighbours that must be the same for a ratio to be quoted
AGREED = 0.998  # share of votes that must be as exact search's
EXACT = "kway, exact"
CLOSE = 1e-5  # relative; float32 peers order rows that are nearer to each other than this by chance


def same_neighbors(data, Q, metric, ours, theirs):
    """Share of places where the ids are equal, or the two rows are equally far in float64."""
    equal = ours == theirs
    for q, place in zip(*np.nonzero(~equal)):
        pair = data.X[[ours[q, place], theirs[q, place]]].astype(np.float64)
        a, b = kway.pairwise(Q[q : q + 1].astype(np.float64), pair, metric)[0]
        equal[q, place] = abs(a - b) <= CLOSE * max(abs(a), abs(b), CLOSE)
    return float(equal.mean())


def exact_rows(target, data, metric, floors, rounds, queries=None):
    """Exact search against peers given as {name: (builder of a function queries -> ids, least ratio)}."""
    Q = data.Q if queries is None else data.Q[:queries]
    model = kway.NeighborsClassifier(K, metric=metric, index="flat").fit(data.X, data.y)
    model.kneighbors(Q[:64])  # compiles
    job = f"exact {metric} k={K}, {len(Q):,} queries"
    contestants, rows = {"kway": lambda: model.kneighbors(Q)[1]}, []
    for name, (build, least) in floors.items():
        try:
            contestants[name] = functools.partial(build(), Q)
        except NotInstalled as error:
            rows.append(absent(target, job, data.name, name, error, least))
    timings = race(contestants, rounds)
    for name in list(contestants)[1:]:
        least = floors[name][1]
        same = same_neighbors(data, Q, metric, timings["kway"].answer, np.asarray(timings[name].answer))
        rows.append(
            row(target, job, data.name, name, timings, least, f"same neighbours {same:.3%}", bool(same >= SAME))
        )
    return rows


def t1(rounds: int, quick: bool) -> list[Row]:
    """Exact L2 on MNIST."""
    data = datasets.images("mnist")
    peers = {
        faiss_flat.NAME: (lambda: faiss_flat.exact(data.X, K), 15),
        sklearn_knn.NAME: (lambda: sklearn_knn.exact(data.X, K), 30),
        sklearn_knn.INTEL: (lambda: sklearn_knn.exact_intel(data.X, K), 15),
    }
    return exact_rows("T1", data, "euclidean", peers, min(rounds, 3))


def t1b(rounds: int, quick: bool) -> list[Row]:
    """Exact L2 elsewhere."""
    rows = []
    sets = [(datasets.images("fashion_mnist"), 10), (datasets.images("omniglot"), 5)]
    sets += [(datasets.embeddings("clinc150"), 2.5), (datasets.embeddings("banking77"), 2.5), (datasets.glove(), 1.8)]
    for data, least in sets:
        peers = {faiss_flat.NAME: (lambda data=data: faiss_flat.exact(data.X, K), least)}
        rows += exact_rows("T1b", data, "euclidean", peers, rounds)
    return rows


def t2(rounds: int, quick: bool) -> list[Row]:
    """Exact L1 on MNIST; the peers take minutes for all queries, so they get the first 1,000."""
    data = datasets.images("mnist")
    peers = {
        faiss_flat.NAME: (lambda: faiss_flat.exact(data.X, K, "manhattan"), 60),
        sklearn_knn.NAME: (lambda: sklearn_knn.exact(data.X, K, "manhattan"), 200),
    }
    return exact_rows("T2", data, "manhattan", peers, 1 if quick else 2, 200 if quick else 1000)


def t2b(rounds: int, quick: bool) -> list[Row]:
    """Exact cosine on embeddings."""
    rows = []
    for name in ("clinc150", "banking77"):
        data = datasets.embeddings(name)
        peers = {
            faiss_flat.NAME: (lambda data=data: faiss_flat.exact(data.X, K, "cosine"), 2.5),
            sklearn_knn.NAME: (lambda data=data: sklearn_knn.exact(data.X, K, "cosine"), 6),
        }
        rows += exact_rows("T2b", data, "cosine", peers, rounds)
    return rows


def votes(y, ids):
    """Majority of the neighbours' labels, the smallest on a tie."""
    return np.array([np.bincount(r).argmax() for r in y[np.maximum(ids, 0)]])


@dataclass(frozen=True)
class Peer:
    """An approximate index of somebody else: ids of queries, and one setting, from quick to thorough."""

    seconds: float  # to build
    ids: Callable[[np.ndarray], np.ndarray]
    set: Callable[[int], None]
    settings: tuple[int, ...]
    threads: Callable[[int], None] = lambda n: None

    def tune(self, name: str, quality: Callable[[np.ndarray], float], Q: np.ndarray, least: float) -> float:
        """Take the first setting whose answers to Q reach a quality, else the last; the quality reached."""

        def search() -> list[float]:
            for value in self.settings:
                self.set(value)
                reached = quality(self.ids(Q))
                if reached >= least:
                    break
            return [value, reached]

        value, reached = settled(f"setting of {name}", search)
        self.set(int(value))
        return reached


def _timed(build: Callable, *arguments):
    start = time.perf_counter()
    index = build(*arguments)
    return index, time.perf_counter() - start


def cells_peer(X: np.ndarray, cells: int = 245) -> Peer:
    """faiss's cells."""
    index, seconds = _timed(faiss_ivf.build, X, cells)
    probes = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
    search, setting = lambda Q: index.search(Q, K)[1], lambda v: setattr(index, "nprobe", v)
    return Peer(seconds, search, setting, probes, faiss_flat.threads)


def graph_peer(X: np.ndarray) -> Peer:
    """hnswlib's graph."""
    index, seconds = _timed(hnsw.build, X)
    search = lambda Q: index.knn_query(Q, K)[0].astype(int)  # noqa: E731
    return Peer(seconds, search, index.set_ef, (16, 32, 64, 128, 256), index.set_num_threads)


def faiss_graph_peer(X: np.ndarray) -> Peer:
    """faiss's graph."""
    index, seconds = _timed(faiss_hnsw.build, X)
    search, setting = lambda Q: index.search(Q, K)[1], lambda v: setattr(index.hnsw, "efSearch", v)
    return Peer(seconds, search, setting, (16, 32, 64, 128, 256), faiss_flat.threads)


class Aim(NamedTuple):
    """A peer, and the ratios aimed at: predicting alone, and with the fit; None: for information."""

    build: Callable[[], Peer]
    predict: float | None = None
    both: float | None = None


APPROXIMATE = "approximate, votes agree with exact"


def approximate_rows(data, aims: dict[str, Aim], rounds: int) -> list[Row]:
    """kway's landmarks with their promise against peers at the same agreement with exact votes, and kway's own."""
    exact = kway.NeighborsClassifier(K, index="flat").fit(data.X, data.y)
    truth = votes(data.y, exact.kneighbors(data.Q)[1])
    model = kway.NeighborsClassifier(K, index=kway.search.Landmarks())
    few = slice(None, None, 10)
    model.fit(data.X[few], data.y[few]).kneighbors(data.Q[:64])  # compiles
    _, built = _timed(model.fit, data.X, data.y)
    agreement = lambda ids: float((votes(data.y, ids) == truth).mean())  # noqa: E731
    agree = agreement(model.kneighbors(data.Q)[1])
    contestants = {"kway": lambda: model.kneighbors(data.Q), EXACT: lambda: exact.kneighbors(data.Q)}
    rows, said, seconds = [], {}, {}
    for name, aim in aims.items():
        try:
            peer = aim.build()
        except NotInstalled as error:
            rows.append(absent("T3", APPROXIMATE, data.name, name, error, aim.predict))
            continue
        said[name] = f"agreement {agree:.4f} against {peer.tune(name, agreement, data.Q, agree - 2e-4):.4f}"
        contestants[name], seconds[name] = lambda peer=peer: peer.ids(data.Q), peer.seconds
    timings, good = race(contestants, rounds), agree >= AGREED
    chosen = kway.search.choose(*data.X.shape, exact.index_.metric).recipe
    # of an index that "auto" picks by itself, three times the speed of exact search is asked
    own = None if chosen.exact else 3
    said_own = f"agreement {agree:.4f}; index='auto' picks {chosen.name}"
    rows.append(row("T3", APPROXIMATE, data.name, EXACT, timings, own, said_own, good))
    rows += [row("T3", APPROXIMATE, data.name, name, timings, aims[name].predict, said[name], good) for name in said]
    for name in said:
        both = built + timings["kway"].median, seconds[name] + timings[name].median
        rows.append(Row("T3", "fit + predict", data.name, name, *both, aims[name].both, said[name], good))
    return rows


def t3(rounds: int, quick: bool) -> list[Row]:
    """Approximate search at the same agreement of votes: images, and a million rows.

    The graphs are not built over a million rows: at 0.2 ms a row that takes minutes.
    """
    images, many = datasets.images("mnist"), datasets.smooth_clusters(1_000_000)
    aims = {
        faiss_ivf.NAME: Aim(lambda: cells_peer(images.X), 8),
        hnsw.NAME: Aim(lambda: graph_peer(images.X), 3, 8),
        faiss_hnsw.NAME: Aim(lambda: faiss_graph_peer(images.X)),
    }
    rows = approximate_rows(images, aims, rounds)
    return rows + approximate_rows(many, {faiss_ivf.NAME: Aim(lambda: cells_peer(many.X, 1000))}, rounds)


def t7(rounds: int, quick: bool) -> list[Row]:
    """One query at a time: the median and the 99th percentile of a call, at recall@5 >= 0.99."""
    data = datasets.images("mnist")
    Q = data.Q[: 300 if quick else 1000]
    flat, index = kway.search.Flat().build(data.X), kway.search.Landmarks().build(data.X)
    truth = flat.nearest(Q, K).ids
    recall = lambda ids: float(np.mean([len(set(a) & set(b)) / K for a, b in zip(ids, truth)]))  # noqa: E731
    probes = (8, 10, 12, 14, 16, 18, 20, 24, 32)
    cells = Peer(0.0, lambda q: index.nearest(q, K).ids, lambda v: setattr(index, "probes", v), probes)
    cells.tune("kway landmarks", recall, Q, 0.99)
    calls = {"kway flat": lambda q: flat.nearest(q, K).ids, "kway landmarks": cells.ids}
    rows, builders = [], {faiss_ivf.NAME: cells_peer, hnsw.NAME: graph_peer, faiss_hnsw.NAME: faiss_graph_peer}
    for name, build in builders.items():
        try:
            peer = build(data.X)
        except NotInstalled as error:
            rows.append(absent("T7", "one query", data.name, name, error, T7_AIMS[name]))
            continue
        peer.tune(name, recall, Q, 0.99)
        peer.threads(1)  # waking a second one takes longer than a query
        calls[name] = peer.ids
    spent, found = {}, {}
    for name, call in calls.items():
        seconds, ids = _one_by_one(call, Q)
        spent[name], found[name] = np.percentile(seconds, [50, 99]), recall(ids)
    best = min((n for n in ("kway flat", "kway landmarks") if found[n] >= 0.99), key=lambda n: spent[n][0])
    for at, what in enumerate(("p50", "p99")):
        for name in list(calls)[2:]:
            quality = f"{best}: recall {found[best]:.4f} against {found[name]:.4f}"
            pair = float(spent[best][at]), float(spent[name][at])
            rows.append(Row("T7", f"one query, {what}", data.name, name, *pair, T7_AIMS[name], quality))
    return rows


T7_AIMS = {faiss_ivf.NAME: 1, hnsw.NAME: 1, faiss_hnsw.NAME: None}


def _one_by_one(call, Q):
    """Seconds and ids of each query, asked alone."""
    call(Q[:1])
    seconds, ids = [], []
    for i in range(len(Q)):
        start = time.perf_counter()
        ids.append(call(Q[i : i + 1])[0])
        seconds.append(time.perf_counter() - start)
    return seconds, ids
