"""`kway predict MODEL DATA`: labels, the k best labels, or probabilities, one line per row, beside columns of DATA.

With --cluster the nodes predict one part of DATA after another into the folder --out:

    part-000012.parquet    the predictions of part 12, complete or absent; sorted names give the order of the rows
    _kway.json             what is predicted with what: if that is the same, existing parts are not done again
    _kway.lock             held by the run that writes there: a second run is refused

Model, data and --out must be visible to every node. Workers of a killed run may live on for a moment: before a part
appears they check that the notes are still those of their run.
"""

from __future__ import annotations

import json as json_format
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
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
    on_cluster,
    with_options,
)
from kway.cli.output import emit_json, hush, safe, say
from kway.cli.progress import live
from kway.errors import InputError, UsageError
from kway.tables.options import ReadOptions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kway.tables.row_stream import RowPart

_BLOCK = 16_384  # rows answered at a time: probabilities of many classes are never all in memory


@with_options
def predict(
    model: ModelArgument,
    data: RowsArgument,
    reading: ReadOptions,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="csv, jsonl (.gz) or parquet; else stdout.")] = None,
    format: Annotated[str | None, typer.Option("--format", help="csv, jsonl, parquet; else by --out.")] = None,
    topk: Annotated[int | None, typer.Option("--topk", min=1, help="The K best labels and their scores.")] = None,
    proba: Annotated[bool, typer.Option("--proba", help="The probability of every class.")] = False,
    embed: EmbedOption = None,
    force: ForceOption = False,
    cluster: ClusterOption = False,
    address: AddressOption = None,
    json: JsonOption = False,
) -> None:
    """Predict the label of every row of DATA; the column --target, if it has one, is left out.

    With --cluster, DATA is a folder, or file, of parquet, csv or npy, and --out a folder of parquet parts: one that was
    begun is gone on with.
    """
    from kway.cli.model_rows import read_blocks
    from kway.tables.sources.writing import write_blocks, write_stream

    if cluster or address is not None:
        _predict_parts(PartsTask(model, reading, topk, proba, embed), data, out, format, address, force, json)
        return
    if out is None and sys.stdout is None:  # as `>&-` leaves it
        raise UsageError("stdout is closed; name a file with --out")
    form = _checked_format(out, format, {"MODEL": model, "DATA": data}, reading, force)
    # JSON has numbers; csv and parquet give back what was written
    reading = replace(reading, numbers=form == "jsonl" or (json and out is None))
    fitted, read, _ = read_blocks(model, data, reading, needs_labels=False, embed=embed)
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
    asked: PartsTask, data: str, out: Path | None, format: str | None, address: str | None, force: bool, json: bool
) -> None:
    """Over a cluster, into a folder."""
    from kway.tables.outputs import check_output_folder

    if out is None or format not in (None, "parquet"):
        raise UsageError("over a cluster answers are written as a folder of parquet files; name it with --out")
    check_output_folder("--out", out)
    with live(), on_cluster(True, address):
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
        raise UsageError("--format parquet goes to a file; name it by -o")
    return form


def _kept_columns(model: str, reading: ReadOptions) -> tuple[str, ...]:
    """The columns that stand before the answers: of images their file, else those asked for and the model's id."""
    from kway import modelfile

    noted = modelfile.info(model).notes.get("reading")
    id = reading.id or (noted.get("id") if isinstance(noted, dict) else None)
    return ("file", *reading.keep, *([id] if id else []))


def answers(
    model: Any, X: Any, beside: Mapping[str, Any], topk: int | None, proba: bool
) -> Iterator[dict[str, NDArray]]:
    """Blocks of rows: the columns kept, as they came, then those of the answer; one kept makes way for an answer."""
    import numpy as np

    from kway.tables.sources.frames import n_rows, take_rows

    n = n_rows(X)
    for first in range(0, n, _BLOCK):
        rows = slice(first, min(first + _BLOCK, n))
        block = X if n <= _BLOCK else take_rows(X, np.arange(rows.start, rows.stop))
        found = predictions(model, block, topk, proba)
        kept = {f"{c} (input)" if c in found else c: values[rows.start : rows.stop] for c, values in beside.items()}
        yield {**kept, **found}


def predictions(model: Any, X: Any, topk: int | None, proba: bool) -> dict[str, NDArray]:
    """Columns of the answer: `prediction`, then label_1, score_1, ... and p_CLASS as asked for."""
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


# ---- the parts of a folder, on a cluster

NOTES, LOCK = "_kway.json", "_kway.lock"


@dataclass(frozen=True)
class PartsTask:
    """What is predicted: a model, how rows are read, what is answered."""

    model: str
    reading: ReadOptions
    topk: int | None = None
    proba: bool = False
    embed: str | None = None


class PartsWritten(NamedTuple):
    """Rows written by this run; parts in all, and those that were there before."""

    rows: int
    parts: int
    kept: int


class _Item(NamedTuple):
    """A part and the file that its answers go to."""

    part: RowPart
    out: str


def predict_parts(task: PartsTask, data: Path, out: Path, force: bool) -> PartsWritten:
    """Every part that is not there yet, over the cluster that this is called in; told as progress."""
    from kway.tables.outputs import lock_path
    from kway.tables.row_stream import row_parts

    if out.resolve() in (data.resolve(), *data.resolve().parents):
        raise UsageError(f"--out {out} is, or holds, DATA itself; name another folder")
    parts = row_parts(data, task.reading)
    if not parts:
        raise UsageError(f"{data} has no rows to predict")
    task = replace(task, model=str(Path(task.model).absolute()))
    task = _tried(task, parts)
    out.mkdir(exist_ok=True)
    with lock_path(out / LOCK) as alone:
        if not alone:
            raise UsageError(f"another run is writing into --out {out}; wait until it ends, or name another folder")
        _claim(out, _notes(task, parts), force)
        return _written(task, parts, out.absolute())


def _written(task: PartsTask, parts: Sequence[RowPart], out: Path) -> PartsWritten:
    """The parts that are missing, written by the cluster."""
    from kway import progress
    from kway.rows.cluster.work import stream

    places = [out / f"part-{number:06d}.parquet" for number in range(len(parts))]
    left = [_Item(part, str(place)) for part, place in zip(parts, places) if not place.exists()]
    done = stream(partial(PartPredictor, task, _state(str(out / NOTES))), left)
    rows = sum(int(told["rows"]) for told in progress.track(done, "predicting", len(left), worth=2))
    return PartsWritten(rows, len(parts), len(parts) - len(left))


def _tried(task: PartsTask, parts: Sequence[RowPart]) -> PartsTask:
    """The task, tried on one row, so that errors come before anything is written.

    Text is then read in the form of the first part, as the files of a folder are.
    """
    import numpy as np

    from kway.cli.model_rows import ModelReader
    from kway.tables.row_stream import part_stream
    from kway.tables.sources.frames import take_rows

    reader = ModelReader(task.model, task.reading, needs_labels=False, embed=task.embed)
    found = next((block for part in parts for block in part_stream(part, reader.reading, reader.like)), None)
    if found is None:
        raise UsageError("the files have no rows to predict")
    predictions(reader.model, take_rows(reader.given(found).X, np.arange(1)), task.topk, task.proba)
    return replace(task, reading=task.reading.in_form(found.form))


def _notes(task: PartsTask, parts: Sequence[RowPart]) -> dict[str, Any]:
    """What a part depends on, as JSON; files by size and time of their last change."""
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


def _claim(out: Path, notes: dict[str, Any], force: bool) -> None:
    """Note what the folder is for; raise if it holds other predictions, or delete these with `force`."""
    place = out / NOTES
    before = _read(place)
    if before == notes:
        return
    if before is None and any(found.name != LOCK for found in out.iterdir()):  # part-... need not be kway's
        raise UsageError(f"--out {out} is not empty, and kway has written nothing there; name another folder")
    if before is not None and not force:
        other = _difference(before, notes)
        raise UsageError(f"--out {out} holds answers of {other}; name another folder, or replace them with --force")
    if before is not None:
        _note(place, {})  # workers of the old run, if any, write no more
    for old in out.glob("part-*.parquet"):
        old.unlink()
    _note(place, notes)


def _note(place: Path, notes: dict[str, Any]) -> None:
    from kway.tables.outputs import replacing

    with replacing(place) as draft:
        draft.write_text(json_format.dumps(notes))


def _read(place: Path) -> Any:
    try:
        return json_format.loads(place.read_text())
    except (OSError, ValueError):
        return None


def _difference(before: Any, notes: dict[str, Any]) -> str:
    words = {"model": "another model", "data": "other data", "parts": "other data", "options": "other options"}
    changed = [words[name] for name in notes if not isinstance(before, dict) or before.get(name) != notes[name]]
    return " and ".join(dict.fromkeys(changed))


class PartPredictor:
    """A worker of the cluster: it loads the model once and writes the predictions of one part after another."""

    def __init__(self, task: PartsTask, noted: list[int]) -> None:
        from kway.cli.model_rows import ModelReader

        self.task, self.noted = task, noted
        self.reader = ModelReader(task.model, task.reading, needs_labels=False, embed=task.embed)

    def __call__(self, item: _Item) -> dict[str, Any]:
        """Rows written; a part without any has no file."""
        from kway.tables.row_stream import part_stream
        from kway.tables.sources.writing import write_blocks

        reader, task = self.reader, self.task
        read = map(reader.given, part_stream(item.part, reader.reading, reader.like))
        blocks = (found for rows in read for found in answers(reader.model, rows.X, rows.beside, task.topk, task.proba))
        first = next(blocks, None)
        if first is None:
            return {"rows": 0}
        out = Path(item.out)
        return {"rows": write_blocks(self._wanted(chain([first], blocks), out.with_name(NOTES)), out, "parquet")}

    def _wanted(self, blocks: Iterator[Any], notes: Path) -> Iterator[Any]:
        """The blocks; raises at the end if another run has taken over the folder."""
        yield from blocks
        if not notes.exists() or _state(str(notes)) != self.noted:
            raise InputError(f"{notes.parent} is no longer for these answers: another run has begun there")
