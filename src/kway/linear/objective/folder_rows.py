"""FolderObjective: the objective whose rows lie in a folder, read by the nodes of a cluster and never here.

a shard     some files, read with Ray Data where they are held; made again, it reads them again
here        n, a sample of the rows for starts and factors, and sums that the shards give: losses, gradients,
            products with the Hessian, second moments
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.cluster.crew import Crew
from kway.compute.cluster.ray_data import read_arrays, read_columns
from kway.compute.cluster.session import make_crew
from kway.data.labels import encode_as
from kway.data.number_rows import matrix_of
from kway.data.sources.label_column import column_labels
from kway.errors import InputError
from kway.linear.losses import Targets
from kway.linear.objective.bends import Bends, with_ridge
from kway.linear.objective.objective import Objective
from kway.linear.objective.on_cluster import ClusterObjective, RowShard
from kway.linear.penalties import Penalty

_SAMPLE = 1 << 24  # values of the sample that is kept here, at most


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
            return rows.reshape(len(rows), -1), self.labels
        table = read_columns(self.files, (*self.columns, self.target))
        labels = column_labels(table.column(self.target), f"column {self.target!r}", typed=True)
        return matrix_of(table, self.columns, "the folder"), labels


class ClassTable(NamedTuple):
    """The classes (K,) of all shards and what a row of each weighs (K,), None: one."""

    classes: NDArray
    weight: NDArray | None


def open_folder_shard(part: FilePart, known: ClassTable, blank: Objective) -> RowShard:
    """The shard on its node: its files read, `blank` is the problem without rows."""
    rows, labels = part.read()
    X = np.ascontiguousarray(rows, blank.X.dtype)
    if not np.isfinite(X).all():
        raise InputError(
            f"{part.files[0]} or a file after it has gaps or infinities among its numbers; fill them first"
        )
    codes = encode_as(labels, known.classes)
    weight = None if known.weight is None else known.weight[codes].astype(X.dtype)
    return RowShard(replace(blank, X=X, targets=Targets(codes), weight=weight, turned=[]))


@dataclass(frozen=True)
class FolderObjective(ClusterObjective):
    """An Objective of which X, targets and weight are a sample, and the crew has all n_rows."""

    n_rows: int = field(default=0, kw_only=True)

    @property
    def rows_here(self) -> bool:
        """A sample is."""
        return False

    @property
    def n(self) -> int:
        """Rows of all shards."""
        return self.n_rows

    def some(self, most: int) -> Objective:
        """Rows of the sample."""
        return Objective(
            self.X, self.targets, self.n_scores, self.loss, self.penalty, self.fit_intercept, self.weight, self.n_jobs
        ).some(most)

    def rows(self, chosen: NDArray | slice) -> Objective:
        """Not here."""
        raise InputError("rows of a folder are not here; read them with kway.fit, or leave out what asks for some")

    def gram(self, dtype: np.dtype) -> NDArray:
        """Summed over the shards."""
        parts = self._members.ask("gram", dtype)
        return np.asfortranarray(np.sum(parts, axis=0) / dtype.type(self.n))

    def mean_squares(self) -> NDArray:
        """Summed over the shards."""
        return np.asarray(np.sum(self._members.ask("squares"), axis=0) / self.X.dtype.type(self.n))

    def key_sums(self) -> NDArray[np.float64]:
        """Summed over the shards: what tells all rows from others."""
        return np.asarray(np.sum(self._members.ask("key_sums"), axis=0))

    def bends(self, theta: NDArray) -> Bends:
        """Products with the Hessian, summed over the shards."""
        return _AskedBends(self, self._members, theta)

    @property
    def _members(self) -> Crew:
        assert self.crew is not None
        return self.crew

    def _there(self) -> Crew | None:
        return self.crew

    def close(self) -> None:
        """Let the shards go."""
        self._members.close()


@dataclass
class _AskedBends:
    """A shard is told theta with every question: one that was made again knows nothing."""

    objective: FolderObjective
    crew: Crew
    theta: NDArray
    along: NDArray = field(init=False)
    come: NDArray = field(init=False)

    def __post_init__(self) -> None:
        self.along = self.come = np.zeros_like(self.theta)

    def product(self, V: NDArray) -> NDArray:
        """H V, (R, d + 1)."""
        self.along = V
        total = np.sum(self.crew.ask("bend", self.objective.loss, self.theta, V), axis=0)
        return with_ridge(self.objective, total, V)

    def advance(self, t: float) -> float:
        """The farthest that any score has come."""
        self.come = self.come + self.along.dtype.type(t) * self.along
        return float(max(self.crew.ask("reach", self.come)))


def folder_objective(parts: list[FilePart], known: ClassTable, blank: Objective) -> FolderObjective:
    """The problem of all parts; `blank` has its loss, penalty and number type, and no rows."""
    alone = replace(blank, penalty=Penalty())
    makers: list[Callable[[], RowShard]] = [partial(open_folder_shard, part, known, alone) for part in parts]
    crew, n = make_crew(makers), sum(part.n for part in parts)
    d = blank.X.shape[1]
    share = min(1.0, min(8 * d + 1000, _SAMPLE // d) / n)
    drawn = crew.ask("sample", share)
    X, codes = (np.concatenate([piece[i] for piece in drawn]) for i in (0, 1))
    weight: Any = None if known.weight is None else known.weight[codes].astype(X.dtype)
    facts = {f: getattr(blank, f) for f in ("n_scores", "loss", "penalty", "fit_intercept", "n_jobs")}
    return FolderObjective(
        X, Targets(codes), **facts, weight=None if weight is None else weight / weight.mean(), crew=crew, n_rows=n
    )
