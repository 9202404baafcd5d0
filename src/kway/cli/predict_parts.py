"""Prediction over a cluster, one part of DATA after another, into a folder.

    part-000012.parquet    the predictions of part 12, never half-written; sorted names give the order of the rows
    _kway.json             the model, the data and the options; a run with the same ones keeps existing parts
    _kway.lock             locked by the run that writes into the folder; a second run is refused

Every node must be able to read the model and the data and to write to the folder. Workers of a killed run may live on
for a moment. After they have predicted a part, and before they give its file its name, they check that _kway.json is
still that of their run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kway.cli.predict import predict_blocks, predictions
from kway.errors import InputError, UsageError
from kway.tables.read_options import ReadOptions

if TYPE_CHECKING:
    from kway.tables.row_stream import RowPart

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
    with lock_path(out / LOCK) as locked:
        if not locked:
            raise UsageError(f"another run is writing into --out {out}; wait until it ends, or give another folder")
        _claim_folder(out, _notes(task, parts), force)
        return _write_parts(task, parts, out.absolute())


def _write_parts(task: PartsTask, parts: Sequence[RowPart], out: Path) -> PartsWritten:
    """Let the cluster write the parts that are missing."""
    from kway import progress
    from kway.rows.cluster.work import stream

    files = [out / f"part-{number:06d}.parquet" for number in range(len(parts))]
    missing = [(part, str(file)) for part, file in zip(parts, files) if not file.exists()]
    results = stream(partial(PartPredictor, task, _state(str(out / NOTES))), missing)
    rows = sum(int(result["rows"]) for result in progress.track(results, "predicting", len(missing), worth=2))
    return PartsWritten(rows, len(parts), len(parts) - len(missing))


def _try_one_row(task: PartsTask, parts: Sequence[RowPart]) -> PartsTask:
    """Predict one row, so that errors are raised before anything is written.

    Returns the task with the text format of the first part, in which all parts are read.
    """
    import numpy as np

    from kway.cli.model_rows import ModelReader
    from kway.tables.row_stream import part_stream
    from kway.tables.sources.frames import take_rows

    reader = ModelReader(task.model, task.reading, needs_labels=False, embed=task.embed)
    blocks = (block for part in parts for block in part_stream(part, reader.reading, reader.requirements))
    first = next(blocks, None)
    if first is None:
        raise UsageError("the files of DATA have no rows to predict")
    predictions(reader.model, take_rows(reader.prepare(first).X, np.arange(1)), task.topk, task.proba)
    return replace(task, reading=task.reading.in_form(first.form))


def _notes(task: PartsTask, parts: Sequence[RowPart]) -> dict[str, Any]:
    """Return everything that the predictions of a part depend on, as JSON values.

    A file is represented by its size and modification time.
    """
    files = dict.fromkeys(part.file for part in parts)
    options = {"reading": asdict(task.reading), "topk": task.topk, "proba": task.proba, "embed": task.embed}
    notes = {
        "model": _state(task.model),
        "data": {file: _state(file) for file in files},
        "parts": [list(part) for part in parts],
        "options": options,
    }
    plain: dict[str, Any] = json.loads(json.dumps(notes, default=str))
    return plain


def _state(file: str) -> list[int]:
    status = Path(file).stat()
    return [status.st_size, status.st_mtime_ns]


def _claim_folder(out: Path, notes: dict[str, Any], force: bool) -> None:
    """Write the notes of this run; raise if the folder has other predictions, or delete these with `force`."""
    notes_file = out / NOTES
    before = _read_notes(notes_file)
    if before == notes:
        return
    if before is None and any(file.name != LOCK for file in out.iterdir()):
        # do not delete part-*.parquet files that another program may have written
        raise UsageError(f"--out {out} has files that kway did not write; give another folder")
    if before is not None and not force:
        other = _difference(before, notes)
        raise UsageError(
            f"--out {out} has the predictions of {other}; give another folder, or overwrite them with --force"
        )
    if before is not None:
        _write_notes(notes_file, {})  # workers of the old run, if any, stop writing
    for part in out.glob("part-*.parquet"):
        part.unlink()
    _write_notes(notes_file, notes)


def _write_notes(file: Path, notes: dict[str, Any]) -> None:
    from kway.tables.outputs import replacing

    with replacing(file) as draft:
        draft.write_text(json.dumps(notes))


def _read_notes(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
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
        """Write one part and return its number of rows.

        A part without rows gets no file, so a resumed run reads it again.
        """
        from kway.tables.row_stream import part_stream
        from kway.tables.sources.writing import write_blocks

        part, file = item
        reader, task = self.reader, self.task
        rows_of_blocks = map(reader.prepare, part_stream(part, reader.reading, reader.requirements))
        blocks = (
            block for rows in rows_of_blocks for block in predict_blocks(reader.model, rows, task.topk, task.proba)
        )
        first = next(blocks, None)
        if first is None:
            return {"rows": 0}
        out = Path(file)
        checked = self._still_ours(chain([first], blocks), out.with_name(NOTES))
        return {"rows": write_blocks(checked, out, "parquet")}

    def _still_ours(self, blocks: Iterator[Any], notes: Path) -> Iterator[Any]:
        """Yield the blocks, and raise after the last one if another run has taken over the folder.

        This works because `write_blocks` renames its temporary file to the part only after the iterator has ended
        without an error.
        """
        yield from blocks
        if not notes.exists() or _state(str(notes)) != self.notes_state:
            raise InputError(f"another run now writes into {notes.parent}; this run stops")
