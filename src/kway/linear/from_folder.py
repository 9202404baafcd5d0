"""Learning from a folder of parquet or .npy files whose rows stay on the nodes of a cluster that read them.

    files -> a run of them a node, cut by size -> classes and counts -> FolderObjective -> L-BFGS or proximal steps

Here are footers, a piece of the column of labels at a time, and the labels of .npy files; rows are read with Ray Data
where they are held. Without a cluster the folder is read here, and learned from as arrays are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.base.own_threads import on_own_threads
from kway.compute.cluster.session import current, n_nodes, said_nodes
from kway.data.blocks.file_rows import rows_of_folder
from kway.data.labelled_rows import ReadOptions
from kway.data.labels import Labels, encode
from kway.data.number_rows import number_rows
from kway.data.reading import read_rows
from kway.data.sources.label_column import column_labels
from kway.data.sources.npy_files import map_arrays, npy_files
from kway.data.sources.table_files import parquet_files
from kway.data.suggest import nearest
from kway.errors import CombinationError, InputError
from kway.linear.fitting import control_of, keep
from kway.linear.from_files import fit_files, stays_in_files
from kway.linear.losses import LOSSES, Targets
from kway.linear.objective.folder_rows import ClassTable, FilePart, FolderObjective, folder_objective
from kway.linear.objective.objective import Objective
from kway.linear.penalties import pick_penalty
from kway.linear.problem import refuse_one_class
from kway.linear.solvers.base import Control, Solver
from kway.linear.solvers.registry import SOLVERS
from kway.linear.solvers.watching import shown

if TYPE_CHECKING:
    from kway.linear.classifier import LinearClassifier

# of tol, where a solver estimates its excess and nobody here can prove it: the proximal one was short by 3 times tol
_SAFE = {"lbfgs": 1.0, "proximal": 0.1}
_NARROW = ("float", "halffloat", "bool", "int8", "uint8", "int16", "uint16")  # what float32 holds, whatever the values


class FolderPlan(NamedTuple):
    """The files by shards, the width and number type of their rows, the classes and the rows of each (K,)."""

    solver: Solver
    parts: list[FilePart]
    d: int
    dtype: np.dtype
    classes: NDArray
    counts: NDArray[np.int64]


class LocalRows(NamedTuple):
    """Rows (n, d) and labels (n,), read here."""

    X: Any
    y: NDArray


@on_own_threads
def fit_folder(model: LinearClassifier, folder: str | Path, target: str | None) -> None:
    """LinearClassifier.fit_folder."""
    model._check_parameters()
    if not isinstance(folder, str | Path):
        raise InputError(f"folder must be a path, got {folder!r:.60}")
    if is_local() and stays_in_files(model, folder, target):
        fit_files(model, rows_of_folder(folder, target))
        return
    if is_local():
        model.fit(*read_here(folder, target))
        return
    plan = plan_folder(model, folder, target)
    model._forget()
    model.classes_, model.n_features_in_ = plan.classes, plan.d
    with opened(model, plan) as objective, shown("folder", model.max_iter, model.verbose) as progress:
        control = control_for(plan, replace(control_of(model), progress=progress))
        solution = plan.solver.solve(objective, objective.zeros(), control)
        model.why_ = f"{objective.n:,} rows on {said_nodes(len(plan.parts))}"
        keep(model, objective, solution, plan.solver.name, np.empty(0, np.int64))


def control_for(plan: FolderPlan, control: Control) -> Control:
    """The tolerance that the solver is to aim at."""
    return replace(control, tol=_SAFE[plan.solver.name] * control.tol)


def is_local() -> bool:
    """Whether no cluster is to read the folder."""
    return current() is None


def read_here(folder: str | Path, target: str | None) -> LocalRows:
    """The folder's rows."""
    found = number_rows(read_rows(str(folder), ReadOptions(target=target)))
    if found.y is None:
        raise InputError(f"{folder} has no labels; name their column (target=...), or add a .npy file of them")
    return LocalRows(found.rows, found.y)


def plan_folder(model: LinearClassifier, folder: str | Path, target: str | None) -> FolderPlan:
    """What the nodes are to read, and how the model is then learned."""
    solver = _solver_for(model)
    home = Path(folder).absolute()
    if not home.is_dir():
        raise InputError(f"{str(folder)!r} is no folder; give one of parquet or .npy files that every node sees")
    tables, arrays = parquet_files(home), npy_files(home)
    if not tables and not arrays:
        raise InputError(f"{str(folder)!r} has neither parquet nor .npy files; a cluster reads these two")
    plan = _plan_tables(tables, home.name, target, solver) if tables else _plan_arrays(arrays, home.name, solver)
    refuse_one_class(Labels(plan.classes, np.empty(0, np.int64)), type(model).__name__)
    return plan


def _plan_tables(files: list[Path], name: str, target: str | None, solver: Solver) -> FolderPlan:
    import pyarrow.parquet as pq

    schema = pq.read_schema(files[0])
    if target is None or target not in schema.names:
        raise InputError(
            f"{name} has no column {target!r} to learn{nearest(str(target), schema.names)}; name it: target=..."
        )
    columns = tuple(column for column in schema.names if column != target)
    wide = any(str(schema.field(column).type) not in _NARROW for column in columns)
    sizes = [pq.read_metadata(file).num_rows for file in files]
    classes, counts = _counted(files, target)
    parts = [
        FilePart(tuple(str(files[i]) for i in run), sum(sizes[i] for i in run), columns, target)
        for run in runs_of_files(sizes, n_nodes())
    ]
    dtype = np.dtype(np.float64 if wide else np.float32)
    return FolderPlan(solver, parts, len(columns), dtype, classes, counts)


def _counted(files: list[Path], target: str) -> tuple[NDArray, NDArray[np.int64]]:
    """The classes (K,) and the rows of each, from one column, a piece at a time."""
    import pyarrow.parquet as pq

    counts: dict[Any, int] = {}
    for file in files:
        for piece in pq.ParquetFile(file).iter_batches(columns=[target]):
            labels = encode(column_labels(piece.column(0), f"column {target!r}", typed=True))
            for label, n in zip(labels.classes.tolist(), np.bincount(labels.codes).tolist()):
                counts[label] = counts.get(label, 0) + n
    found = encode(list(counts))
    return found.classes, np.array(list(counts.values()))[np.argsort(found.codes)]


def _plan_arrays(files: list[Path], name: str, solver: Solver) -> FolderPlan:
    held = map_arrays(files, name)
    y = np.asarray(held.required_labels(name))
    labels = encode(y)
    rows = [file for file in files if np.load(file, mmap_mode="r").ndim > 1]
    ends = np.cumsum([0, *map(len, held.parts)])
    parts = [
        FilePart(
            tuple(str(rows[i]) for i in run),
            int(ends[run[-1] + 1] - ends[run[0]]),
            labels=y[ends[run[0]] : ends[run[-1] + 1]],
        )
        for run in runs_of_files([len(part) for part in held.parts], n_nodes())
    ]
    wide = any(part.dtype.name not in ("float32", "float16", *_NARROW) for part in held.parts)
    dtype = np.dtype(np.float64 if wide else np.float32)
    return FolderPlan(solver, parts, held.parts[0].shape[1], dtype, labels.classes, np.bincount(labels.codes))


def runs_of_files(sizes: Sequence[int], shards: int) -> list[list[int]]:
    """Files in their order, cut into at most so many runs of about as many rows.

    >>> runs_of_files([5, 5, 5, 5], 2)
    [[0, 1], [2, 3]]
    """
    middle = np.cumsum(sizes) - np.asarray(sizes) / 2
    shard = np.minimum(middle * shards // max(1, sum(sizes)), shards - 1).astype(int)
    return [np.flatnonzero(shard == s).tolist() for s in np.unique(shard)]


def class_table(plan: FolderPlan, class_weight: Any) -> ClassTable:
    """The classes, and what a row of each weighs: 1 in the mean over all rows."""
    if class_weight is None:
        return ClassTable(plan.classes, None)
    if isinstance(class_weight, str):
        weight = plan.counts.sum() / (len(plan.counts) * plan.counts)
    else:
        weight = np.array([class_weight.get(label, 1.0) for label in plan.classes.tolist()], float)
    return ClassTable(plan.classes, weight / np.average(weight, weights=plan.counts))


def _solver_for(model: LinearClassifier) -> Solver:
    """L-BFGS, or the proximal solver where there is an L1 part: the two that need nothing but sums over rows."""
    penalty = pick_penalty(model.penalty, model.l1_ratio).times(model.alpha)
    name = "lbfgs" if penalty.smooth else "proximal"
    one_hot = getattr(model, "targets", "one-hot") == "one-hot"
    plain = one_hot and not (model.label_smoothing or model.early_stopping)
    if model.solver not in ("auto", name) or not LOSSES[model.loss].joint.smooth or not plain:
        raise CombinationError(
            f"a cluster learns from a folder by solver 'auto' (here {name!r}), one-hot targets and a smooth loss, "
            f"without label_smoothing or early_stopping; got solver={model.solver!r}, loss={model.loss!r}; "
            "read the rows and use fit for others"
        )
    return SOLVERS[name]


@contextmanager
def opened(model: LinearClassifier, plan: FolderPlan) -> Iterator[FolderObjective]:
    """The problem, its rows read by the nodes, which let go of them afterwards."""
    K, forms = len(plan.classes), LOSSES[model.loss]
    form = forms.columns if K == 2 or model.multiclass == "one-vs-all" else forms.joint
    penalty = pick_penalty(model.penalty, model.l1_ratio).times(model.alpha)
    blank = Objective(
        np.empty((0, plan.d), plan.dtype), Targets(np.empty(0, np.int64)), 1 if K == 2 else K, form, penalty,
        model.fit_intercept, None, model.n_jobs,
    )  # fmt: skip
    objective = folder_objective(plan.parts, class_table(plan, model.class_weight), blank)
    try:
        yield objective
    finally:
        objective.close()
