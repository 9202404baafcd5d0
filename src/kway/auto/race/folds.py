"""Which rows are the test set, which fold each training row belongs to, and which rows families are compared on.

    plain    stratified by class, seeded
    group    rows of one group stay together, in the test set and in a fold
    order    the last rows are the test set, and the last training rows are the only validation fold

Folds are numbers (n,). A model for fold f learns from the rows outside f and is scored on those inside. Rows with fold
number -1 are only learned from.

If a comparison on all rows would take too long, `draw_sample` chooses n' <= n rows of K' <= K classes. The best family
is then fitted on all rows. If that would leave fewer than ROWS_PER_CLASS rows per class, whole classes are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, train_test_split

from kway.errors import InputError
from kway.parameters import SEED, whole
from kway.planning.costs import Size

HELD_OUT_SHARE = 0.2  # share of the rows that the test, a calibration split or one fold of five holds out (T11)
ROWS_PER_CLASS = 10  # rows per class below which families cannot be compared by how well they learn a class (T11)
SAMPLE_ROWS = 10_000  # rows of a sample: they give the accuracy to within half a point (T11)
FEW_ROWS = 250  # rows of a quick look: a timed prediction, the start of a long search, permutation importance (T11)


class RowSplit(NamedTuple):
    """Row numbers to learn from and to test on."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]


def split_test(
    codes: NDArray[np.int64], share: float = HELD_OUT_SHARE, groups: Any = None, order: Any = None, seed: int = 0
) -> RowSplit:
    """Split off about `share` of the rows as the test set."""
    n = len(codes)
    SEED.check("seed", seed)
    if groups is not None and order is not None:
        raise InputError("groups and order were both given; a split can follow only one of them")
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
    """Split by class; the only row of a class goes to training."""
    counts = np.bincount(codes)
    single = counts[codes] < 2
    many = np.flatnonzero(~single)
    if len(many) == 0:
        raise InputError("every class has a single row, so no row can be held out; at least one class needs two rows")
    present = len(np.unique(codes[many]))
    size = min(max(round(share * len(codes)), present), len(many) - present)
    kept, drawn = train_test_split(many, test_size=size, stratify=codes[many], random_state=seed)
    return RowSplit(np.sort(np.concatenate([kept, np.flatnonzero(single)])), np.sort(drawn))


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
    """Return a note if most scored rows belong to a class that has no row outside their fold."""
    n_folds = int(folds.max()) + 1
    inside = folds >= 0
    own = np.bincount(codes[inside] * n_folds + folds[inside], minlength=(int(codes.max()) + 1) * n_folds)
    alone = own[codes[inside] * n_folds + folds[inside]] == np.bincount(codes)[codes[inside]]
    if alone.mean() <= 0.5:
        return ()
    return (
        f"classes have too few rows to compare families: {int(alone.sum()):,} of {len(alone):,} training rows have no "
        "other row of their class outside their fold, so every family gets them wrong; the choice and the "
        "probabilities depend on the other rows only; add rows per class, or name a family (models=)",
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


# ---- the sample that families are compared on


class Sample(NamedTuple):
    """Row numbers in ascending order (n',), and the note for the user."""

    rows: NDArray[np.int64]
    note: str


def draw_sample(
    codes: NDArray[np.int64], size: Size, expected: Callable[[Size], float], seconds: float, seed: int
) -> Sample | None:
    """Draw rows whose comparison is expected to take at most so many seconds; None if all rows take no longer."""
    per_class, wanted = min(ROWS_PER_CLASS, size.n / size.K), size
    while expected(wanted) > seconds and wanted.n > SAMPLE_ROWS:
        n = max(SAMPLE_ROWS, wanted.n // 2)
        wanted = replace(wanted, n=n, K=max(2, min(size.K, int(n / per_class))))
    if wanted.n >= len(codes):
        return None
    rng = np.random.default_rng(seed)
    rows = _draw_by_class(codes, _draw_classes(codes, wanted.K, rng), wanted.n, rng)
    classes = f" of {wanted.K:,} of the {size.K:,} classes" if wanted.K < size.K else ""
    note = (
        f"families are compared on a sample of {len(rows):,} of the {len(codes):,} training rows{classes}; the best is "
        "fitted on all of them"
    )
    return Sample(rows, note)


def _draw_classes(codes: NDArray[np.int64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the rows of `count` classes, in ascending order."""
    present = np.unique(codes)
    if count >= len(present):
        return np.arange(len(codes))
    chosen = np.zeros(int(codes.max()) + 1, bool)
    chosen[rng.choice(present, count, replace=False)] = True
    return np.flatnonzero(chosen[codes])


def _draw_by_class(
    codes: NDArray[np.int64], rows: NDArray[np.int64], n: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw about n of the rows, the same share of each class, but at least two rows of a class that has them."""
    shuffled = rng.permutation(rows)
    ordered = shuffled[np.argsort(codes[shuffled], kind="stable")]
    _, starts, counts = np.unique(codes[ordered], return_index=True, return_counts=True)
    kept = np.minimum(counts, np.maximum(2, np.rint(counts * min(1.0, n / len(rows)))))
    place = np.arange(len(ordered)) - np.repeat(starts, counts)  # rank of a row within its class
    return np.sort(ordered[place < np.repeat(kept, counts)])
