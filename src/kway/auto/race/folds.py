"""The test split, the folds of the training rows, and the samples of a race.

    default  stratified by class, seeded
    groups   rows of one group stay together, in the test set and in a fold
    order    the last rows are the test set, and the last training rows are the only validation fold

Folds are numbers (n,). A model for fold f learns from the rows outside f and is scored on the rows inside f. Rows with
fold number -1 are only learned from.

The samples of a race are the first rows of `stratified_order`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from kway.confidence.splits import Split
from kway.errors import InputError
from kway.parameters import SEED, whole
from kway.tables.datasets.arrays import stratified

HELD_OUT_SHARE = 0.2  # share of the rows in the test set, in a calibration split, and in one fold of five
_MIN_SHARE_ALONE = 0.005  # a note is shown if more than this share of rows has no row of its class outside its fold
ROWS_PER_CLASS = 10  # below this number of rows per class, families cannot be compared reliably
FEW_ROWS = 250  # rows of a quick sample: for a timed prediction, or for permutation importance


def split_test(
    codes: NDArray[np.int64], share: float = HELD_OUT_SHARE, groups: Any = None, order: Any = None, seed: int = 0
) -> Split:
    """Return a training and a test set; the test set has about `share` of the rows.

    With groups, it has about one of round(1 / share) equal parts, at most half of the rows unless a group is larger.
    Groups and order cannot be combined.
    """
    n = len(codes)
    SEED.check("seed", seed)
    if groups is not None and order is not None:
        raise InputError("groups and order were both given; a split can follow only one of them")
    if order is not None:
        in_order = np.argsort(np.asarray(order), kind="stable")
        n_train = n - max(1, round(share * n))
        return Split(np.sort(in_order[:n_train]), np.sort(in_order[n_train:]))
    if groups is not None:
        train, test = next(_group_splits(codes, groups, max(2, round(1 / share)), seed))
        return Split(train, test)
    return Split(*stratified(codes, share, seed))


def fold_numbers(
    codes: NDArray[np.int64], n_folds: int = 5, groups: Any = None, order: Any = None, seed: int = 0
) -> NDArray[np.int64]:
    """Return the fold of each row (n,); -1 if a row is only learned from. `order` takes precedence over `groups`."""
    n = len(codes)
    whole(2).check("folds", n_folds)
    SEED.check("seed", seed)
    if order is not None:
        in_order = np.argsort(np.asarray(order), kind="stable")
        numbers = np.full(n, -1, np.int64)
        numbers[in_order[n - max(1, n // n_folds) :]] = 0
        return numbers
    if groups is not None:
        return _numbered(_group_splits(codes, groups, n_folds, seed), n)
    return _stratified_folds(codes, n_folds, seed)


def _numbered(splits: Iterable[tuple[NDArray, NDArray]], n: int) -> NDArray[np.int64]:
    """Return for each row (n,) the number of the split that holds it out; every row is held out once."""
    numbers = np.empty(n, np.int64)
    for number, (_, inside) in enumerate(splits):
        numbers[inside] = number
    return numbers


def few_rows_note(codes: NDArray[np.int64], folds: NDArray[np.int64]) -> tuple[str, ...]:
    """Return a note if a noticeable share of the scored rows belongs to a class without a row outside their fold."""
    scored = folds >= 0
    cells = codes[scored] * (int(folds.max()) + 1) + folds[scored]  # pair of class and fold of each scored row
    alone = np.bincount(cells)[cells] == np.bincount(codes)[codes[scored]]
    n_alone, n = int(alone.sum()), len(alone)
    if n_alone <= _MIN_SHARE_ALONE * n:
        return ()
    if n_alone <= n / 2:
        return (
            f"{n_alone:,} of {n:,} training rows ({n_alone / n:.1%}) have no other row of their class outside their "
            "fold, and cross-validation counts them as wrong for every family; test rows drawn from the same data have "
            "no such classes, so the test score may be higher by as much",
        )
    return (
        f"classes have too few rows to compare families: {n_alone:,} of {n:,} training rows have no other row of their "
        "class outside their fold, so every family gets them wrong; the choice and the probabilities depend on the "
        "other rows only; add rows per class, or name a family (models=)",
    )


def _stratified_folds(codes: NDArray[np.int64], n_folds: int, seed: int) -> NDArray[np.int64]:
    """Return stratified folds; a class with fewer rows than folds is spread over as many folds as it has rows."""
    if np.bincount(codes)[codes].min() >= n_folds:
        return _numbered(StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(codes, codes), len(codes))
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(len(codes))
    by_class = shuffled[np.argsort(codes[shuffled], kind="stable")]  # rows of a class are in random order
    numbers = np.empty(len(codes), np.int64)
    numbers[by_class] = np.arange(len(codes)) % n_folds
    return numbers


def _group_splits(
    codes: NDArray[np.int64], groups: Any, n_splits: int, seed: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield splits that keep groups together: at most one per group, and as many as the largest class has rows."""
    groups = np.asarray(groups)
    n_groups = len(np.unique(groups))
    if n_groups < 2:
        raise InputError("all rows belong to one group, so none can be held out; pass two or more groups, or none")
    largest_class = int(np.bincount(codes).max())
    if largest_class < 2:
        raise InputError("every class has a single row, so no row can be held out; at least one class needs two rows")
    splitter = StratifiedGroupKFold(min(n_splits, n_groups, largest_class), shuffle=True, random_state=seed)
    splits = splitter.split(np.zeros((len(codes), 1)), codes, groups)
    return (split for split in splits if len(split[1]))  # a few large groups can leave a fold empty


# ---- weights of the rows


def weights_to_fit(weights: NDArray | None, rows: Any = slice(None)) -> dict[str, NDArray]:
    """Return the weights (n,) of these rows as the argument `sample_weight` of `fit`, with mean 1; {} without weights.

    The mean matters to parameters that are compared with sums of weights, such as the smoothing of naive Bayes.
    """
    return {} if weights is None else {"sample_weight": weights[rows] / weights[rows].mean()}


# ---- the samples of a race


def stratified_order(codes: NDArray[np.int64], rows: NDArray[np.int64], seed: int = 0) -> NDArray[np.int64]:
    """Return row numbers in an order whose first m rows are close to a stratified sample for large m.

    The first row of every class comes before the second row of any class. So for small m, rare classes have more than
    their share, and for m < K the sample has one row of each of the m lowest class codes.
    """
    shuffled = np.random.default_rng(seed).permutation(rows)
    ordered = shuffled[np.argsort(codes[shuffled], kind="stable")]
    _, starts, counts = np.unique(codes[ordered], return_index=True, return_counts=True)
    rank = np.arange(len(ordered)) - np.repeat(starts, counts)  # of a row within its class, from 0
    return ordered[np.argsort(rank / np.repeat(counts, counts), kind="stable")]
