"""From parameters, labels and weights to what an Objective takes: checks, soft targets, weights, rows held out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split
from sklearn.utils import compute_class_weight

from kway.data.gate import Rows
from kway.data.labels import Labels
from kway.errors import InputError
from kway.linear.losses import LOSSES
from kway.linear.objective.objective import Objective
from kway.linear.solvers.watching import Validation

if TYPE_CHECKING:
    from kway.linear.classifier import LinearClassifier

HELD_OUT = 0.1  # share of the rows that early stopping keeps for validation


class Training(NamedTuple):
    """Rows that count: X (m, d), their labels and weights of mean 1 (or None), and where they stood among all rows."""

    X: Rows
    labels: Labels
    weight: NDArray | None
    kept: NDArray[np.int64]


def check_parameters(model: LinearClassifier) -> None:
    """Refuse parameters out of range, all of them in one message."""
    choices = {
        "loss": (tuple(LOSSES), model.loss),
        "multiclass": (("joint", "one-vs-all"), model.multiclass),
        "device": (("cpu",), model.device),
    }
    for name, (known, value) in choices.items():
        if value not in known:
            raise InputError(f"{name} must be one of {', '.join(known)}; got {value!r}")
    limits = {
        "alpha >= 0": model.alpha >= 0,
        "temperature > 0": model.temperature > 0,
        "0 <= l1_ratio <= 1": 0 <= model.l1_ratio <= 1,
        "max_iter >= 1": model.max_iter >= 1,
        "tol >= 0": model.tol >= 0,
        "batch_size >= 1": model.batch_size >= 1,
        "0 <= label_smoothing < 1": 0 <= model.label_smoothing < 1,
    }
    broken = [rule for rule, holds in limits.items() if not holds]
    if broken:
        names = ("alpha", "temperature", "l1_ratio", "max_iter", "tol", "batch_size", "label_smoothing")
        got = ", ".join(f"{name}={getattr(model, name)!r}" for name in names if any(name in rule for rule in broken))
        raise InputError(f"parameters out of range: needed {', '.join(broken)}; got {got}")


def refuse_one_class(labels: Labels, who: str) -> None:
    """A classifier needs two classes to tell apart."""
    if labels.n_classes < 2:
        only = labels.classes[0] if labels.n_classes else None
        raise InputError(
            f"{who} needs samples of at least 2 classes, but the data contains one class: {only!r}; "
            "a constant needs no classifier, so check the labels"
        )


def training(X: Rows, labels: Labels, sample_weight: NDArray | None, class_weight: Any) -> Training:
    """Rows with their weights, those of weight zero left out."""
    everything = np.arange(X.shape[0])
    weight = _class_weighted(sample_weight, labels, class_weight)
    if weight is None:
        return Training(X, labels, None, everything)
    kept = everything[weight > 0]
    if len(kept) < len(everything):
        X, weight = X[kept], weight[kept]
        labels = Labels(labels.classes, labels.codes[kept], None if labels.soft is None else labels.soft[kept])
    return Training(X, labels, (weight / weight.mean()).astype(X.dtype), kept)


def _class_weighted(weight: NDArray | None, labels: Labels, class_weight: Any) -> NDArray | None:
    """Sample weights times the weights of their classes; "balanced" counts a row by its weight."""
    if class_weight is None:
        return weight
    classes, codes = labels.classes, labels.codes
    if isinstance(class_weight, str) and weight is not None:
        totals = np.bincount(codes, weight, minlength=len(classes))
        each = weight.sum() / (len(classes) * np.maximum(totals, np.finfo(float).tiny))
    else:
        each = compute_class_weight(class_weight, classes=classes, y=classes[codes])
    return each[codes] if weight is None else weight * each[codes]


def soft_targets(labels: Labels, smoothing: float, dtype: Any) -> NDArray | None:
    """(n, R) targets where they are not plain codes: 1 - eps for the class and eps / (K - 1) for each other."""
    if labels.soft is None and smoothing == 0:
        return None
    K = labels.n_classes
    Y = np.eye(K)[labels.codes] if labels.soft is None else labels.soft
    Y = Y * (1 - smoothing) + (1 - Y) * (smoothing / (K - 1))
    return np.ascontiguousarray(Y[:, 1:] if K == 2 else Y, dtype=dtype)


def hold_out(
    objective: Objective, early_stopping: bool | float, rng: np.random.Generator
) -> tuple[Objective, Validation | None]:
    """The objective on the rows to learn from, and what watches the others (nobody unless asked for)."""
    if not early_stopping:
        return objective, None
    share = HELD_OUT if early_stopping is True else float(early_stopping)
    codes = objective.targets.codes
    stratify = codes if np.bincount(codes).min() >= 2 and share * len(codes) >= objective.n_scores else None
    train, held = train_test_split(
        np.arange(objective.n), test_size=share, stratify=stratify, random_state=int(rng.integers(2**31))
    )
    return objective.rows(np.sort(train)), Validation(objective.rows(np.sort(held)))
