"""Synthetic sets: float32 rows (n, d) around class centers, integer labels (n,).

separable      classes with a gap between them: hyperplanes separate every pair without error
overlapping    Gaussian classes that no classifier separates without error
outliers       two classes, and distant points of one of them on the correct side; they move the boundary of least
               squares, but not that of logistic regression
many_classes   up to millions of classes; the memory is that of the rows and of one table (K, d) of centers
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kway.errors import InputError
from kway.memory import CACHE_BYTES, rows_per_block
from kway.tables.datasets.arrays import Dataset


def separable(
    n_samples: int = 1000, n_classes: int = 3, n_features: int = 2, margin: float = 1.0, seed: int = 0
) -> Dataset:
    """Return classes in unit balls with a gap between them.

    Parameters
    ----------
    n_samples : int, default=1000
        Number of rows, of which 20% become the test part.
    n_classes : int, default=3
        Number of classes.
    n_features : int, default=2
        Number of columns.
    margin : float, default=1.0
        Smallest gap between two balls.
    seed : int, default=0
        Seed; the same seed gives the same rows.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> separable(n_samples=100).x_train.shape
    (80, 2)
    """
    rng = np.random.default_rng(seed)
    centers = _spread_centers(rng, n_classes, n_features, distance=2.0 + margin)
    offsets = rng.standard_normal((n_samples, n_features))
    offsets *= (rng.random(n_samples) ** (1 / n_features) / np.linalg.norm(offsets, axis=1))[:, None]  # unit ball
    y = rng.permutation(np.arange(n_samples) % n_classes)
    return _finish(f"separable-{n_classes}", (centers[y] + offsets).astype(np.float32), y, seed)


def overlapping(
    n_samples: int = 1000, n_classes: int = 3, n_features: int = 2, spread: float = 1.0, seed: int = 0
) -> Dataset:
    """Return Gaussian classes that overlap; the distance of the nearest centers is 2.

    Parameters
    ----------
    n_samples : int, default=1000
        Number of rows, of which 20% become the test part.
    n_classes : int, default=3
        Number of classes.
    n_features : int, default=2
        Number of columns.
    spread : float, default=1.0
        Standard deviation of each class.
    seed : int, default=0
        Seed; the same seed gives the same rows.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> overlapping(n_samples=100).x_train.shape
    (80, 2)
    """
    rng = np.random.default_rng(seed)
    centers = _spread_centers(rng, n_classes, n_features, distance=2.0)
    y = rng.permutation(np.arange(n_samples) % n_classes)
    x = centers[y] + spread * rng.standard_normal((n_samples, n_features))
    return _finish(f"overlapping-{n_classes}", x.astype(np.float32), y, seed)


def outliers(n_samples: int = 200, n_outliers: int = 20, seed: int = 0) -> Dataset:
    """Return two classes in the plane, with distant points of class 1 on its own side of the boundary.

    The test part has no outliers, so its accuracy shows how far they moved the boundary.

    Parameters
    ----------
    n_samples : int, default=200
        Number of training rows without the outliers, and of test rows.
    n_outliers : int, default=20
        Number of outliers.
    seed : int, default=0
        Seed; the same seed gives the same rows.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> outliers().x_train.shape
    (220, 2)
    """
    rng = np.random.default_rng(seed)
    centers = np.array([[-1.0, 1.0], [1.0, -1.0]])
    y = np.arange(n_samples) % 2
    x = centers[y] + 0.5 * rng.standard_normal((n_samples, 2))
    far = np.array([6.0, -9.0]) + 0.5 * rng.standard_normal((n_outliers, 2))
    y_test = np.arange(n_samples) % 2
    x_test = centers[y_test] + 0.5 * rng.standard_normal((n_samples, 2))
    return Dataset(
        name="outliers",
        x_train=np.concatenate([x, far]).astype(np.float32),
        y_train=np.concatenate([y, np.ones(n_outliers, np.int64)]),
        x_test=x_test.astype(np.float32),
        y_test=y_test,
        description=f"two classes of {n_samples} rows and {n_outliers} outliers on the correct side, seed {seed}",
    )


def many_classes(
    n_classes: int = 1000,
    n_features: int = 64,
    rows_per_class: int = 2,
    n_test: int = 1000,
    noise: float = 0.5,
    seed: int = 0,
) -> Dataset:
    """Return many classes around random unit vectors.

    Parameters
    ----------
    n_classes : int, default=1000
        Number of classes.
    n_features : int, default=64
        Number of columns.
    rows_per_class : int, default=2
        Number of training rows per class.
    n_test : int, default=1000
        Number of test rows, from random classes.
    noise : float, default=0.5
        Typical length of the noise that is added to the center of the class.
    seed : int, default=0
        Seed; the same seed gives the same rows.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> many_classes(n_classes=50).x_train.shape
    (100, 64)
    """
    if n_classes < 2:
        raise InputError(f"n_classes must be at least 2; got {n_classes}")
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((n_classes, n_features), dtype=np.float32)  # (K, d), the only table of that size
    centers /= np.sqrt(np.einsum("kd,kd->k", centers, centers))[:, None]
    y_train = np.repeat(np.arange(n_classes), rows_per_class)
    rng.shuffle(y_train)
    y_test = rng.integers(n_classes, size=n_test)
    return Dataset(
        name=f"many-{n_classes}",
        x_train=_around(centers, y_train, noise, rng),
        y_train=y_train,
        x_test=_around(centers, y_test, noise, rng),
        y_test=y_test,
        description=f"{n_classes:,} classes around unit centers in {n_features} dimensions, seed {seed}",
    )


def _around(centers: NDArray, y: NDArray, noise: float, rng: np.random.Generator) -> NDArray[np.float32]:
    d = centers.shape[1]
    x = np.empty((len(y), d), np.float32)
    size = rows_per_block(4 * d, CACHE_BYTES)  # centers[y] is a copy
    for a in range(0, len(y), size):
        rows = x[a : a + size]
        rng.standard_normal(out=rows, dtype=np.float32)
        rows *= np.float32(noise / np.sqrt(d))
        rows += centers[y[a : a + size]]
    return x


def _spread_centers(rng: np.random.Generator, n_classes: int, n_features: int, distance: float) -> NDArray:
    """Return (K, d) points of a grid with this spacing, in random order."""
    if n_classes < 2 or n_features < 1:
        raise InputError(f"n_classes must be at least 2 and n_features at least 1; got {n_classes} and {n_features}")
    side = int(np.ceil(n_classes ** (1 / n_features)))
    while side**n_features < n_classes:  # the root may round down
        side += 1
    cells = rng.permutation(n_classes)
    place = np.empty((n_classes, n_features))
    for j in range(n_features):
        place[:, j] = cells % side
        cells = cells // side
    return distance * (place - (side - 1) / 2 * (place.max(axis=0) > 0))


def _finish(name: str, x: NDArray, y: NDArray, seed: int) -> Dataset:
    whole = Dataset(name, x, y, description=f"synthetic, {len(np.unique(y))} classes, seed {seed}")
    return whole.split(seed)
