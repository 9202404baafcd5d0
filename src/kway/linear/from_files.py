"""Fits from files: `fit_folder` and `fit_blocks`, for rows that are larger than memory.

    fit_blocks    blocks (X, y) are written to a temporary file
    fit_folder    on one machine: the folder is read into memory, or left in its files if it is too large
                  inside kway.cluster(...): each node reads a run of files of about the same number of rows

Rows in files are read a block at a time: by epochs of sampled softmax in random order, or by L-BFGS in passes over all
rows. On a cluster only footers, the column of the labels and the labels of .npy files are read by this process; the
nodes read the rows, and L-BFGS or the proximal solver adds up their sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway import validation
from kway.base.classifier import on_own_threads
from kway.errors import CombinationError, InputError
from kway.labels import Labels, class_weighted, encode, encode_as, refuse_one_class
from kway.linear.fitting import (
    PreparedFit,
    make_control,
    set_learned_attributes,
    show_progress,
    solve_plan,
    weighted_rows,
)
from kway.linear.losses import LOSSES
from kway.linear.objective import Objective
from kway.linear.plan import FitPlan, is_sampled, model_penalty, prefers_sampling, resumed_theta, sampled_formula
from kway.linear.solvers.base import Solver, list_properties
from kway.linear.solvers.lbfgs import LBFGS
from kway.linear.solvers.registry import SOLVERS
from kway.memory import has_room, rows_per_block
from kway.planning import costs
from kway.planning.costs import Size
from kway.rows.blocks import LabeledRows, labeled_blocks
from kway.rows.cluster.linear_passes import ClusterRows, RowShard
from kway.rows.cluster.session import current, format_nodes, n_nodes
from kway.rows.cluster.shards import make_shards
from kway.rows.files import FileRows, write_blocks, write_sparse_blocks
from kway.rows.gpu.device import ChosenDevice, names_gpu
from kway.rows.passes import Targets, wrap_rows
from kway.suggest import nearest
from kway.tables.datasets.arrays import map_arrays, npy_files
from kway.tables.labeled_rows import matrix_of, number_rows
from kway.tables.read_options import ReadOptions
from kway.tables.reading import read_rows
from kway.tables.row_stream import measure_extent, row_stream
from kway.tables.sources.labels import column_labels
from kway.tables.sources.table_files import list_files, parquet_files

if TYPE_CHECKING:
    from kway.linear.classifier import LinearClassifier

# Factor of tol for the proximal solver on a cluster, where no bound verifies its estimate (tests/cluster)
PROXIMAL_TOL_FACTOR = 0.1
_SINGLE = ("float32", "float16", "float", "halffloat", "bool", "int8", "uint8", "int16", "uint16")  # exact in float32


@on_own_threads
def fit_blocks(model: LinearClassifier, blocks: Iterable[tuple[Any, Any]]) -> None:
    """Fit the model to blocks (X, y), all dense or all sparse: `LinearClassifier.fit_blocks`."""
    model._check_parameters()
    remaining = labeled_blocks(blocks)
    first = [next(remaining)]
    write: Callable[[Iterable[Any]], LabeledRows] = write_sparse_blocks if sp.issparse(first[0].X) else write_blocks
    # popped when it is written, so that the first block is not in memory during the fit
    _fit_files(model, write(chain((first.pop() for _ in range(1)), remaining)))


@on_own_threads
def fit_folder(model: LinearClassifier, folder: str | Path, target: str | None) -> None:
    """Fit the model to a folder: `LinearClassifier.fit_folder`."""
    model._check_parameters()
    if not isinstance(folder, str | Path):
        raise InputError(f"folder must be a path, got {folder!r:.60}")
    if current() is not None:
        _fit_on_cluster(model, folder, target)
    elif _stays_in_files(model, folder, target):
        _fit_files(model, open_folder(folder, target))
    else:
        model.fit(*read_folder(folder, target))


# ---- on one machine


def read_folder(folder: str | Path, target: str | None) -> LabeledRows:
    """Read all rows and labels of a folder into memory."""
    data = number_rows(read_rows(str(folder), ReadOptions(target=target)))
    if data.y is None:
        raise InputError(f"{folder} has no labels; name their column (target=...), or add a .npy file of them")
    return LabeledRows(data.rows, data.y)


def _stays_in_files(model: LinearClassifier, folder: str | Path, target: str | None) -> bool:
    """Return whether the rows are not read into memory: classes are sampled, or the rows are too large."""
    if names_gpu(model.device):
        return False
    if model.solver != "auto":
        return is_sampled(model.solver)
    extent = measure_extent(str(folder), ReadOptions(target=target))
    size = Size(extent.n, extent.d, extent.K)
    return not has_room(size.rows_bytes) or (extent.K > 2 and prefers_sampling(model, size, hard=True))


def open_folder(folder: str | Path, target: str | None) -> LabeledRows:
    """Map the rows of a folder, or of one file, of .npy, parquet or csv."""
    path = Path(folder)
    arrays = npy_files(path)
    files = arrays or list_files(path)
    if not files:
        raise InputError(f"{str(folder)!r} has neither .npy nor parquet nor csv files; give a folder of one kind")
    mark = repr(([(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files], target))
    if not arrays:
        pieces = (number_rows(piece) for piece in row_stream(path, ReadOptions(target=target)))
        X, y = write_blocks((piece.rows, piece.required_labels()) for piece in pieces)
        return LabeledRows(FileRows(X.parts, X.dtype, mark), y)
    mapped = map_arrays(files, path.name)
    dtype = _float_type(part.dtype.name for part in mapped.parts)
    return LabeledRows(FileRows(mapped.parts, dtype, mark), mapped.required_labels(path.name))


def _float_type(names: Iterable[str]) -> np.dtype:
    """Return float32 if it represents all values of these types exactly, else float64."""
    return np.dtype(np.float32 if all(name in _SINGLE for name in names) else np.float64)


def _fit_files(model: LinearClassifier, data: LabeledRows) -> None:
    model._forget()
    X, labels = data.X, encode(data.y)
    validation.check_blocks(X)
    refuse_one_class(labels, type(model).__name__)
    plan = _plan_files(model, X, labels.n_classes)
    model.classes_, model.n_features_in_ = labels.classes, X.shape[1]
    solve_plan(model, PreparedFit(plan, weighted_rows(X, labels, None, model.class_weight), None, X.dtype))
    model.why_ = f"{X.shape[0]:,} rows in files, read a block at a time"


def _plan_files(model: LinearClassifier, X: Any, n_classes: int) -> FitPlan:
    """Plan sampled softmax if it is named or classes are too many, else L-BFGS.

    Sampled softmax makes every batch dense, so that "auto" does not choose it for sparse rows.
    """
    size = costs.size_of(X, n_classes)
    loss, penalty, solver = model._form(n_classes), model_penalty(model), model.solver
    by_passes = solver in ("auto", "lbfgs") and list_properties(loss, penalty) >= LBFGS.needs
    if model.early_stopping or not (is_sampled(solver) or by_passes):
        raise CombinationError(
            "rows in files need solver='sampled', or 'auto' or 'lbfgs' with a loss that has an optimum and a smooth "
            f"penalty, without early_stopping; got solver={solver!r}, loss={model.loss!r}, "
            f"early_stopping={model.early_stopping!r}; partial_fit learns from blocks by sgd"
        )
    if not is_sampled(solver):
        too_many = solver == "auto" and not sp.issparse(X) and prefers_sampling(model, size, hard=True)
        solver = "sampled" if too_many else "lbfgs"
    formula = sampled_formula(model, size) if is_sampled(solver) else costs.softmax
    costs.check_fit(type(model).__name__, formula, size)
    return FitPlan(size, loss, penalty, ChosenDevice(None, ""), solver, formula)


# ---- on a cluster


class ClassTable(NamedTuple):
    """The classes (K,) of all shards, and the weight (K,) of a row of each class; None means 1."""

    classes: NDArray
    weight: NDArray | None


class FilePart(NamedTuple):
    """The files of one shard: parquet with its columns and its target, or .npy with the labels of its rows."""

    files: tuple[str, ...]
    n: int
    columns: tuple[str, ...] = ()
    target: str = ""
    labels: NDArray | None = None

    def read(self) -> tuple[NDArray, NDArray]:
        """Return rows (n, d) and labels (n,)."""
        if self.labels is not None:
            rows = np.concatenate([np.load(file) for file in self.files])
            return self._check_finite(rows.reshape(len(rows), -1)), self.labels
        import pyarrow.parquet as pq

        table = pq.read_table(list(self.files), columns=[*self.columns, self.target])
        labels = column_labels(table.column(self.target), f"column {self.target!r}", typed=True)
        return self._check_finite(matrix_of(table, self.columns, "the folder")), labels

    def _check_finite(self, rows: NDArray) -> NDArray:
        if rows.dtype.kind == "f" and not np.isfinite(rows).all():
            raise InputError(f"{self.files[0]} or a file after it has missing or infinite numbers; fill or drop them")
        return rows

    def shard(self, known: ClassTable, dtype: np.dtype) -> RowShard:
        """Return the rows as a shard; called on its node."""
        rows, labels = self.read()
        X, codes = np.ascontiguousarray(rows, dtype), encode_as(labels, known.classes)
        weight = None if known.weight is None else known.weight[codes].astype(dtype)
        return RowShard(wrap_rows(X), Targets(codes), weight)


class FolderRows(NamedTuple):
    """Rows on the nodes, with the targets and weights of the sample that this process has."""

    rows: ClusterRows
    targets: Targets
    weight: NDArray | None


def folder_rows(parts: Sequence[FilePart], known: ClassTable, d: int, dtype: np.dtype) -> FolderRows:
    """Let the nodes read all parts, and return the rows with a sample of them in this process."""
    makers: list[Callable[[], RowShard]] = [partial(part.shard, known, dtype) for part in parts]
    shards, n = make_shards(makers), sum(part.n for part in parts)
    share = min(1.0, min(8 * d + 1000, rows_per_block(d * dtype.itemsize)) / n)
    samples = shards.ask("sample", share)
    X, codes = (np.concatenate([sample[i] for sample in samples]) for i in (0, 1))
    weight: Any = None if known.weight is None else known.weight[codes].astype(X.dtype)
    rows = ClusterRows(wrap_rows(X), n, shards)
    return FolderRows(rows, Targets(codes), None if weight is None else weight / weight.mean())


class FolderPlan(NamedTuple):
    """The files per shard, the width and float type of their rows, the classes (K,) and the rows per class (K,)."""

    parts: list[FilePart]
    d: int
    dtype: np.dtype
    classes: NDArray
    counts: NDArray[np.int64]


def _fit_on_cluster(model: LinearClassifier, folder: str | Path, target: str | None) -> None:
    solver = _cluster_solver(model)
    plan = _plan_folder(Path(folder), target)
    refuse_one_class(Labels(plan.classes, np.empty(0, np.int64)), type(model).__name__)
    model._forget()
    model.classes_, model.n_features_in_ = plan.classes, plan.d
    K = len(plan.classes)
    rows, targets, weight = folder_rows(plan.parts, _class_table(plan, model.class_weight), plan.d, plan.dtype)
    try:
        n_scores, penalty = 1 if K == 2 else K, model_penalty(model)
        objective = Objective(rows, targets, n_scores, model._form(K), penalty, model.fit_intercept, weight)
        with show_progress("folder", model) as step, resumed_theta(objective) as last:
            tol = model.tol if penalty.smooth else PROXIMAL_TOL_FACTOR * model.tol
            control = replace(make_control(model), progress=step, tol=tol)
            solution = solver.solve(objective, objective.zeros() if last is None else last, control)
        model.why_ = f"{objective.n:,} rows on {format_nodes(len(plan.parts))}"
        set_learned_attributes(model, objective, solution, solver.name, np.empty(0, np.int64))
    finally:
        rows.close()


def _cluster_solver(model: LinearClassifier) -> Solver:
    """Return L-BFGS, or the proximal solver for an L1 penalty: the two that need only sums over rows."""
    name = "lbfgs" if model_penalty(model).smooth else "proximal"
    one_hot = getattr(model, "targets", "one-hot") == "one-hot"
    plain = one_hot and not (model.label_smoothing or model.early_stopping)
    if model.solver not in ("auto", name) or not LOSSES[model.loss].joint.smooth or not plain:
        raise CombinationError(
            f"fit_folder on a cluster needs solver='auto' (which uses {name!r}), one-hot targets and a smooth loss, "
            f"without label_smoothing or early_stopping; got solver={model.solver!r}, loss={model.loss!r}; "
            "for other settings read the rows and use fit"
        )
    return SOLVERS[name]


def _plan_folder(folder: Path, target: str | None) -> FolderPlan:
    if not folder.is_dir():
        raise InputError(f"{str(folder)!r} is not a folder; give one of parquet or .npy files that every node can read")
    tables, arrays = parquet_files(folder), npy_files(folder)
    if not tables and not arrays:
        raise InputError(f"{str(folder)!r} has neither parquet nor .npy files; a cluster reads these two")
    return _plan_tables(tables, folder.name, target) if tables else _plan_arrays(arrays, folder.name)


def _plan_tables(files: list[Path], name: str, target: str | None) -> FolderPlan:
    import pyarrow.parquet as pq

    schema = pq.read_schema(files[0])
    if target is None or target not in schema.names:
        raise InputError(f"{name} has no column {target!r}{nearest(str(target), schema.names)}; name it: target=...")
    columns = tuple(column for column in schema.names if column != target)
    dtype = _float_type(str(schema.field(column).type) for column in columns)
    sizes = [pq.read_metadata(file).num_rows for file in files]
    parts = [
        FilePart(tuple(str(files[i]) for i in run), sum(sizes[i] for i in run), columns, target)
        for run in runs_of_files(sizes, n_nodes())
    ]
    return FolderPlan(parts, len(columns), dtype, *_count_classes(_label_pieces(files, target)))


def _label_pieces(files: list[Path], target: str) -> Iterator[Labels]:
    import pyarrow.parquet as pq

    for file in files:
        for piece in pq.ParquetFile(file).iter_batches(columns=[target]):
            yield encode(column_labels(piece.column(0), f"column {target!r}", typed=True))


def _count_classes(pieces: Iterable[Labels]) -> tuple[NDArray, NDArray[np.int64]]:
    """Return the classes (K,) and the rows per class (K,)."""
    counts: dict[Any, int] = {}
    for labels in pieces:
        for label, n in zip(labels.classes.tolist(), np.bincount(labels.codes).tolist()):
            counts[label] = counts.get(label, 0) + n
    labels = encode(list(counts))
    return labels.classes, np.array(list(counts.values()))[np.argsort(labels.codes)]


def _plan_arrays(files: list[Path], name: str) -> FolderPlan:
    mapped = map_arrays(files, name)
    y = np.asarray(mapped.required_labels(name))
    rows = [file for file in files if np.load(file, mmap_mode="r").ndim > 1]
    ends = np.cumsum([0, *map(len, mapped.parts)])
    parts = []
    for run in runs_of_files([len(part) for part in mapped.parts], n_nodes()):
        first, stop = int(ends[run[0]]), int(ends[run[-1] + 1])
        parts.append(FilePart(tuple(str(rows[i]) for i in run), stop - first, labels=y[first:stop]))
    dtype = _float_type(part.dtype.name for part in mapped.parts)
    return FolderPlan(parts, mapped.parts[0].shape[1], dtype, *_count_classes([encode(y)]))


def runs_of_files(sizes: Sequence[int], shards: int) -> list[list[int]]:
    """Split files, in order, into at most `shards` runs with about the same number of rows.

    >>> runs_of_files([5, 5, 5, 5], 2)
    [[0, 1], [2, 3]]
    """
    middle = np.cumsum(sizes) - np.asarray(sizes) / 2
    shard = np.minimum(middle * shards // max(1, sum(sizes)), shards - 1).astype(int)
    return [np.flatnonzero(shard == s).tolist() for s in np.unique(shard)]


def _class_table(plan: FolderPlan, class_weight: Any) -> ClassTable:
    """Return the classes and the weight of a row per class, with mean 1 over all rows."""
    if class_weight is None:
        return ClassTable(plan.classes, None)
    labels = Labels(plan.classes, np.arange(len(plan.classes)))  # one row per class, which counts as all of its rows
    total: Any = class_weighted(plan.counts.astype(np.float64), labels, class_weight)
    return ClassTable(plan.classes, total / plan.counts * (plan.counts.sum() / total.sum()))
