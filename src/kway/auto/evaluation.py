"""Scores of a model on labelled rows that no choice has looked at, and whether "better" is more than luck.

accuracy    with its 95 % Wilson interval            macro F1    mean over classes of 2 P R / (P + R)
log loss    kway.measures                             ECE         gap between confidence and accuracy
McNemar     exact binomial test of 1/2 on the rows that only one of two models gets right
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.base.class_rows import best_columns
from kway.confidence import TemperatureScaledClassifier
from kway.confidence.reliability import reliability_of
from kway.errors import BudgetError, InputError
from kway.measures import log_losses, own_probability
from kway.threads import spans

TOP = 5  # labels of the top-5 accuracy
_BINS = 15  # bins of confidence for the ECE
AT_ONCE = 1 << 25  # probabilities in memory at a time
_LEAST_BLOCK = 1024  # rows of a block at least: with very many classes a block reads all weights


@dataclass(frozen=True)
class Scores:
    """Scores of one model on `rows` labelled rows; None if the model or the data has no such score."""

    accuracy: float
    low: float  # of the 95 % interval of the accuracy
    high: float
    macro_f1: float
    top5: float | None  # the right label is among the 5 best; None if there are no more than 5 classes
    log_loss: float | None
    ece: float | None
    rows: int
    classes: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Evaluation:
    """Scores, predicted labels (n,), and the confidence in the predicted class (n,) or None."""

    scores: Scores
    predicted: NDArray
    confidence: NDArray | None


@dataclass(frozen=True)
class McNemar:
    """Rows that only the first or only the second model gets right, and how likely luck gives such a difference."""

    only_first: int
    only_second: int
    p_value: float


def evaluate_model(model: Any, X: Any, y: NDArray) -> Evaluation:
    """Predict the rows and compare with their labels y (n,), a block at a time: probabilities are n x K numbers."""
    tally = Tally(np.asarray(model.classes_))
    blocks = spans(len(y), max(_LEAST_BLOCK, AT_ONCE // len(tally.classes)))
    answers = [tally.take(model, X[rows], y[rows]) for rows in blocks]
    stated = all(answer.confidence is not None for answer in answers)
    confidence = np.concatenate([answer.confidence for answer in answers]) if stated else None
    return Evaluation(tally.scores(), np.concatenate([answer.predicted for answer in answers]), confidence)


def evaluate_blocks(model: Any, blocks: Iterable[tuple[Any, NDArray]]) -> Scores:
    """The same scores of rows that come in blocks, X (m, d) with y (m,); no block is kept."""
    tally = Tally(np.asarray(model.classes_))
    for X, y in blocks:
        tally.take(model, X, y)
    return tally.scores()


class Answer(NamedTuple):
    """predicted (n,), confidence in the predicted class (n,) or None."""

    predicted: NDArray
    confidence: NDArray | None


class Tally:
    """Running sums over all rows seen so far, from which the scores are computed."""

    def __init__(self, classes: NDArray) -> None:
        self.classes = classes
        self.rows = 0
        self.pairs: Counter[tuple[Any, Any]] = Counter()  # (label, answer) -> rows
        self.losses: float | None = 0.0
        self.top: int | None = 0 if len(classes) > TOP else None
        self.bins: NDArray | None = np.zeros((3, _BINS))  # rows, confidence and right answers of each

    def take(self, model: Any, X: Any, y: NDArray) -> Answer:
        """Predict some rows and count them."""
        refuse_other_kind(y, self.classes)
        p = probabilities_or_none(model, X)
        predicted = np.asarray(model.predict(X))
        self.rows += len(y)
        self.pairs.update(_pairs(y, predicted))
        top = None if self.top is None else self._top5(model, X, y, p)
        self.top = None if top is None or self.top is None else self.top + top
        confidence = None if p is None else p.max(axis=1)
        if p is None or confidence is None or self.losses is None or self.bins is None:
            self.losses = self.bins = None
        else:
            self.losses += float(log_losses(own_probability(p, y, self.classes)).sum())
            found = reliability_of(confidence, predicted == y, _BINS)
            parts = (found.rows, found.rows * found.confidence, found.rows * found.accuracy)
            self.bins += np.nan_to_num(np.stack(parts))
        return Answer(predicted, confidence)

    def _top5(self, model: Any, X: Any, y: NDArray, p: NDArray | None) -> int | None:
        """Rows whose label is among the best 5; for a scaled model from p (n, K), which needs no second search."""
        if p is not None and isinstance(model, TemperatureScaledClassifier):
            labels = self.classes[best_columns(p, TOP)]  # (n, 5)
        elif hasattr(model, "predict_topk"):
            labels = model.predict_topk(X, TOP)[0]
        else:
            return None
        return int((labels == y[:, None]).any(axis=1).sum())

    def scores(self) -> Scores:
        """The scores."""
        n, table = self.rows, lines_of(self.pairs)
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
    """(label, answer) -> rows."""
    labels, a = np.unique(y, return_inverse=True)
    answers, b = np.unique(predicted, return_inverse=True)
    joint, counts = np.unique(a.ravel() * len(answers) + b.ravel(), return_counts=True)
    first, second = labels.tolist(), answers.tolist()
    where = (divmod(int(j), len(answers)) for j in joint)
    return {(first[i], second[j]): int(count) for (i, j), count in zip(where, counts)}


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
    """(n, K), or None if the model has none or they do not fit in memory."""
    if not hasattr(model, "predict_proba"):
        return None
    try:
        return np.asarray(model.predict_proba(X))
    except BudgetError:
        return None


def by_class(y: NDArray, predicted: NDArray) -> list[dict[str, Any]]:
    """For each class its rows, precision, recall, F1, and the label it is most often mistaken for."""
    return lines_of(_pairs(y, predicted))


def lines_of(pairs: Mapping[tuple[Any, Any], int]) -> list[dict[str, Any]]:
    """`by_class` from the rows of each (label, answer): one pass, whatever the number of classes."""
    claimed: Counter[Any] = Counter()
    answers: dict[Any, dict[Any, int]] = {}
    for (label, answer), count in pairs.items():
        claimed[answer] += count
        answers.setdefault(label, {})[answer] = count
    return [_line(label, answers[label], claimed[label]) for label in sorted(answers)]


def _line(label: Any, answers: Mapping[Any, int], claimed: int) -> dict[str, Any]:
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
    """Wilson score interval of a share, right of n: lower and upper ends.

    >>> [round(float(v), 3) for v in wilson(np.array(9.0), np.array(10))]
    [0.596, 0.982]
    """
    p = right / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    low = np.minimum(np.maximum(centre - half, 0.0), p)  # rounding would make it -0.0000 if none is right
    return low, np.maximum(centre + half, p)


def mcnemar(first_right: NDArray[np.bool_], second_right: NDArray[np.bool_]) -> McNemar:
    """Exact two-sided test that two models are as often right on the same rows (n,).

    >>> mcnemar(np.array([True] * 8 + [False]), np.array([False] * 8 + [True])).p_value
    0.0390625
    """
    first, second = int((first_right & ~second_right).sum()), int((second_right & ~first_right).sum())
    return McNemar(first, second, min(1.0, 2 * _even_tail(min(first, second), first + second)))


def _even_tail(most: int, n: int) -> float:
    """P(at most `most` heads of n fair throws), in integers: sum_i C(n, i) / 2^n."""
    ways = total = 1
    for i in range(most):
        ways = ways * (n - i) // (i + 1)
        total += ways
    return total / 2**n
