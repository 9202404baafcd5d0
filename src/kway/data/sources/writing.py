"""Tables out: columns -> csv, csv.gz, parquet or npz, each file complete or absent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from kway.data.atomic import replacing
from kway.data.suggest import listing
from kway.errors import InputError

WRITTEN = (".csv", ".csv.gz", ".parquet")


def write_columns(columns: Mapping[str, NDArray], path: str | Path) -> None:
    """Columns of equal length as csv, csv.gz or parquet, by the ending of `path`."""
    import pyarrow as pa
    import pyarrow.parquet

    path = Path(path)
    if not path.name.lower().endswith(WRITTEN):
        raise InputError(f"cannot write {path.name}; its name must end in {listing(WRITTEN)}")
    refuse_missing_folder(path)
    table = _arrow(columns)
    with replacing(path) as draft:
        if path.name.lower().endswith(".parquet"):
            pyarrow.parquet.write_table(table, draft)
        elif path.name.lower().endswith(".gz"):
            with pa.CompressedOutputStream(str(draft), "gzip") as out:
                _csv(table, out)
        else:
            _csv(table, draft)


def write_csv(columns: Mapping[str, NDArray], out: BinaryIO) -> None:
    """The same as csv text into an open stream."""
    _csv(_arrow(columns), out)


def write_npz(path: str | Path, **arrays: NDArray) -> None:
    """np.savez_compressed, complete or absent."""
    path = Path(path)
    refuse_missing_folder(path)
    with replacing(path) as draft, draft.open("wb") as out:
        np.savez_compressed(out, allow_pickle=False, **arrays)


def refuse_missing_folder(path: Path) -> None:
    """An error before the work, not after it."""
    if not path.parent.is_dir():
        raise InputError(f"no folder {path.parent} to write {path.name} in; make it first")


def _arrow(columns: Mapping[str, NDArray]) -> Any:
    import pyarrow as pa

    return pa.table(
        {
            str(name): pa.array(values.tolist()) if values.dtype == object else pa.array(values)
            for name, values in columns.items()
        }
    )


def _csv(table: Any, out: Any) -> None:
    import pyarrow.csv

    pyarrow.csv.write_csv(table, out)
