"""Rows of a folder that the nodes of a cluster read with Ray Data and keep; this process holds a sample of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kway.errors import ClusterError
from kway.labels import encode_as
from kway.memory import rows_per_block
from kway.rows.cluster.linear_passes import ClusterRows, RowShard
from kway.rows.cluster.session import import_ray
from kway.rows.cluster.shards import make_shards
from kway.rows.passes import Targets, wrap_rows


class FolderPart(Protocol):
    """The files of one shard."""

    @property
    def n(self) -> int:
        """Return the number of rows."""

    def read(self) -> tuple[NDArray, NDArray]:
        """Read rows (n, d) and labels (n,), on the node that keeps them."""


class ClassTable(NamedTuple):
    """The classes (K,) of all shards, and the weight (K,) of a row of each class; None means 1."""

    classes: NDArray
    weight: NDArray | None


class FolderRows(NamedTuple):
    """Rows on the nodes, with the targets and weights of the sample that this process has."""

    rows: ClusterRows
    targets: Targets
    weight: NDArray | None


def folder_rows(parts: Sequence[FolderPart], known: ClassTable, d: int, dtype: np.dtype) -> FolderRows:
    """Let the nodes read all parts, and return the rows with a sample of them in this process."""
    makers: list[Callable[[], RowShard]] = [partial(open_folder_shard, part, known, dtype) for part in parts]
    shards, n = make_shards(makers), sum(part.n for part in parts)
    share = min(1.0, min(8 * d + 1000, rows_per_block(d * dtype.itemsize)) / n)
    samples = shards.ask("sample", share)
    X, codes = (np.concatenate([sample[i] for sample in samples]) for i in (0, 1))
    weight: Any = None if known.weight is None else known.weight[codes].astype(X.dtype)
    rows = ClusterRows(wrap_rows(X), n, shards)
    return FolderRows(rows, Targets(codes), None if weight is None else weight / weight.mean())


def open_folder_shard(part: FolderPart, known: ClassTable, dtype: np.dtype) -> RowShard:
    """Read the files of a shard; called on its node."""
    rows, labels = part.read()
    X = np.ascontiguousarray(rows, dtype)
    codes = encode_as(labels, known.classes)
    weight = None if known.weight is None else known.weight[codes].astype(X.dtype)
    return RowShard(wrap_rows(X), Targets(codes), weight)


def read_columns(files: Sequence[str], columns: Sequence[str]) -> Any:
    """Return the given columns of the files, as one table."""
    import pyarrow as pa

    dataset = _data().read_parquet(list(files), columns=list(columns), override_num_blocks=len(files))
    return pa.concat_tables(dataset.iter_batches(batch_size=None, batch_format="pyarrow")).select(list(columns))


def read_arrays(files: Sequence[str]) -> NDArray:
    """Return the rows of all files, concatenated."""
    batches = (
        _data()
        .read_numpy(list(files), override_num_blocks=len(files))
        .iter_batches(batch_size=None, batch_format="numpy")
    )
    return np.concatenate([batch["data"] for batch in batches])


def _data() -> Any:
    """Return ray.data without progress bars, reading in the order of the files: labels may be in other files."""
    import_ray()
    try:
        import ray.data
    except ImportError as error:
        raise ClusterError(f"reading folders on a cluster needs Ray Data ({error}); pip install 'ray[data]'") from error
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True
    context.use_datasource_v2 = False  # in Ray 2.60 it starts 80 processes to read the footers of four files
    return ray.data
