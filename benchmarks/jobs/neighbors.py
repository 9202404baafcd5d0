"""T1-T3, T7: nearest neighbours; kway's answers are compared with the peers' before a ratio is quoted."""

from __future__ import annotations

import time

import numpy as np

import kway
from benchmarks import datasets
from benchmarks.models import faiss_flat, faiss_ivf, hnsw, sklearn_knn
from benchmarks.race import Row, race, row

K = 5
SAME = 0.999  # share of neighbours that must be the same for a ratio to be quoted
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
    """Exact search against peers given as {name: (function, least ratio)}."""
    Q = data.Q if queries is None else data.Q[:queries]
    model = kway.NeighborsClassifier(K, metric=metric, index="flat").fit(data.X, data.y)
    model.kneighbors(Q[:64])  # compiles
    contestants = {"kway": lambda: model.kneighbors(Q)[1]}
    contestants |= {name: (lambda f=f: f(Q)) for name, (f, _) in floors.items()}
    timings = race(contestants, rounds)
    ours = timings["kway"].answer
    rows = []
    for name, (_, least) in floors.items():
        same = same_neighbors(data, Q, metric, ours, np.asarray(timings[name].answer))
        job = f"exact {metric} k={K}, {len(Q):,} queries"
        rows.append(
            row(target, job, data.name, name, timings, least, f"same neighbours {same:.3%}", bool(same >= SAME))
        )
    return rows


def t1(rounds: int, quick: bool) -> list[Row]:
    """Exact L2 on MNIST."""
    data = datasets.images("mnist")
    peers = {
        faiss_flat.NAME: (faiss_flat.exact(data.X, K), 15),
        sklearn_knn.NAME: (sklearn_knn.exact(data.X, K), 30),
        sklearn_knn.INTEL: (sklearn_knn.exact_intel(data.X, K), 15),
    }
    return exact_rows("T1", data, "euclidean", peers, min(rounds, 3))


def t1b(rounds: int, quick: bool) -> list[Row]:
    """Exact L2 elsewhere."""
    rows = []
    sets = [(datasets.images("fashion_mnist"), 10), (datasets.images("omniglot"), 5)]
    sets += [(datasets.embeddings("clinc150"), 2.5), (datasets.embeddings("banking77"), 2.5), (datasets.glove(), 1.8)]
    for data, least in sets:
        rows += exact_rows("T1b", data, "euclidean", {faiss_flat.NAME: (faiss_flat.exact(data.X, K), least)}, rounds)
    return rows


def t2(rounds: int, quick: bool) -> list[Row]:
    """Exact L1 on MNIST; the peers take minutes for all queries, so they get the first 1,000."""
    data = datasets.images("mnist")
    peers = {
        faiss_flat.NAME: (faiss_flat.exact(data.X, K, "manhattan"), 40),
        sklearn_knn.NAME: (sklearn_knn.exact(data.X, K, "manhattan"), 130),
    }
    return exact_rows("T2", data, "manhattan", peers, 1 if quick else 2, 200 if quick else 1000)


def t2b(rounds: int, quick: bool) -> list[Row]:
    """Exact cosine on embeddings."""
    rows = []
    for name in ("clinc150", "banking77"):
        data = datasets.embeddings(name)
        peers = {
            faiss_flat.NAME: (faiss_flat.exact(data.X, K, "cosine"), 2.5),
            sklearn_knn.NAME: (sklearn_knn.exact(data.X, K, "cosine"), 6),
        }
        rows += exact_rows("T2b", data, "cosine", peers, rounds)
    return rows


def votes(y, ids):
    """Majority of the neighbours' labels, the smallest on a tie."""
    return np.array([np.bincount(r).argmax() for r in y[np.maximum(ids, 0)]])


def t3(rounds: int, quick: bool) -> list[Row]:
    """Approximate search at the same agreement of votes."""
    data = datasets.images("mnist")
    truth = votes(data.y, faiss_flat.exact(data.X, K)(data.Q))
    few = slice(None, None, 10)
    kway.NeighborsClassifier(K, index=kway.search.Landmarks()).fit(data.X[few], data.y[few])  # compiles
    start = time.perf_counter()
    model = kway.NeighborsClassifier(K, index=kway.search.Landmarks()).fit(data.X, data.y)
    built = time.perf_counter() - start
    model.kneighbors(data.Q[:64])
    agree = float((votes(data.y, model.kneighbors(data.Q)[1]) == truth).mean())
    ivf = faiss_ivf.build(data.X, 245)
    for probes in (4, 8, 12, 16, 24, 32, 48):
        ivf.nprobe = probes
        ivf_agree = float((votes(data.y, ivf.search(data.Q, K)[1]) == truth).mean())
        if ivf_agree >= agree - 2e-4:
            break
    start = time.perf_counter()
    graph = hnsw.build(data.X)
    graph_built = time.perf_counter() - start
    for ef in (16, 32, 64, 128, 256):
        graph.set_ef(ef)
        graph_agree = float((votes(data.y, graph.knn_query(data.Q, K)[0].astype(int)) == truth).mean())
        if graph_agree >= agree - 2e-4:
            break
    timings = race(
        {
            "kway": lambda: model.kneighbors(data.Q),
            faiss_ivf.NAME: lambda: ivf.search(data.Q, K),
            hnsw.NAME: lambda: graph.knn_query(data.Q, K),
        },
        rounds,
    )
    good, job = agree >= 0.998, "approximate, votes agree with exact"
    said = {faiss_ivf.NAME: ivf_agree, hnsw.NAME: graph_agree}
    said = {name: f"agreement {agree:.4f} against {theirs:.4f}" for name, theirs in said.items()}
    rows = [
        row("T3", job, data.name, name, timings, least, said[name], good)
        for name, least in ((faiss_ivf.NAME, 8), (hnsw.NAME, 3))
    ]
    ours, theirs = built + timings["kway"].median, graph_built + timings[hnsw.NAME].median
    return [*rows, Row("T3", "fit + predict", data.name, hnsw.NAME, ours, theirs, 8, said[hnsw.NAME], good)]


def t7(rounds: int, quick: bool) -> list[Row]:
    """One query at a time: the median and the 99th percentile of a call, at recall@5 >= 0.99."""
    data = datasets.images("mnist")
    n = 300 if quick else 1000
    truth = faiss_flat.exact(data.X, K)(data.Q[:n])
    recall = lambda ids: float(np.mean([len(set(a) & set(b)) / K for a, b in zip(ids, truth)]))  # noqa: E731
    ours = {"kway flat": kway.search.Flat().build(data.X)}
    index = kway.search.Landmarks().build(data.X)
    for index.probes in (8, 10, 12, 14, 16, 18, 20, 24, 32):
        if recall(index.nearest(data.Q[:n], K).ids) >= 0.99:
            break
    ours["kway landmarks"] = index
    ivf, graph = faiss_ivf.build(data.X, 245, threads=1), hnsw.build(data.X)
    graph.set_num_threads(1)
    calls = {name: (lambda q, i=i: i.nearest(q, K).ids) for name, i in ours.items()}
    calls[faiss_ivf.NAME] = lambda q: ivf.search(q, K)[1]
    calls[hnsw.NAME] = lambda q: graph.knn_query(q, K)[0]
    for probes in (4, 8, 12, 16, 24, 32, 64):
        ivf.nprobe = probes
        if recall(ivf.search(data.Q[:n], K)[1]) >= 0.99:
            break
    for ef in (16, 32, 64, 128, 256):
        graph.set_ef(ef)
        if recall(graph.knn_query(data.Q[:n], K)[0]) >= 0.99:
            break
    spent, found = {}, {}
    for name, call in calls.items():
        call(data.Q[:1])
        seconds, ids = [], []
        for i in range(n):
            start = time.perf_counter()
            ids.append(call(data.Q[i : i + 1])[0])
            seconds.append(time.perf_counter() - start)
        spent[name], found[name] = np.percentile(seconds, [50, 99]), recall(ids)
    best = min((n for n in ours if found[n] >= 0.99), key=lambda n: spent[n][0])
    rows = []
    for at, what in enumerate(("p50", "p99")):
        for peer in (faiss_ivf.NAME, hnsw.NAME):
            quality = f"{best}: recall {found[best]:.4f} against {found[peer]:.4f}"
            rows.append(
                Row(
                    "T7",
                    f"one query, {what}",
                    data.name,
                    peer,
                    float(spent[best][at]),
                    float(spent[peer][at]),
                    1,
                    quality,
                )
            )
    return rows
