"""A column (or npz key) `split` that says which rows are for training and which for the test."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.data.suggest import listing
from kway.errors import InputError

_TRAIN_WORDS = ("train", "val", "valid", "validation", "dev")
_TEST_WORDS = ("test",)


class SplitMasks(NamedTuple):
    """Masks (n,) of the rows to learn from and of those to test on."""

    train: NDArray[np.bool_]
    test: NDArray[np.bool_]


def split_masks(split: NDArray, name: str) -> SplitMasks:
    """Rows by a column that says "train", "val" or "test"; val rows count as train, any other word is an error."""
    words = np.char.lower(np.asarray(split, dtype=str))
    train, test = np.isin(words, _TRAIN_WORDS), np.isin(words, _TEST_WORDS)
    if not (train | test).all():
        strange = np.unique(words[~(train | test)])
        raise InputError(f"column split of {name} says {listing(strange)}; it may say train, val or test")
    return SplitMasks(train, test)
