"""Which rows are the test set, which fold each training row belongs to, and which rows a race begins with.

    plain    stratified by class, seeded
    group    rows of one group stay together, in the test set and in a fold
    order    the last rows are the test set, and the last training rows are the only validation fold

Folds are numbers (n,). A model for fold f learns from the rows outside f and is scored on those inside. Rows with fold
number -1 are only learned from.

A race begins on a sample of the rows, the beginning of `stratified_order`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, train_test_split

from kway.errors import InputError
from kway.parameters import SEED, whole

HELD_OUT_SHARE = 0.2  # share of the rows that the test, a calibration split or one fold of five holds out (T11)
LONELY = 0.005  # share of rows without another row of their class that changes a score noticeably (test_newcomer)
ROWS_PER_CLASS = 10  # rows per class below which families cannot be compared by how well they learn a class (T11)
FEW_ROWS = 250  # rows of a quick look: a timed prediction, the start of a long search, permutation importance (T11)


class Split(NamedTuple):
    """Row numbers to learn from and to be scored on."""

    train: NDArray[np.int64]
    held_out: NDArray[np.int64]


def split_test(
    codes: NDArray[np.int64], share: float = HELD_OUT_SHARE, groups: Any = None, order: Any = None, seed: int = 0
) -> Split:
    """Split off about `share` of the rows as the test set."""
    n = len(codes)
    SEED.check("seed", seed)
    if groups is not None and order is not None:
        raise InputError("groups and order were both given; a split can follow only one of them")
    if order is not None:
        line = np.argsort(np.asarray(order), kind="stable")
        cut = n - max(1, round(share * n))
        return Split(np.sort(line[:cut]), np.sort(line[cut:]))
    if groups is not None:
        _refuse_one_group(groups)
        parts = min(max(2, round(1 / share)), len(np.unique(groups)))
        train, test = next(iter(_by_group(parts, seed).split(np.zeros((n, 1)), codes, np.asarray(groups))))
        return Split(train, test)
    return _stratified(codes, share, seed)


def _stratified(codes: NDArray[np.int64], share: float, seed: int) -> Split:
    """Split by class; the only row of a class goes to training."""
    counts = np.bincount(codes)
    single = counts[codes] < 2
    many = np.flatnonzero(~single)
    if len(many) == 0:
        raise InputError("every class has a single row, so no row can be held out; at least one class needs two rows")
    present = len(np.unique(codes[many]))
    size = min(max(round(share * len(codes)), present), len(many) - present)
    kept, drawn = train_test_split(many, test_size=size, stratify=codes[many], random_state=seed)
    return Split(np.sort(np.concatenate([kept, np.flatnonzero(single)])), np.sort(drawn))


def fold_numbers(
    codes: NDArray[np.int64], n_folds: int = 5, groups: Any = None, order: Any = None, seed: int = 0
) -> NDArray[np.int64]:
    """Return the fold of each row (n,)."""
    n = len(codes)
    whole(2).check("folds", n_folds)
    SEED.check("seed", seed)
    if order is not None:
        line = np.argsort(np.asarray(order), kind="stable")
        numbers = np.full(n, -1, np.int64)
        numbers[line[n - max(1, n // n_folds) :]] = 0
        return numbers
    if groups is not None:
        _refuse_one_group(groups)
        parts = min(n_folds, len(np.unique(groups)))
        return _numbered(_by_group(parts, seed).split(np.zeros((n, 1)), codes, np.asarray(groups)), n)
    return _spread_folds(codes, n_folds, seed)


def _numbered(splits: Iterable[tuple[NDArray, NDArray]], n: int) -> NDArray[np.int64]:
    """Return the number (n,) of the split that each row is validated in."""
    numbers = np.empty(n, np.int64)
    for number, (_, inside) in enumerate(splits):
        numbers[inside] = number
    return numbers


def few_rows_note(codes: NDArray[np.int64], folds: NDArray[np.int64]) -> tuple[str, ...]:
    """Return a note if many scored rows belong to a class that has no row outside their fold."""
    n_folds = int(folds.max()) + 1
    inside = folds >= 0
    own = np.bincount(codes[inside] * n_folds + folds[inside], minlength=(int(codes.max()) + 1) * n_folds)
    alone = own[codes[inside] * n_folds + folds[inside]] == np.bincount(codes)[codes[inside]]
    if alone.mean() <= 0.5:
        return (_lonely_note(int(alone.sum()), len(alone)),) if alone.mean() > LONELY else ()
    return (
        f"classes have too few rows to compare families: {int(alone.sum()):,} of {len(alone):,} training rows have no "
        "other row of their class outside their fold, so every family gets them wrong; the choice and the "
        "probabilities depend on the other rows only; add rows per class, or name a family (models=)",
    )


def _lonely_note(alone: int, n: int) -> str:
    return (
        f"{alone:,} of {n:,} training rows ({alone / n:.1%}) have no other row of their class outside their fold, and "
        "cross-validation counts them as wrong for every family; test rows drawn from the same data have no such "
        "classes, so the test score may be higher by as much"
    )


def _spread_folds(codes: NDArray[np.int64], n_folds: int, seed: int) -> NDArray[np.int64]:
    """Return stratified folds; a class with fewer rows than folds is spread over as many folds as it has rows."""
    if np.bincount(codes)[codes].min() >= n_folds:
        return _numbered(StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(codes, codes), len(codes))
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(len(codes))
    by_class = shuffled[
        np.argsort(codes[shuffled], kind="stable")
    ]  # classes one after the other, in random order inside
    numbers = np.empty(len(codes), np.int64)
    numbers[by_class] = np.arange(len(codes)) % n_folds
    return numbers


def _by_group(parts: int, seed: int) -> StratifiedGroupKFold:
    return StratifiedGroupKFold(parts, shuffle=True, random_state=seed)


def _refuse_one_group(groups: Any) -> None:
    if len(np.unique(np.asarray(groups))) < 2:
        raise InputError("all rows belong to one group, so none can be held out; pass two or more groups, or none")


# ---- the sample that the race begins with


def stratified_order(codes: NDArray[np.int64], rows: NDArray[np.int64], seed: int = 0) -> NDArray[np.int64]:
    """Return the rows in an order of which every beginning is a sample with about the same share of each class.

    The first row of every class comes first.
    """
    shuffled = np.random.default_rng(seed).permutation(rows)
    ordered = shuffled[np.argsort(codes[shuffled], kind="stable")]
    _, starts, counts = np.unique(codes[ordered], return_index=True, return_counts=True)
    place = np.arange(len(ordered)) - np.repeat(starts, counts)  # rank of a row within its class
    return ordered[np.argsort(place / np.repeat(counts, counts), kind="stable")]
