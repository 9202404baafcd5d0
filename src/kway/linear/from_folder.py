"""Learning from a folder of parquet or .npy files whose rows stay on the nodes of a cluster that read them.

    files -> a run of them a node, cut by size -> classes and counts -> Objective -> L-BFGS or proximal steps

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

from kway.base.classifier import on_own_threads
from kway.errors import CombinationError, InputError
from kway.labels import Labels, encode, refuse_one_class
from kway.linear.fitting import control_of, keep
from kway.linear.from_files import fit_files, rows_of_folder, stays_in_files
from kway.linear.losses import LOSSES
from kway.linear.objective import Objective
from kway.linear.penalties import pick_penalty
from kway.linear.placing import restarted
from kway.linear.solvers.base import Control, Solver
from kway.linear.solvers.choose import SOLVERS
from kway.linear.solvers.watching import shown
from kway.rows.cluster.folder import ClassTable, folder_rows, read_arrays, read_columns
from kway.rows.cluster.session import current, n_nodes, said_nodes
from kway.suggest import nearest
from kway.tables.datasets.arrays import map_arrays, npy_files
from kway.tables.labeled_rows import matrix_of, number_rows
from kway.tables.options import ReadOptions
from kway.tables.reading import read_rows
from kway.tables.sources.labels import column_labels
from kway.tables.sources.table_files import parquet_files

if TYPE_CHECKING:
    from kway.linear.classifier import LinearClassifier

# of tol, where a solver estimates its excess and nobody here can prove it: the proximal one was short by 3 times tol
_SAFE = {"lbfgs": 1.0, "proximal": 0.1}
_NARROW = ("float", "halffloat", "bool", "int8", "uint8", "int16", "uint16")  # what float32 holds, whatever the values


class FilePart(NamedTuple):
    """The files of one shard: parquet with its columns and its target, or .npy with the labels of its rows."""

    files: tuple[str, ...]
    n: int
    columns: tuple[str, ...] = ()
    target: str = ""
    labels: NDArray | None = None

    def read(self) -> tuple[NDArray, NDArray]:
        """Rows (n, d) and labels (n,)."""
        if self.labels is not None:
            rows = read_arrays(self.files)
            return self._finite(rows.reshape(len(rows), -1)), self.labels
        table = read_columns(self.files, (*self.columns, self.target))
        labels = column_labels(table.column(self.target), f"column {self.target!r}", typed=True)
        return self._finite(matrix_of(table, self.columns, "the folder")), labels

    def _finite(self, rows: NDArray) -> NDArray:
        if rows.dtype.kind == "f" and not np.isfinite(rows).all():
            raise InputError(f"{self.files[0]} or a file after it has gaps or infinities among its numbers; fill them")
        return rows


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
        with restarted(objective) as last:
            solution = plan.solver.solve(objective, objective.zeros() if last is None else last, control)
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
def opened(model: LinearClassifier, plan: FolderPlan) -> Iterator[Objective]:
    """The problem, its rows read by the nodes, which are released afterwards."""
    K, forms = len(plan.classes), LOSSES[model.loss]
    form = forms.columns if K == 2 or model.multiclass == "one-vs-all" else forms.joint
    penalty = pick_penalty(model.penalty, model.l1_ratio).times(model.alpha)
    rows, targets, weight = folder_rows(plan.parts, class_table(plan, model.class_weight), plan.d, plan.dtype)
    try:
        yield Objective(rows, targets, 1 if K == 2 else K, form, penalty, model.fit_intercept, weight)
    finally:
        rows.close()
