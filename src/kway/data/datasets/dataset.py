"""Dataset: rows with their labels, already cut into a train and a test part where the source is.

x_train (n, d)  y_train (n,)     x_test (m, d)  y_test (m,), all None where the source has no such part
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.errors import InputError

TEST_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows and labels; `label_names[code]` names an integer label where the source has names.

    `extras` keeps what else the source carried (texts, words, exact neighbours), one array a key.
    """

    name: str
    x_train: Any
    y_train: NDArray | None
    x_test: Any = None
    y_test: NDArray | None = None
    label_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()
    description: str = ""
    extras: Mapping[str, NDArray] = field(default_factory=dict)

    def named(self) -> Dataset:
        """The same with integer labels replaced by their names, where it has names."""
        if not self.label_names:
            return self
        table = np.asarray(self.label_names)
        return replace(
            self,
            y_train=None if self.y_train is None else table[self.y_train],
            y_test=None if self.y_test is None else table[self.y_test],
            label_names=(),
        )

    def split(self, seed: int = 0) -> Dataset:
        """The same with a stratified, seeded test part of 20 %, unless it already has a test part.

        A class of a single row goes to the train part: a class that was never seen cannot be tested.
        """
        if self.x_test is not None or self.y_train is None:
            return self
        train, test = stratified(self.y_train, seed)
        return replace(
            self,
            x_train=self.x_train[train],
            y_train=self.y_train[train],
            x_test=self.x_train[test],
            y_test=self.y_train[test],
        )


def stratified(y: NDArray, seed: int, share: float = TEST_SHARE) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions (kept, held out) with `share` of every class held out, single rows kept."""
    from kway.data.stratified import draw  # scikit-learn loads late

    _, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    several = np.flatnonzero(counts[codes] > 1)
    n_classes = int((counts > 1).sum())
    if n_classes == 0:
        raise InputError(
            f"{len(y)} rows in {len(counts)} classes cannot be split: no class has two rows; give a test file instead"
        )
    held = max(n_classes, round(share * len(several)))  # one row of each class at least
    found = draw(codes[several], held, seed)
    single = np.flatnonzero(counts[codes] == 1)
    return np.sort(np.concatenate([several[found.kept], single])), np.sort(several[found.drawn])
