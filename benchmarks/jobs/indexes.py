"""Approximate indexes of other libraries, ready to be tuned: seconds of the build, ids of queries, and one setting.

    peer.tune(name, quality, Q, 0.99)             the first setting that reaches the quality
    quickest(name, variants, quality, Q, 0.99)    the fastest of several builds at that quality

Both run before the clock of a race starts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..models import faiss_flat, faiss_hnsw, faiss_ivf, hnsw
from ..race import settled

K = 5
Quality = Callable[[np.ndarray], float]


@dataclass(frozen=True)
class Peer:
    """An index: ids of queries, and one setting with values from fast to accurate."""

    seconds: float  # to build
    ids: Callable[[np.ndarray], np.ndarray]
    set: Callable[[Any], None] = lambda value: None
    settings: tuple[Any, ...] = (0,)
    threads: Callable[[int], None] = lambda n: None

    def tune(self, name: str, quality: Quality, Q: np.ndarray, least: float) -> float:
        """Choose the first setting that reaches the quality on Q, else the last; return the quality."""

        def search() -> list[float]:
            reached = []
            for value in self.settings:
                self.set(value)
                reached.append(quality(self.ids(Q)))
                if reached[-1] >= least:
                    break
            return [len(reached) - 1, reached[-1]]

        at, reached = settled(f"setting of {name}", search)
        self.set(self.settings[int(at)])
        return reached


class Tuned(NamedTuple):
    """A variant at the setting that reaches the quality."""

    variant: str
    peer: Peer
    quality: float


def quickest(
    name: str, variants: dict[str, Callable[[], Peer]], quality: Quality, Q: np.ndarray, least: float
) -> Tuned:
    """Build and tune every variant; return the fastest that reaches the quality, or the best if none does."""
    kept: dict[str, Tuned] = {}

    def tuned(variant: str) -> Tuned:
        peer = variants[variant]()
        return Tuned(variant, peer, peer.tune(f"{name}, {variant}", quality, Q, least))

    def choose() -> str:
        ranks = {}
        for variant in variants:
            found = tuned(variant)
            spent = min(timed(found.peer.ids, Q).seconds for _ in range(2))
            ranks[variant] = (found.quality < least, spent if found.quality >= least else -found.quality)
            if ranks[variant] == min(ranks.values()):
                kept.clear()  # one index in memory beside the one being tried
                kept[variant] = found
        return min(ranks, key=lambda variant: ranks[variant])

    chosen = settled(f"variant of {name}", choose)
    return kept[chosen] if chosen in kept else tuned(chosen)


class Timed(NamedTuple):
    """The result of a call and its seconds."""

    answer: Any
    seconds: float


def timed(call: Callable, *arguments: Any) -> Timed:
    """Time one call."""
    start = time.perf_counter()
    answer = call(*arguments)
    return Timed(answer, time.perf_counter() - start)


def cells_peer(X: np.ndarray, cells: int = 245) -> Peer:
    """Build the IVF index of faiss."""
    index, seconds = timed(faiss_ivf.build, X, cells)
    probes = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
    search, setting = lambda Q: index.search(Q, K)[1], lambda v: setattr(index, "nprobe", v)
    return Peer(seconds, search, setting, probes, faiss_flat.threads)


def graph_peer(X: np.ndarray) -> Peer:
    """Build the graph of hnswlib."""
    index, seconds = timed(hnsw.build, X)
    search = lambda Q: index.knn_query(Q, K)[0].astype(int)  # noqa: E731
    return Peer(seconds, search, index.set_ef, (16, 32, 64, 128, 256), index.set_num_threads)


def faiss_graph_peer(X: np.ndarray) -> Peer:
    """Build the graph of faiss."""
    index, seconds = timed(faiss_hnsw.build, X)
    search, setting = lambda Q: index.search(Q, K)[1], lambda v: setattr(index.hnsw, "efSearch", v)
    return Peer(seconds, search, setting, (16, 32, 64, 128, 256), faiss_flat.threads)
