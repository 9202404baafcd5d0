"""T3, T7: approximate neighbors at the same quality: a million rows, all queries at once, and one at a time."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

import kway

from .. import datasets
from ..models import NotInstalled, faiss_hnsw, faiss_ivf, hnsw
from ..race import WITH_FIT, Row, absent, race, row, settled
from .indexes import K, Peer, cells_peer, faiss_graph_peer, graph_peer, timed

AGREED = 0.998  # share of votes that must agree with exact search
EXACT = "kway, exact"
APPROXIMATE = "approximate, votes agree with exact"
QUICK_BUILD, BUILDS = 10.0, 3  # seconds; what builds sooner is built so often, in turns with kway


def votes(y, ids):
    """Return the majority label of the neighbors, the smallest on a tie."""
    return np.array([np.bincount(r).argmax() for r in y[np.maximum(ids, 0)]])


def approximate_rows(data, peers: dict[str, Callable[[], Peer]], rounds: int) -> list[Row]:
    """Compare kway's tuned landmarks with peers, and with its exact search, at the same agreement of votes."""
    exact = kway.NeighborsClassifier(K, index="flat").fit(data.X, data.y)
    truth = votes(data.y, exact.kneighbors(data.Q)[1])
    model = kway.NeighborsClassifier(K, index=kway.search.Landmarks())
    few = slice(None, None, 10)
    model.fit(data.X[few], data.y[few]).kneighbors(data.Q[:64])  # compiles
    built = timed(model.fit, data.X, data.y).seconds
    agreement = lambda ids: float((votes(data.y, ids) == truth).mean())  # noqa: E731
    agree = agreement(model.kneighbors(data.Q)[1])
    contestants = {"kway": lambda: model.kneighbors(data.Q), EXACT: lambda: exact.kneighbors(data.Q)}
    rows, said, seconds = [], {}, {}
    for name, build in peers.items():
        try:
            peer = build()
        except NotInstalled as error:
            rows.append(absent("T3", APPROXIMATE, data.name, name, error))
            continue
        said[name] = f"agreement {agree:.4f} against {peer.tune(name, agreement, data.Q, agree - 2e-4):.4f}"
        contestants[name] = lambda peer=peer: peer.ids(data.Q)
        seconds[name] = settled(f"builds of {name}", lambda: _builds(data.X, build, peer.seconds))  # noqa: B023
    timings, good = race(contestants, rounds), agree >= AGREED
    chosen = kway.search.choose(*data.X.shape, exact.index_.metric).recipe
    said_own = f"agreement {agree:.4f}; index='auto' picks {chosen.name}"
    rows.append(row("T3", APPROXIMATE, data.name, EXACT, timings, said_own, good))
    rows += [row("T3", APPROXIMATE, data.name, name, timings, said[name], good) for name in said]
    for name in said:
        own, theirs = seconds[name]
        both = built + timings["kway"].median, theirs + timings[name].median
        rows.append(Row("T3", WITH_FIT + APPROXIMATE, data.name, name, *both, None, said[name], good))
        alone = f"the index alone; a fit of {built:.2g} s tunes its probes too"
        rows.append(Row("T3", "build", data.name, name, own, theirs, None, alone, good))
    return rows


def _builds(X, build: Callable[[], Peer], first: float) -> list[float]:
    """Return the median build times of the index of kway and of a peer."""
    own, theirs = [timed(kway.search.Landmarks().build, X).seconds], [first]
    while theirs[0] < QUICK_BUILD and len(own) < BUILDS:
        theirs.append(build().seconds)
        own.append(timed(kway.search.Landmarks().build, X).seconds)
    return [float(np.median(own)), float(np.median(theirs))]


def t3(rounds: int, quick: bool) -> list[Row]:
    """Approximate search at the same agreement of votes: images, and a million rows.

    The graphs are not built over a million rows: at 0.2 ms per row that takes minutes.
    """
    images, many = datasets.images("mnist"), datasets.smooth_clusters(1_000_000)
    peers = {
        faiss_ivf.NAME: lambda: cells_peer(images.X),
        hnsw.NAME: lambda: graph_peer(images.X),
        faiss_hnsw.NAME: lambda: faiss_graph_peer(images.X),
    }
    rows = approximate_rows(images, peers, rounds)
    return rows + approximate_rows(many, {faiss_ivf.NAME: lambda: cells_peer(many.X, 1000)}, rounds)


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
            rows.append(absent("T7", "one query", data.name, name, error))
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
            rows.append(Row("T7", f"one query, {what}", data.name, name, *pair, None, quality))
    return rows


def _one_by_one(call, Q):
    """Return seconds and ids of each query, searched one at a time."""
    call(Q[:1])
    seconds, ids = [], []
    for i in range(len(Q)):
        start = time.perf_counter()
        ids.append(call(Q[i : i + 1])[0])
        seconds.append(time.perf_counter() - start)
    return seconds, ids
