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

import numpy as np
import scipy.sparse as sp

from kway import validation
from kway.base.classifier import on_own_threads
from kway.errors import CombinationError, InputError
from kway.labels import encode, refuse_one_class
from kway.linear.fitting import control_of, keep, make_objective, weighted_rows
from kway.linear.plan import FitPlan, asks_for_sampled, chooses_sampled, penalty_of, sampled_formula
from kway.linear.solvers.base import offers
from kway.linear.solvers.choose import choose_solver
from kway.linear.solvers.lbfgs import LBFGS
from kway.linear.solvers.sampled import Sampled
from kway.linear.solvers.watching import shown
from kway.memory import has_room
from kway.planning import costs, guard
from kway.planning.costs import Size
from kway.rows.files import FileRows, LabelledCSR, LabelledFiles, rows_of_blocks, sparse_rows_of_blocks
from kway.rows.gpu.device import ChosenDevice
from kway.rows.labelled_blocks import LabelledBlock, labelled_blocks
from kway.tables.datasets.arrays import map_arrays, npy_files
from kway.tables.labeled_rows import number_rows
from kway.tables.options import ReadOptions
from kway.tables.row_stream import measure_extent, row_stream
from kway.tables.sources.table_files import list_files

if TYPE_CHECKING:
    from kway.linear.classifier import LinearClassifier


def stays_in_files(model: LinearClassifier, folder: str | Path, target: str | None) -> bool:
    """Whether a folder is learned from where it lies, on the CPU: classes are sampled, or the rows too many to read."""
    if model.device == "cuda":
        return False
    if model.solver != "auto":
        return asks_for_sampled(model.solver)
    found = measure_extent(str(folder), ReadOptions(target=target))
    size = Size(found.n, found.d, found.K)
    return not has_room(size.rows_bytes) or (found.K > 2 and chooses_sampled(model, size, hard=True))


def rows_of_folder(folder: str | Path, target: str | None) -> LabelledFiles:
    """The rows of a folder, or of one file, of .npy, parquet or csv."""
    path = Path(folder)
    files = npy_files(path) or (list_files(path))
    if not files:
        raise InputError(f"{str(folder)!r} has neither .npy nor parquet nor csv files; give a folder of one kind")
    about = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    mark = repr((about, target))
    if not npy_files(path):
        pieces = (number_rows(piece) for piece in row_stream(path, ReadOptions(target=target)))
        X, y = rows_of_blocks((piece.rows, piece.required_labels()) for piece in pieces)
        return LabelledFiles(FileRows(X.parts, X.dtype, mark), y)
    found = map_arrays(files, path.name)
    y = found.required_labels(path.name)
    narrow = all(part.dtype in (np.float32, np.float16, np.int16, np.int8, np.uint16, np.uint8) for part in found.parts)
    return LabelledFiles(FileRows(found.parts, np.dtype(np.float32 if narrow else np.float64), mark), y)


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
    validation.check_blocks(X)
    refuse_one_class(labels, type(model).__name__)
    plan = _plan(model, X, labels.n_classes)
    model.classes_, model.n_features_in_ = labels.classes, X.shape[1]
    given = weighted_rows(X, labels, None, model.class_weight)
    objective = make_objective(model, plan, given)
    solver = choose_solver(plan.solver, objective)
    start = solver.cold_start(objective) if isinstance(solver, Sampled) else objective.zeros()
    with shown(f"{type(model).__name__} {solver.name}", model.max_iter, model.verbose) as progress:
        solution = solver.solve(objective, start, replace(control_of(model), progress=progress))
    model.why_ = f"{X.shape[0]:,} rows in files, read some at a time"
    keep(model, objective, solution, solver.name, given.kept)


def _plan(model: LinearClassifier, X: Any, n_classes: int) -> FitPlan:
    """Sampled softmax if it is asked for, or if classes are too many; else L-BFGS, which reads rows in order.

    For sparse rows it is taken only if it is asked for: it makes every batch dense.
    """
    size = guard.size_of(X, n_classes)
    loss, penalty, solver = model._form(n_classes), penalty_of(model), model.solver
    by_passes = solver in ("auto", "lbfgs") and offers(loss, penalty) >= LBFGS.needs
    if model.early_stopping or not (asks_for_sampled(solver) or by_passes):
        raise CombinationError(
            "rows that stay in files are learned from by solver='sampled', or by 'auto' and 'lbfgs' under a loss with "
            f"an optimum and a smooth penalty, without early_stopping; got solver={solver!r}, "
            f"loss={model.loss!r}, early_stopping={model.early_stopping!r}: partial_fit takes blocks by sgd"
        )
    if not asks_for_sampled(solver):
        too_many = solver == "auto" and not sp.issparse(X) and chooses_sampled(model, size, hard=True)
        solver = "sampled" if too_many else "lbfgs"
    formula = sampled_formula(model, size) if asks_for_sampled(solver) else costs.softmax
    guard.check_fit(type(model).__name__, formula, size)
    return FitPlan(size, loss, penalty, ChosenDevice(None, ""), solver, formula)
