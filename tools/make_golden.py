"""One model file of every kind, with the answers it gave: what a later kway must still read and still say.

    python tools/make_golden.py tests/store/golden/VERSION     (run once a release, by the release itself)

Beside each NAME.kway lies NAME.npz: `queries` (or the CSR arrays of sparse rows, or `table`, its columns as JSON), and
`labels`, `topk_labels`, `topk_scores` as the writing version answered.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import kway
from kway.linear.solvers import SGD
from kway.search import LSH, Flat, Int8, KDTree, Landmarks

N, D, K, QUERIES = 150, 6, 4, 25


def rows(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(N + QUERIES, D) rows around K centres, with text labels."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(K, size=N + QUERIES)
    X = rng.normal(size=(K, D))[codes] * 2 + rng.normal(size=(N + QUERIES, D))
    return X.astype(np.float32), np.array(["ant", "bee", "wasp", "moth"])[codes]


def dense_models() -> dict[str, Any]:
    """Every public estimator, and neighbours of every metric, index and store."""
    near = kway.NeighborsClassifier
    models: dict[str, Any] = {
        "softmax": kway.SoftmaxClassifier(),
        "softmax_ova": kway.LinearClassifier("logistic", multiclass="one-vs-all"),
        "l1": kway.LinearClassifier(penalty="l1", alpha=0.01),
        "sgd": kway.LinearClassifier(solver=SGD(momentum=0.5), random_state=0, max_iter=20, tol=0.5),
        "logistic": kway.LogisticClassifier(),
        "svm": kway.SVMClassifier(),
        "svm_ova": kway.LinearClassifier("hinge", multiclass="one-vs-all"),
        "perceptron": kway.PerceptronClassifier(random_state=0),
        "least_squares": kway.LeastSquaresClassifier(),
        "naive_bayes": kway.NaiveBayesClassifier(),
        "centroid": kway.CentroidClassifier(),
        "centroid_cosine": kway.CentroidClassifier(metric="cosine"),
        "exemplar": kway.ExemplarClassifier(),
        "temperature": kway.TemperatureScaledClassifier(kway.SoftmaxClassifier()),
        "conformal": kway.ConformalClassifier(near(7)),
        "open_set": kway.OpenSetClassifier(kway.SoftmaxClassifier()),
        "near_weighted": near(3, weights="distance", class_weight="balanced"),
        "near_gaussian": near(5, weights="similarity", metric=kway.Gaussian(2.0)),
        "near_laplacian": near(5, weights="similarity", metric=kway.Laplacian(2.0)),
    }
    for metric in ("manhattan", "euclidean", "cosine", "dot", "hamming"):
        models[f"near_flat_{metric}"] = near(5, metric=metric, index=Flat())
    for name, index in {
        "kdtree": KDTree(),
        "lsh": LSH(),
        "lsh_fixed": LSH(n_tables=4, n_bits=4, probes=2),
        "landmarks": Landmarks(),
        "landmarks_fixed": Landmarks(n_landmarks=8, probes=4),
        "int8": Flat(store=Int8()),
        "int8_only": Flat(store=Int8(rerank=False)),
        "landmarks_int8": Landmarks(n_landmarks=8, probes=4, store=Int8()),
    }.items():
        models[f"near_{name}"] = near(5, index=index)
    return models


def table() -> tuple[Any, dict[str, list], np.ndarray, dict[str, list]]:
    """A classifier with its features inside: a number with gaps, a category, a date and a text."""
    from kway.featured import FeaturedClassifier

    X, y = rows(2)
    words = {"ant": "hill and queen", "bee": "honey or hive", "wasp": "sting in summer", "moth": "light at night"}
    columns = {
        "size": [None if i % 17 == 0 else float(x) for i, x in enumerate(X[:, 0])],
        "colour": [("red", "green", "blue")[int(abs(x) * 2) % 3] for x in X[:, 1]],
        "seen": [f"2024-{1 + i % 12:02}-{1 + i % 28:02}" for i in range(len(X))],
        "note": [f"{words[label]} number {i % 7} was seen near the {i % 5} old tree" for i, label in enumerate(y)],
    }
    train = {name: values[:N] for name, values in columns.items()}
    asked = {name: values[N:] for name, values in columns.items()}
    return FeaturedClassifier(kway.SoftmaxClassifier()), train, y[:N], asked


def keep(folder: Path, name: str, model: Any, X: Any, y: np.ndarray, Q: Any) -> None:
    """Fit, save, and write down what it answers."""
    model.fit(X, y)
    model.save(folder / f"{name}.kway")
    best = model.predict_topk(Q, 3)
    if sp.issparse(Q):
        stored = {"data": Q.data, "indices": Q.indices, "indptr": Q.indptr, "shape": np.array(Q.shape)}
    elif isinstance(Q, dict):
        stored = {"table": np.array(json.dumps(Q))}
    else:
        stored = {"queries": np.asarray(Q)}
    np.savez_compressed(
        folder / f"{name}.npz", **stored, labels=model.predict(Q), topk_labels=best[0], topk_scores=best[1]
    )


def main(folder: Path) -> None:
    """Write them all."""
    folder.mkdir(parents=True, exist_ok=True)
    X, y = rows()
    for name, model in dense_models().items():
        keep(folder, name, model, X[:N], y[:N], X[N:])
    number = kway.LeastSquaresClassifier(targets="number")
    keep(folder, "least_squares_number", number, X[:N], np.unique(y[:N], return_inverse=True)[1], X[N:])
    keep(folder, "near_haversine", kway.NeighborsClassifier(3, metric="haversine"), X[:N, :2] / 4, y[:N], X[N:, :2] / 4)
    S = sp.csr_matrix(np.where(np.abs(X) > 1.5, X, 0))
    for name, model in {
        "sparse_softmax": kway.SoftmaxClassifier(),
        "sparse_near": kway.NeighborsClassifier(5),
        "sparse_near_cosine": kway.NeighborsClassifier(5, metric="cosine"),
    }.items():
        keep(folder, name, model, S[:N], y[:N], S[N:])
    keep(folder, "featured", *table())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
