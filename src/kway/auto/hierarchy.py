"""Scores of a hierarchy of labels, level by level.

A label and a prediction agree at level l if their first l levels are the same. A label with fewer levels is compared as
a whole, so the accuracy never rises with the level, and that of the deepest level is the accuracy of the labels.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway import modelfile
from kway.auto.evaluation import Tally, wilson
from kway.auto.job import JobResult
from kway.tables.sources.labels import path_levels
from kway.text_tables import Printed, Table


@dataclass(frozen=True)
class Level:
    """The accuracy of one level, with its 95% Wilson interval.

    Attributes
    ----------
    level : int
        Number of levels that are compared; 0 is the root.
    nodes : int
        Number of nodes at this level.
    accuracy, low, high : float
        Share of rows whose first levels are predicted correctly, and its interval.
    sets : float or None
        Share of rows whose set is a node at this level; None if there are no sets.
    """

    level: int
    nodes: int
    accuracy: float
    low: float
    high: float
    sets: float | None = None


class LevelScores(Printed, tuple[Level, ...]):
    """The accuracy of every level; it prints as a table."""

    __slots__ = ()

    def records(self) -> list[dict[str, Any]]:
        """Return one dict of plain values per level."""
        return [asdict(level) for level in self]

    def _table(self) -> Table:
        return Table("Accuracy by level of the hierarchy", *level_lines(self.records()))


def level_lines(records: list[dict[str, Any]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the names of the columns and the cells of a table of levels."""
    sets = any(level["sets"] is not None for level in records)
    columns = ("level", "nodes", "accuracy", "95% interval", *(["sets that stop here"] if sets else []))
    lines = [
        (
            "root" if level["level"] == 0 else str(level["level"]),
            f"{level['nodes']:,}",
            f"{level['accuracy']:.4f}",
            f"{level['low']:.4f} to {level['high']:.4f}",
            *([f"{level['sets']:.1%}"] if sets else []),
        )
        for level in records
    ]
    return columns, lines


def score_levels(
    pairs: Counter[tuple[Any, Any]], classes: NDArray, sep: str, nodes: NDArray | None = None
) -> LevelScores:
    """Return the accuracy per level from the number of rows per (label, predicted label).

    `nodes` (n,) are the sets of the rows, as paths.
    """
    paths = {label: path_levels(label, sep) for label in classes.tolist()}
    paths |= {label: str(label).split(sep) for pair in pairs for label in pair if label not in paths}
    n, deepest = sum(pairs.values()), max(map(len, paths.values()))
    stops = None if nodes is None else Counter(0 if node == sep else node.count(sep) + 1 for node in nodes.tolist())
    found = []
    for level in range(0 if stops else 1, deepest + 1):
        right = sum(count for (label, answer), count in pairs.items() if paths[label][:level] == paths[answer][:level])
        low, high = wilson(np.array(float(right)), np.array(n))
        names = {tuple(paths[label][:level]) for label in classes.tolist() if len(paths[label]) >= level}
        share = None if stops is None else stops[level] / n
        found.append(Level(level, len(names), right / n, float(low), float(high), share))
    return LevelScores(found)


def model_levels(path: str, tally: Tally, classes: NDArray) -> LevelScores | None:
    """Return the accuracy per level of a saved model; None if its file does not say that its labels are paths."""
    sep = modelfile.info(path).notes.get("hierarchy")
    return score_levels(tally.pairs, classes, sep) if isinstance(sep, str) and sep else None


def job_levels(found: JobResult) -> LevelScores | None:
    """Return the accuracy per level on the test rows of a job; None if its labels are no paths."""
    sep = found.data.hierarchy
    if sep is None:
        return None
    pairs = Counter(zip(found.data.test_y.tolist(), found.evaluation.predicted.tolist()))
    nodes = found.model.predict_node(found.data.test_rows) if hasattr(found.model, "predict_node") else None
    return score_levels(pairs, found.model.classes_, sep, nodes)
