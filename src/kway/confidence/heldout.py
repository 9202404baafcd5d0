"""Rows that the estimator has not learned from, on which every guarantee rests, and the base of the three wrappers.

    cv = 0.2        a share: that part of the rows, drawn at random, is held out
    cv = 5          folds: every row is held out once, by the estimator that learned from the other folds
    cv = splitter   scikit-learn's, or pairs (learn, held) of row numbers, if rows in random order would be too easy
    cv = "prefit"   the estimator has been fitted before, on other rows: all rows given are held out

A class never loses its last row to the held-out part: if all rows of a class were drawn, one goes back. X goes to the
inner estimator as it is (kway.base.wrappers); labels are checked in ConfidenceWrapper.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags, indexable
from sklearn.utils.validation import check_is_fitted

from kway.base.wrappers import EstimatorInside
from kway.errors import InputError, KindError
from kway.labels import Labels, encode, encode_as
from kway.parameters import between, checked_rng, whole
from kway.rows.gpu.device import on_host
from kway.rows.row_blocks import cut, n_rows

ROUNDING = 1e-9  # a product of counts and rates may be this far from the whole number that it stands for
HELD_ENTRIES = 2**22  # numbers of a (rows, classes) table that are held at once


class Split(NamedTuple):
    """Positions of the rows to learn from, and of those held out."""

    learn: NDArray[np.int64]
    held: NDArray[np.int64]


def blocks(X: Any, n: int, n_columns: int) -> Iterator[Any]:
    """X in blocks of rows, each with at most ENTRIES numbers in a table of that many columns."""
    return cut(X, n, max(1, HELD_ENTRIES // max(1, n_columns)))


def is_share(cv: Any) -> bool:
    """Whether cv is a share of the rows."""
    return between(0, 1).allows(cv)


def is_folds(cv: Any) -> bool:
    """Whether cv is a number of folds."""
    return whole(2).allows(cv)


def is_explicit(cv: Any) -> bool:
    """Whether cv is a splitter, or a list of pairs, one at least."""
    return (isinstance(cv, list | tuple) and len(cv) > 0) or (hasattr(cv, "split") and not isinstance(cv, str))


def check_cv(cv: Any, folds: bool) -> None:
    """Refuse a cv that means nothing; `folds` says whether more than one split is allowed."""
    if is_share(cv) or is_explicit(cv) or (isinstance(cv, str) and cv == "prefit") or (folds and is_folds(cv)):
        return
    ways = "a number of folds >= 2, " if folds else ""
    raise InputError(
        f"cv must be {ways}a share of the rows between 0 and 1, a splitter, pairs (learn, held) of row numbers, "
        f"or 'prefit'; got {cv!r:.100}"
    )


def splits(cv: Any, X: Any, codes: NDArray[np.int64], rng: np.random.RandomState) -> list[Split]:
    """The splits that cv stands for, those without a held-out row left out."""
    if is_share(cv):
        found = [hold_out(codes, float(cv), rng)]
    elif is_folds(cv):
        found = folds(codes, min(int(cv), max(2, len(codes))), rng)
    else:
        given = cv.split(X, codes) if hasattr(cv, "split") else cv
        found = [Split(_numbers(learn, len(codes)), _numbers(held, len(codes))) for learn, held in given]
    return [split for split in found if len(split.held)]


def one_split(cv: Any, X: Any, codes: NDArray[np.int64], rng: np.random.RandomState) -> Split:
    """The one split that cv stands for; where no row can be held out, all are learned from."""
    found = splits(cv, X, codes, rng)
    if len(found) > 1:
        raise InputError(f"cv gives {len(found)} splits; a promise rests on one: pass a share, or one pair of rows")
    return found[0] if found else Split(np.arange(len(codes)), np.empty(0, np.int64))


def check_learned(codes: NDArray[np.int64], split: Split, classes: NDArray) -> None:
    """Refuse a split that leaves a class without rows to learn from."""
    missing = np.setdiff1d(codes, codes[split.learn])
    if len(missing):
        raise InputError(
            f"cv leaves {len(missing)} classes without a row to learn from, such as {classes[missing].tolist()[0]!r}; "
            "keep a row of each"
        )


def _numbers(rows: Any, n: int) -> NDArray[np.int64]:
    """Row numbers of a list of them, or of a mask (n,)."""
    rows = np.asarray(rows)
    rows = np.flatnonzero(rows) if rows.dtype == bool and rows.shape == (n,) else rows.astype(np.int64)
    if len(rows) and not (rows.min() >= 0 and rows.max() < n):
        raise InputError(f"cv names rows outside 0..{n - 1}: {rows.min()} to {rows.max()}")
    return rows


def hold_out(codes: NDArray[np.int64], share: float, rng: np.random.RandomState) -> Split:
    """A share of the rows at random (not stratified: that would break the exchangeability that promises rest on)."""
    order = rng.permutation(len(codes))
    n_held = round(share * len(codes))
    held, learn = order[:n_held], order[n_held:]
    missing = np.setdiff1d(codes[held], codes[learn])
    _, first = np.unique(codes[held], return_index=True)
    back = first[np.isin(codes[held][first], missing)]  # one row of each class that nothing was left of
    return Split(np.sort(np.concatenate([learn, held[back]])), np.sort(np.delete(held, back)))


def folds(codes: NDArray[np.int64], n_folds: int, rng: np.random.RandomState) -> list[Split]:
    """Each class dealt over the folds in turn; the only row of a class is always learned from."""
    order = rng.permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]  # class by class, shuffled within
    fold = np.empty(len(codes), np.int64)
    fold[order] = np.arange(len(codes)) % n_folds
    counts = np.bincount(codes)
    fold[counts[codes] < 2] = -1
    return [Split(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(n_folds)]


class Given(NamedTuple):
    """Rows that can be indexed, and their labels."""

    X: Any
    labels: Labels


class ConfidenceWrapper(EstimatorInside):
    """Base of the meta-estimators: fits the estimator inside, and says what it must not learn from."""

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

    # ---- learning

    def _rng(self) -> np.random.RandomState:
        """What is held out is drawn by this; None means seed 0, so that the same fit gives the same model."""
        return checked_rng(0 if self.random_state is None else self.random_state)

    def _is_prefit(self) -> bool:
        return (isinstance(self.cv, str) and self.cv == "prefit") or isinstance(self.estimator, FrozenEstimator)

    def _prefit(self) -> Any:
        if self.estimator is None:
            raise InputError(f"{type(self).__name__}(cv='prefit') needs a fitted estimator; got estimator=None")
        check_is_fitted(self.estimator)
        return self.estimator

    def _given(self, X: Any, y: Any, *more: Any) -> Given:
        """Rows that can be indexed and checked labels; of a fitted estimator, among its classes and `more`."""
        if y is None:
            raise InputError(
                f"{type(self).__name__} requires y to be passed, but the target y is None; pass one label a row"
            )
        X, y = on_host(X), on_host(y)
        labels = self._known_labels(y, *more) if self._is_prefit() else encode(y)
        try:
            n = n_rows(X)
        except TypeError as error:
            raise KindError(f"X must be rows that can be counted and picked; {error}") from error
        if n != len(labels.codes):
            raise InputError(
                f"Found input variables with inconsistent numbers of samples: X has {n} rows, y has "
                f"{len(labels.codes)}; pass one label a row"
            )
        return Given(indexable(X)[0], labels)

    def _known_labels(self, y: Any, *more: Any) -> Labels:
        classes = np.asarray(self._prefit().classes_)
        if more:
            classes = np.union1d(classes, np.array(more, dtype=object if classes.dtype == object else None))
        return Labels(classes, encode_as(y, classes))

    def _learn(self, X: Any, labels: Labels) -> Any:
        """A new estimator, fitted on these rows."""
        return self._fresh().fit(X, labels.classes[labels.codes])
