"""Probabilities of the winner, and its guarantees, from rows that it did not learn from.

temperature   neighbors: their votes on held-out rows are known from the comparison, so there is no fit and no search.
              Others: five folds, or one split if rows are many or time is short; groups and order are kept.
              One-vs-all SVMs: first their intercepts move if that helps to compare scores (`class_offsets`)
sets          ConformalClassifier around the winner: sets that contain the label with a guaranteed probability
unknown       OpenSetClassifier around the winner, inside the sets: the answer "unknown"

Guarantees need rows held out of training, so that model learns from the other rows only. On the test rows they give two
curves: coverage against the size of the sets {c : 1 - p_c <= t}, and accuracy against the share of rows answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from kway.auto.options import FitOptions
from kway.auto.race.clock import Clock
from kway.auto.race.scoring import HeldOut, LeaderboardRow
from kway.auto.train_test import TrainTest
from kway.confidence import ConformalClassifier, OpenSetClassifier, TemperatureScaledClassifier
from kway.confidence.splits import Split, hold_out, make_folds
from kway.confidence.temperature import SCORES, proven_offsets, scale_fitted, score_columns
from kway.errors import InputError, KwayError
from kway.labels import encode_as
from kway.memory import CACHE_BYTES, rows_per_block
from kway.rows.blocks import take_rows

_FOLDS = 5  # of the temperature
HELD_SHARE = 0.2  # of the rows, in one split
ENOUGH_ROWS = 5000  # rows from which one split is enough for a temperature: its error is then a few per cent (T11)
MOVED = "intercepts of the machines were moved by rows held out, so that their scores can be compared"
PAGE = 4.0  # seconds that test and report take at least (T11)
_CLASS_GROUPS = 3  # groups of classes that are left out in turn, to measure how often a stranger is taken for known
_CURVE_POINTS = 60  # of the curves in the report


class Calibration(NamedTuple):
    """The model, with its temperature if it has one, and a note for the user."""

    model: Any
    note: str = ""


def calibrate(
    row: LeaderboardRow,
    X: Any,
    folds: NDArray[np.int64],
    data: TrainTest,
    options: FitOptions,
    clock: Clock,
    held: HeldOut | None = None,
) -> Calibration:
    """The fitted winner with a temperature, or a note if it cannot have one.

    `held`: probabilities of held-out rows, if the comparison has them. Intercepts follow how common classes are only
    if rows of all classes count equally.
    """
    model = row.fitted
    if held is not None:
        return Calibration(scale_fitted(model, *held))
    splits = _splits(row, folds, data, options.seed, clock)
    try:
        if options.weighs_rows_equally and _is_one_vs_all_svm(model):
            return _moved_and_scaled(model, X, data.y, splits)
        if len(splits) == 1:
            return Calibration(_scaled_once(model, X, data.y, splits[0], options.seed))
        scaled = TemperatureScaledClassifier(clone(model), splits, options.seed).fit(X, data.y)
        return Calibration(_without_rows(scaled))
    except (KwayError, AttributeError) as error:
        return Calibration(model, f"probabilities are not calibrated: {error}")


def calibrate_on(model: Any, X: Any, y: NDArray, seed: int) -> Calibration:
    """A fitted model with its temperature on rows that it did not learn from, or a note if it cannot have one."""
    try:
        return Calibration(TemperatureScaledClassifier(model, "prefit", seed).fit(X, y))
    except (KwayError, AttributeError) as error:
        return Calibration(model, f"probabilities are not calibrated: {error}")


def _splits(row: LeaderboardRow, folds: NDArray[np.int64], data: TrainTest, seed: int, clock: Clock) -> list[Split]:
    """Five splits, or one if rows are many or time is short; groups and order are kept."""
    clock.reserve = PAGE
    once = data.n > ENOUGH_ROWS or clock.up(_FOLDS * (row.fit_seconds or 0.0))
    if data.keeps_groups_or_order:  # rows drawn at random would be too easy
        splits = [Split(np.flatnonzero(folds != f), np.flatnonzero(folds == f)) for f in range(int(folds.max()) + 1)]
        return splits[:1] if once else splits
    codes, rng = data.labels.codes, np.random.RandomState(seed)
    return [hold_out(codes, HELD_SHARE, rng)] if once else make_folds(codes, _FOLDS, rng)


def _without_rows(scaled: Any) -> Any:
    """The model without the row numbers of its splits, which do not belong in a model file."""
    return scaled.set_params(cv="prefit", estimator=scaled.estimator_)


def _scaled_once(model: Any, X: Any, y: NDArray, split: Split, seed: int) -> Any:
    """The fitted model with the temperature of one fit on part of the rows, measured on the others."""
    part = clone(model).fit(take_rows(X, split.train), y[split.train])
    scaled = TemperatureScaledClassifier(part, "prefit", seed)
    scaled.fit(take_rows(X, split.calibration), y[split.calibration])
    scaled._adopt(model)
    return _without_rows(scaled)


def _is_one_vs_all_svm(model: Any) -> bool:
    """Whether it has one linear classifier per class without probabilities, and more than two classes."""
    svm = getattr(model, "multiclass", None) == "one-vs-all" and not hasattr(model, "predict_proba")
    return svm and len(model.classes_) > 2 and getattr(model, "device", "cpu") == "cpu"


def _moved_and_scaled(model: Any, X: Any, y: NDArray, splits: list[Split]) -> Calibration:
    """The fitted SVMs with a temperature, and with moved intercepts if these are proven to help.

    Both come from fits on parts of the rows and their scores of the others.
    """
    most = max(1, rows_per_block(8 * len(model.classes_) * len(splits), 4 * CACHE_BYTES))
    z, codes = [], []
    for learn, held in splits:
        part = clone(model).fit(take_rows(X, learn), y[learn])
        if len(part.classes_) < len(model.classes_):
            raise InputError("a class has no row left to learn from once some are held out; give it more rows")
        some = held[:: max(1, -(-len(held) // most))]
        z.append(score_columns(part, take_rows(X, some)))
        codes.append(encode_as(y[some], model.classes_))
    scores, own = np.concatenate(z), np.concatenate(codes)
    offsets = proven_offsets(scores, own)
    model.intercept_ = (model.intercept_ + offsets).astype(model.intercept_.dtype)
    return Calibration(scale_fitted(model, scores + offsets, own, SCORES), MOVED if offsets.any() else "")


# ---- sets and "unknown"


@dataclass(frozen=True, eq=False)
class Tradeoff:
    """A curve x, y on the test rows, the point that is guaranteed, and the guarantee in words."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    at: tuple[float, float]
    guarantee: str


@dataclass(frozen=True, eq=False)
class GuaranteedModel:
    """The winner, with its temperature, inside the classifiers that give guarantees."""

    model: Any  # predicts sets, or "unknown"
    classifier: Any  # inside: the winner with its temperature
    open_set: Any  # the OpenSetClassifier, or None


def with_guarantees(
    winner: Any, X: Any, folds: NDArray[np.int64], data: TrainTest, options: FitOptions
) -> GuaranteedModel:
    """Fit the winner again on a part of the rows; the held-out part is fold 0 if groups or order are kept."""
    split = Split(np.flatnonzero(folds != 0), np.flatnonzero(folds == 0)) if data.keeps_groups_or_order else None
    cv: Any = HELD_SHARE if split is None else [split]
    model: Any = TemperatureScaledClassifier(clone(winner), HELD_SHARE, options.seed)
    if options.unknown is not None:
        model = OpenSetClassifier(
            model,
            false_rejects=options.unknown,
            class_groups=_CLASS_GROUPS,
            cv=cv if options.sets is None else HELD_SHARE,  # inside the sets' own part row numbers differ
            random_state=options.seed,
        )
    if options.sets is not None:
        model = ConformalClassifier(model, coverage=options.sets, cv=cv, random_state=options.seed)
    model.fit(X, data.y)
    if split is not None:
        _without_rows(model)
    open_set = None if options.unknown is None else (model if options.sets is None else model.estimator_)
    inside = model.estimator_ if open_set is None else open_set.estimator_
    return GuaranteedModel(model, inside, open_set)


def sets_tradeoff(found: GuaranteedModel, X: Any, y: NDArray) -> Tradeoff:
    """Share of test rows whose set contains their label, against labels per set.

    The limit of the model is among the points: between two limits at which a label enters, the sets are the same.
    """
    odd = 1.0 - np.asarray(found.classifier.predict_proba(X))
    own = odd[np.arange(len(y)), encode_as(y, found.classifier.classes_)]
    limits = np.unique([*np.quantile(own, np.linspace(0, 1, _CURVE_POINTS)), *np.unique(found.model.thresholds_)])
    sizes = np.array([(odd <= t).sum(axis=1).mean() for t in limits])
    covered = np.array([(own <= t).mean() for t in limits])
    sets = found.model.predict_set(X)
    at = float(sets.sizes.mean()), float(sets.covers(y).mean())
    return Tradeoff(sizes, covered, at, str(found.model.guarantee_))


def unknown_tradeoff(found: GuaranteedModel, X: Any, y: NDArray) -> Tradeoff:
    """Accuracy of the rows that are answered, against their share, the surest rows first."""
    explained = found.open_set.explain(X)
    order = np.argsort(-explained.known_scores, kind="stable")
    right = (explained.candidates == y)[order]
    counts = np.unique(np.linspace(1, len(y), _CURVE_POINTS).astype(int))
    answered = ~explained.rejected
    accuracy = float((explained.candidates == y)[answered].mean()) if answered.any() else 1.0
    at = float(answered.mean()), accuracy
    return Tradeoff(counts / len(y), np.cumsum(right)[counts - 1] / counts, at, str(found.open_set.guarantee_))
