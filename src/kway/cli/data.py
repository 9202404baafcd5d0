"""`kway data list | export`: the known sets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kway.cli.output import Json, emit_json, safe, say, show_table

if TYPE_CHECKING:
    from kway.data.datasets.dataset import Dataset

app = typer.Typer(help="Known data sets: list them, or write one to a file.", no_args_is_help=True)


@app.command("list")
def list_sets(json: Json = False) -> None:
    """List the sets that DATA can name here."""
    from kway.data.datasets import catalog

    sets = [_about(name, catalog.load(name)) for name in catalog.names()]
    if json:
        emit_json({"sets": sets})
        return
    columns = ("name", "train", "test", "features", "classes", "what")
    rows = [tuple(f"{v:,}" if isinstance(v, int) else str(v or "–") for v in s.values()) for s in sets]
    show_table("Known sets", columns, rows)


@app.command()
def export(
    name: Annotated[str, typer.Argument(help="A known set.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="csv, csv.gz, parquet or npz.")],
    part: Annotated[str, typer.Option("--part", help="train, test or all (npz always holds both).")] = "all",
    json: Json = False,
) -> None:
    """Write a set to a file, the label in the column `target`."""
    from kway.data.sources import numeric as source
    from kway.data.sources.writing import write_columns, write_npz

    data = source.read(name)
    if out.name.lower().endswith(".npz"):
        arrays = {"x_train": data.x_train, "y_train": data.y_train, "x_test": data.x_test, "y_test": data.y_test}
        write_npz(out, **{k: v for k, v in arrays.items() if v is not None})
    else:
        write_columns(columns_of(data, part), out)
    if json:
        emit_json({"name": name, "out": str(out), "bytes": out.stat().st_size})
    else:
        say(f"Wrote {safe(name)} to {safe(out)} ({out.stat().st_size:,} bytes).")


def columns_of(data: Dataset, part: str) -> dict[str, Any]:
    """The set as columns: its features by name (x0, x1, ... where they have none) and `target`."""
    import numpy as np

    from kway.errors import InputError

    parts = {"train": [(data.x_train, data.y_train)], "test": [(data.x_test, data.y_test)]}
    parts["all"] = parts["train"] + parts["test"]
    if part not in parts:
        raise InputError(f"no part {part!r}; it may be {', '.join(parts)}")
    some = [(x, y) for x, y in parts[part] if x is not None]
    if not some:
        raise InputError(f"{data.name} has no {part} part")
    x = np.concatenate([x for x, _ in some])  # (n, d)
    names = data.feature_names or tuple(f"x{j}" for j in range(x.shape[1]))
    columns: dict[str, Any] = {name: x[:, j] for j, name in enumerate(names)}
    labels = [y for _, y in some if y is not None]
    if labels:
        columns["target"] = np.concatenate(labels)
    return columns


def _about(name: str, data: Dataset) -> dict[str, Any]:
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
