"""Data sets of the benchmarks, in the folder KWAY_DATA. Without it, embedded or synthetic rows replace them, and the
name of the set says so.

A quick run shortens every dataset (`limit`), so that the jobs need no code for it.
"""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import kway


class Data(NamedTuple):
    """Float32 rows; those of texts are sparse."""

    name: str
    X: Any
    y: np.ndarray
    Q: Any
    yq: np.ndarray


def folder() -> Path | None:
    """Return the folder of the real data."""
    found = os.environ.get("KWAY_DATA")
    return Path(found) if found and Path(found).is_dir() else None


class Limit(NamedTuple):
    """Largest number of rows and queries of a dataset."""

    rows: int
    queries: int


_limit: Limit | None = None
_classes: int | None = None


def limit(most: Limit | None) -> None:
    """Shorten every dataset to `most` from now on (None: not at all)."""
    global _limit
    _limit = most


def limit_classes(most: int | None) -> None:
    """Set the number of classes of the jobs with many classes (None: their own)."""
    global _classes
    _classes = most


def classes() -> int | None:
    """Return the number that `limit_classes` has set."""
    return _classes


def limited() -> bool:
    """Return whether this is a quick run."""
    return _limit is not None


def _cut(data: Data) -> Data:
    if _limit is None or (data.X.shape[0] <= _limit.rows and data.Q.shape[0] <= _limit.queries):
        return data
    few = some(data, min(data.X.shape[0], _limit.rows))
    return few._replace(Q=data.Q[: _limit.queries], yq=data.yq[: _limit.queries])


def _of(name: str, X: np.ndarray, y: np.ndarray, Q: np.ndarray, yq: np.ndarray, largest: int) -> Data:
    """Convert whole numbers up to `largest` to float32 in [0, 1]."""
    X, Q = (a.reshape(len(a), -1).astype(np.float32) / largest for a in (X, Q))
    return _cut(Data(name, X, y.astype(int), Q, yq.astype(int)))


def stand_in(name: str) -> Data:
    """Return the embedded digits under another name."""
    digits = kway.datasets.load("digits")
    label = f"digits (embedded, in place of {name})"
    return _of(label, digits.x_train, digits.y_train, digits.x_test, digits.y_test, 255)


def images(name: str) -> Data:
    """Return mnist, fashion_mnist or omniglot, with pixels in [0, 1]."""
    if folder() is None:
        return stand_in(name)
    z = np.load(folder() / f"{name}.npz")
    return _of(name, z["x_train"], z["y_train"], z["x_test"], z["y_test"], 255)


def embeddings(name: str) -> Data:
    """Return sentence embeddings of clinc150 or banking77."""
    if folder() is None:
        return stand_in(name)
    z = np.load(folder() / f"{name}_minilm.npz")
    x, y, split = z["x"].astype(np.float32), z["y"].astype(int), z["split"]
    return _cut(Data(name, x[split == "train"], y[split == "train"], x[split == "test"], y[split == "test"]))


def glove() -> Data:
    """Return word vectors without classes, and queries."""
    if folder() is None:
        return stand_in("glove100")
    z = np.load(folder() / "glove100_25k.npz")
    base, queries = z["x_base"].astype(np.float32), z["x_query"].astype(np.float32)
    return _cut(Data("glove100", base, np.arange(len(base)) % 100, queries, np.arange(len(queries)) % 100))


def letter() -> Data:
    """Return UCI letters, 16 small integers per row."""
    if folder() is None:
        return stand_in("letter")
    z = np.load(folder() / "letter.npz")
    return _of("letter", z["x_train"], z["y_train"], z["x_test"], z["y_test"], 15)


def standardized(data: Data) -> Data:
    """Standardize every feature over the training rows."""
    mean, deviation = data.X.mean(axis=0), data.X.std(axis=0)
    scale = np.where(deviation > 0, deviation, 1)
    X, Q = ((rows - mean) / scale for rows in (data.X, data.Q))
    return data._replace(name=f"{data.name}, standardized", X=X.astype(np.float32), Q=Q.astype(np.float32))


class Texts(NamedTuple):
    """Texts and their labels."""

    texts: list[str]
    labels: list[str]


def texts(name: str) -> Data:
    """Return clinc150 or banking77 as TF-IDF of words, float32 CSR rows of unit length."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    if folder() is None:
        label, learned, asked = f"made-up texts (in place of {name})", _made_up(2000, 0), _made_up(500, 1)
    else:
        label, learned, asked = f"{name} texts", _read(name, "train"), _read(name, "test")
    words = TfidfVectorizer(dtype=np.float32)
    X, Q = words.fit_transform(learned.texts), words.transform(asked.texts)
    classes = np.unique(learned.labels)
    y, yq = (np.searchsorted(classes, part.labels) for part in (learned, asked))
    return _cut(Data(label, X, y, Q, yq))


def _read(name: str, split: str) -> Texts:
    """Read one split of a csv of texts, and shuffle it because the file is sorted by class."""
    with gzip.open(folder() / f"{name}.csv.gz", "rt", newline="", encoding="utf-8") as file:  # type: ignore[operator]
        rows = [row for row in csv.DictReader(file) if row["split"] == split]
    order = np.random.default_rng(0).permutation(len(rows))
    return Texts([rows[i]["text"] for i in order], [rows[i]["label"] for i in order])


def _made_up(n: int, seed: int, classes: int = 20) -> Texts:
    """Make sentences of ten words, of which three depend on the class."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, classes, n)
    telling = 10 * codes[:, None] + rng.integers(0, 10, (n, 3))
    drawn = np.hstack([telling, 200 + rng.integers(0, 3000, (n, 7))])
    return Texts([" ".join(f"word{w}" for w in row) for row in drawn], [f"class{c:02d}" for c in codes])


def wide(n: int, d: int, classes: int = 5, seed: int = 0) -> Data:
    """Make fewer rows than features, as in gene expression: class means in a few features, correlated noise in all."""
    rng = np.random.default_rng(seed)
    if _limit is not None:
        d = d // 10
    means = np.zeros((classes, d), np.float32)
    means[:, : d // 50] = rng.standard_normal((classes, d // 50))
    shared = rng.standard_normal((10, d)).astype(np.float32)

    def rows(m: int) -> tuple[np.ndarray, np.ndarray]:
        y = np.arange(m) % classes
        noise = rng.standard_normal((m, d)).astype(np.float32)
        return means[y] + noise + rng.standard_normal((m, 10)).astype(np.float32) @ shared, y

    return Data(f"wide {n:,} x {d:,}", *rows(n), *rows(n))


def some(data: Data, n: int) -> Data:
    """Return the first n training rows."""
    return data if data.X.shape[0] <= n else Data(f"{data.name} {n:,} rows", data.X[:n], data.y[:n], data.Q, data.yq)


def smooth_clusters(n: int, d: int = 64, q: int = 2000, seed: int = 0) -> Data:
    """Make rows with the structure of real data: low-dimensional clusters of unequal size, plus noise."""
    if _limit is not None:
        n, q = min(n, 20 * _limit.rows), min(q, _limit.queries)
    rng = np.random.default_rng(seed)
    n_clusters, inner = 2000, 12
    centers = rng.standard_normal((n_clusters, d)).astype(np.float32) * 2
    axes = rng.standard_normal((50, inner, d)).astype(np.float32) / np.sqrt(inner)
    share = rng.dirichlet(np.full(n_clusters, 0.7))

    def rows(m: int) -> tuple[np.ndarray, np.ndarray]:
        cluster = rng.choice(n_clusters, m, p=share)
        out = np.empty((m, d), np.float32)
        for a in range(0, m, 50_000):
            c = cluster[a : a + 50_000]
            z = rng.standard_normal((len(c), 1, inner)).astype(np.float32)
            out[a : a + 50_000] = centers[c] + np.matmul(z, axes[c % 50])[:, 0] + 0.1 * rng.standard_normal((len(c), d))
        return out, cluster % 100

    X, y = rows(n)
    Q, yq = rows(q)
    return Data(f"clusters {n:,} x {d}", X, y, Q, yq)
