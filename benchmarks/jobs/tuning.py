"""T5, T6: every setting on every fold with shared work, against searches that fit each setting separately."""

from __future__ import annotations

import numpy as np
import scipy.special

from kway.linear.losses import LOSSES
from kway.linear.path import alpha_path
from kway.neighbors.tuning import sweep
from kway.search import Gaussian

from .. import datasets
from ..models import sklearn_tuning as peers
from ..race import Row, race, row

ALPHAS = np.logspace(-1, -6, 10)
SOFTMAX = LOSSES["softmax"].joint
FOLDS = 5
CLOSE = 1.001  # an objective counts as at least as low up to this factor


def folds_of(n: int) -> np.ndarray:
    """Return fold numbers (n,) of equal sizes, so that one C means one alpha on each fold."""
    return np.random.default_rng(0).permutation(np.arange(n) % FOLDS)


def splits_of(folds: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(np.flatnonzero(folds != f), np.flatnonzero(folds == f)) for f in range(FOLDS)]


def objectives(paths: np.ndarray, X: np.ndarray, y: np.ndarray, splits: list) -> np.ndarray:
    """Return the mean cross-entropy plus alpha / 2 ||W||^2 of weights (folds, alphas, K, d + 1), in float64."""
    out = np.empty(paths.shape[:2])
    for f, (learned, _) in enumerate(splits):
        A, codes = X[learned].astype(np.float64), y[learned]
        for a, alpha in enumerate(ALPHAS):
            W, b = paths[f, a, :, :-1], paths[f, a, :, -1]
            Z = A @ W.T + b
            loss = (scipy.special.logsumexp(Z, axis=1) - Z[np.arange(len(Z)), codes]).mean()
            out[f, a] = loss + alpha / 2 * (W * W).sum()
    return out


def our_objectives(X: np.ndarray, y: np.ndarray, splits: list) -> np.ndarray:
    """Return the objectives of the path on each fold, (folds, alphas)."""
    found = []
    for learned, held_out in splits:
        rows = np.concatenate([learned, held_out])
        found.append(alpha_path(X[rows], y[rows], SOFTMAX, ALPHAS, len(learned)).objective)
    return np.array(found)


def path_row(data: datasets.Data, rounds: int) -> Row:
    """10 alphas x 5 folds of softmax."""
    n = len(data.X) // FOLDS * FOLDS
    X, y = data.X[:n], np.unique(data.y[:n], return_inverse=True)[1]
    splits = splits_of(folds_of(n))
    alpha_path(X[:2000], y[:2000], SOFTMAX, ALPHAS[:1], 1600)  # compiles
    timings = race(
        {
            "kway": lambda: our_objectives(X, y, splits),
            peers.PATH: lambda: peers.path(X, y, ALPHAS, splits),
        },
        rounds,
    )
    ours = timings["kway"].answer
    theirs = objectives(timings[peers.PATH].answer, X, y, splits)
    worst = float((ours / theirs).max())
    quality = f"objective against theirs: at most {worst:.4f}, at least {float((ours / theirs).min()):.3f}"
    return row("T5", "softmax, 10 alphas x 5 folds", data.name, peers.PATH, timings, quality, worst <= CLOSE)


def t5(rounds: int, quick: bool) -> list[Row]:
    """The regularization path."""
    mnist = datasets.some(datasets.images("mnist"), 500 if quick else 20_000)
    rows = [path_row(mnist, 1 if quick else min(rounds, 2))]
    return rows if quick else [*rows, path_row(datasets.embeddings("banking77"), min(rounds, 3))]


def t6(rounds: int, quick: bool) -> list[Row]:
    """k = 1..50 x 3 votes x 5 folds; ties as scikit-learn breaks them, so that the accuracies must be equal.

    The grid fits every setting separately, so its time is the sum over its settings: it runs every tenth k (5, 15, ..),
    and its seconds count ten times. All 50 would take half an hour.
    """
    data = datasets.some(datasets.images("mnist"), 1000 if quick else 20_000)
    folds, k_max, sigma = folds_of(len(data.X)), 50, 5.0
    some = range(5, k_max + 1, 10)
    votes = ("uniform", "distance", lambda d: np.exp(-((d / sigma) ** 2)))

    def ours():
        found = sweep(data.X, data.y, folds, k_max, ("uniform", "distance", "similarity"), Gaussian(sigma), "smallest")
        return found.mean(axis=0)  # (votes, k_max)

    ours()  # compiles
    timings = race(
        {"kway": ours, peers.GRID: lambda: peers.grid(data.X, data.y, some, votes, splits_of(folds))}, min(rounds, 2)
    )
    best, differ = quality_of(timings, some)
    timings[peers.GRID].seconds = [s * k_max / len(some) for s in timings[peers.GRID].seconds]
    quality = f"accuracies differ by at most {differ:.5f}, best {best:.4f}; every tenth k of the grid timed, x 10"
    return [row("T6", "k = 1..50 x 3 votes x 5 folds", data.name, peers.GRID, timings, quality, differ <= 5e-4)]


def quality_of(timings: dict, some: range) -> tuple[float, float]:
    """kway's best accuracy, and how far any setting that both tried differs."""
    ours, theirs = timings["kway"].answer, timings[peers.GRID].answer
    return float(ours.max()), float(np.abs(ours[:, np.asarray(some) - 1] - theirs).max())
