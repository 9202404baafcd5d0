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

    The labels are written to the column `target`.

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
        write_columns(_columns(rows, part), out)
    if json:
        emit_json({"name": name, "out": str(out), "bytes": out.stat().st_size})
    else:
        say(f"Wrote {safe(name)} to {safe(out)} ({out.stat().st_size:,} bytes).")


def _columns(data: LabeledRows, part: str) -> dict[str, Any]:
    """Return the features by name (x0, x1, ... if they have none) and the labels as `target`."""
    import numpy as np

    from kway.errors import InputError

    parts = {"train": [(data.rows, data.y)], "test": [(data.test_rows, data.test_y)]}
    parts["all"] = parts["train"] + parts["test"]
    existing = [(rows, y) for rows, y in parts[part] if rows is not None]
    if not existing:
        raise InputError(f"{data.name} has no {part} rows; leave out --part")
    tables = [_features_by_name(rows, data.feature_names) for rows, _ in existing]
    columns = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    labels = [y for _, y in existing if y is not None]
    return {**columns, "target": np.concatenate(labels)} if labels else columns


def _features_by_name(rows: Any, names: tuple[str, ...]) -> dict[str, Any]:
    from kway.errors import InputError

    if hasattr(rows, "column_names"):
        return {name: rows.column(name).to_numpy() for name in rows.column_names}
    if hasattr(rows, "tocsr"):
        raise InputError(
            f"the rows are sparse, with {rows.shape[1]:,} columns, and cannot be written as a table; "
            "use the libsvm file as it is"
        )
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
