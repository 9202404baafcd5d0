"""`kway data list` and `kway data export`: the datasets that kway knows by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kway.cli.options import ForceOption, JsonOption, with_options
from kway.cli.output import emit_json, safe, say, show_table
from kway.tables.read_options import ReadOptions

if TYPE_CHECKING:
    from kway.tables.datasets.arrays import Dataset
    from kway.tables.labeled_rows import LabeledRows

app = typer.Typer(no_args_is_help=True)


@app.callback()
def data() -> None:
    """List the built-in datasets, or save one as a file.

    Example: kway data export iris --out iris.csv
    """


@app.command("list")
def list_sets(json: JsonOption = False) -> None:
    """List the built-in datasets, whose names you can use as DATA, with their sizes.

    Example: kway data list
    """
    from kway.tables.datasets import catalog

    sets = [_describe(name, catalog.load(name)) for name in catalog.names()]
    if json:
        emit_json({"sets": sets})
        return
    columns = ("name", "train", "test", "features", "classes", "description")
    rows = [tuple(f"{v:,}" if isinstance(v, int) else str(v or "–") for v in s.values()) for s in sets]
    show_table("Datasets", columns, rows)


@app.command()
@with_options
def export(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of a dataset (see `kway data list`), or a file to convert.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write: csv, csv.gz, jsonl, parquet or npz.")],
    reading: ReadOptions,
    part: Annotated[
        str, typer.Option("--part", help="Rows to write: train, test or all. An npz file always contains both parts.")
    ] = "all",
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Save a dataset as a file, or convert a file to another format.

    The labels are written to the column `target`. A table whose features include `target` is refused.

    Example: kway data export iris --out iris.csv
    """
    from kway.errors import UsageError
    from kway.tables.labeled_rows import number_rows
    from kway.tables.outputs import Output, check_places, is_empty
    from kway.tables.reading import read_rows
    from kway.tables.sources.writing import format_of, write_columns, write_npz

    if part not in (parts := ("train", "test", "all")):
        raise UsageError(f"--part must be one of {', '.join(parts)}, got {part!r}")
    as_npz = out.name.lower().endswith(".npz")
    if not as_npz:
        format_of(out)
    check_places([Output("--out", out, "file", is_empty)], {"DATA": name}, force)
    rows = read_rows(name, reading)
    if as_npz:
        rows = number_rows(rows)
        arrays = {"x_train": rows.rows, "y_train": rows.y, "x_test": rows.test_rows, "y_test": rows.test_y}
        write_npz(out, **{k: v for k, v in arrays.items() if v is not None})
    else:
        write_columns(_columns(rows, part, reading.id), out)
    if json:
        emit_json({"name": name, "out": str(out), "bytes": out.stat().st_size})
    else:
        say(f"Wrote {safe(name)} to {safe(out)} ({out.stat().st_size:,} bytes).")


def _columns(data: LabeledRows, part: str, id_column: str | None) -> dict[str, Any]:
    """Return the ids, the features by name (x0, x1, ... if they have none) and the labels as `target`."""
    import numpy as np

    from kway.errors import InputError, UsageError

    parts = {"train": [(data.rows, data.y)], "test": [(data.test_rows, data.test_y)]}
    parts["all"] = parts["train"] + parts["test"]
    existing = [(rows, y) for rows, y in parts[part] if rows is not None]
    if not existing:
        raise InputError(f"{data.name} has no {part} rows; leave out --part")
    columns = _features_by_name([rows for rows, _ in existing], data.feature_names)
    if id_column is not None:
        if data.test_rows is not None:
            raise UsageError(f"{data.name} has training and test rows, so its ids cannot be written; leave out --id")
        columns = {id_column: data.kept_columns[id_column], **columns}
    labels = [y for _, y in existing if y is not None]
    if not labels:
        return columns
    if "target" in columns:
        raise InputError(
            f"{data.name} has a column 'target' besides the labels, which are written to a column of this name; "
            "rename it, or leave it out: --drop target"
        )
    return {**columns, "target": np.concatenate(labels)}


def _features_by_name(parts: list[Any], names: tuple[str, ...]) -> dict[str, Any]:
    import numpy as np
    import pyarrow as pa

    from kway.errors import InputError

    if hasattr(parts[0], "column_names"):
        table = pa.concat_tables(parts)
        return dict(zip(table.column_names, table.columns))
    if hasattr(parts[0], "tocsr"):
        raise InputError(
            f"the rows are sparse, with {parts[0].shape[1]:,} columns, and cannot be written as a table; "
            "use the libsvm file as it is"
        )
    rows = np.concatenate(parts)
    return {name: rows[:, j] for j, name in enumerate(names or (f"x{j}" for j in range(rows.shape[1])))}


def _describe(name: str, data: Dataset) -> dict[str, Any]:
    import numpy as np

    x = data.x_train
    return {
        "name": name,
        "train": int(x.shape[0]),
        "test": None if data.x_test is None else int(data.x_test.shape[0]),
        "features": int(x.shape[1]) if x.ndim == 2 else "text",
        "classes": None if data.y_train is None else len(np.unique(data.y_train)),
        "what": data.description,
    }
