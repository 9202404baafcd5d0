"""Files read with Ray Data, by whoever holds their rows: in an actor, on its node, never where the fit was called.

read_columns(files, columns)   parquet -> pyarrow Table
read_arrays(files)             .npy of (n_i, d) -> (n, d), in the order of the files
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.compute.cluster.session import import_ray
from kway.errors import ClusterError


def read_columns(files: Sequence[str], columns: Sequence[str]) -> Any:
    """These columns of the files, as one table."""
    import pyarrow as pa

    dataset = _data().read_parquet(list(files), columns=list(columns), override_num_blocks=len(files))
    return pa.concat_tables(dataset.iter_batches(batch_size=None, batch_format="pyarrow")).select(list(columns))


def read_arrays(files: Sequence[str]) -> NDArray:
    """The rows of all files, one behind the other."""
    batches = (
        _data()
        .read_numpy(list(files), override_num_blocks=len(files))
        .iter_batches(batch_size=None, batch_format="numpy")
    )
    return np.concatenate([batch["data"] for batch in batches])


def _data() -> Any:
    """Ray's reader: quiet, and in the order of the files, since labels may lie in others."""
    import_ray()
    try:
        import ray.data
    except ImportError as error:
        raise ClusterError(f"reading folders on a cluster needs Ray Data ({error}); pip install 'ray[data]'") from error
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True
    context.use_datasource_v2 = False  # of Ray 2.60: a pool of actors for footers, 80 processes for four files
    return ray.data
