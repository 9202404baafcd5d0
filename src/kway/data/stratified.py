"""Rows dealt and drawn class by class, row for row as scikit-learn's StratifiedKFold and StratifiedShuffleSplit do it.

codes (n,), none of them negative. Its own modules are not asked, since sklearn.model_selection loads all metrics and
scipy.stats: more than half a second before a job on a small table begins.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.extmath import _approximate_mode


class Drawn(NamedTuple):
    """Positions of the rows that stay, and of those that were drawn."""

    kept: NDArray[np.int64]
    drawn: NDArray[np.int64]


def deal(codes: NDArray[np.int64], n_folds: int, seed: int) -> NDArray[np.int64]:
    """The fold (n,) of every row: sizes of folds, and of a class in them, differ by one at most.

    >>> deal(np.array([0, 1, 0, 1, 0, 1]), 3, 0).tolist()
    [2, 2, 1, 0, 0, 1]
    """
    _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    codes = np.argsort(np.argsort(first))[codes]  # classes in the order in which they appear
    in_order, n_classes = np.sort(codes), len(first)
    shares = [np.bincount(in_order[fold::n_folds], minlength=n_classes) for fold in range(n_folds)]  # (folds, classes)
    rng = np.random.RandomState(seed)
    folds = np.empty(len(codes), np.int64)
    for code, share in enumerate(np.transpose(shares)):
        own = np.repeat(np.arange(n_folds), share)
        rng.shuffle(own)
        folds[codes == code] = own
    return folds


def draw(codes: NDArray[np.int64], size: int, seed: int) -> Drawn:
    """`size` rows, of every class the same share; classes need two rows each, and `size` must leave one a class."""
    _, codes, counts = np.unique(codes, return_inverse=True, return_counts=True)
    rng = np.random.RandomState(seed)
    keep = _approximate_mode(counts, len(codes) - size, rng)  # rows a class
    take = _approximate_mode(counts - keep, size, rng)
    kept, drawn = [], []
    for rows, n_kept, n_drawn in zip(np.split(np.argsort(codes, kind="stable"), np.cumsum(counts)[:-1]), keep, take):
        shuffled = rows[rng.permutation(len(rows))]
        kept.append(shuffled[:n_kept])
        drawn.append(shuffled[n_kept : n_kept + n_drawn])
    return Drawn(rng.permutation(np.concatenate(kept)), rng.permutation(np.concatenate(drawn)))
