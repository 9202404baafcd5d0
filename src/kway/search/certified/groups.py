"""FeatureGroups of features that move together: (columns, signs), groups of 2^level features lie side by side.

|sum of signed differences| is close to the sum of |differences| where the features of a group differ in step. Greedy
pairing by |correlation| of differences, level by level, so that pairs nest in fours, eights, sixteens; neighbouring
pixels find each other by themselves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.kernels.certified.sketch import pair_up


class FeatureGroups(NamedTuple):
    """columns (d,): an order of the features; signs (d,) +-1 float32, in that order."""

    columns: NDArray[np.int64]
    signs: NDArray[np.float32]


def correlated_groups(differences: NDArray[np.float32], levels: int) -> FeatureGroups:
    """FeatureGroups from differences of random pairs of rows (s, d)."""
    d = differences.shape[1]
    members = [np.array([i]) for i in range(d)]
    signs, sums = np.ones(d, np.float32), differences
    for _ in range(levels):
        mate, turned = _mates(sums)
        joined, columns = [], []
        for i, j in enumerate(mate):
            if j < 0:
                joined.append(members[i])
                columns.append(sums[:, i])
            elif i < j:
                flip = np.float32(-1 if turned[i] else 1)
                signs[members[j]] *= flip
                joined.append(np.concatenate([members[i], members[j]]))
                columns.append(sums[:, i] + flip * sums[:, j])
        members, sums = joined, np.stack(columns, axis=1)
    columns_order = np.concatenate(members)
    return FeatureGroups(columns_order, signs[columns_order])


def _mates(sums: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The partner of each column (-1: none), and whether the two move against each other."""
    n = sums.shape[1]
    spread = np.sqrt(np.einsum("ij,ij->j", sums, sums)) + 1e-30
    alike = (sums / spread).T @ (sums / spread)
    left, right = np.triu_indices(n, 1)
    strength = alike[left, right]
    mate = pair_up(np.argsort(-np.abs(strength), kind="stable"), left, right, n)
    return mate, alike[np.arange(n), mate] < 0
