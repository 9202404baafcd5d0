"""One shard: a run of rows (m, d), where they come from, and the index over them; what a node of a cluster holds.

With a folder, the index is written there under a name that vouches for recipe, metric and rows, and opened from it the
next time. For rows that are carried every value counts; of rows in a file, its time and length, and some values.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from kway.compute.cluster.row_source import Carried, FilePlace
from kway.compute.threads import at_most
from kway.errors import ModelFileError
from kway.search.ids import Ids
from kway.search.index import Neighbors
from kway.search.live import LiveIndex, Recipe
from kway.search.spaces.metrics import Metric
from kway.search.spaces.units import Unit
from kway.store import container
from kway.store.schemas.index import check_index

VOUCHED = 64  # rows of a file, evenly spaced, whose values the name of a shard vouches for: it may be large


class ShardAnswer(NamedTuple):
    """Positions within the shard with their float64 distances, (q, k) each, and rows measured a query."""

    found: Neighbors
    touched: float


@dataclass
class Shard:
    """A live index over one run of rows."""

    index: LiveIndex

    def nearest(self, queries: Any, k: int, n_jobs: int | None, probes: int | None) -> ShardAnswer:
        """The k nearest of its rows, all of them where there are fewer."""
        with at_most(n_jobs):
            found = self.index._nearest(queries, min(k, self.index.n_rows), n_jobs, probes)
        return ShardAnswer(found, self.index.touched_)

    def held_bytes(self) -> int:
        """Of the index, rows included."""
        return self.index.nbytes


def open_shard(
    recipe: Recipe, metric: Metric, source: FilePlace | Carried, folder: Path | None = None, n_jobs: int | None = None
) -> Shard:
    """Build the index, or open it from the folder where it was written before; rows are prepared and in their unit."""
    rows = source.rows()
    if folder is None:
        return Shard(_built(recipe, metric, rows, n_jobs))
    file = folder / f"shard-{_vouch(recipe, metric, source, rows)}.kway"
    try:
        return _opened(recipe, file, rows.shape)
    except (FileNotFoundError, ModelFileError):
        # none yet, cut short by a disk, or not of these rows: what it is made of is there
        facts, arrays = _built(recipe, metric, rows, n_jobs).parts()
        container.write(file, {"index": facts}, arrays)
        return _opened(recipe, file, rows.shape)


def _opened(recipe: Recipe, file: Path, shape: tuple[int, int]) -> Shard:
    held = container.read(file)
    check_index(held.manifest.get("index"), held.tensors, *shape)
    return Shard(type(recipe).restore(held.manifest["index"], held.tensors))


def _built(recipe: Recipe, metric: Metric, rows: Any, n_jobs: int | None) -> LiveIndex:
    with at_most(n_jobs):
        index = recipe._live(rows, metric, Ids.of(rows.shape[0], None), n_jobs)
    index._n_jobs = n_jobs
    index.unit = Unit.again(0, rows.dtype, metric.distance, recipe._narrow)
    return index


def _vouch(recipe: Recipe, metric: Metric, source: FilePlace | Carried, rows: Any) -> str:
    """A digest of what the index is made of."""
    said = [recipe.facts(), metric.facts(), rows.shape, rows.dtype.str]
    if isinstance(source, FilePlace):
        known = os.stat(source.path)
        said += [source.path, source.offset, known.st_size, known.st_mtime_ns]
        rows = rows[np.unique(np.linspace(0, rows.shape[0] - 1, VOUCHED).astype(np.int64))]
    digest = hashlib.blake2b(json.dumps(said, sort_keys=True).encode())
    for array in (rows.data, rows.indices, rows.indptr) if sp.issparse(rows) else (rows,):
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()[:24]
