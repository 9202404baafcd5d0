"""Rows dealt and drawn by class: scikit-learn's splitters are the oracle, row for row."""

import numpy as np
import pytest
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit

from kway.data.stratified import deal, draw

CASES = range(40)


def drawn_codes(case):
    """Classes of very unequal size, in any order, some numbers without a row."""
    rng = np.random.default_rng(case)
    counts = rng.integers(2, 3 + 3 ** rng.integers(1, 6), rng.integers(2, 30))
    return rng.permutation(np.repeat(np.sort(rng.choice(100, len(counts), replace=False)), counts))


@pytest.mark.parametrize("case", CASES)
def test_folds_are_those_of_scikit_learn(case):
    codes, n_folds = drawn_codes(case), 2 + case % 4
    codes = codes[np.bincount(codes)[codes] >= n_folds]
    theirs = np.empty(len(codes), np.int64)
    for fold, (_, inside) in enumerate(StratifiedKFold(n_folds, shuffle=True, random_state=case).split(codes, codes)):
        theirs[inside] = fold
    np.testing.assert_array_equal(deal(codes, n_folds, case), theirs)


@pytest.mark.parametrize("case", CASES)
def test_drawn_rows_are_those_of_scikit_learn(case):
    codes = drawn_codes(case)
    n_classes = len(np.unique(codes))
    size = int(np.random.default_rng(case).integers(n_classes, len(codes) - n_classes + 1))
    kept, drawn = next(StratifiedShuffleSplit(1, test_size=size, random_state=case).split(codes, codes))
    ours = draw(codes, size, case)
    np.testing.assert_array_equal(ours.kept, kept)
    np.testing.assert_array_equal(ours.drawn, drawn)
