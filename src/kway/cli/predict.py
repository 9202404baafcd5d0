"""`kway predict`: write one line per row of DATA.

A line has the columns of DATA that --keep and --id name, the predicted label, and the top-k labels with their scores or
the probabilities of all classes. predict_parts.py predicts over a cluster.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Container, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kway.cli.options import (
    AddressOption,
    ClusterOption,
    EmbedOption,
    ForceOption,
    JsonOption,
    ModelArgument,
    RowsArgument,
    flag,
    on_cluster,
    with_options,
)
from kway.cli.output import TerminalBytes, emit_json, live_view, safe, say, silence_stdout
from kway.errors import InputError, UsageError
from kway.tables.read_options import ReadOptions
from kway.text_tables import count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kway.cli.model_rows import ModelRows
    from kway.cli.predict_parts import PartsTask


FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="Format of the output: csv, jsonl or parquet. By default, the format given by the file extension of "
        "--out, or csv for stdout.",
    ),
]


@with_options
def predict(
    model: ModelArgument,
    data: RowsArgument,
    reading: ReadOptions,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="File to write: csv, csv.gz, jsonl, jsonl.gz or parquet. By default, stdout.",
        ),
    ] = None,
    format: FormatOption = None,
    topk: Annotated[
        int | None,
        typer.Option("--topk", min=1, metavar="N", help="Also write the N best labels of each row with their scores."),
    ] = None,
    proba: Annotated[bool, flag("--proba", "Also write the probability of every class, one column per class.")] = False,
    embed: EmbedOption = None,
    force: ForceOption = False,
    cluster: ClusterOption = False,
    address: AddressOption = None,
    json: JsonOption = False,
) -> None:
    """Predict the label of every row of DATA.

    If DATA has a label column, name it with --target so that it is ignored.

    With --cluster, DATA must be parquet, csv or npy files, and --out must be a
    folder. If a run is interrupted, run the command again: it writes only the
    parts that are missing.

    Example: kway predict model.kway new.csv --out predictions.csv
    """
    from kway.cli.model_rows import read_blocks
    from kway.tables.sources.writing import write_blocks

    if cluster or address is not None:
        from kway.cli.predict_parts import PartsTask

        _predict_on_cluster(PartsTask(model, reading, topk, proba, embed), data, out, format, address, force, json)
        return
    if out is None and sys.stdout is None:  # closed by `>&-`
        raise UsageError("stdout is closed; give a file with --out")
    output_format = _checked_format(out, format, {"MODEL": model, "DATA": data}, reading, force)
    # kept columns are numbers in JSON, and in csv and parquet the same text as in DATA
    reading = replace(reading, numbers=output_format == "jsonl" or (json and out is None))
    fitted, blocks_of_rows, _ = read_blocks(model, data, reading, needs_labels=False, embed=embed)
    blocks = (block for rows in blocks_of_rows for block in predict_blocks(fitted, rows, topk, proba, reading.numbers))
    if out is not None:
        n = write_blocks(blocks, out, output_format)
        emit_json({"rows": n, "out": str(out)}) if json else say(f"Wrote {count(n, 'prediction')} to {safe(out)}.")
    elif json:
        columns = joined(list(blocks))
        emit_json({"rows": len(columns["prediction"]), "predictions": columns})
    else:
        _print_blocks(blocks, output_format)


def _print_blocks(blocks: Iterator[dict[str, NDArray]], output_format: str) -> None:
    """Write the predictions to stdout."""
    from kway.tables.sources.writing import write_stream

    try:
        out: Any = TerminalBytes(sys.stdout.buffer) if sys.stdout.isatty() else sys.stdout.buffer
        write_stream(blocks, out, output_format)
    except BrokenPipeError:  # the program that reads stdout has ended, as `head` does
        silence_stdout()
        raise typer.Exit(128 + signal.SIGPIPE) from None


def _predict_on_cluster(
    task: PartsTask, data: str, out: Path | None, format: str | None, address: str | None, force: bool, json: bool
) -> None:
    """Predict over a cluster, into a folder."""
    from kway.cli.predict_parts import predict_parts
    from kway.tables.outputs import check_output_folder

    if out is None or format not in (None, "parquet"):
        raise UsageError(
            "with --cluster, predictions are written as a folder of parquet files; give its name with --out"
        )
    check_output_folder("--out", out)
    with live_view(), on_cluster(True, address):
        written = predict_parts(task, Path(data), out, force)
    if json:
        emit_json({**written._asdict(), "out": str(out)})
        return
    existed = f", of which {written.kept:,} existed" if written.kept else ""
    say(f"Wrote {count(written.rows, 'prediction')} to {safe(out)}: {count(written.parts, 'part')}{existed}.")


def _checked_format(
    out: Path | None, format: str | None, inputs: dict[str, str | Path | None], reading: ReadOptions, force: bool
) -> str:
    """Return the format to write; raise if --out cannot be written."""
    from kway.tables.outputs import Output, check_places, is_predictions
    from kway.tables.sources.writing import format_of

    output_format = format_of(Path("stdout.csv") if out is None else out, format)
    if out is not None:
        is_ours = partial(is_predictions, kept=_kept_columns(str(inputs["MODEL"]), reading))
        check_places([Output("--out", out, "file of these predictions", is_ours)], inputs, force)
    elif output_format == "parquet":
        raise UsageError("parquet cannot be written to stdout; give a file with --out")
    return output_format


def _kept_columns(model: str, reading: ReadOptions) -> tuple[str, ...]:
    """Return the names of the input columns that are written to the left of the predictions.

    These are the file names of images, the columns of --keep, and the id column.
    """
    from kway import modelfile

    training = modelfile.info(model).notes.get("reading")
    id_column = reading.id or (training.get("id") if isinstance(training, dict) else None)
    return ("file", *reading.keep, *([id_column] if id_column else []))


def predict_blocks(
    model: Any, rows: ModelRows, topk: int | None, proba: bool, as_lists: bool = False
) -> Iterator[dict[str, NDArray]]:
    """Yield the kept columns and the predictions in blocks, so that probabilities of all rows are never in memory.

    A kept column with the name of another output column is renamed to `NAME (input)`. With `as_lists`, several labels
    of one row are a list, otherwise text.
    """
    import numpy as np

    from kway.memory import rows_per_block
    from kway.tables.sources.frames import n_rows, take_rows

    n = n_rows(rows.X)
    size = rows_per_block(8 * len(model.classes_))
    for start in range(0, n, size):
        stop = min(start + size, n)
        X = rows.X if n <= size else take_rows(rows.X, np.arange(start, stop))
        predicted = predictions(model, X, topk, proba, as_lists)
        names = kept_names(list(rows.kept), predicted)
        yield {**{names[c]: values[start:stop] for c, values in rows.kept.items()}, **predicted}


def kept_names(kept: list[str], predicted: Container[str]) -> dict[str, str]:
    """Return the output names of kept columns, none of which is the name of another column of the output.

    >>> kept_names(["prediction", "prediction (input)", "n"], ["prediction"])
    {'prediction': 'prediction (input) (input)', 'prediction (input)': 'prediction (input)', 'n': 'n'}
    """
    names = {}
    for column in kept:
        name = column
        while name in predicted or (name != column and name in kept):
            name += " (input)"
        names[column] = name
    return names


def predictions(model: Any, X: Any, topk: int | None, proba: bool, as_lists: bool = False) -> dict[str, NDArray]:
    """Return the columns `prediction`, label_1, score_1, ... (topk) and p_CLASS (proba)."""
    import numpy as np

    from kway.confidence.costs import decides_by_cost
    from kway.pipelines import label_separator

    if proba and not hasattr(model, "predict_proba"):
        raise InputError(f"{type(model).__name__} gives no probabilities; leave out --proba, or use --topk for scores")
    columns: dict[str, NDArray] = {}
    if topk is not None:
        labels, scores = model.predict_topk(X, min(topk, len(model.classes_)))  # (n, k) each
        columns["prediction"] = labels[:, 0]
        for j in range(labels.shape[1]):
            columns[f"label_{j + 1}"], columns[f"score_{j + 1}"] = labels[:, j], scores[:, j]
    if proba:
        p = model.predict_proba(X)  # (n, K)
        if "prediction" not in columns:
            columns["prediction"] = model.predict(X) if decides_by_cost(model) else model.classes_[p.argmax(axis=1)]
        columns |= {f"p_{label}": p[:, j] for j, label in enumerate(model.classes_.tolist())}
    sep = label_separator(model)
    if sep is None:
        return {**(columns or {"prediction": model.predict(X)}), **_abstention_columns(model, X)}
    sets = model.predict(X)
    return columns | {"prediction": sets if as_lists else np.array([sep.join(labels) for labels in sets])}


def _abstention_columns(model: Any, X: Any) -> dict[str, NDArray]:
    """Return the columns of models that can abstain from a single label.

    `set` has the predicted labels joined by "|", or the node of a hierarchy. `prediction` is "unknown" for rejected
    rows.
    """
    import numpy as np

    from kway.auto.drift import unknown_label

    columns: dict[str, NDArray] = {}
    unknown = unknown_label(model)
    if unknown is not None:
        labels = model.predict(X)
        columns["prediction"] = np.where(labels == unknown, "unknown", labels.astype(str))
    if hasattr(model, "predict_node"):
        columns["set"] = model.predict_node(X)
    elif hasattr(model, "predict_set"):
        columns["set"] = np.array(["|".join(map(str, labels)) for labels in model.predict_set(X).to_lists()])
    return columns


def joined(blocks: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Join the blocks into one list of Python values per column."""

    def as_list(values: Any) -> list[Any]:
        return values.to_pylist() if hasattr(values, "to_pylist") else values.tolist()

    return {name: [v for block in blocks for v in as_list(block[name])] for name in blocks[0]}
