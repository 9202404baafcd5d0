"""Calibration of the winner: a temperature learned on rows that it did not see.

neighbours   their votes on the rows of the folds were found in the comparison: no fit, no search
others       five folds, or one split where rows are many or time is short; groups and order are kept
machines     the same, but first their intercepts move, where that helps scores to be compared (class_offsets.py)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from kway.confidence import TemperatureScaledClassifier, heldout
from kway.confidence.class_offsets import OFFSET_ENTRIES, proven_offsets
from kway.confidence.heldout import Split
from kway.confidence.log_scores import SCORES, score_columns
from kway.confidence.temperature import scaled_by
from kway.data.blocks.row_blocks import rows_at
from kway.data.labels import encode, encode_as
from kway.errors import InputError, KwayError
from kway.select.contest.clock import Clock
from kway.select.contest.scans import HeldOut
from kway.select.leaderboard import Line
from kway.select.train_test import Parts

_FOLDS = 5  # as a rule
ENOUGH_ROWS = 5000  # rows of which a fifth is enough for one temperature: its error is then a few per cent
MOVED = "intercepts of the machines were moved by rows held out, so that their scores can be compared"
PAGE = 4.0  # seconds that test and page take at least


class Calibrated(NamedTuple):
    """The model, with its temperature where it has one, and a note where it has none or more was done."""

    model: Any
    note: str = ""


def calibrate_winner(
    line: Line,
    X: Any,
    folds: NDArray[np.int64],
    parts: Parts,
    seed: int,
    clock: Clock,
    held: HeldOut | None = None,
    even: bool = False,
) -> Calibrated:
    """The winner with a temperature learned on rows it did not see, and a note where that cannot be done.

    `held`: what the folds of the comparison have said of such rows already; else it is fitted on some and asked.
    `even`: a row of one class counts as much as a row of another, so intercepts may follow how common classes are.
    """
    if held is not None:
        return Calibrated(scaled_by(line.model, *held))
    splits = _held_out(line, folds, parts, seed, clock)
    try:
        if even and _machines(line.model):
            return _moved_and_scaled(line.model, X, parts.y, splits)
        if len(splits) == 1:
            return Calibrated(_scaled_once(line.model, X, parts.y, splits[0], seed))
        return Calibrated(_forget_rows(TemperatureScaledClassifier(clone(line.model), splits, seed).fit(X, parts.y)))
    except (KwayError, AttributeError) as error:
        return Calibrated(line.model, f"probabilities are not calibrated: {error}")


def scaled_on(model: Any, X: Any, y: NDArray, seed: int) -> Calibrated:
    """A fitted model with its temperature on rows that it did not see, and a note where that cannot be done."""
    try:
        return Calibrated(TemperatureScaledClassifier(model, "prefit", seed).fit(X, y))
    except (KwayError, AttributeError) as error:
        return Calibrated(model, f"probabilities are not calibrated: {error}")


def _held_out(line: Line, folds: NDArray[np.int64], parts: Parts, seed: int, clock: Clock) -> list[Split]:
    """Splits of the calibration: five, or one of many rows or in little time; groups and order are kept."""
    clock.reserve = PAGE
    once = parts.n > ENOUGH_ROWS or clock.up(_FOLDS * (line.fit_seconds or 0.0))
    if parts.order is not None or parts.groups is not None:  # rows drawn at random would be too easy
        splits = [Split(np.flatnonzero(folds != f), np.flatnonzero(folds == f)) for f in range(int(folds.max()) + 1)]
        return splits[:1] if once else splits
    codes, rng = encode(parts.y).codes, np.random.RandomState(seed)
    return [heldout.hold_out(codes, 0.2, rng)] if once else heldout.folds(codes, _FOLDS, rng)


def _forget_rows(scaled: Any) -> Any:
    """Row numbers of this training set have no place in the parameters of a model file."""
    return scaled.set_params(cv="prefit", estimator=scaled.estimator_)


def _scaled_once(model: Any, X: Any, y: NDArray, split: Split, seed: int) -> Any:
    """The fitted model with the temperature that a fit of it on part of the rows needs on the others: one fit only."""
    part = clone(model).fit(rows_at(X, split.learn), y[split.learn])
    scaled = TemperatureScaledClassifier(part, "prefit", seed)
    scaled.fit(rows_at(X, split.held), y[split.held])
    scaled._adopt(model)
    return _forget_rows(scaled)


def _machines(model: Any) -> bool:
    """Whether it is one linear machine a class, of several, none of which states a probability."""
    apart = getattr(model, "multiclass", None) == "one-vs-all" and not hasattr(model, "predict_proba")
    return apart and len(model.classes_) > 2 and getattr(model, "device", "cpu") == "cpu"


def _moved_and_scaled(model: Any, X: Any, y: NDArray, pairs: list[Split]) -> Calibrated:
    """The fitted machines, intercepts moved where that is proven to help, with a temperature, and a note.

    Both by fits on parts of the rows that are asked for the others.
    """
    most = max(1, OFFSET_ENTRIES // len(model.classes_) // len(pairs))
    z, codes = [], []
    for learn, held in pairs:
        part = clone(model).fit(rows_at(X, learn), y[learn])
        if len(part.classes_) < len(model.classes_):
            raise InputError("a class has no row left to learn from once some are held out; give it more rows")
        some = held[:: max(1, -(-len(held) // most))]
        z.append(score_columns(part, rows_at(X, some)))
        codes.append(encode_as(y[some], model.classes_))
    scores, own = np.concatenate(z), np.concatenate(codes)
    offsets = proven_offsets(scores, own)
    model.intercept_ = (model.intercept_ + offsets).astype(model.intercept_.dtype)
    return Calibrated(scaled_by(model, scores + offsets, own, SCORES), MOVED if offsets.any() else "")
