"""How well labels were predicted on rows that no choice has looked at, and whether "better" is more than luck.

accuracy    with its 95 % Wilson interval            macro F1    mean over classes of 2 P R / (P + R)
log loss    kway.log_loss                             ECE         gap between confidence and accuracy
McNemar     of the rows that one of two models gets right, the share each wins: exact binomial test of 1/2
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.errors import BudgetError, InputError
from kway.log_loss import log_loss, own_probability

TOP = 5


@dataclass(frozen=True)
class Scores:
    """Figures of one model on `rows` labelled rows; None where the model or the data has no such figure."""

    accuracy: float
    low: float  # of the 95 % interval of the accuracy
    high: float
    macro_f1: float
    top5: float | None  # the right label is among the 5 best; None where there are no more than 5
    log_loss: float | None
    ece: float | None
    rows: int
    classes: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Evaluation:
    """Scores with what they come from: predicted (n,), confidence in the predicted class (n,) or None."""

    scores: Scores
    predicted: NDArray
    confidence: NDArray | None


@dataclass(frozen=True)
class McNemar:
    """Rows that only the first or only the second model gets right, and how likely so uneven a share is by luck."""

    only_first: int
    only_second: int
    p_value: float


def evaluate_model(model: Any, X: Any, y: NDArray) -> Evaluation:
    """Predict the rows and compare with their labels y (n,)."""
    classes = np.asarray(model.classes_)
    refuse_other_kind(y, classes)
    p = probabilities_or_none(model, X)
    predicted = np.asarray(model.predict(X))
    right = predicted == y
    low, high = wilson(np.array(float(right.sum())), np.array(len(y)))
    table = by_class(y, predicted)
    confidence = None if p is None else p.max(axis=1)
    scores = Scores(
        accuracy=float(right.mean()),
        low=float(low),
        high=float(high),
        macro_f1=float(np.mean([line["f1"] for line in table])),
        top5=_top5(model, X, y) if len(classes) > TOP else None,
        log_loss=None if p is None else log_loss(own_probability(p, y, classes)),
        ece=None if confidence is None else _ece(confidence, right),
        rows=len(y),
        classes=table,
    )
    return Evaluation(scores, predicted, confidence)


def refuse_other_kind(y: NDArray, classes: NDArray) -> None:
    """Labels that are text cannot be compared with labels that are numbers."""
    if (y.dtype.kind in "UO") != (classes.dtype.kind in "UO"):
        kinds = ["text" if labels.dtype.kind in "UO" else "numbers" for labels in (y, classes)]
        raise InputError(
            f"the labels are {kinds[0]} such as {y[:1].tolist()[0]!r}, those of the model {kinds[1]} such as "
            f"{classes[:1].tolist()[0]!r}; "
            "write them alike"
        )


def probabilities_or_none(model: Any, X: Any) -> NDArray | None:
    """(n, K), or None where the model has none or they do not fit in memory."""
    if not hasattr(model, "predict_proba"):
        return None
    try:
        return np.asarray(model.predict_proba(X))
    except BudgetError:
        return None


def by_class(y: NDArray, predicted: NDArray) -> list[dict[str, Any]]:
    """For each class its rows, precision, recall, F1, and the label it is most often mistaken for."""
    lines = []
    for label in np.unique(y).tolist():
        answers = predicted[y == label]
        hits, claimed = int((answers == label).sum()), int((predicted == label).sum())
        wrong, counts = np.unique(answers[answers != label], return_counts=True)
        lines.append(
            {
                "class": label,
                "rows": len(answers),
                "precision": hits / claimed if claimed else 0.0,
                "recall": hits / len(answers),
                "f1": 2 * hits / (len(answers) + claimed),
                "taken_for": wrong.tolist()[counts.argmax()] if len(wrong) else None,
            }
        )
    return lines


def wilson(right: NDArray, n: NDArray, z: float = 1.959964) -> tuple[NDArray, NDArray]:
    """Wilson score interval of a share, right of n: lower and upper ends.

    >>> [round(float(v), 3) for v in wilson(np.array(9.0), np.array(10))]
    [0.596, 0.982]
    """
    p = right / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return np.minimum(centre - half, p), np.maximum(centre + half, p)


def mcnemar(first_right: NDArray[np.bool_], second_right: NDArray[np.bool_]) -> McNemar:
    """Exact two-sided test that two models are as often right on the same rows (n,).

    >>> mcnemar(np.array([True] * 8 + [False]), np.array([False] * 8 + [True])).p_value
    0.0390625
    """
    from scipy.stats import binomtest

    first, second = int((first_right & ~second_right).sum()), int((second_right & ~first_right).sum())
    p_value = float(binomtest(first, first + second).pvalue) if first + second else 1.0
    return McNemar(first, second, p_value)


def _ece(confidence: NDArray, right: NDArray[np.bool_]) -> float:
    from kway.confidence.reliability import reliability_of

    return reliability_of(confidence, right).error


def _top5(model: Any, X: Any, y: NDArray) -> float | None:
    if not hasattr(model, "predict_topk"):
        return None
    labels = model.predict_topk(X, TOP)[0]  # (n, 5)
    return float((labels == y[:, None]).any(axis=1).mean())
