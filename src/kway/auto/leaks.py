"""Leaks: rows or columns that reveal the label in DATA, but not in new rows.

With a leak, the test rows of a random split resemble the training rows more than new rows will. Four kinds are searched
(suspects.py), and each is tested by one cheap probe, extremely randomized trees or the nearest neighbor:

    copies    rows that occur several times, exactly or nearly       honest: all copies of a row on one side
    groups    a column such as a patient, with several rows each     honest: all rows of a value on one side
    time      a date or counter along which labels change slowly     honest: train on earlier rows, test on later ones
    column    a column that alone predicts every label               honest: without this column

The probe predicts the same held-out rows under a random split and under the honest one. d_i is 1 if row i is predicted
correctly only under the random split, -1 if only under the honest one, and else 0. Rows of one group g are not
independent, so the standard error of the mean comes from sums over groups. The second term is the largest sum of one
group, so that a single group cannot make a difference significant:

    m = sum_i d_i / n      se^2 = (sum_g (sum_{i in g} (d_i - m))^2 + max_g (sum_{i in g} d_i)^2) / n^2

kway warns of a suspect if m > 2 se, or if a column determines every label. Names of columns are not used.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from kway.auto.race.folds import fold_numbers
from kway.auto.race.paired import CLEAR
from kway.auto.race.scoring import TABLE_COLUMNS
from kway.auto.suspects import Suspect, find_suspects
from kway.errors import KwayError
from kway.neighbors import NeighborsClassifier
from kway.tables.features.features import Features
from kway.tables.sources.frames import is_table, take_rows
from kway.trees import TreesClassifier

_MAX_FOREST_CLASSES = 100  # classes up to which the probe is a forest, whose leaves store a number per class
_PROBE_TREES = 40  # trees of the probe: ten fits on 4,000 rows of 20 columns take 2 s
_SHARE_OF_BUDGET = 0.1  # share of the budget that the search for leaks may take


@dataclass(frozen=True)
class Leak:
    """A possible leak, with the accuracy of the probe under a random split and under the honest one.

    Attributes
    ----------
    kind : {"copies", "groups", "time", "column"}
        Kind of the leak.
    columns : tuple of str
        Columns in which it was found; empty for copies.
    found : str
        What was found, in words.
    random, honest : float
        Accuracy of the probe on the same rows.
    error : float
        Standard error of the difference.
    rows : int
        Number of rows that were compared.
    advice : str
        What to do.
    """

    kind: str
    columns: tuple[str, ...]
    found: str
    random: float
    honest: float
    error: float
    rows: int
    advice: str

    @property
    def warns(self) -> bool:
        """Whether the honest score is lower by more than 2 standard errors, or a column predicts every label."""
        return self.kind == "column" or self.random - self.honest > CLEAR * self.error

    def __str__(self) -> str:
        how = {
            "copies": "with all copies on one side of the split",
            "groups": f"with all rows of a value of {self._named()} on one side",
            "time": "if it is trained on earlier rows and tested on later ones",
            "column": f"without {self._named()}",
        }[self.kind]
        scores = f"A quick probe scores {self.random:.3f} on a random split, and {self.honest:.3f} {how}"
        return f"{self.found}. {scores}. {self.advice}"

    def _named(self) -> str:
        return ", ".join(f"'{name}'" for name in self.columns)

    def record(self) -> dict[str, Any]:
        """Return the leak as a dict of plain values."""
        return {**vars(self), "columns": list(self.columns), "warns": self.warns}


def find_leaks(data: Any, features: Features, X: Any, budget: float, seed: int = 0) -> tuple[Leak, ...]:
    """Search for leaks in the training rows with features X (n, d), in at most a tenth of the budget in seconds.

    If the user named groups or an order, every split keeps them, so only columns are searched.
    """
    deadline = time.perf_counter() + _SHARE_OF_BUDGET * budget
    probe = _Probe(data, features, X, seed, deadline)
    leaks = []
    for suspect in find_suspects(data, features, X, seed):
        try:
            leak = probe.leak(suspect)
        except (KwayError, MemoryError):  # its rows have a single class, for example
            continue
        if leak is None:
            break
        leaks.append(leak)
    return tuple(sorted(leaks, key=lambda leak: leak.honest - leak.random))


class _Probe:
    """Scores rows under two splits, until a deadline."""

    def __init__(self, data: Any, features: Features, X: Any, seed: int, deadline: float) -> None:
        self.data, self.features, self.X, self.seed, self.deadline = data, features, X, seed, deadline
        few_classes = data.labels.n_classes <= _MAX_FOREST_CLASSES
        self.trees = few_classes and (features.is_table_ or X.shape[1] <= TABLE_COLUMNS)

    def leak(self, suspect: Suspect) -> Leak | None:
        """Return the suspect with its scores; None if the deadline has passed."""
        rows = suspect.rows
        codes = self.data.labels.codes[rows]
        X, folds = self._numbers(rows, suspect), suspect.folds(codes, self.seed)
        scored = folds >= 0
        random = self._correct(X, codes, fold_numbers(codes, seed=self.seed), scored)
        honest = self._correct(self._numbers(rows, suspect, False), codes, folds, scored)
        if random is None or honest is None:
            return None
        gaps, groups = (random - honest)[scored], suspect.groups[scored]
        sums = np.bincount(groups, gaps - gaps.mean())
        spread = np.square(sums).sum() + np.square(np.bincount(groups, gaps)).max()
        return Leak(
            suspect.kind, suspect.columns, suspect.found, float(random[scored].mean()),
            float(honest[scored].mean()), float(np.sqrt(spread)) / len(gaps), len(gaps), suspect.advice,
        )  # fmt: skip

    def _numbers(self, rows: NDArray[np.int64], suspect: Suspect, keep_columns: bool = True) -> Any:
        """Return the features of rows for the probe; without `keep_columns`, the suspected columns are left out.

        A forest gets one number per column of a table, and the values of a group as codes, even if they are names.
        """
        left_out = [] if keep_columns or suspect.kind != "column" else list(suspect.columns)
        if not self.trees or not is_table(self.data.rows):
            X = self.X[rows]
            names = self.data.feature_names or [f"x{j}" for j in range(X.shape[1])]
            return X[:, [j for j in range(X.shape[1]) if names[j] not in left_out]] if left_out else X
        table = take_rows(self.data.rows, rows).drop_columns(left_out)
        converter = clone(self.features).set_params(
            form="columns", written={c: how for c, how in self.features.written_.items() if c not in left_out},
            kinds={c: kind for c, kind in (self.features.kinds or {}).items() if c not in left_out} or None, embed=None,
        )  # fmt: skip
        try:
            X = converter.fit_transform(table) if table.num_columns else np.zeros((len(rows), 0))
        except KwayError:  # no column becomes numbers, such as texts alone
            X = np.zeros((len(rows), 0))
        codes = suspect.groups[:, None] if suspect.kind == "groups" else np.zeros((len(rows), 1))
        return np.hstack([X, codes])

    def _correct(
        self, X: Any, codes: NDArray[np.int64], folds: NDArray[np.int64], scored: NDArray[np.bool_]
    ) -> NDArray[np.float64] | None:
        """Return 1 for each scored row that the probe predicts correctly, else 0; None if the deadline has passed."""
        correct = np.zeros(len(codes))
        for fold in range(int(folds.max()) + 1):
            if time.perf_counter() > self.deadline:
                return None
            train, held_out = np.flatnonzero(folds != fold), np.flatnonzero((folds == fold) & scored)
            if len(held_out):
                model = self._model(X).fit(X[train], codes[train])
                correct[held_out] = model.predict(X[held_out]) == codes[held_out]
        return correct

    def _model(self, X: Any) -> Any:
        if self.trees:
            return TreesClassifier("extra", n_trees=_PROBE_TREES, random_state=self.seed)
        return NeighborsClassifier(n_neighbors=1, metric="cosine" if hasattr(X, "tocsr") else "euclidean")
