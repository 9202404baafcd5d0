"""Splits: which rows are the test (touched once, at the end), and in which fold each other row is validated.

    plain    stratified by class, seeded
    group    rows of one group stay together, in the test as in a fold
    order    the last rows are the test, the last of the rest the one validation fold: nothing learns from its future

Folds are numbers (n,): a model for fold f learns from the rows outside f and is scored on those inside; -1 is never
scored, only learned from.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.data.stratified import deal, draw
from kway.errors import InputError
from kway.parameters import SEED, whole


class RowSplit(NamedTuple):
    """Row numbers to learn from and to test on."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]


def split_test(
    codes: NDArray[np.int64], share: float = 0.2, groups: Any = None, order: Any = None, seed: int = 0
) -> RowSplit:
    """The test rows: about `share` of all."""
    n = len(codes)
    SEED.check("seed", seed)
    if groups is not None and order is not None:
        raise InputError("groups and order were both given; a split keeps groups together or keeps time, not both")
    if order is not None:
        line = np.argsort(np.asarray(order), kind="stable")
        cut = n - max(1, round(share * n))
        return RowSplit(np.sort(line[:cut]), np.sort(line[cut:]))
    if groups is not None:
        _refuse_one_group(groups)
        parts = min(max(2, round(1 / share)), len(np.unique(groups)))
        train, test = next(iter(_by_group(parts, seed).split(np.zeros((n, 1)), codes, np.asarray(groups))))
        return RowSplit(train, test)
    return _stratified(codes, share, seed)


def _stratified(codes: NDArray[np.int64], share: float, seed: int) -> RowSplit:
    """By class; classes of a single row all go to training, for a row cannot be both learned from and tested on."""
    counts = np.bincount(codes)
    single = counts[codes] < 2
    many = np.flatnonzero(~single)
    if len(many) == 0:
        raise InputError("every class has a single row, so nothing can be held out; give classes two rows or more")
    present = len(np.unique(codes[many]))
    size = min(max(round(share * len(codes)), present), len(many) - present)
    found = draw(codes[many], size, seed)
    return RowSplit(np.sort(np.concatenate([many[found.kept], np.flatnonzero(single)])), np.sort(many[found.drawn]))


def fold_numbers(
    codes: NDArray[np.int64], n_folds: int = 5, groups: Any = None, order: Any = None, seed: int = 0
) -> NDArray[np.int64]:
    """The fold of each row (n,)."""
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
        numbers = np.empty(n, np.int64)
        for number, (_, inside) in enumerate(_by_group(parts, seed).split(np.zeros((n, 1)), codes, np.asarray(groups))):
            numbers[inside] = number
        return numbers
    return _spread_folds(codes, n_folds, seed)


def few_rows_note(codes: NDArray[np.int64], folds: NDArray[np.int64]) -> tuple[str, ...]:
    """A note where most rows that are scored are of a class that their fold leaves nothing of to learn from."""
    n_folds = int(folds.max()) + 1
    inside = folds >= 0
    own = np.bincount(codes[inside] * n_folds + folds[inside], minlength=(int(codes.max()) + 1) * n_folds)
    alone = own[codes[inside] * n_folds + folds[inside]] == np.bincount(codes)[codes[inside]]
    if alone.mean() <= 0.5:
        return ()
    return (
        f"classes have too few rows to compare families by: {int(alone.sum()):,} of {len(alone):,} training rows are "
        "the only ones of their class once their fold is held out, so no family could get them right; the choice and "
        "the probabilities rest on the others alone: give more rows a class, or name a family (--model)",
    )


def _spread_folds(codes: NDArray[np.int64], n_folds: int, seed: int) -> NDArray[np.int64]:
    """Stratified folds; classes with fewer rows than folds are spread as far as they go."""
    if np.bincount(codes)[codes].min() >= n_folds:
        return deal(codes, n_folds, seed)
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(len(codes))
    by_class = shuffled[np.argsort(codes[shuffled], kind="stable")]  # rows of a class in a run, at random inside
    numbers = np.empty(len(codes), np.int64)
    numbers[by_class] = np.arange(len(codes)) % n_folds
    return numbers


def _by_group(parts: int, seed: int) -> Any:
    from sklearn.model_selection import StratifiedGroupKFold  # slow to load, and few ask

    return StratifiedGroupKFold(parts, shuffle=True, random_state=seed)


def _refuse_one_group(groups: Any) -> None:
    if len(np.unique(np.asarray(groups))) < 2:
        raise InputError("all rows are of one group, so none can be held out; give groups that differ, or none")
