"""T3b: exact or approximate search, whichever is fastest at recall@5 >= 0.99, against ScaNN, SVS and usearch.

Each kind of index of a library is tuned to the first setting that reaches the recall, and the fastest is timed. The
same holds for kway (exact search and landmarks). Tuning happens before the clock starts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

import kway

from .. import datasets
from ..models import NotInstalled, scann_tree, svs_vamana, usearch_graph
from ..race import WITH_FIT, Row, absent, race, row
from .indexes import K, Peer, Tuned, quickest, timed

RECALL = 0.99
PROBES = (2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 32)
JOB = f"recall@{K} >= {RECALL:g}"
CLOSE = 1e-5  # relative; a row as far as the k-th nearest is as good an answer

Variants = dict[str, Callable[[], Peer]]


def recall_of(data: datasets.Data) -> Callable[[np.ndarray], float]:
    """Ids (q, k) -> share that is no farther than the k-th nearest row, so that equal rows count whichever is found."""
    flat = kway.search.Flat().build(data.X)
    bound = _farness(data, flat.nearest(data.Q, K).ids)[:, -1:] * (1 + CLOSE)

    def recall(ids: np.ndarray) -> float:
        ids = np.asarray(ids, np.int64)
        alone = np.sort(ids, axis=1)
        twice = (alone[:, 1:] == alone[:, :-1]).sum()  # an id given twice is one answer
        good = (_farness(data, np.maximum(ids, 0)) <= bound) & (ids >= 0)
        return float((good.sum() - twice) / good.size)

    return recall


def _farness(data: datasets.Data, ids: np.ndarray) -> np.ndarray:
    """Return squared distances (q, k) of rows by id, in float64, a thousand queries at a time."""
    out = np.empty(ids.shape)
    for a in range(0, len(ids), 1000):
        part = slice(a, a + 1000)
        gap = data.X[ids[part]].astype(np.float64) - data.Q[part, None, :]
        out[part] = np.einsum("qkd,qkd->qk", gap, gap)
    return out


def ours(data: datasets.Data) -> Variants:
    """Return exact search and landmarks of kway."""

    def flat() -> Peer:
        index, seconds = timed(kway.search.Flat().build, data.X)
        return Peer(seconds, lambda Q: index.nearest(Q, K).ids)

    def landmarks() -> Peer:
        index, seconds = timed(kway.search.Landmarks().build, data.X)
        return Peer(seconds, lambda Q: index.nearest(Q, K).ids, functools.partial(setattr, index, "probes"), PROBES)

    return {"exact": flat, "landmarks": landmarks}


def scann_variants(data: datasets.Data) -> Variants:
    """Return the three kinds of index of ScaNN."""

    def made(kind: str) -> Peer:
        searcher, seconds = timed(scann_tree.build, data.X, K, kind)
        now = {"setting": scann_tree.settings(kind)[0]}
        search = lambda Q: scann_tree.search(searcher, Q, data.X, now["setting"])  # noqa: E731
        return Peer(seconds, search, lambda v: now.update(setting=v), scann_tree.settings(kind))

    return {kind: functools.partial(made, kind) for kind in scann_tree.KINDS}


def svs_variants(data: datasets.Data) -> Variants:
    """Return the graphs of SVS."""

    def made(kind: str) -> Peer:
        index, seconds = timed(svs_vamana.build, data.X, kind)
        setting = functools.partial(setattr, index, "search_window_size")
        return Peer(seconds, lambda Q: index.search(Q, K)[0].astype(np.int64), setting, svs_vamana.WINDOWS)

    return {kind: functools.partial(made, kind) for kind in svs_vamana.kinds()}


def usearch_variants(data: datasets.Data) -> Variants:
    """Return the graphs of usearch."""

    def made(kind: str) -> Peer:
        index, seconds = timed(usearch_graph.build, data.X, kind)
        setting = functools.partial(setattr, index, "expansion_search")
        return Peer(seconds, lambda Q: usearch_graph.search(index, Q, K), setting, usearch_graph.EXPANSIONS)

    return {kind: functools.partial(made, kind) for kind in usearch_graph.KINDS}


PEERS = {
    scann_tree.NAME: scann_variants,
    svs_vamana.NAME: svs_variants,
    usearch_graph.NAME: usearch_variants,
}


def recall_rows(data: datasets.Data, rounds: int) -> list[Row]:
    """Measure one dataset."""
    recall, rows = recall_of(data), []
    few = data._replace(X=data.X[::10])
    for build in ours(few).values():
        build().ids(data.Q[:64])  # compiles
    found: dict[str, Tuned] = {"kway": quickest("kway", ours(data), recall, data.Q, RECALL)}
    for name, variants in PEERS.items():
        try:
            found[name] = quickest(name, variants(data), recall, data.Q, RECALL)
        except NotInstalled as error:
            rows.append(absent("T3b", JOB, data.name, name, error))
    timings = race({name: functools.partial(t.peer.ids, data.Q) for name, t in found.items()}, rounds)
    mine = found["kway"]
    for name in list(found)[1:]:
        theirs = found[name]
        quality = f"{mine.variant} {mine.quality:.4f} against {theirs.variant} {theirs.quality:.4f}"
        good = min(mine.quality, theirs.quality) >= RECALL
        both = [found[who].peer.seconds + timings[who].median for who in ("kway", name)]
        rows.append(row("T3b", JOB, data.name, name, timings, quality, good))
        rows.append(Row("T3b", WITH_FIT + JOB, data.name, name, *both, None, quality, good))
    return rows


def t3b(rounds: int, quick: bool) -> list[Row]:
    """MNIST and CLINC150; a quick run has the first."""
    sets = [datasets.images("mnist"), *([] if quick else [datasets.embeddings("clinc150")])]
    return [r for data in sets for r in recall_rows(data, rounds)]
