"""Score a model on labeled rows that it was not trained on, and test whether one model is better than another.

accuracy    share of correct predictions, with its 95% Wilson interval
macro F1    mean of 2 P R / (P + R) over the classes that occur among the labels; P is precision, R is recall
log loss    mean of -log p of the correct class (kway.measures)
ECE         expected calibration error: mean gap between confidence and accuracy
McNemar     exact binomial test on the rows that only one of two models predicts correctly
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

from kway.base.class_rows import best_columns
from kway.confidence import TemperatureScaledClassifier
from kway.confidence.reliability import reliability_of
from kway.errors import BudgetError, InputError
from kway.measures import log_losses, own_probability
from kway.memory import BLOCK_BYTES, available_bytes, rows_per_block
from kway.threads import spans

TOP = 5  # k of the top-k accuracy; to change it, rename the field top5


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
        Mean F1 of the classes that occur among the labels.
    top5 : float or None
        Share of rows whose label is among the five best; None if there are at most five classes.
    log_loss : float or None
        Mean of -log p of the correct class; None if the model gives no probabilities.
    ece : float or None
        Expected calibration error.
    rows : int
        Number of rows.
    classes : list of dict
        One dict per class that occurs among the labels, with the keys `class`, `rows`, `precision`, `recall`, `f1` and
        `taken_for`: the label that is most often predicted instead, or None if all rows are correct.

    Notes
    -----
    If the rows have weights w, the scores are weighted means, `rows` still counts rows, and the Wilson interval is that
    of (sum w)^2 / sum w^2 rows, the effective sample size.
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


def evaluate_model(model: Any, X: Any, y: NDArray, weights: NDArray | None = None) -> Evaluation:
    """Predict the rows, a block at a time, and compare with their labels y (n,), by their weights (n,) if given."""
    weights = None if weights is None else effective_weights(weights)
    tally = Tally(np.asarray(model.classes_))
    # each block reads the weights of all classes, so blocks must not be small if there are many classes
    block = rows_per_block(8 * len(tally.classes), max(BLOCK_BYTES, available_bytes() // 16))
    blocks = spans(len(y), block)
    predicted, confidence = zip(
        *(tally.add(model, X[rows], y[rows], None if weights is None else weights[rows]) for rows in blocks)
    )
    known = all(part is not None for part in confidence)
    return Evaluation(tally.scores(), np.concatenate(predicted), np.concatenate(confidence) if known else None)


def effective_weights(weights: NDArray) -> NDArray[np.float64]:
    """Return the weights (n,), scaled so that they sum to the effective sample size (sum w)^2 / sum w^2."""
    return np.asarray(weights * (weights.sum() / np.square(weights).sum()), np.float64)


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
        self.class_rows: Counter[Any] = Counter()  # label -> number of rows
        self.pairs: Counter[tuple[Any, Any]] = Counter()  # (label, predicted label) -> rows, or sum of their weights
        self.losses: float | None = 0.0  # sum; None once a block has no probabilities
        self.top: float | None = 0 if len(classes) > TOP else None  # rows; None once a block has no top-5 labels
        self.bins: NDArray | None = None  # (3, bins): rows, sum of confidence, and correct rows per bin

    def add(self, model: Any, X: Any, y: NDArray, weights: NDArray | None = None) -> tuple[NDArray, NDArray | None]:
        """Predict rows X with labels y (m,), count them, and return the predicted labels (m,) and their probabilities.

        Rows count by their `weights` (m,) if given: either all blocks have weights, or none has.
        A model may state no probabilities, or state them for some blocks only because others do not fit in memory.
        Scores that need them are then None for all rows.
        """
        check_same_label_type(y, self.classes)
        p = probabilities_or_none(model, X)
        predicted = np.asarray(model.predict(X))
        labels, counts = np.unique(y, return_counts=True)
        self.class_rows.update(dict(zip(labels.tolist(), counts.tolist())))
        self.pairs.update(count_pairs(y, predicted, weights))
        in_top = None if self.top is None else self._count_top5(model, X, y, p, weights)
        self.top = None if in_top is None or self.top is None else self.top + in_top
        confidence = None if p is None else p.max(axis=1)
        if p is None or confidence is None or self.losses is None:
            self.losses = self.bins = None
        else:
            losses = log_losses(own_probability(p, y, self.classes))
            self.losses += float(losses.sum() if weights is None else weights @ losses)
            table = reliability_of(confidence, predicted == y, weights=weights)
            bins = np.nan_to_num(np.stack((table.rows, table.rows * table.confidence, table.rows * table.accuracy)))
            self.bins = bins if self.bins is None else self.bins + bins
        return predicted, confidence

    def _count_top5(self, model: Any, X: Any, y: NDArray, p: NDArray | None, weights: NDArray | None) -> float | None:
        """Return how many labels are among the 5 best, by their weights; None if the model does not rank labels."""
        if p is not None and isinstance(model, TemperatureScaledClassifier):  # a second search would be slower
            labels = self.classes[best_columns(p, TOP)]  # (n, 5)
        elif hasattr(model, "predict_topk"):
            labels = model.predict_topk(X, TOP)[0]
        else:
            return None
        in_top = (labels == y[:, None]).any(axis=1)
        return float(in_top.sum() if weights is None else weights @ in_top)

    @property
    def rows(self) -> int:
        """Number of rows so far."""
        return sum(self.class_rows.values())

    def scores(self) -> Scores:
        """Return the scores of all rows so far, of which there must be at least one."""
        n, table = sum(self.pairs.values()), _class_records(self.pairs, self.class_rows)
        correct = sum(count for (label, predicted), count in self.pairs.items() if label == predicted)
        low, high = wilson(np.array(float(correct)), np.array(n))
        gaps = None if self.bins is None else np.abs(self.bins[1] - self.bins[2])
        return Scores(
            accuracy=correct / n,
            low=float(low),
            high=float(high),
            macro_f1=float(np.mean([line["f1"] for line in table])),
            top5=None if self.top is None else self.top / n,
            log_loss=None if self.losses is None else self.losses / n,
            ece=None if gaps is None else float(gaps.sum() / n),
            rows=self.rows,
            classes=table,
        )


def count_pairs(y: NDArray, predicted: NDArray, weights: NDArray | None = None) -> dict[tuple[Any, Any], Any]:
    """Return the number of rows per (label, predicted label), or the sum of their weights (n,)."""
    labels, true_codes = np.unique(y, return_inverse=True)
    answers, predicted_codes = np.unique(predicted, return_inverse=True)
    cells = true_codes.ravel() * len(answers) + predicted_codes.ravel()
    pairs, pair_of_row, counts = np.unique(cells, return_inverse=True, return_counts=True)
    if weights is not None:
        counts = np.bincount(pair_of_row.ravel(), weights)
    true, guessed = np.divmod(pairs, len(answers))
    return dict(zip(zip(labels[true].tolist(), answers[guessed].tolist()), counts.tolist()))


def check_same_label_type(y: NDArray, classes: NDArray) -> None:
    """Raise InputError unless both label arrays are text or both are numeric."""
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


def _class_records(pairs: Mapping[tuple[Any, Any], Any], class_rows: Mapping[Any, int]) -> list[dict[str, Any]]:
    """Return rows, precision, recall, F1 and the most frequent wrong label of each class."""
    n_predicted: Counter[Any] = Counter()
    predictions: dict[Any, dict[Any, Any]] = {}  # label -> predicted label -> rows, or sum of their weights
    for (label, predicted), count in pairs.items():
        n_predicted[predicted] += count
        predictions.setdefault(label, {})[predicted] = count
    return [
        {"class": label, "rows": class_rows[label], **_class_scores(label, predictions[label], n_predicted[label])}
        for label in sorted(predictions)
    ]


def _class_scores(label: Any, predictions: Mapping[Any, Any], n_predicted: Any) -> dict[str, Any]:
    rows, correct = sum(predictions.values()), predictions.get(label, 0)
    wrong = {predicted: count for predicted, count in predictions.items() if predicted != label}
    most_frequent = [predicted for predicted, count in wrong.items() if count == max(wrong.values())]
    return {
        "precision": correct / n_predicted if n_predicted else 0.0,
        "recall": correct / rows if rows else 0.0,
        "f1": 2 * correct / (rows + n_predicted) if rows + n_predicted else 0.0,
        "taken_for": min(most_frequent, default=None),
    }


def wilson(successes: NDArray, n: NDArray, z: float = 1.959964) -> tuple[NDArray, NDArray]:
    """Return the lower and upper end of the Wilson score interval of a share, `successes` of n; 95% by default.

    >>> [round(float(v), 3) for v in wilson(np.array(9.0), np.array(10))]
    [0.596, 0.982]
    """
    p = successes / n
    center = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    low = np.minimum(np.maximum(center - half, 0.0), p)  # rounding would give -0.0 if there are no successes
    return low, np.maximum(center + half, p)


def mcnemar(first_correct: NDArray[np.bool_], second_correct: NDArray[np.bool_]) -> McNemar:
    """Return the exact, two-sided test of whether two models are equally often correct on the same rows (n,).

    >>> mcnemar(np.array([True] * 8 + [False]), np.array([False] * 8 + [True])).p_value
    0.0390625
    """
    first = int((first_correct & ~second_correct).sum())
    second = int((second_correct & ~first_correct).sum())
    return McNemar(first, second, min(1.0, 2 * float(bdtr(min(first, second), first + second, 0.5))))


# ---- the verdict


def measured(scores: Scores, metric: str) -> float | None:
    """Return the test score of a metric; None if the model has none, such as the log loss without probabilities."""
    if metric == "balanced":
        return float(np.mean([line["recall"] for line in scores.classes]))
    value: float | None = {"macro-f1": scores.macro_f1, "log-loss": scores.log_loss}.get(metric, scores.accuracy)
    return value


def verdict(scores: Scores, majority: float) -> str:
    """Return a sentence if the accuracy is not above that of always predicting the most frequent class, else "".

    A difference is not clear if the 95% interval of the accuracy contains the share of that class.
    """
    if scores.accuracy <= majority:
        return "No better than always predicting the most frequent class"
    return "Not clearly better than always predicting the most frequent class" if scores.low <= majority else ""
