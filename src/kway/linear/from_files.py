"""Learning from rows that stay in files: folders, and blocks, that are larger than memory.

    files -> FileRows or FileCSR, labels here -> Objective
    -> sampled softmax: epochs that read runs of rows in a new order each
       L-BFGS: some passes over all rows, for every other loss

Rows are in memory a batch at a time, beside what the system keeps of the files; weights and codes are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import scipy.sparse as sp

from kway.base.own_threads import on_own_threads
from kway.data import gate
from kway.data.blocks.file_rows import LabelledFiles, rows_of_blocks
from kway.data.blocks.labelled_blocks import LabelledBlock, labelled_blocks
from kway.data.blocks.sparse_files import LabelledCSR, sparse_rows_of_blocks
from kway.data.extent import extent_of
from kway.data.labelled_rows import ReadOptions
from kway.data.labels import encode
from kway.errors import CombinationError
from kway.linear.fit_ways import asks_for_sampled, chooses_sampled, sampled_way
from kway.linear.fitting import control_of, keep, objective_of
from kway.linear.objective.objective import Objective
from kway.linear.problem import refuse_one_class, weighted_rows
from kway.linear.solvers.base import Solver, offers
from kway.linear.solvers.lbfgs import LBFGS
from kway.linear.solvers.many_classes.sampled import Sampled
from kway.linear.solvers.registry import pick_solver
from kway.linear.solvers.watching import shown
from kway.planning import guard, linear_ways
from kway.planning.size import Size

if TYPE_CHECKING:
    from kway.linear.classifier import LinearClassifier


def stays_in_files(model: LinearClassifier, folder: str | Path, target: str | None) -> bool:
    """Whether a folder is learned from where it lies, on the CPU: classes are sampled, or the rows too many to read."""
    if model.device == "cuda":
        return False
    if model.solver != "auto":
        return asks_for_sampled(model)
    found = extent_of(str(folder), ReadOptions(target=target))
    size = Size(found.n, found.d, found.K)
    return not guard.has_room(size.rows_bytes) or (found.K > 2 and chooses_sampled(model, size, hard=True))


@on_own_threads
def fit_blocks(model: LinearClassifier, blocks: Iterable[tuple[Any, Any]]) -> None:
    """LinearClassifier.fit_blocks."""
    model._check_parameters()
    given = labelled_blocks(blocks)
    held = [next(given)]
    read: Callable[[Iterable[Any]], Any] = sparse_rows_of_blocks if sp.issparse(held[0].X) else rows_of_blocks
    fit_files(model, read(_with_first(held, given)))


def _with_first(held: list[LabelledBlock], others: Iterator[LabelledBlock]) -> Iterator[LabelledBlock]:
    """The block that was looked at, let go of as it is given, and the others."""
    yield held.pop()
    yield from others


def fit_files(model: LinearClassifier, found: LabelledFiles | LabelledCSR) -> None:
    """Fit the model to rows in files."""
    model._forget()
    X, labels = found.X, encode(found.y)
    gate.check_blocks(X)
    who = type(model).__name__
    refuse_one_class(labels, who)
    size = guard.size_of(X, labels.n_classes)
    model.classes_, model.n_features_in_ = labels.classes, X.shape[1]
    given = weighted_rows(X, labels, None, model.class_weight)
    objective = objective_of(model, given)
    solver = _solver(model, objective, size)
    sampled = isinstance(solver, Sampled)
    guard.before_fit(who, sampled_way(model, size) if sampled else linear_ways.softmax_way, size)
    start = solver.cold_start(objective) if isinstance(solver, Sampled) else objective.zeros()
    with shown(f"{who} {solver.name}", model.max_iter, model.verbose) as progress:
        solution = solver.solve(objective, start, replace(control_of(model), progress=progress))
    model.why_ = f"{X.shape[0]:,} rows in files, read some at a time"
    keep(model, objective, solution, solver.name, given.kept)


def _solver(model: LinearClassifier, objective: Objective, size: Size) -> Solver:
    """Sampled softmax where it is asked for, or classes are too many; else L-BFGS, which reads rows in order.

    Of sparse rows it is taken only where it is asked for: it makes dense ones of every batch.
    """
    by_name = asks_for_sampled(model)
    by_passes = model.solver in ("auto", "lbfgs") and offers(objective.loss, objective.penalty) >= LBFGS.needs
    if model.early_stopping or not (by_name or by_passes):
        raise CombinationError(
            "rows that stay in files are learned from by solver='sampled', or by 'auto' and 'lbfgs' under a loss with "
            f"an optimum and a smooth penalty, without early_stopping; got solver={model.solver!r}, "
            f"loss={model.loss!r}, early_stopping={model.early_stopping!r}: partial_fit takes blocks by sgd"
        )
    if by_name:
        return pick_solver(model.solver, objective)
    sampled = not sp.issparse(objective.X) and chooses_sampled(model, size, hard=True)
    return pick_solver("sampled" if sampled else "lbfgs", objective)
