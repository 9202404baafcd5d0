"""Pictures of the lessons about neighbors: regions, voters, folds, landmarks."""

from __future__ import annotations

from typing import Any

import numpy as np

import kway
from kway import report
from kway.neighbors import transfer
from kway.report import style

from . import lessons, maps, planes
from .linear import digits

HOBOKEN = (40.74627, -74.02431)  # on the Hudson, between New Jersey and Manhattan


def regions() -> Any:
    """Draw the regions of 1, 3 and 15 neighbors with L2 and L1 distance, for three overlapping classes."""
    data = kway.datasets.overlapping(300, n_classes=3, seed=4)
    return planes.neighbor_regions(data.x_train, data.y_train)


def voters() -> Any:
    """Draw three misclassified digits with the five rows that voted."""
    X, y = digits(2000)
    test = kway.datasets.digits()
    rows = (test.x_test / 255).astype(np.float32)
    model = kway.NeighborsClassifier(5, weights="distance").fit(X, y)
    wrong = np.flatnonzero(model.predict(rows) != test.y_test)[:3]
    explained = model.explain(rows[wrong])
    voter_rows = X[explained.voters]  # (3, 5, d)
    confidence = explained.probabilities[:, 0]
    columns = (
        rows[wrong],
        test.y_test[wrong],
        explained.labels,
        voter_rows,
        explained.voter_labels,
        explained.distances,
        confidence,
    )
    mistakes = [report.Mistake(*values) for values in zip(*columns)]
    return report.worst_mistakes(mistakes, (28, 28), "Three mistakes, and the rows that voted")


def same_distance() -> Any:
    """Draw a digit, three alterations at the same L2 distance from it, and the nearest digit of another class."""
    X, y = digits(2000)
    row = _digit_near_another_class(X, y)
    gaps = kway.pairwise(X[[row]], X)[0]
    other = int(np.flatnonzero(y != y[row])[gaps[y != y[row]].argmin()])
    return lessons.same_distance(X[row].reshape(28, 28), 1, X[other].reshape(28, 28), f"a {y[other]}")


def _digit_near_another_class(X: Any, y: Any) -> int:
    """Return which of the first 200 digits is nearest to a digit of another class."""
    gaps = kway.pairwise(X[:200], X)
    return int(np.where(y[:200, None] == y, np.inf, gaps).min(axis=1).argmin())


def folds() -> Any:
    """Draw the accuracy of k = 1 to 25 on five folds."""
    found = kway.tune(kway.NeighborsClassifier(), *digits(2000))
    plain = [s for s, setting in enumerate(found.scan.settings) if setting["weights"] == "uniform"][:25]
    k = [found.scan.settings[s]["n_neighbors"] for s in plain]
    scores = found.scan.accuracy[:, plain].T
    return report.cross_validation(k, scores, k[int(scores.mean(axis=1).argmax())])


def cells() -> Any:
    """Draw the post offices of the north-east in the cells of landmarks, and the four cells that a query probes."""
    return maps.landmark_cells(kway.datasets.load("post-offices").x_train, 250, HOBOKEN, box=(-81.0, -69.0, 38.0, 44.0))


def transferred() -> Any:
    """Draw upper halves of digits, their lower halves transferred from five neighbors, and the true images."""
    data = kway.datasets.digits()
    X, half = (data.x_train / 255).astype(np.float32), 14 * 28
    rows = (data.x_test[:8] / 255).astype(np.float32)
    index = kway.search.Flat().build(X[:, :half])
    given = transfer(index, rows[:, :half], list(X[:, half:]), rule="mean", k=5)
    upper = np.concatenate([rows[:, :half], np.zeros_like(rows[:, half:])], axis=1)
    completed = np.concatenate([rows[:, :half], np.array(given.payloads)], axis=1)
    figure = style.figure(height=3.4)
    grid = figure.subplots(3, len(rows))
    for line, (title, images) in enumerate((("query", upper), ("completed", completed), ("true", rows))):
        for axes, image in zip(grid[line], images):
            style.bare(axes)
            axes.imshow(1 - image.reshape(28, 28), cmap="gray", vmin=0, vmax=1)
        grid[line, 0].set_ylabel(title, fontsize=style.TEXT, color=style.MUTED)
    return figure


def boxes() -> Any:
    """Draw the boxes of a KD-tree, and those that a query visits."""
    return maps.tree_boxes(*_plane())


def buckets() -> Any:
    """Draw two hash tables, and the rows that share the keys of a query."""
    return maps.hash_buckets(*_plane(), seed=1)


def _plane() -> tuple[Any, Any]:
    """Return 600 points (n, 2) of three classes, and a query between them."""
    points = kway.datasets.overlapping(750, n_classes=3, seed=4).x_train
    points = points[:, ::-1] * np.array([1.6, 1.0])
    return points, points.mean(axis=0) + np.array([1.2, 0.5]) * points.std(axis=0)


def kernels_and_trees() -> Any:
    """Draw the regions of a linear model, a kernel softmax and trees on three rings."""
    X, y = _rings(600, 0)
    models = {
        "softmax": kway.SoftmaxClassifier(alpha=1e-4),
        "kernel softmax": kway.KernelSoftmaxClassifier(gamma=1.0, alpha=1e-4, random_state=0),
        "extremely randomized trees": kway.TreesClassifier(kind="extra", random_state=0),
        "boosted trees": kway.TreesClassifier(random_state=0),
    }
    test = _rings(2000, 1)
    fitted = {name: model.fit(X, y) for name, model in models.items()}
    return planes.model_regions({f"{name}: {m.score(*test):.2f}": m for name, m in fitted.items()}, X, y)


def _rings(n: int, seed: int) -> tuple[Any, Any]:
    """Return three rings around the origin (n, 2) with noise, and their classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    angle, radius = rng.uniform(0, 2 * np.pi, n), 1 + y + 0.25 * rng.standard_normal(n)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), y
