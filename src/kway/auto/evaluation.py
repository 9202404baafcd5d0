"""Score a model on labeled rows that it did not learn from, and test whether one model is better than another.

accuracy    with its 95% Wilson interval             macro F1    mean over classes of 2 P R / (P + R)
log loss    kway.measures                             ECE         mean gap between confidence and accuracy
McNemar     exact binomial test on the rows that only one of two models predicts correctly
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.base.class_rows import best_columns
from kway.confidence import TemperatureScaledClassifier
from kway.confidence.reliability import reliability_of
from kway.errors import BudgetError, InputError
from kway.measures import log_losses, own_probability
from kway.memory import BLOCK_BYTES, available_bytes, rows_per_block
from kway.threads import spans

TOP = 5  # labels per row of the top-5 accuracy; the name of the field top5 says so


@dataclass(frozen=True)
class Scores:
    """Scores of one model on labeled rows; None if the model or the data has no such score.

    Attributes
    ----------
    accuracy : float
        Share of rows whose predicted label is correct.
    low, high : float
        95% Wilson interval of the accuracy.
    macro_f1 : float
        Mean F1 of the classes.
    top5 : float or None
        Share of rows whose label is among the five best; None if there are at most five classes.
    log_loss : float or None
        Mean of -log p of the correct class; None if the model gives no probabilities.
    ece : float or None
        Expected calibration error.
    rows : int
        Number of rows.
    classes : list of dict
        Rows, precision, recall, F1 and most frequent mistake of each class.
    """

    accuracy: float
    low: float
    high: float
    macro_f1: float
    top5: float | None
    log_loss: float | None
    ece: float | None
    rows: int
    classes: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Evaluation:
    """Scores, predicted labels (n,), and the probability of each predicted label (n,), or None."""

    scores: Scores
    predicted: NDArray
    confidence: NDArray | None


@dataclass(frozen=True)
class McNemar:
    """Numbers of rows that only one of two models predicts correctly, and the p-value of the difference."""

    only_first: int
    only_second: int
    p_value: float


def evaluate_model(model: Any, X: Any, y: NDArray) -> Evaluation:
    """Predict the rows, a block at a time, and compare with their labels y (n,)."""
    tally = Tally(np.asarray(model.classes_))
    # With very many classes a block reads all weights, so that small blocks would be slow.
    block = rows_per_block(8 * len(tally.classes), max(BLOCK_BYTES, available_bytes() // 16))
    blocks = spans(len(y), block)
    predicted, confidence = zip(*(tally.add(model, X[rows], y[rows]) for rows in blocks))
    known = all(part is not None for part in confidence)
    return Evaluation(tally.scores(), np.concatenate(predicted), np.concatenate(confidence) if known else None)


def evaluate_blocks(model: Any, blocks: Iterable[tuple[Any, NDArray]]) -> Scores:
    """Score rows that come in blocks, X (m, d) with y (m,); no block is kept."""
    return tally_blocks(model, blocks).scores()


def tally_blocks(model: Any, blocks: Iterable[tuple[Any, NDArray]]) -> Tally:
    """Return the sums over rows that come in blocks, X (m, d) with y (m,); no block is kept."""
    tally = Tally(np.asarray(model.classes_))
    for X, y in blocks:
        tally.add(model, X, y)
    return tally


class Tally:
    """Running sums over all rows seen so far, from which the scores are computed."""

    def __init__(self, classes: NDArray) -> None:
        self.classes = classes
        self.rows = 0
        self.pairs: Counter[tuple[Any, Any]] = Counter()  # (label, answer) -> rows
        self.losses: float | None = 0.0
        self.top: int | None = 0 if len(classes) > TOP else None
        self.bins: NDArray | None = None  # rows, sums of confidence, and correct rows per bin of confidence

    def add(self, model: Any, X: Any, y: NDArray) -> tuple[NDArray, NDArray | None]:
        """Predict some rows, count them, and return the labels and the confidence in them."""
        refuse_other_kind(y, self.classes)
        p = probabilities_or_none(model, X)
        predicted = np.asarray(model.predict(X))
        self.rows += len(y)
        self.pairs.update(_pairs(y, predicted))
        top = None if self.top is None else self._top5(model, X, y, p)
        self.top = None if top is None or self.top is None else self.top + top
        confidence = None if p is None else p.max(axis=1)
        if p is None or confidence is None or self.losses is None:
            self.losses = self.bins = None
        else:
            self.losses += float(log_losses(own_probability(p, y, self.classes)).sum())
            found = reliability_of(confidence, predicted == y)
            parts = np.nan_to_num(np.stack((found.rows, found.rows * found.confidence, found.rows * found.accuracy)))
            self.bins = parts if self.bins is None else self.bins + parts
        return predicted, confidence

    def _top5(self, model: Any, X: Any, y: NDArray, p: NDArray | None) -> int | None:
        """Count the rows whose label is among the best 5; a scaled model needs no second search."""
        if p is not None and isinstance(model, TemperatureScaledClassifier):
            labels = self.classes[best_columns(p, TOP)]  # (n, 5)
        elif hasattr(model, "predict_topk"):
            labels = model.predict_topk(X, TOP)[0]
        else:
            return None
        return int((labels == y[:, None]).any(axis=1).sum())

    def scores(self) -> Scores:
        """Return the scores of all rows so far."""
        n, table = self.rows, _class_records(self.pairs)
        right = sum(count for (label, answer), count in self.pairs.items() if label == answer)
        low, high = wilson(np.array(float(right)), np.array(n))
        gaps = None if self.bins is None else np.abs(self.bins[1] - self.bins[2])
        return Scores(
            accuracy=right / n,
            low=float(low),
            high=float(high),
            macro_f1=float(np.mean([line["f1"] for line in table])),
            top5=None if self.top is None else self.top / n,
            log_loss=None if self.losses is None else self.losses / n,
            ece=None if gaps is None else float(gaps.sum() / n),
            rows=n,
            classes=table,
        )


def _pairs(y: NDArray, predicted: NDArray) -> dict[tuple[Any, Any], int]:
    """Return the number of rows per (label, predicted label)."""
    labels, a = np.unique(y, return_inverse=True)
    answers, b = np.unique(predicted, return_inverse=True)
    joint, counts = np.unique(a.ravel() * len(answers) + b.ravel(), return_counts=True)
    first, second = labels.tolist(), answers.tolist()
    where = (divmod(int(j), len(answers)) for j in joint)
    return {(first[i], second[j]): int(count) for (i, j), count in zip(where, counts)}


def refuse_other_kind(y: NDArray, classes: NDArray) -> None:
    """Raise InputError if one kind of labels is text and the other is numbers."""
    if (y.dtype.kind in "UO") != (classes.dtype.kind in "UO"):
        kinds = ["text" if labels.dtype.kind in "UO" else "numbers" for labels in (y, classes)]
        raise InputError(
            f"the labels are {kinds[0]} such as {y[:1].tolist()[0]!r}, those of the model {kinds[1]} such as "
            f"{classes[:1].tolist()[0]!r}; use the same type for both"
        )


def probabilities_or_none(model: Any, X: Any) -> NDArray | None:
    """Return probabilities (n, K), or None if the model has none or they do not fit in memory."""
    if not hasattr(model, "predict_proba"):
        return None
    try:
        return np.asarray(model.predict_proba(X))
    except BudgetError:
        return None


def _class_records(pairs: Mapping[tuple[Any, Any], int]) -> list[dict[str, Any]]:
    """Return rows, precision, recall, F1 and the most frequent wrong label of each class."""
    claimed: Counter[Any] = Counter()
    answers: dict[Any, dict[Any, int]] = {}
    for (label, answer), count in pairs.items():
        claimed[answer] += count
        answers.setdefault(label, {})[answer] = count
    return [_class_record(label, answers[label], claimed[label]) for label in sorted(answers)]


def _class_record(label: Any, answers: Mapping[Any, int], claimed: int) -> dict[str, Any]:
    rows, hits = sum(answers.values()), answers.get(label, 0)
    wrong = sorted(((-count, answer) for answer, count in answers.items() if answer != label), key=lambda w: w[0])
    most = [answer for count, answer in wrong if count == wrong[0][0]]
    return {
        "class": label,
        "rows": rows,
        "precision": hits / claimed if claimed else 0.0,
        "recall": hits / rows,
        "f1": 2 * hits / (rows + claimed),
        "taken_for": min(most) if most else None,
    }


def wilson(right: NDArray, n: NDArray, z: float = 1.959964) -> tuple[NDArray, NDArray]:
    """Return the lower and upper end of the Wilson score interval of a share, right of n.

    >>> [round(float(v), 3) for v in wilson(np.array(9.0), np.array(10))]
    [0.596, 0.982]
    """
    p = right / n
    center = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    low = np.minimum(np.maximum(center - half, 0.0), p)  # rounding would make it -0.0000 if none is right
    return low, np.maximum(center + half, p)


def mcnemar(first_right: NDArray[np.bool_], second_right: NDArray[np.bool_]) -> McNemar:
    """Test exactly, two-sided, whether two models are equally often correct on the same rows (n,).

    >>> mcnemar(np.array([True] * 8 + [False]), np.array([False] * 8 + [True])).p_value
    0.0390625
    """
    first, second = int((first_right & ~second_right).sum()), int((second_right & ~first_right).sum())
    return McNemar(first, second, min(1.0, 2 * _even_tail(min(first, second), first + second)))


def _even_tail(most: int, n: int) -> float:
    """Return P(at most `most` heads in n fair throws) = sum_i C(n, i) / 2^n, computed in integers."""
    ways = total = 1
    for i in range(most):
        ways = ways * (n - i) // (i + 1)
        total += ways
    return total / 2**n
