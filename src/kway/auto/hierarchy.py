"""Scores of a hierarchy of labels, level by level.

A label such as animal/dog/beagle is a path, and each of its parts is a level. A label and a prediction agree at level l
if their first l levels are the same. A label with fewer levels is compared as a whole, so the accuracy never rises with
the level, and the accuracy at the deepest level is the accuracy of the labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway import modelfile
from kway.auto.evaluation import Tally, count_pairs, effective_weights, wilson
from kway.auto.job import JobResult
from kway.tables.sources.labels import path_levels
from kway.text_tables import Printed, Table


@dataclass(frozen=True)
class Level:
    """The accuracy of one level, with its 95% Wilson interval.

    Attributes
    ----------
    level : int
        Depth of the level: the first `level` parts of the labels are compared. 0 is the root.
    nodes : int
        Number of nodes at this level.
    accuracy, low, high : float
        Share of rows whose first levels are predicted correctly, and its interval.
    sets : float or None
        Share of rows whose prediction stops at this level, because deeper labels are in doubt; None without sets.
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
        return Table("Accuracy by level of the hierarchy", *level_table(self.records()))


def level_table(records: list[dict[str, Any]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the names of the columns, and one line of cells per level."""
    has_sets = any(level["sets"] is not None for level in records)
    columns = ("level", "nodes", "accuracy", "95% interval", *(["sets that stop here"] if has_sets else []))
    lines = [
        (
            "root" if level["level"] == 0 else str(level["level"]),
            f"{level['nodes']:,}",
            f"{level['accuracy']:.4f}",
            f"{level['low']:.4f} to {level['high']:.4f}",
            *([f"{level['sets']:.1%}"] if has_sets else []),
        )
        for level in records
    ]
    return columns, lines


def score_levels(
    pairs: Mapping[tuple[Any, Any], Any], classes: NDArray, sep: str, predicted_nodes: NDArray | None = None
) -> LevelScores:
    """Return the accuracy per level from the number of rows per (label, predicted label), at least one.

    `predicted_nodes` (n,) are the paths of the predicted nodes of the rows; `sep` alone is the root.
    """
    paths = {label: path_levels(label, sep) for label in classes.tolist()}  # raises if a level is empty
    # labels that are not classes, such as those of new rows, may have empty levels
    paths |= {label: str(label).split(sep) for pair in pairs for label in pair if label not in paths}
    n, depth = sum(pairs.values()), max(map(len, paths.values()))
    stops = None
    if predicted_nodes is not None:
        stops = Counter(0 if node == sep else node.count(sep) + 1 for node in predicted_nodes.tolist())
    levels = []
    for level in range(0 if stops else 1, depth + 1):
        correct = sum(n for (true, answer), n in pairs.items() if paths[true][:level] == paths[answer][:level])
        low, high = wilson(np.array(float(correct)), np.array(n))
        nodes = {tuple(paths[label][:level]) for label in classes.tolist() if len(paths[label]) >= level}
        stopped = None if stops is None else stops[level] / n
        levels.append(Level(level, len(nodes), correct / n, float(low), float(high), stopped))
    return LevelScores(levels)


def model_levels(path: str, tally: Tally, classes: NDArray) -> LevelScores | None:
    """Return the accuracy per level of a saved model; None if its file does not say that its labels are paths."""
    sep = modelfile.info(path).notes.get("hierarchy")
    return score_levels(tally.pairs, classes, sep) if isinstance(sep, str) and sep else None


def job_levels(result: JobResult) -> LevelScores | None:
    """Return the accuracy per level on the test rows of a job; None if its labels are not paths."""
    data, model, sep = result.data, result.model, result.data.hierarchy
    if sep is None:
        return None
    weights = None if data.test_weights is None else effective_weights(data.test_weights)
    pairs = count_pairs(data.test_y, result.evaluation.predicted, weights)
    nodes = model.predict_node(data.test_rows) if hasattr(model, "predict_node") else None
    return score_levels(pairs, model.classes_, sep, nodes)
