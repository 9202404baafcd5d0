"""Costs of mistakes: read the matrix, and compare decisions by expected cost with the most probable labels.

A file of costs is a csv with the predicted labels in its first row and the true labels in its first column:

    true,ham,spam
    ham,0,10
    spam,1,0
"""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.auto.train_test import TrainTest
from kway.confidence.costs import CostSensitiveClassifier, checked_costs
from kway.errors import InputError
from kway.labels import encode_as
from kway.memory import rows_per_block
from kway.suggest import listing
from kway.tables.sources.frames import n_rows, take_rows
from kway.threads import spans


@dataclass(frozen=True)
class CostComparison:
    """Mean costs per test row.

    Attributes
    ----------
    by_expected_cost : float
        If the label of lowest expected cost is predicted, as the model does.
    by_probability : float
        If the most probable label is predicted.
    one_label : float
        If the same label is predicted for all rows: the one with the lowest cost on the training rows.
    """

    by_expected_cost: float
    by_probability: float
    one_label: float

    @property
    def saving(self) -> float:
        """Cost per row that decisions by expected cost save; negative if they cost more."""
        return self.by_probability - self.by_expected_cost

    def __str__(self) -> str:
        share = f" (a saving of {self.saving / self.by_probability:.1%})" if self.by_probability > 0 else ""
        return (
            f"mean cost {self.by_expected_cost:.4g} per test row; {self.by_probability:.4g} if the most probable label "
            f"were predicted{share}, and {self.one_label:.4g} if always the same label were predicted"
        )


def read_costs(costs: Any, classes: NDArray) -> NDArray[np.float64]:
    """Return costs (K, K) from a csv file, or from an array in the order of the sorted classes (K,)."""
    if not isinstance(costs, str | Path):
        return checked_costs(costs, len(classes))
    try:
        with open(costs, newline="", encoding="utf-8-sig") as file:
            (_, *predicted), *lines = [line for line in csv.reader(file) if line]
    except (OSError, UnicodeDecodeError, ValueError, csv.Error) as error:
        raise InputError(
            f"costs: {costs} cannot be read as a csv file with one row and one column per label ({error})"
        ) from error
    labels = [str(label).strip() for label in classes.tolist()]  # cells are stripped too
    columns, true_labels = [cell.strip() for cell in predicted], [line[0].strip() for line in lines]
    for names, what in ((true_labels, "rows"), (columns, "columns")):
        repeated = [label for label, count in Counter(names).items() if count > 1 and label in labels]
        if repeated:
            raise InputError(
                f"costs: {costs} has several {what} for {listing(map(repr, repeated), 5)}; keep one for each label"
            )
    rows = {label: dict(zip(columns, line[1:])) for label, line in zip(true_labels, lines)}
    missing = [label for label in labels if label not in rows or set(labels) - rows[label].keys()]
    if missing:
        raise InputError(
            f"costs: {costs} does not give all costs of {listing(map(repr, missing), 5)}; it needs a row and a column "
            f"for each of the {len(labels)} labels"
        )
    return checked_costs([[rows[true][label] for label in labels] for true in labels], len(classes))


def with_costs(model: Any, costs: NDArray[np.float64]) -> Any:
    """Return the model with decisions by expected cost; a classifier with features inside is changed in place."""
    if not hasattr(model, "features_"):
        return CostSensitiveClassifier.of(model, costs)
    model.estimator_ = CostSensitiveClassifier.of(model.estimator_, costs)
    return model


def compare_costs(model: Any, data: TrainTest, predicted: NDArray, costs: NDArray[np.float64]) -> CostComparison:
    """Return the weighted mean costs on the test rows. `predicted` (n,) are the model's labels for these rows."""
    X, y, weights = data.test_rows, data.test_y, data.test_weights
    true, decided = encode_as(y, model.classes_), encode_as(predicted, model.classes_)
    blocks = spans(n_rows(X), rows_per_block(8 * len(model.classes_)))
    numbers = np.arange(n_rows(X))
    most_probable = np.concatenate([model.predict_proba(take_rows(X, numbers[rows])).argmax(axis=1) for rows in blocks])
    cheapest = np.bincount(data.labels.codes, data.weights, len(costs)) @ costs
    return CostComparison(
        by_expected_cost=float(np.average(costs[true, decided], weights=weights)),
        by_probability=float(np.average(costs[true, most_probable], weights=weights)),
        one_label=float(np.average(costs[true, cheapest.argmin()], weights=weights)),
    )
