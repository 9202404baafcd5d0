"""`kway predict MODEL DATA`: labels, the k best labels, or probabilities, one line a row, beside what came in."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kway.cli.cluster_options import AddressOption, ClusterOption, over_cluster
from kway.cli.options import AskedArgument, ForceOption, JsonOption, ModelArgument, MovedOption, reads_data
from kway.cli.output import emit_json, hush, safe, say
from kway.cli.predict_parts import PartsJob

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kway.data.reading import ReadOptions

_BLOCK = 16_384  # rows answered at a time: probabilities of many classes are never all in memory

KeepOption = Annotated[
    str | None, typer.Option("--keep", help="Columns of DATA to give back beside the answers, or all.", metavar="COLS")
]


@reads_data
def predict(
    model: ModelArgument,
    data: AskedArgument,
    reading: ReadOptions,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="csv, jsonl (.gz) or parquet; else stdout.")] = None,
    format: Annotated[str | None, typer.Option("--format", help="csv, jsonl, parquet; else by --out.")] = None,
    keep: KeepOption = None,
    topk: Annotated[int | None, typer.Option("--topk", min=1, help="The K best labels and their scores.")] = None,
    proba: Annotated[bool, typer.Option("--proba", help="The probability of every class.")] = False,
    embed: MovedOption = None,
    force: ForceOption = False,
    cluster: ClusterOption = False,
    address: AddressOption = None,
    json: JsonOption = False,
) -> None:
    """Predict the label of every row of DATA; the column --target, if it has one, is left out.

    With --cluster, DATA is a folder, or file, of parquet, csv or npy, and --out a folder of parquet parts: one that was
    begun is gone on with.
    """
    from dataclasses import replace

    from kway.cli.model_rows import ready_blocks
    from kway.cli.usage import names_in
    from kway.data.sources.table_writing import write_blocks, write_stream
    from kway.errors import UsageError

    reading = replace(reading, keep=names_in(keep))
    if cluster or address is not None:
        _predict_parts(PartsJob(model, reading, topk, proba, embed), data, out, format, address, force, json)
        return
    if out is None and sys.stdout is None:  # as `>&-` leaves it
        raise UsageError("stdout is closed; name a file with --out")
    form = _checked_format(out, format, {"MODEL": model, "DATA": data}, reading, force)
    # JSON has numbers; csv and parquet give back what was written
    reading = replace(reading, numbers=form == "jsonl" or (json and out is None))
    fitted, read, _ = ready_blocks(model, data, reading, needs_labels=False, embed=embed)
    blocks = (found for rows in read for found in answers(fitted, rows.X, rows.beside, topk, proba))
    if out is not None:
        n = write_blocks(blocks, out, form)
        emit_json({"rows": n, "out": str(out)}) if json else say(f"Wrote {n:,} predictions to {safe(out)}.")
    elif json:
        columns = _joined(list(blocks))
        emit_json({"rows": len(columns["prediction"]), "predictions": columns})
    else:
        try:
            write_stream(blocks, sys.stdout.buffer, form)
        except BrokenPipeError:  # the rest is wanted by nobody
            hush()
            raise typer.Exit(128 + signal.SIGPIPE) from None


def _predict_parts(
    asked: PartsJob, data: str, out: Path | None, format: str | None, address: str | None, force: bool, json: bool
) -> None:
    """Over a cluster, into a folder."""
    from kway.cli.predict_parts import predict_parts
    from kway.cli.progress import live
    from kway.data.outputs.output_paths import check_output_folder
    from kway.errors import UsageError

    if out is None or format not in (None, "parquet"):
        raise UsageError("over a cluster answers are written as a folder of parquet files; name it with --out")
    check_output_folder("--out", out)
    with live(), over_cluster(True, address):
        found = predict_parts(asked, Path(data), out, force)
    if json:
        emit_json({**found._asdict(), "out": str(out)})
        return
    before = f", {found.kept:,} of them before" if found.kept else ""
    say(f"Wrote {found.rows:,} predictions to {safe(out)}: {found.parts:,} parts{before}.")


def _checked_format(
    out: Path | None, asked: str | None, inputs: dict[str, str | Path | None], reading: ReadOptions, force: bool
) -> str:
    """The format to write, its place tested before the work."""
    from functools import partial

    from kway.cli.usage import as_usage
    from kway.data.outputs.output_paths import Output, check_places
    from kway.data.outputs.own_files import is_predictions
    from kway.data.sources.table_writing import format_of
    from kway.errors import UsageError

    with as_usage():
        form = format_of(Path("stdout.csv") if out is None else out, asked)
    if out is not None:
        kept = _kept_columns(str(inputs["MODEL"]), reading)
        check_places(
            [Output("--out", out, "file of these predictions", partial(is_predictions, kept=kept))], inputs, force
        )
    elif form == "parquet":
        raise UsageError("--format parquet goes to a file; name it by -o")
    return form


def _kept_columns(model: str, reading: ReadOptions) -> tuple[str, ...]:
    """The columns that stand before the answers: of images their file, else those asked for and the model's id."""
    from kway import store

    noted = store.info(model).notes.get("reading")
    id = reading.id or (noted.get("id") if isinstance(noted, dict) else None)
    return ("file", *reading.keep, *([id] if id else []))


def answers(
    model: Any, X: Any, beside: Mapping[str, Any], topk: int | None, proba: bool
) -> Iterator[dict[str, NDArray]]:
    """Blocks of rows: the columns kept, as they came, then those of the answer; one kept makes way for an answer."""
    import numpy as np

    from kway.data.sources.frames import n_rows, take_rows

    n = n_rows(X)
    for first in range(0, n, _BLOCK):
        rows = slice(first, min(first + _BLOCK, n))
        block = X if n <= _BLOCK else take_rows(X, np.arange(rows.start, rows.stop))
        found = predictions(model, block, topk, proba)
        kept = {f"{c} (input)" if c in found else c: values[rows.start : rows.stop] for c, values in beside.items()}
        yield {**kept, **found}


def predictions(model: Any, X: Any, topk: int | None, proba: bool) -> dict[str, NDArray]:
    """Columns of the answer: `prediction`, then label_1, score_1, ... and p_CLASS as asked for."""
    from kway.errors import InputError

    if proba and not hasattr(model, "predict_proba"):
        raise InputError(f"{type(model).__name__} has no probabilities; leave out --proba, or use --topk for scores")
    columns: dict[str, NDArray] = {}
    if topk is not None:
        labels, scores = model.predict_topk(X, min(topk, len(model.classes_)))  # (n, k) each
        columns["prediction"] = labels[:, 0]
        for j in range(labels.shape[1]):
            columns[f"label_{j + 1}"], columns[f"score_{j + 1}"] = labels[:, j], scores[:, j]
    if proba:
        p = model.predict_proba(X)  # (n, K)
        columns.setdefault("prediction", model.classes_[p.argmax(axis=1)])
        columns |= {f"p_{label}": p[:, j] for j, label in enumerate(model.classes_.tolist())}
    return {**(columns or {"prediction": model.predict(X)}), **promised(model, X)}


def promised(model: Any, X: Any) -> dict[str, NDArray]:
    """Columns of a model that answers with sets (`set`: labels with | between), or with "unknown" (`prediction`)."""
    import numpy as np

    columns: dict[str, NDArray] = {}
    inner = model
    while inner is not None and not hasattr(inner, "unknown_"):
        inner = getattr(inner, "estimator_", None)
    if inner is not None:
        labels = model.predict(X)
        columns["prediction"] = np.where(labels == inner.unknown_, "unknown", labels.astype(str))
    if hasattr(model, "predict_set"):
        columns["set"] = np.array(["|".join(map(str, labels)) for labels in model.predict_set(X).to_lists()])
    return columns


def _joined(blocks: list[dict[str, NDArray]]) -> dict[str, list[Any]]:
    """Blocks as one, in Python's values."""
    return {name: [v for block in blocks for v in _listed(block[name])] for name in blocks[0]}


def _listed(values: Any) -> list[Any]:
    return values.to_pylist() if hasattr(values, "to_pylist") else values.tolist()
