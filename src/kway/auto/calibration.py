"""Calibrate the winner on rows that it did not learn from: probabilities, prediction sets and "unknown".

temperature   from the predictions of held-out rows in the comparison if it has them. Else from five folds, or one split
              if rows are many or time is short; groups and order are kept. One-vs-all SVMs: their intercepts move first
              if that makes the scores easier to compare
sets          ConformalClassifier around the winner: sets that contain the label with a guaranteed probability
unknown       OpenSetClassifier around the winner, inside the sets: the answer "unknown"

Guarantees need a calibration split, so that model learns from the other rows only. On the test rows they give two
curves: coverage against the size of the sets {c : 1 - p_c <= t}, and accuracy against the share of rows answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from kway.auto.fit_options import FitOptions
from kway.auto.race.clock import REPORT_SECONDS, Clock
from kway.auto.race.folds import HELD_OUT_SHARE
from kway.auto.race.scoring import LeaderboardRow
from kway.auto.train_test import TrainTest
from kway.confidence import (
    ConformalClassifier,
    HierarchicalConformalClassifier,
    OpenSetClassifier,
    TemperatureScaledClassifier,
)
from kway.confidence.blend import HeldOut
from kway.confidence.class_offsets import validated_offsets
from kway.confidence.splits import Split, hold_out, make_folds
from kway.confidence.temperature import SCORES, scale_fitted, score_columns
from kway.errors import InputError, KwayError
from kway.labels import encode_as
from kway.memory import CACHE_BYTES, rows_per_block
from kway.rows.blocks import take_rows
from kway.suggest import listing

MOVED = "the intercepts of the SVMs were adjusted on held-out rows, so that scores of different classes are comparable"
_CALIBRATION_ROWS = 1000  # held-out rows that fix a temperature to a few percent (T11)


def calibrate(
    row: LeaderboardRow,
    X: Any,
    folds: NDArray[np.int64],
    data: TrainTest,
    options: FitOptions,
    clock: Clock,
    held: HeldOut | None = None,
    held_codes: NDArray[np.int64] | None = None,
    fit_seconds: float = 0.0,
) -> tuple[Any, str]:
    """Return the fitted winner with a temperature, and a note if it cannot have one.

    `held` are the predictions for held-out rows with class codes `held_codes` (m,), if the comparison has them. A fit
    on all rows is expected to take `fit_seconds`. Intercepts are adjusted only if rows of all classes count equally.
    """
    model = row.fitted
    if held is not None and held_codes is not None:
        return scale_fitted(model, held.values, held_codes, held.source), ""
    splits = _splits(fit_seconds, folds, data, options.seed, clock)
    try:
        if options.weighs_rows_equally and _is_one_vs_all_svm(model):
            return _moved_and_scaled(model, X, data.y, splits)
        if len(splits) == 1:
            return _scaled_once(model, X, data.y, splits[0], options.seed), ""
        scaled = TemperatureScaledClassifier(clone(model), splits, options.seed).fit(X, data.y)
        return _without_rows(scaled), ""
    except (KwayError, MemoryError, AttributeError) as error:
        return model, f"probabilities are not calibrated: {error}"


def calibrate_on(model: Any, X: Any, y: NDArray, seed: int) -> tuple[Any, str]:
    """Return a fitted model with its temperature on rows that it did not learn from, and a note if it has none."""
    try:
        return TemperatureScaledClassifier(model, "prefit", seed).fit(X, y), ""
    except (KwayError, MemoryError, AttributeError) as error:
        return model, f"probabilities are not calibrated: {error}"


def _splits(fit_seconds: float, folds: NDArray[np.int64], data: TrainTest, seed: int, clock: Clock) -> list[Split]:
    """Return five splits, or one if rows are many or time is short; groups and order are kept."""
    clock.reserve, n_folds = REPORT_SECONDS, round(1 / HELD_OUT_SHARE)
    once = HELD_OUT_SHARE * data.n > _CALIBRATION_ROWS or clock.up(n_folds * fit_seconds)
    if data.keeps_groups_or_order:  # rows drawn at random would be too easy
        splits = [Split(np.flatnonzero(folds != f), np.flatnonzero(folds == f)) for f in range(int(folds.max()) + 1)]
        return splits[:1] if once else splits
    codes, rng = data.labels.codes, np.random.RandomState(seed)
    return [hold_out(codes, HELD_OUT_SHARE, rng)] if once else make_folds(codes, n_folds, rng)


def _without_rows(scaled: Any) -> Any:
    """Return the model without the row numbers of its splits, which do not belong in a model file."""
    return scaled.set_params(cv="prefit", estimator=scaled.estimator_)


def _scaled_once(model: Any, X: Any, y: NDArray, split: Split, seed: int) -> Any:
    """Return the fitted model with the temperature of a fit on part of the rows, measured on the others."""
    part = clone(model).fit(take_rows(X, split.train), y[split.train])
    scaled = TemperatureScaledClassifier(part, "prefit", seed)
    scaled.fit(take_rows(X, split.calibration), y[split.calibration])
    scaled._adopt(model)
    return _without_rows(scaled)


def _is_one_vs_all_svm(model: Any) -> bool:
    """Return whether a model has one linear classifier per class without probabilities, and more than two classes."""
    svm = getattr(model, "multiclass", None) == "one-vs-all" and not hasattr(model, "predict_proba")
    return svm and len(model.classes_) > 2 and getattr(model, "device", "cpu") == "cpu"


def _moved_and_scaled(model: Any, X: Any, y: NDArray, splits: list[Split]) -> tuple[Any, str]:
    """Return the fitted SVMs with a temperature, and with adjusted intercepts if these help on held-out rows.

    Both come from fits on parts of the rows and their scores of the other rows.
    """
    most = max(1, rows_per_block(8 * len(model.classes_) * len(splits), 4 * CACHE_BYTES))
    z, codes = [], []
    for learn, held in splits:
        part = clone(model).fit(take_rows(X, learn), y[learn])
        if len(part.classes_) < len(model.classes_):
            raise InputError("a class has no row left to learn from once some are held out; add rows to it")
        some = held[:: max(1, -(-len(held) // most))]
        z.append(score_columns(part, take_rows(X, some)))
        codes.append(encode_as(y[some], model.classes_))
    scores, own = np.concatenate(z), np.concatenate(codes)
    offsets = validated_offsets(scores, own)
    model.intercept_ = (model.intercept_ + offsets).astype(model.intercept_.dtype)
    return scale_fitted(model, scores + offsets, own, SCORES), MOVED if offsets.any() else ""


# ---- sets and "unknown"


@dataclass(frozen=True, eq=False)
class Tradeoff:
    """A curve x, y on the test rows, the point of the model on it, and the guarantee in words."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    at: tuple[float, float]
    guarantee: str
    note: str = ""  # what the user should know about the sets, or the classes that are rejected


@dataclass(frozen=True, eq=False)
class GuaranteedModel:
    """The winner, with its temperature, inside the classifiers that give guarantees."""

    model: Any  # predicts sets, or "unknown"
    classifier: Any  # inside: the winner with its temperature
    open_set: Any  # the OpenSetClassifier, or None


def with_guarantees(
    winner: Any, X: Any, folds: NDArray[np.int64], data: TrainTest, options: FitOptions
) -> GuaranteedModel:
    """Fit the winner again without a calibration split, which is fold 0 if groups or order are kept."""
    split = Split(np.flatnonzero(folds != 0), np.flatnonzero(folds == 0)) if data.keeps_groups_or_order else None
    cv: Any = HELD_OUT_SHARE if split is None else [split]
    model: Any = TemperatureScaledClassifier(clone(winner), HELD_OUT_SHARE, options.seed)
    if options.unknown is not None:
        model = OpenSetClassifier(
            model,
            false_rejects=options.unknown,
            cv=cv if options.sets is None else HELD_OUT_SHARE,  # inside the sets row numbers differ
            random_state=options.seed,
        )
    if options.sets is not None and data.hierarchy is not None:
        model = HierarchicalConformalClassifier(model, data.hierarchy, options.sets, cv, options.seed)
    elif options.sets is not None:
        model = ConformalClassifier(model, coverage=options.sets, cv=cv, random_state=options.seed)
    model.fit(X, data.y)
    if split is not None:
        _without_rows(model)
    open_set = None if options.unknown is None else (model if options.sets is None else model.estimator_)
    inside = model.estimator_ if open_set is None else open_set.estimator_
    return GuaranteedModel(model, inside, open_set)


def sets_tradeoff(found: GuaranteedModel, X: Any, y: NDArray, n_points: int = 60) -> Tradeoff:
    """Return the share of test rows whose set contains their label, against the number of labels per set.

    The threshold of the model is one of the points.
    """
    if isinstance(found.model, HierarchicalConformalClassifier):
        return _nodes_tradeoff(found.model, X, y, n_points)
    odd = 1.0 - np.asarray(found.classifier.predict_proba(X))
    own = odd[np.arange(len(y)), encode_as(y, found.classifier.classes_)]
    limits = np.unique([*np.quantile(own, np.linspace(0, 1, n_points)), *np.unique(found.model.thresholds_)])
    sizes = np.array([(odd <= t).sum(axis=1).mean() for t in limits])
    covered = np.array([(own <= t).mean() for t in limits])
    sets = found.model.predict_set(X)
    at = float(sets.sizes.mean()), float(sets.covers(y).mean())
    note = _empty_note(
        float((sets.sizes == 0).mean()), float((odd.argmin(axis=1) == encode_as(y, found.classifier.classes_)).mean())
    )
    return Tradeoff(sizes, covered, at, str(found.model.guarantee_), note)


def _empty_note(empty: float, accuracy: float) -> str:
    """Return why sets are empty, if some are."""
    if not empty:
        return ""
    return (
        f"{empty:.1%} of the sets are empty: no label is likely enough there, and {accuracy:.1%} of the most likely "
        "labels are correct, more than the sets need; a higher share (sets=) makes fewer empty sets"
    )


def _nodes_tradeoff(model: HierarchicalConformalClassifier, X: Any, y: NDArray, n_points: int) -> Tradeoff:
    """Return the same for sets that are nodes of a tree: all labels below the node."""
    climb, tree, rows = model.climb(X), model.tree_, np.arange(len(y))
    own = tree.chains[encode_as(y, model.classes_)]
    covers = (climb.nodes[:, :, None] == own[:, None, :]).any(axis=2)  # (n, L + 1)
    sizes = np.asarray(tree.members.sum(axis=0)).ravel()[climb.nodes]
    p = climb.probabilities[:, :-1]
    limits = [-1.0, *np.unique([*np.quantile(p, np.linspace(0, 1, n_points)), min(model.threshold_, 1.0)])]
    stops = [climb.stops(limit) for limit in limits]
    at = climb.stops(model.threshold_)
    return Tradeoff(
        np.array([sizes[rows, stop].mean() for stop in stops]),
        np.array([covers[rows, stop].mean() for stop in stops]),
        (float(sizes[rows, at].mean()), float(covers[rows, at].mean())),
        str(model.guarantee_),
    )


def unknown_tradeoff(found: GuaranteedModel, X: Any, y: NDArray, n_points: int = 60) -> Tradeoff:
    """Return the accuracy of the rows that are answered, against their share, most confident rows first."""
    explained = found.open_set.explain(X)
    order = np.argsort(-explained.known_scores, kind="stable")
    right = (explained.candidates == y)[order]
    counts = np.unique(np.linspace(1, len(y), n_points).astype(int))
    answered = ~explained.rejected
    accuracy = float((explained.candidates == y)[answered].mean()) if answered.any() else 1.0
    at = float(answered.mean()), accuracy
    curve = np.cumsum(right)[counts - 1] / counts
    return Tradeoff(counts / len(y), curve, at, str(found.open_set.guarantee_), _rejected_note(y, explained.rejected))


def _rejected_note(y: NDArray, rejected: NDArray[np.bool_]) -> str:
    """Return the classes of which more than half of the test rows are taken for unknown."""
    classes, codes = np.unique(y, return_inverse=True)
    rows, out = np.bincount(codes), np.bincount(codes, rejected)
    most = [
        f"{classes[c]} ({out[c]:.0f} of {rows[c]})"
        for c in np.argsort(-out / rows, kind="stable")
        if 2 * out[c] > rows[c]
    ]
    return f"most test rows of these classes are answered 'unknown': {listing(most, 5)}" if most else ""
