"""Data of the benchmarks, found through KWAY_DATA; without it embedded or synthetic rows stand in, and it is said."""

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


def stand_in(name: str) -> Data:
    """The embedded digits under another name."""
    digits = kway.datasets.load("digits")
    flat = lambda a: a.reshape(len(a), -1).astype(np.float32) / 255  # noqa: E731
    label = f"digits (embedded, in place of {name})"
    return Data(label, flat(digits.x_train), digits.y_train.astype(int), flat(digits.x_test), digits.y_test.astype(int))


def images(name: str) -> Data:
    """mnist, fashion_mnist, omniglot: pixels in [0, 1]."""
    if folder() is None:
        return stand_in(name)
    z = np.load(folder() / f"{name}.npz")
    flat = lambda a: a.reshape(len(a), -1).astype(np.float32) / 255  # noqa: E731
    return Data(name, flat(z["x_train"]), z["y_train"].astype(int), flat(z["x_test"]), z["y_test"].astype(int))


def embeddings(name: str) -> Data:
    """clinc150, banking77: sentence embeddings, train rows against test rows."""
    if folder() is None:
        return stand_in(name)
    z = np.load(folder() / f"{name}_minilm.npz")
    x, y, split = z["x"].astype(np.float32), z["y"].astype(int), z["split"]
    return Data(name, x[split == "train"], y[split == "train"], x[split == "test"], y[split == "test"])


def glove() -> Data:
    """Word vectors without classes: base against queries."""
    if folder() is None:
        return stand_in("glove100")
    z = np.load(folder() / "glove100_25k.npz")
    base, queries = z["x_base"].astype(np.float32), z["x_query"].astype(np.float32)
    return Data("glove100", base, np.arange(len(base)) % 100, queries, np.arange(len(queries)) % 100)


def letter() -> Data:
    """UCI letters, 16 small integers a row."""
    if folder() is None:
        return stand_in("letter")
    z = np.load(folder() / "letter.npz")
    scale = lambda a: a.astype(np.float32) / 15  # noqa: E731
    return Data("letter", scale(z["x_train"]), z["y_train"].astype(int), scale(z["x_test"]), z["y_test"].astype(int))


def some(data: Data, n: int) -> Data:
    """The first n training rows."""
    return Data(f"{data.name} {n:,} rows", data.X[:n], data.y[:n], data.Q, data.yq)


def smooth_clusters(n: int, d: int = 64, q: int = 2000, seed: int = 0) -> Data:
    """Rows with structure, as real data has: low-dimensional clusters of unequal size, plus noise."""
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
