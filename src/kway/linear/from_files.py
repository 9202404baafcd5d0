"""Learning from rows that stay in files: sampled softmax over folders, and blocks, that are larger than memory.

    files -> FileRows, labels here -> Objective -> epochs that read runs of rows in a new order each

Rows are in memory a batch at a time, beside what the system keeps of the files; weights and codes are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kway.data import gate
from kway.data.extent import extent_of
from kway.data.file_rows import LabelledFiles, rows_of_blocks
from kway.data.labelled_rows import ReadOptions
from kway.data.labels import encode
from kway.errors import CombinationError
from kway.linear.fit_ways import asks_for_sampled, chooses_sampled, sampled_way
from kway.linear.fitting import control_of, keep, objective_of
from kway.linear.problem import refuse_one_class, weighted_rows
from kway.linear.solvers.many_classes.sampled import Sampled
from kway.linear.solvers.registry import pick_solver
from kway.linear.solvers.watching import shown
from kway.planning import guard
from kway.planning.size import Size

if TYPE_CHECKING:
    from kway.linear.classifier import LinearClassifier


def stays_in_files(model: LinearClassifier, folder: str | Path, target: str | None) -> bool:
    """Whether a folder is learned from where it lies: classes are to be sampled, or "auto" would, on the CPU."""
    if model.device == "cuda":
        return False
    if model.solver != "auto":
        return asks_for_sampled(model)
    found = extent_of(str(folder), ReadOptions(target=target))
    return found.K > 2 and chooses_sampled(model, Size(found.n, found.d, found.K), hard=True)


def fit_blocks(model: LinearClassifier, blocks: Iterable[tuple[Any, Any]]) -> None:
    """LinearClassifier.fit_blocks."""
    model._check_parameters()
    fit_files(model, rows_of_blocks(blocks))


def fit_files(model: LinearClassifier, found: LabelledFiles) -> None:
    """Fit the model to rows in files, by sampled softmax."""
    model._forget()
    if not (asks_for_sampled(model) or model.solver == "auto") or model.early_stopping:
        raise CombinationError(
            "rows that stay in files are learned from by solver='sampled', without early_stopping; got "
            f"solver={model.solver!r}, early_stopping={model.early_stopping!r}: partial_fit takes blocks by sgd"
        )
    X, labels = found.X, encode(found.y)
    gate.check_blocks(X)
    who = type(model).__name__
    refuse_one_class(labels, who)
    size = guard.size_of(X, labels.n_classes)
    guard.before_fit(who, sampled_way(model, size), size)
    model.classes_, model.n_features_in_ = labels.classes, X.shape[1]
    objective = objective_of(model, weighted_rows(X, labels, None, model.class_weight))
    solver = pick_solver(model.solver if asks_for_sampled(model) else "sampled", objective)
    assert isinstance(solver, Sampled)
    with shown(f"{who} {solver.name}", model.max_iter, model.verbose) as progress:
        control = replace(control_of(model), progress=progress)
        solution = solver.solve(objective, solver.cold_start(objective), control)
    model.why_ = f"{len(X):,} rows in files, read some at a time"
    keep(model, objective, solution, solver.name, np.empty(0, np.int64))
