"""From parameters, labels and weights to what an Objective takes: checks, soft targets, weights, rows held out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import compute_class_weight

from kway.compute.gpu.far_rows import FarRows
from kway.data.gate import Rows
from kway.data.labels import Labels
from kway.errors import InputError
from kway.linear.losses import LOSSES
from kway.parameters import (
    CLASS_WEIGHT,
    DEVICE,
    VERBOSE,
    YES_OR_NO,
    above,
    at_least,
    between,
    check_parameters,
    one_of,
    share,
    whole,
    within,
)

if TYPE_CHECKING:
    from kway.linear.classifier import LinearClassifier
    from kway.linear.objective.objective import Objective
    from kway.linear.solvers.watching import Validation

HELD_OUT = 0.1  # share of the rows that early stopping keeps for validation
FLOAT32_HOLDS = 1e-6  # of an objective: sums of float32 losses and slopes tell no smaller excess


class WeightedRows(NamedTuple):
    """Rows that count: X (m, d), their labels and weights of mean 1 (or None), and where they stood among all rows."""

    X: Rows
    labels: Labels
    weight: NDArray | None
    kept: NDArray[np.int64]


class SplitProblem(NamedTuple):
    """The objective on the rows to learn from, and what watches the others (None: nobody was asked to)."""

    objective: Objective
    validation: Validation | None


def check_problem(model: LinearClassifier) -> None:
    """Refuse parameters that mean nothing before any data is looked at."""
    check_parameters(
        model,
        loss=one_of(*LOSSES),
        multiclass=one_of("joint", "one-vs-all"),
        alpha=at_least(0),
        l1_ratio=within(0, 1),
        temperature=above(0),
        max_iter=whole(1),
        tol=at_least(0),
        batch_size=whole(1),
        label_smoothing=share(),
        fit_intercept=YES_OR_NO,
        class_weight=CLASS_WEIGHT,
        early_stopping=YES_OR_NO | between(0, 1),
        warm_start=YES_OR_NO,
        device=DEVICE,
        verbose=VERBOSE,
    )


def refuse_one_class(labels: Labels, who: str) -> None:
    """A classifier needs two classes to tell apart."""
    if labels.n_classes < 2:
        only = labels.classes.tolist()[0] if labels.n_classes else None
        raise InputError(
            f"{who} needs samples of at least 2 classes, but the data contains one class: {only!r}; "
            "a constant needs no classifier, so check the labels"
        )


def wide_enough(X: Rows, tol: float) -> Rows:
    """The rows in a float type that can tell an excess of tol: float64 where float32 cannot.

    A gap of 1e-7 that float32 arithmetic "proved" was one of 1e-6.
    """
    narrow = not isinstance(X, FarRows) and X.dtype == np.float32
    return X.astype(np.float64) if narrow and 0 < tol < FLOAT32_HOLDS else X


def weighted_rows(X: Rows, labels: Labels, sample_weight: NDArray | None, class_weight: Any) -> WeightedRows:
    """Rows with their weights, those of weight zero left out."""
    everything = np.arange(X.shape[0])
    weight = _class_weighted(sample_weight, labels, class_weight)
    if weight is None:
        return WeightedRows(X, labels, None, everything)
    kept = everything[weight > 0]
    if len(kept) < len(everything):
        X, weight = X[kept], weight[kept]
        labels = Labels(labels.classes, labels.codes[kept], None if labels.soft is None else labels.soft[kept])
    return WeightedRows(X, labels, (weight / weight.mean()).astype(X.dtype), kept)


def _class_weighted(weight: NDArray | None, labels: Labels, class_weight: Any) -> NDArray | None:
    """Sample weights times the weights of their classes; "balanced" counts a row by its weight."""
    if class_weight is None:
        return weight
    classes, codes = labels.classes, labels.codes
    if isinstance(class_weight, str) and weight is not None:
        totals = np.bincount(codes, weight, minlength=len(classes))
        each = weight.sum() / (len(classes) * np.maximum(totals, np.finfo(float).tiny))
    else:
        try:
            each = compute_class_weight(class_weight, classes=classes, y=classes[codes])
        except (ValueError, TypeError) as error:
            raise InputError(f"class_weight does not fit the labels: {error}") from error
        if not (np.isfinite(each) & (each >= 0)).all():
            raise InputError(f"class_weight must be finite weights >= 0 by label, got {class_weight!r:.100}")
    return each[codes] if weight is None else weight * each[codes]


def soft_targets(labels: Labels, smoothing: float, dtype: Any) -> NDArray | None:
    """(n, R) targets where they are not plain codes: 1 - eps for the class and eps / (K - 1) for each other."""
    if labels.soft is None and smoothing == 0:
        return None
    K = labels.n_classes
    Y = np.eye(K)[labels.codes] if labels.soft is None else labels.soft
    Y = Y * (1 - smoothing) + (1 - Y) * (smoothing / (K - 1))
    return np.ascontiguousarray(Y[:, 1:] if K == 2 else Y, dtype=dtype)


def set_aside(objective: Objective, early_stopping: bool | float, rng: np.random.Generator) -> SplitProblem:
    """Keep some rows for early stopping to watch; all are learned from unless it is asked for."""
    if not early_stopping:
        return SplitProblem(objective, None)
    from sklearn.model_selection import train_test_split  # half a second, and no prediction needs it

    from kway.linear.solvers.watching import Validation

    part = HELD_OUT if early_stopping is True else float(early_stopping)
    codes = objective.targets.codes
    stratify = codes if np.bincount(codes).min() >= 2 and part * len(codes) >= objective.n_scores else None
    train, held = train_test_split(
        np.arange(objective.n), test_size=part, stratify=stratify, random_state=int(rng.integers(2**31))
    )
    return SplitProblem(objective.rows(np.sort(train)), Validation(objective.rows(np.sort(held))))
