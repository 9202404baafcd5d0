"""Data of the benchmarks, found through KWAY_DATA; without it embedded or synthetic rows stand in, and it is said.

A quick run cuts every set (`limit`), so that no job has to know about it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

import kway


class Data(NamedTuple):
    """Float32 rows ready to use."""

    name: str
    X: np.ndarray
    y: np.ndarray
    Q: np.ndarray
    yq: np.ndarray


def folder() -> Path | None:
    """Where the real data lies."""
    found = os.environ.get("KWAY_DATA")
    return Path(found) if found and Path(found).is_dir() else None


class Limit(NamedTuple):
    """At most so many rows and queries of any set."""

    rows: int
    queries: int


_limit: Limit | None = None
_classes: int | None = None


def limit(most: Limit | None) -> None:
    """From here on every set is cut to `most` (None: not at all), which a quick run asks for."""
    global _limit
    _limit = most


def limit_classes(most: int | None) -> None:
    """From here on the jobs of many classes have so many (None: their own number)."""
    global _classes
    _classes = most


def classes() -> int | None:
    """What `limit_classes` said."""
    return _classes


def limited() -> bool:
    """Whether this is a quick run."""
    return _limit is not None


def _cut(data: Data) -> Data:
    if _limit is None or (len(data.X) <= _limit.rows and len(data.Q) <= _limit.queries):
        return data
    few = some(data, min(len(data.X), _limit.rows))
    return few._replace(Q=data.Q[: _limit.queries], yq=data.yq[: _limit.queries])


def _of(name: str, X: np.ndarray, y: np.ndarray, Q: np.ndarray, yq: np.ndarray, largest: int) -> Data:
    """Rows of whole numbers up to `largest`, as float32 in [0, 1]."""
    X, Q = (a.reshape(len(a), -1).astype(np.float32) / largest for a in (X, Q))
    return _cut(Data(name, X, y.astype(int), Q, yq.astype(int)))


def stand_in(name: str) -> Data:
    """The embedded digits under another name."""
    digits = kway.datasets.load("digits")
    label = f"digits (embedded, in place of {name})"
    return _of(label, digits.x_train, digits.y_train, digits.x_test, digits.y_test, 255)


def images(name: str) -> Data:
    """mnist, fashion_mnist, omniglot: pixels in [0, 1]."""
    if folder() is None:
        return stand_in(name)
    z = np.load(folder() / f"{name}.npz")
    return _of(name, z["x_train"], z["y_train"], z["x_test"], z["y_test"], 255)


def embeddings(name: str) -> Data:
    """clinc150, banking77: sentence embeddings, train rows against test rows."""
    if folder() is None:
        return stand_in(name)
    z = np.load(folder() / f"{name}_minilm.npz")
    x, y, split = z["x"].astype(np.float32), z["y"].astype(int), z["split"]
    return _cut(Data(name, x[split == "train"], y[split == "train"], x[split == "test"], y[split == "test"]))


def glove() -> Data:
    """Word vectors without classes: base against queries."""
    if folder() is None:
        return stand_in("glove100")
    z = np.load(folder() / "glove100_25k.npz")
    base, queries = z["x_base"].astype(np.float32), z["x_query"].astype(np.float32)
    return _cut(Data("glove100", base, np.arange(len(base)) % 100, queries, np.arange(len(queries)) % 100))


def letter() -> Data:
    """UCI letters, 16 small integers a row."""
    if folder() is None:
        return stand_in("letter")
    z = np.load(folder() / "letter.npz")
    return _of("letter", z["x_train"], z["y_train"], z["x_test"], z["y_test"], 15)


def some(data: Data, n: int) -> Data:
    """The first n training rows."""
    return data if len(data.X) <= n else Data(f"{data.name} {n:,} rows", data.X[:n], data.y[:n], data.Q, data.yq)


def smooth_clusters(n: int, d: int = 64, q: int = 2000, seed: int = 0) -> Data:
    """Rows with structure, as real data has: low-dimensional clusters of unequal size, plus noise."""
    if _limit is not None:
        n, q = min(n, 20 * _limit.rows), min(q, _limit.queries)
    rng = np.random.default_rng(seed)
    n_clusters, inner = 2000, 12
    centres = rng.standard_normal((n_clusters, d)).astype(np.float32) * 2
    axes = rng.standard_normal((50, inner, d)).astype(np.float32) / np.sqrt(inner)
    share = rng.dirichlet(np.full(n_clusters, 0.7))

    def rows(m: int) -> tuple[np.ndarray, np.ndarray]:
        cluster = rng.choice(n_clusters, m, p=share)
        out = np.empty((m, d), np.float32)
        for a in range(0, m, 50_000):
            c = cluster[a : a + 50_000]
            z = rng.standard_normal((len(c), 1, inner)).astype(np.float32)
            out[a : a + 50_000] = centres[c] + np.matmul(z, axes[c % 50])[:, 0] + 0.1 * rng.standard_normal((len(c), d))
        return out, cluster % 100

    X, y = rows(n)
    Q, yq = rows(q)
    return Data(f"clusters {n:,} x {d}", X, y, Q, yq)
