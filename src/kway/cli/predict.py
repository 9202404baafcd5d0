"""`kway predict`: labels, the k best labels or probabilities, one line per row, next to columns of DATA.

With --cluster the nodes predict one part of DATA after another into the folder --out:

    part-000012.parquet    the predictions of part 12, complete or absent; sorted names give the order of the rows
    _kway.json             the model, the data and the options; a run with the same ones keeps existing parts
    _kway.lock             locked by the run that writes into the folder; a second run is refused

Every node must be able to read the model and the data and to write to --out. Workers of a killed run may live on for a
moment. Before they write a part they check that _kway.json is still that of their run.
"""

from __future__ import annotations

import json as json_format
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from kway.cli.options import (
    AddressOption,
    ClusterOption,
    EmbedOption,
    ForceOption,
    JsonOption,
    ModelArgument,
    RowsArgument,
    as_usage,
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
    from kway.tables.row_stream import RowPart


@with_options
def predict(
    model: ModelArgument,
    data: RowsArgument,
    reading: ReadOptions,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write: csv, csv.gz, jsonl, jsonl.gz or parquet; default: stdout."),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="Format of the output: csv, jsonl or parquet; default: the ending of --out, csv for stdout.",
        ),
    ] = None,
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

    If DATA has a column with labels, name it with --target. It is ignored.

    With --cluster, DATA must be parquet, csv or npy, and --out is a folder.
    If a run stops early, run the command again: it writes only the parts that
    are missing.

    Example: kway predict model.kway new.csv --out predictions.csv
    """
    from kway.cli.model_rows import read_blocks
    from kway.tables.sources.writing import write_blocks, write_stream

    if cluster or address is not None:
        _predict_parts(PartsTask(model, reading, topk, proba, embed), data, out, format, address, force, json)
        return
    if out is None and sys.stdout is None:  # as `>&-` leaves it
        raise UsageError("stdout is closed; give a file with --out")
    form = _checked_format(out, format, {"MODEL": model, "DATA": data}, reading, force)
    # kept columns are numbers in JSON, and in csv and parquet the same text as in DATA
    reading = replace(reading, numbers=form == "jsonl" or (json and out is None))
    fitted, read, _ = read_blocks(model, data, reading, needs_labels=False, embed=embed)
    blocks = (block for rows in read for block in predict_blocks(fitted, rows, topk, proba, reading.numbers))
    if out is not None:
        n = write_blocks(blocks, out, form)
        emit_json({"rows": n, "out": str(out)}) if json else say(f"Wrote {count(n, 'prediction')} to {safe(out)}.")
    elif json:
        columns = _joined(list(blocks))
        emit_json({"rows": len(columns["prediction"]), "predictions": columns})
    else:
        try:
            out_bytes: Any = TerminalBytes(sys.stdout.buffer) if sys.stdout.isatty() else sys.stdout.buffer
            write_stream(blocks, out_bytes, form)
        except BrokenPipeError:  # the reader has ended, as `head` does
            silence_stdout()
            raise typer.Exit(128 + signal.SIGPIPE) from None


def _predict_parts(
    task: PartsTask, data: str, out: Path | None, format: str | None, address: str | None, force: bool, json: bool
) -> None:
    """Predict over a cluster, into a folder."""
    from kway.tables.outputs import check_output_folder

    if out is None or format not in (None, "parquet"):
        raise UsageError(
            "with --cluster, predictions are written as a folder of parquet files; give its name with --out"
        )
    check_output_folder("--out", out)
    with live_view(), on_cluster(True, address):
        found = predict_parts(task, Path(data), out, force)
    if json:
        emit_json({**found._asdict(), "out": str(out)})
        return
    before = f", of which {found.kept:,} existed" if found.kept else ""
    say(f"Wrote {count(found.rows, 'prediction')} to {safe(out)}: {count(found.parts, 'part')}{before}.")


def _checked_format(
    out: Path | None, asked: str | None, inputs: dict[str, str | Path | None], reading: ReadOptions, force: bool
) -> str:
    """Return the format to write; raise if --out cannot be written."""
    from kway.tables.outputs import Output, check_places, is_predictions
    from kway.tables.sources.writing import format_of

    with as_usage():
        form = format_of(Path("stdout.csv") if out is None else out, asked)
    if out is not None:
        kept = _kept_columns(str(inputs["MODEL"]), reading)
        check_places(
            [Output("--out", out, "file of these predictions", partial(is_predictions, kept=kept))], inputs, force
        )
    elif form == "parquet":
        raise UsageError("parquet cannot be written to stdout; give a file with --out")
    return form


def _kept_columns(model: str, reading: ReadOptions) -> tuple[str, ...]:
    """Return the columns that are written before the predictions: files of images, --keep, and the id column."""
    from kway import modelfile

    noted = modelfile.info(model).notes.get("reading")
    id = reading.id or (noted.get("id") if isinstance(noted, dict) else None)
    return ("file", *reading.keep, *([id] if id else []))


def predict_blocks(
    model: Any, rows: ModelRows, topk: int | None, proba: bool, as_lists: bool = False
) -> Iterator[dict[str, NDArray]]:
    """Yield the kept columns and the predictions in blocks, so that probabilities of all rows are never in memory.

    A kept column with the name of a prediction column is written as `NAME (input)`. Several labels of one row are
    written as a list if `as_lists`, else as text.
    """
    import numpy as np

    from kway.memory import rows_per_block
    from kway.tables.sources.frames import n_rows, take_rows

    n = n_rows(rows.X)
    size = rows_per_block(8 * len(model.classes_))
    for start in range(0, n, size):
        stop = min(start + size, n)
        some = rows.X if n <= size else take_rows(rows.X, np.arange(start, stop))
        found = predictions(model, some, topk, proba, as_lists)
        kept = {f"{c} (input)" if c in found else c: values[start:stop] for c, values in rows.kept.items()}
        yield {**kept, **found}


def predictions(model: Any, X: Any, topk: int | None, proba: bool, as_lists: bool = False) -> dict[str, NDArray]:
    """Return the columns `prediction`, label_1, score_1, ... (topk) and p_CLASS (proba)."""
    from kway.cli.multilabel import predicted_sets
    from kway.pipelines import label_separator

    if label_separator(model) is not None:
        return predicted_sets(model, X, topk, proba, as_lists)
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
        columns.setdefault("prediction", model.classes_[p.argmax(axis=1)])
        columns |= {f"p_{label}": p[:, j] for j, label in enumerate(model.classes_.tolist())}
    return {**(columns or {"prediction": model.predict(X)}), **_set_or_unknown(model, X)}


def _set_or_unknown(model: Any, X: Any) -> dict[str, NDArray]:
    """Return `set` (labels joined by |, or a node) of a model with sets, `prediction` of one that says "unknown"."""
    import numpy as np

    columns: dict[str, NDArray] = {}
    inner = model
    while inner is not None and not hasattr(inner, "unknown_"):
        inner = getattr(inner, "estimator_", None)
    if inner is not None:
        labels = model.predict(X)
        columns["prediction"] = np.where(labels == inner.unknown_, "unknown", labels.astype(str))
    if hasattr(model, "predict_node"):
        columns["set"] = model.predict_node(X)
    elif hasattr(model, "predict_set"):
        columns["set"] = np.array(["|".join(map(str, labels)) for labels in model.predict_set(X).to_lists()])
    return columns


def _joined(blocks: list[dict[str, NDArray]]) -> dict[str, list[Any]]:
    """Join the blocks into one list of Python values per column."""
    return {name: [v for block in blocks for v in _to_list(block[name])] for name in blocks[0]}


def _to_list(values: Any) -> list[Any]:
    return values.to_pylist() if hasattr(values, "to_pylist") else values.tolist()


# ---- prediction over a cluster, part by part

NOTES, LOCK = "_kway.json", "_kway.lock"


@dataclass(frozen=True)
class PartsTask:
    """The model, how rows are read, and what is predicted."""

    model: str
    reading: ReadOptions
    topk: int | None = None
    proba: bool = False
    embed: str | None = None


class PartsWritten(NamedTuple):
    """Rows written by this run, number of all parts, and number of parts that existed before."""

    rows: int
    parts: int
    kept: int


def predict_parts(task: PartsTask, data: Path, out: Path, force: bool) -> PartsWritten:
    """Predict every part that does not exist yet, over the current cluster."""
    from kway.tables.outputs import lock_path
    from kway.tables.row_stream import row_parts

    if out.resolve() in (data.resolve(), *data.resolve().parents):
        raise UsageError(f"--out {out} is DATA or a folder above it; give another folder")
    parts = row_parts(data, task.reading)
    if not parts:
        raise UsageError(f"{data} has no rows to predict; give a file or folder that has some")
    task = replace(task, model=str(Path(task.model).absolute()))
    task = _try_one_row(task, parts)
    out.mkdir(exist_ok=True)
    with lock_path(out / LOCK) as alone:
        if not alone:
            raise UsageError(f"another run is writing into --out {out}; wait until it ends, or give another folder")
        _claim_folder(out, _notes(task, parts), force)
        return _write_parts(task, parts, out.absolute())


def _write_parts(task: PartsTask, parts: Sequence[RowPart], out: Path) -> PartsWritten:
    """Let the cluster write the parts that are missing."""
    from kway import progress
    from kway.rows.cluster.work import stream

    files = [out / f"part-{number:06d}.parquet" for number in range(len(parts))]
    left = [(part, str(file)) for part, file in zip(parts, files) if not file.exists()]
    done = stream(partial(PartPredictor, task, _state(str(out / NOTES))), left)
    rows = sum(int(result["rows"]) for result in progress.track(done, "predicting", len(left), worth=2))
    return PartsWritten(rows, len(parts), len(parts) - len(left))


def _try_one_row(task: PartsTask, parts: Sequence[RowPart]) -> PartsTask:
    """Predict one row, so that errors are raised before anything is written.

    Returns the task with the text format of the first part, in which all parts are read.
    """
    import numpy as np

    from kway.cli.model_rows import ModelReader
    from kway.tables.row_stream import part_stream
    from kway.tables.sources.frames import take_rows

    reader = ModelReader(task.model, task.reading, needs_labels=False, embed=task.embed)
    found = next((block for part in parts for block in part_stream(part, reader.reading, reader.requirements)), None)
    if found is None:
        raise UsageError("the files of DATA have no rows to predict")
    predictions(reader.model, take_rows(reader.prepare(found).X, np.arange(1)), task.topk, task.proba)
    return replace(task, reading=task.reading.in_form(found.form))


def _notes(task: PartsTask, parts: Sequence[RowPart]) -> dict[str, Any]:
    """Return all that a part depends on, as JSON values; files by their size and modification time."""
    files = dict.fromkeys(part.file for part in parts)
    options = {"reading": asdict(task.reading), "topk": task.topk, "proba": task.proba, "embed": task.embed}
    notes = {
        "model": _state(task.model),
        "data": {file: _state(file) for file in files},
        "parts": [list(part) for part in parts],
        "options": options,
    }
    found: dict[str, Any] = json_format.loads(json_format.dumps(notes, default=str))
    return found


def _state(file: str) -> list[int]:
    about = Path(file).stat()
    return [about.st_size, about.st_mtime_ns]


def _claim_folder(out: Path, notes: dict[str, Any], force: bool) -> None:
    """Write the notes of this run; raise if the folder has other predictions, or delete these with `force`."""
    file = out / NOTES
    before = _read_notes(file)
    if before == notes:
        return
    if before is None and any(found.name != LOCK for found in out.iterdir()):  # its part-... files need not be kway's
        raise UsageError(f"--out {out} has files that kway did not write; give another folder")
    if before is not None and not force:
        other = _difference(before, notes)
        raise UsageError(
            f"--out {out} has the predictions of {other}; give another folder, or overwrite them with --force"
        )
    if before is not None:
        _write_notes(file, {})  # workers of the old run, if any, stop writing
    for old in out.glob("part-*.parquet"):
        old.unlink()
    _write_notes(file, notes)


def _write_notes(file: Path, notes: dict[str, Any]) -> None:
    from kway.tables.outputs import replacing

    with replacing(file) as draft:
        draft.write_text(json_format.dumps(notes))


def _read_notes(file: Path) -> Any:
    try:
        return json_format.loads(file.read_text())
    except (OSError, ValueError):
        return None


def _difference(before: Any, notes: dict[str, Any]) -> str:
    words = {"model": "another model", "data": "other data", "parts": "other data", "options": "other options"}
    changed = [words[name] for name in notes if not isinstance(before, dict) or before.get(name) != notes[name]]
    return " and ".join(dict.fromkeys(changed))


class PartPredictor:
    """A worker of the cluster, which loads the model once and writes the predictions of one part after another."""

    def __init__(self, task: PartsTask, notes_state: list[int]) -> None:
        from kway.cli.model_rows import ModelReader

        self.task, self.notes_state = task, notes_state
        self.reader = ModelReader(task.model, task.reading, needs_labels=False, embed=task.embed)

    def __call__(self, item: tuple[RowPart, str]) -> dict[str, Any]:
        """Write one part and return its number of rows; a part without rows gets no file."""
        from kway.tables.row_stream import part_stream
        from kway.tables.sources.writing import write_blocks

        (part, file), reader, task = item, self.reader, self.task
        read = map(reader.prepare, part_stream(part, reader.reading, reader.requirements))
        blocks = (block for rows in read for block in predict_blocks(reader.model, rows, task.topk, task.proba))
        first = next(blocks, None)
        if first is None:
            return {"rows": 0}
        out = Path(file)
        return {"rows": write_blocks(self._checked(chain([first], blocks), out.with_name(NOTES)), out, "parquet")}

    def _checked(self, blocks: Iterator[Any], notes: Path) -> Iterator[Any]:
        """Yield the blocks; raise at the end if another run has taken over the folder."""
        yield from blocks
        if not notes.exists() or _state(str(notes)) != self.notes_state:
            raise InputError(f"another run now writes into {notes.parent}; this run stops")
