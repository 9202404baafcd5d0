"""Calibration splits, and `ConfidenceWrapper`, the base of the classifiers that hold out rows of their own.

Every guarantee is computed on rows that the estimator was not trained on. `cv` defines these rows:

    cv = 0.2        a share: this part of the rows, drawn at random, is held out
    cv = 5          folds: each row is held out once, and scored by an estimator trained on the other folds; the only
                    row of a class is never held out
    cv = splitter   a splitter of scikit-learn, or pairs (train, calibration) of row numbers
    cv = "prefit"   the estimator was fitted before, on other rows; all given rows are held out

A class never loses its last training row: if all rows of a class were drawn, one of them stays in the training part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags, indexable
from sklearn.utils.validation import check_is_fitted

from kway.base.wrappers import EstimatorInside
from kway.errors import InputError, KindError
from kway.labels import Labels, check_given, check_length, encode, encode_as
from kway.memory import BLOCK_BYTES, rows_per_block
from kway.parameters import between, checked_rng, whole
from kway.rows.blocks import count_rows, split_rows, take_rows
from kway.rows.gpu.device import on_host

# A count times a rate that differs from a whole number by less than this is taken as that number.
COUNT_TOLERANCE = float(np.sqrt(np.finfo(np.float64).eps))


class Split(NamedTuple):
    """Row numbers to learn from, and to be calibrated or scored on."""

    train: NDArray[np.int64]
    held_out: NDArray[np.int64]


def table_rows(n_columns: int) -> int:
    """Return how many rows of a float64 table with so many columns are computed at a time."""
    return rows_per_block(8 * n_columns, BLOCK_BYTES)


def cut_blocks(X: Any, n: int, n_columns: int) -> Iterator[Any]:
    """Cut the n rows of X into blocks, so that a table (rows, n_columns) of one block stays small."""
    return split_rows(X, n, table_rows(n_columns))


def is_share(cv: Any) -> bool:
    """Return whether cv is a share of the rows."""
    return between(0, 1).allows(cv)


def is_folds(cv: Any) -> bool:
    """Return whether cv is a number of folds."""
    return whole(2).allows(cv)


def is_explicit(cv: Any) -> bool:
    """Return whether cv is a splitter or a list of at least one pair."""
    return (isinstance(cv, list | tuple) and len(cv) > 0) or (hasattr(cv, "split") and not isinstance(cv, str))


def check_cv(cv: Any, folds: bool) -> None:
    """Raise InputError if cv has none of the allowed forms; `folds`: whether more than one split is allowed."""
    if is_share(cv) or is_explicit(cv) or (isinstance(cv, str) and cv == "prefit") or (folds and is_folds(cv)):
        return
    allowed = "a number of folds >= 2, " if folds else ""
    raise InputError(
        f"cv must be {allowed}a share of the rows between 0 and 1, a splitter, pairs (train, calibration) of row "
        f"numbers, or 'prefit'; got {cv!r:.100}"
    )


def make_splits(cv: Any, X: Any, codes: NDArray[np.int64], rng: np.random.RandomState) -> list[Split]:
    """Return the splits that cv describes, without those that hold out no row."""
    if is_share(cv):
        found = [hold_out(codes, float(cv), rng)]
    elif is_folds(cv):
        found = make_folds(codes, min(int(cv), max(2, len(codes))), rng)
    else:
        pairs = cv.split(X, codes) if hasattr(cv, "split") else cv
        found = [Split(*(_row_numbers(rows, len(codes)) for rows in pair)) for pair in pairs]
    return [split for split in found if len(split.held_out)]


def make_one_split(cv: Any, X: Any, codes: NDArray[np.int64], rng: np.random.RandomState) -> Split:
    """Return the one split that cv describes; if no row can be held out, all rows are training rows."""
    found = make_splits(cv, X, codes, rng)
    if len(found) > 1:
        raise InputError(f"cv gives {len(found)} splits, but a guarantee needs one: pass a share, or one pair of rows")
    return found[0] if found else Split(np.arange(len(codes)), np.empty(0, np.int64))


def check_classes_in_training(codes: NDArray[np.int64], split: Split, classes: NDArray) -> None:
    """Raise InputError if a class has no training row."""
    missing = np.setdiff1d(codes, codes[split.train])
    if len(missing):
        raise InputError(
            f"cv leaves {len(missing)} classes without a training row, such as {classes[missing].tolist()[0]!r}; "
            "keep one row of each class for training"
        )


def _row_numbers(rows: Any, n: int) -> NDArray[np.int64]:
    """Return row numbers from a list of them or from a mask (n,)."""
    rows = np.asarray(rows)
    if rows.dtype == bool and rows.shape == (n,):
        return np.flatnonzero(rows)
    if rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "iu"):
        raise InputError(
            f"cv must name rows by integers or by a mask of shape ({n},), got an array of shape {rows.shape} and dtype "
            f"{rows.dtype}; pass pairs (train, calibration) of row numbers"
        )
    rows = rows.astype(np.int64)
    if len(rows) and not (rows.min() >= 0 and rows.max() < n):
        raise InputError(f"cv names rows outside 0..{n - 1}: {rows.min()} to {rows.max()}")
    return rows


def hold_out(codes: NDArray[np.int64], share: float, rng: np.random.RandomState) -> Split:
    """Hold out a share of the rows at random. It is not stratified: guarantees need exchangeable rows."""
    order = rng.permutation(len(codes))
    n_held = round(share * len(codes))
    held, train = order[:n_held], order[n_held:]
    missing = np.setdiff1d(codes[held], codes[train])
    _, first = np.unique(codes[held], return_index=True)
    back = first[np.isin(codes[held][first], missing)]  # one row of each class without a training row
    return Split(np.sort(np.concatenate([train, held[back]])), np.sort(np.delete(held, back)))


def make_folds(codes: NDArray[np.int64], n_folds: int, rng: np.random.RandomState) -> list[Split]:
    """Return stratified folds; a class with a single row keeps it in every training part."""
    order = rng.permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]  # class by class, shuffled within
    fold = np.empty(len(codes), np.int64)
    fold[order] = np.arange(len(codes)) % n_folds
    counts = np.bincount(codes)
    fold[counts[codes] < 2] = -1
    return splits_of(fold)


def splits_of(folds: NDArray[np.int64]) -> list[Split]:
    """Return one split per fold, from the fold of each row (n,); rows of fold -1 are only learned from."""
    return [Split(np.flatnonzero(folds != f), np.flatnonzero(folds == f)) for f in range(int(folds.max()) + 1)]


class LabeledRows(NamedTuple):
    """Rows that can be indexed, their labels, and other arguments of `fit` such as their weights."""

    X: Any
    labels: Labels
    params: Mapping[str, Any] = {}

    def take(self, positions: NDArray[np.int64]) -> LabeledRows:
        """Return some of the rows."""
        n, labels = len(self.labels.codes), self.labels._replace(codes=self.labels.codes[positions])
        of_rows = {name: _length(value) == n for name, value in self.params.items()}
        some = {name: take_rows(value, positions) if of_rows[name] else value for name, value in self.params.items()}
        return LabeledRows(take_rows(self.X, positions), labels, some)

    def fit(self, estimator: Any) -> Any:
        """Fit an estimator to the rows, and return it."""
        return estimator.fit(self.X, self.labels.classes[self.labels.codes], **self.params)


def _length(value: Any) -> int | None:
    return len(value) if hasattr(value, "__len__") and not isinstance(value, str) else None


def check_rows(who: str, X: Any, y: Any, to_labels: Callable[[Any], Labels] = encode) -> LabeledRows:
    """Return rows in any form that can be indexed, with as many labels."""
    check_given(y, who)
    X = on_host(X)
    labels = to_labels(on_host(y))
    try:
        n = count_rows(X)
    except TypeError as error:
        raise KindError(f"X must be rows that can be counted and indexed; {error}") from error
    check_length(labels, n)
    return LabeledRows(indexable(X)[0], labels)


class ConfidenceWrapper(EstimatorInside):
    """Base of the meta-estimators: fits the inner estimator and checks the labels; X is passed on as it is."""

    cv: Any
    random_state: Any

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self._unfitted())
        tags.input_tags = inner.input_tags
        tags.classifier_tags.multi_class = inner.classifier_tags is None or inner.classifier_tags.multi_class
        return tags

    def _default(self) -> Any:
        from kway.linear import SoftmaxClassifier

        return SoftmaxClassifier()

    def _rng(self) -> np.random.RandomState:
        """Return the generator of the splits; None means seed 0, so that two fits give the same model."""
        return checked_rng(0 if self.random_state is None else self.random_state)

    def _is_prefit(self) -> bool:
        return (isinstance(self.cv, str) and self.cv == "prefit") or isinstance(self.estimator, FrozenEstimator)

    def _prefit(self) -> Any:
        if self.estimator is None:
            raise InputError(f"{type(self).__name__}(cv='prefit') needs a fitted estimator; got estimator=None")
        check_is_fitted(self.estimator)
        return self.estimator

    def _check_rows(self, X: Any, y: Any, params: dict[str, Any], *more: Any) -> LabeledRows:
        """Return checked rows and labels; labels of a prefit estimator are among its classes and `more`."""
        known = (lambda y: self._known_labels(y, *more)) if self._is_prefit() else encode
        rows = check_rows(type(self).__name__, X, y, known)
        labels, passed = rows.labels, self._passed_on(params, len(rows.labels.codes))
        if passed and self._is_prefit():
            raise InputError(f"cv='prefit' fits no estimator, so {', '.join(passed)} has no use; omit it")
        weight = passed.get("sample_weight")
        if weight is not None and labels.n_classes > 1 and len(np.unique(labels.codes[np.asarray(weight) > 0])) < 2:
            raise InputError("sample_weight is above zero for fewer than 2 classes; give rows of each class a weight")
        return rows._replace(params=passed)

    def _known_labels(self, y: Any, *more: Any) -> Labels:
        classes = np.asarray(self._prefit().classes_)
        if more:
            classes = np.union1d(classes, np.array(more, dtype=object if classes.dtype == object else None))
        return Labels(classes, encode_as(y, classes))

    def _fit_copy(self, rows: LabeledRows) -> Any:
        """Return a copy of the estimator, fitted on these rows."""
        return rows.fit(self._fresh())

    def _fit_and_hold_out(self, rows: LabeledRows, rng: np.random.RandomState) -> LabeledRows:
        """Fit a copy of the estimator on a part of the rows and return the others; all rows if it is prefit."""
        labels = rows.labels
        if self._is_prefit():
            self._adopt(self._prefit())
            return rows
        train, held = split = make_one_split(self.cv, rows.X, labels.codes, rng)
        check_classes_in_training(labels.codes, split, labels.classes)
        self._adopt(self._fit_copy(rows.take(train)))
        return LabeledRows(take_rows(rows.X, held), labels._replace(codes=labels.codes[held]))
