"""Calibrate the winner on held-out rows: probabilities, prediction sets and "unknown".

temperature   learned from the predictions of the comparison for held-out rows, if it stored them. Otherwise learned by
              cross-validation, or from one split if there are many rows or little time; both keep groups and order.
              The intercepts of one-vs-all SVMs are adjusted first, if that lowers the log loss on held-out rows
sets          ConformalClassifier around the winner: sets that contain the label with a guaranteed probability
unknown       OpenSetClassifier around the winner, inside the sets: the prediction "unknown"

Guarantees need a calibration split, so the model is trained on the other rows only. With groups or order, the split of
the outermost classifier is fold 0. The classifiers inside it split its training rows at random, because row numbers of
the table do not apply to them, so their probabilities and thresholds may be too optimistic for new groups.

The test rows give two curves:
coverage against the size of the sets {c : 1 - p_c <= t}, and accuracy against the share of rows with a predicted label.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from kway.auto.compare_data import DataComparison
from kway.auto.race.clock import Clock
from kway.auto.race.folds import HELD_OUT_SHARE
from kway.auto.race.scoring import LeaderboardRow
from kway.base.wrappers import layers
from kway.confidence import (
    ConformalClassifier,
    HierarchicalConformalClassifier,
    OpenSetClassifier,
    TemperatureScaledClassifier,
)
from kway.confidence.blend import HeldOut
from kway.confidence.class_offsets import validated_offsets
from kway.confidence.splits import LabeledRows, Split, hold_out, make_folds, splits_of
from kway.confidence.temperature import SCORES
from kway.errors import KwayError
from kway.labels import encode_as
from kway.memory import CACHE_BYTES, rows_per_block
from kway.suggest import listing

ADJUSTED = (
    "the intercepts of the SVMs were adjusted on held-out rows, so that scores of different classes are comparable"
)
_CALIBRATION_ROWS = 1000  # held-out rows that determine a temperature to a few percent


def calibrate(
    chosen: DataComparison, row: LeaderboardRow, clock: Clock, held_out: HeldOut | None = None
) -> tuple[Any, str]:
    """Return the fitted winner with a temperature, and a note if it cannot have one.

    `held_out` are its predictions for held-out rows, if the comparison has them. Intercepts are adjusted only if all
    rows have equal weight.
    """
    model, data, options = row.fitted, chosen.data, chosen.options
    if held_out is not None:
        return held_out.scaled(model), ""
    if data.weights is not None:  # TemperatureScaledClassifier counts every held-out row once
        return model, "probabilities are not calibrated, because there was no time or memory for weighted predictions"
    scaled = TemperatureScaledClassifier(clone(model), _splits(chosen, row, clock), options.seed)
    rows = LabeledRows(chosen.view(row.model).X, data.labels)
    try:
        if options.weighs_rows_equally and _is_one_vs_all_svm(model):
            return _adjusted_and_scaled(scaled, model, rows)
        scaled._calibrate(model, rows)
        return _without_rows(scaled), ""
    except (KwayError, MemoryError, AttributeError) as error:
        return model, f"probabilities are not calibrated: {error}"


def calibrate_on(model: Any, X: Any, y: NDArray, seed: int) -> tuple[Any, str]:
    """Return a fitted model with its temperature on held-out rows X, and a note if it cannot have one."""
    try:
        return TemperatureScaledClassifier(model, "prefit", seed).fit(X, y), ""
    except (KwayError, MemoryError, AttributeError) as error:
        return model, f"probabilities are not calibrated: {error}"


def _splits(chosen: DataComparison, row: LeaderboardRow, clock: Clock) -> list[Split]:
    """Return the splits of cross-validation, or one split if there are many rows or little time.

    If groups or order are kept, the splits are the folds of the comparison; otherwise there are five.
    """
    data, folds, n_folds = chosen.data, chosen.folds, round(1 / HELD_OUT_SHARE)
    seconds = n_folds * chosen.comparison.fit_seconds(row.model)
    once = HELD_OUT_SHARE * data.n > _CALIBRATION_ROWS or clock.up(seconds)
    if data.keeps_groups_or_order:  # random held-out rows would be easier to predict than new rows
        splits = splits_of(folds)
        return splits[:1] if once else splits
    codes, rng = data.labels.codes, np.random.RandomState(chosen.options.seed)
    return [hold_out(codes, HELD_OUT_SHARE, rng)] if once else make_folds(codes, n_folds, rng)


def _without_rows(scaled: Any) -> Any:
    """Return the model without the row numbers of its splits, which do not belong in a model file."""
    return scaled.set_params(cv="prefit", estimator=scaled.estimator_)


def _is_one_vs_all_svm(model: Any) -> bool:
    """Return whether a model has one linear classifier per class without probabilities, and more than two classes."""
    svm = getattr(model, "multiclass", None) == "one-vs-all" and not hasattr(model, "predict_proba")
    return svm and len(model.classes_) > 2 and getattr(model, "device", "cpu") == "cpu"


def _adjusted_and_scaled(scaled: TemperatureScaledClassifier, model: Any, rows: LabeledRows) -> tuple[Any, str]:
    """Return a copy of the fitted SVMs with a temperature, and with adjusted intercepts if these help on held-out rows.

    `scaled` scores the held-out rows by models that it fits without them. `model` itself is not changed.
    """
    scaled._adopt(model)
    scores, codes = scaled._score_calibration_rows(rows, SCORES, scaled._rng())
    few = slice(None, None, -(-len(codes) // rows_per_block(8 * scores.shape[1], 4 * CACHE_BYTES)) or 1)
    scores, codes = scores[few], codes[few]
    offsets = validated_offsets(scores, codes)
    adjusted = copy(model)
    adjusted.intercept_ = (model.intercept_ + offsets).astype(model.intercept_.dtype)
    return HeldOut(scores + offsets, codes, SCORES).scaled(adjusted), ADJUSTED if offsets.any() else ""


# ---- sets and "unknown"


@dataclass(frozen=True, eq=False)
class Tradeoff:
    """A curve x, y over all thresholds on the test rows, the point `at` of the model, and the guarantee in words."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    at: tuple[float, float]
    guarantee: str
    note: str = ""  # a warning about empty sets, or about classes that are mostly rejected


def with_guarantees(chosen: DataComparison, row: LeaderboardRow) -> Any:
    """Fit the winner again inside the classifiers that give guarantees, which hold out calibration rows.

    The innermost of these is the winner with its temperature, the next one predicts "unknown", and the outermost sets.
    With groups or order, the calibration rows of the outermost classifier are fold 0.
    """
    data, options = chosen.data, chosen.options
    split = splits_of(chosen.folds)[0] if data.keeps_groups_or_order else None
    cv: Any = HELD_OUT_SHARE if split is None else [split]
    model: Any = TemperatureScaledClassifier(clone(row.fitted), HELD_OUT_SHARE, options.seed)
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
    model.fit(chosen.view(row.model).X, data.y)
    if split is not None:
        _without_rows(model)
    return model


def layer_of(model: Any, kind: type) -> Any:
    """Return the outermost classifier of a kind among a model and the classifiers inside it."""
    return next(layer for layer in layers(model) if isinstance(layer, kind))


def sets_tradeoff(model: Any, X: Any, y: NDArray, n_points: int = 60) -> Tradeoff:
    """Return the share of test rows whose set contains their label, against the number of labels per set.

    The threshold of the model is one of the points.
    """
    if isinstance(model, HierarchicalConformalClassifier):
        return _nodes_tradeoff(model, X, y, n_points)
    nonconformity, codes = 1.0 - np.asarray(model.predict_proba(X)), encode_as(y, model.classes_)
    own_nonconformity = nonconformity[np.arange(len(y)), codes]
    thresholds = np.unique(
        [*np.quantile(own_nonconformity, np.linspace(0, 1, n_points)), *np.unique(model.thresholds_)]
    )
    sizes = np.array([(nonconformity <= t).sum(axis=1).mean() for t in thresholds])
    covered = np.array([(own_nonconformity <= t).mean() for t in thresholds])
    sets = model.predict_set(X)
    at = float(sets.sizes.mean()), float(sets.covers(y).mean())
    note = _empty_note(
        float((sets.sizes == 0).mean()),
        float((nonconformity.argmin(axis=1) == codes).mean()),
    )
    return Tradeoff(sizes, covered, at, str(model.guarantee_), note)


def _empty_note(empty: float, accuracy: float) -> str:
    """Return a note on why sets are empty; no text if none is."""
    if not empty:
        return ""
    return (
        f"{empty:.1%} of the sets are empty: no label is likely enough, and {accuracy:.1%} of the most likely "
        "labels are correct; a higher share (sets=) makes fewer empty sets"
    )


def _nodes_tradeoff(model: HierarchicalConformalClassifier, X: Any, y: NDArray, n_points: int) -> Tradeoff:
    """Return the tradeoff of `sets_tradeoff` for sets that are nodes of a tree, with all labels below the node."""
    climb, tree, rows = model.climb(X), model.tree_, np.arange(len(y))
    true_nodes = tree.chains[encode_as(y, model.classes_)]
    covers = (climb.nodes[:, :, None] == true_nodes[:, None, :]).any(axis=2)  # (n, L + 1)
    sizes = np.asarray(tree.members.sum(axis=0)).ravel()[climb.nodes]
    p = climb.probabilities[:, :-1]
    thresholds = [-1.0, *np.unique([*np.quantile(p, np.linspace(0, 1, n_points)), min(model.threshold_, 1.0)])]
    stops = [climb.stops(limit) for limit in thresholds]
    at = climb.stops(model.threshold_)
    return Tradeoff(
        np.array([sizes[rows, stop].mean() for stop in stops]),
        np.array([covers[rows, stop].mean() for stop in stops]),
        (float(sizes[rows, at].mean()), float(covers[rows, at].mean())),
        str(model.guarantee_),
    )


def unknown_tradeoff(model: Any, X: Any, y: NDArray, n_points: int = 60) -> Tradeoff:
    """Return the accuracy on rows with a predicted label against their share, for all thresholds of rejection."""
    open_set = layer_of(model, OpenSetClassifier)
    explanation = open_set.explain(X)
    order = np.argsort(-explanation.known_scores, kind="stable")
    correct = (explanation.candidates == y)[order]
    counts = np.unique(np.linspace(1, len(y), n_points).astype(int))
    answered = ~explanation.rejected
    accuracy = float((explanation.candidates == y)[answered].mean()) if answered.any() else 1.0
    at = float(answered.mean()), accuracy
    curve = np.cumsum(correct)[counts - 1] / counts
    return Tradeoff(counts / len(y), curve, at, str(open_set.guarantee_), _rejected_note(y, explanation.rejected))


def _rejected_note(y: NDArray, rejected: NDArray[np.bool_]) -> str:
    """Return a note on the classes of which more than half of the test rows are predicted as unknown."""
    classes, codes = np.unique(y, return_inverse=True)
    rows, rejected_counts = np.bincount(codes), np.bincount(codes, rejected)
    mostly_rejected = [
        f"{classes[c]} ({rejected_counts[c]:.0f} of {rows[c]})"
        for c in np.argsort(-rejected_counts / rows, kind="stable")
        if 2 * rejected_counts[c] > rows[c]
    ]
    return (
        f"most test rows of these classes are predicted as 'unknown': {listing(mostly_rejected, 5)}"
        if mostly_rejected
        else ""
    )
