"""`kway predict MODEL FOLDER --cluster --out PARTS`: a part of the data after another, by every machine of a cluster.

PARTS/part-000012.parquet    the answers of part 12, complete or absent; by name in the order of the rows
PARTS/_kway.json             what is predicted with what: with that the same, parts that are there are not done again
PARTS/_kway.lock             held by the run that writes there: a second one is refused

Model, data and PARTS lie where every machine sees them. Workers of a run that was killed may live on for a moment:
before a part appears they look whether the notes are still those that they work for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kway.errors import InputError, UsageError

if TYPE_CHECKING:
    from kway.data.blocks.row_parts import RowPart
    from kway.data.reading import ReadOptions

NOTES, LOCK = "_kway.json", "_kway.lock"


@dataclass(frozen=True)
class PartsJob:
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


def predict_parts(asked: PartsJob, data: Path, out: Path, force: bool) -> PartsWritten:
    """Every part that is not there yet, over the cluster that this is called in; told as progress."""
    from kway.data.blocks.row_parts import row_parts
    from kway.data.outputs.atomic import alone_at

    if out.resolve() in (data.resolve(), *data.resolve().parents):
        raise UsageError(f"--out {out} is, or holds, DATA itself; name another folder")
    parts = row_parts(data, asked.reading)
    if not parts:
        raise UsageError(f"{data} has no rows to predict")
    asked = replace(asked, model=str(Path(asked.model).absolute()))
    asked = _tried(asked, parts)
    out.mkdir(exist_ok=True)
    with alone_at(out / LOCK) as alone:
        if not alone:
            raise UsageError(f"another run is writing into --out {out}; wait until it ends, or name another folder")
        _claim(out, _notes(asked, parts), force)
        return _written(asked, parts, out.absolute())


def _written(asked: PartsJob, parts: Sequence[RowPart], out: Path) -> PartsWritten:
    """The parts that are missing, written by the cluster."""
    from kway import progress
    from kway.compute.cluster.streams import stream

    places = [out / f"part-{number:06d}.parquet" for number in range(len(parts))]
    left = [_Item(part, str(place)) for part, place in zip(parts, places) if not place.exists()]
    done = stream(partial(PartPredictor, asked, _state(str(out / NOTES))), left)
    rows = sum(int(told["rows"]) for told in progress.track(done, "predicting", len(left), worth=2))
    return PartsWritten(rows, len(parts), len(parts) - len(left))


def _tried(asked: PartsJob, parts: Sequence[RowPart]) -> PartsJob:
    """What was asked, tried on one row: what is wrong is told before anything is written.

    Text is then read in the form of the first part, as the files of a folder are.
    """
    import numpy as np

    from kway.cli.model_rows import ModelReader
    from kway.cli.predict import predictions
    from kway.data.blocks.row_parts import part_stream
    from kway.data.sources.frames import take_rows

    reader = ModelReader(asked.model, asked.reading, needs_labels=False, embed=asked.embed)
    found = next((block for part in parts for block in part_stream(part, reader.reading, reader.like)), None)
    if found is None:
        raise UsageError("the files have no rows to predict")
    predictions(reader.model, take_rows(reader.given(found).X, np.arange(1)), asked.topk, asked.proba)
    return replace(asked, reading=replace(asked.reading, form=found.form))


def _notes(asked: PartsJob, parts: Sequence[RowPart]) -> dict[str, Any]:
    """What a part depends on, as JSON; files by size and time of their last change."""
    files = dict.fromkeys(part.file for part in parts)
    wishes = {"reading": asdict(asked.reading), "topk": asked.topk, "proba": asked.proba, "embed": asked.embed}
    notes = {
        "model": _state(asked.model),
        "data": {file: _state(file) for file in files},
        "parts": [list(part) for part in parts],
        "options": wishes,
    }
    found: dict[str, Any] = json.loads(json.dumps(notes, default=str))
    return found


def _state(file: str) -> list[int]:
    about = Path(file).stat()
    return [about.st_size, about.st_mtime_ns]


def _claim(out: Path, notes: dict[str, Any], force: bool) -> None:
    """The folder noted; one with other answers is refused, or emptied of them."""
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
        _note(place, {})  # nobody's: who still works for the old ones writes no more
    for old in out.glob("part-*.parquet"):
        old.unlink()
    _note(place, notes)


def _note(place: Path, notes: dict[str, Any]) -> None:
    from kway.data.outputs.atomic import replacing

    with replacing(place) as draft:
        draft.write_text(json.dumps(notes))


def _read(place: Path) -> Any:
    try:
        return json.loads(place.read_text())
    except (OSError, ValueError):
        return None


def _difference(before: Any, notes: dict[str, Any]) -> str:
    words = {"model": "another model", "data": "other data", "parts": "other data", "options": "other options"}
    changed = [words[name] for name in notes if not isinstance(before, dict) or before.get(name) != notes[name]]
    return " and ".join(dict.fromkeys(changed))


class PartPredictor:
    """Lives in a process of the cluster: the model, loaded once; asked for a part, it writes the answers."""

    def __init__(self, asked: PartsJob, noted: list[int]) -> None:
        from kway.cli.model_rows import ModelReader

        self.asked, self.noted = asked, noted
        self.reader = ModelReader(asked.model, asked.reading, needs_labels=False, embed=asked.embed)

    def __call__(self, item: _Item) -> dict[str, Any]:
        """Rows written; a part without any has no file."""
        from kway.cli.predict import answers
        from kway.data.blocks.row_parts import part_stream
        from kway.data.sources.table_writing import write_blocks

        reader, asked = self.reader, self.asked
        read = map(reader.given, part_stream(item.part, reader.reading, reader.like))
        blocks = (
            found for rows in read for found in answers(reader.model, rows.X, rows.beside, asked.topk, asked.proba)
        )
        first = next(blocks, None)
        if first is None:
            return {"rows": 0}
        out = Path(item.out)
        return {"rows": write_blocks(self._wanted(chain([first], blocks), out.with_name(NOTES)), out, "parquet")}

    def _wanted(self, blocks: Iterator[Any], notes: Path) -> Iterator[Any]:
        """The blocks, and an error behind them where the folder is meanwhile for other answers."""
        yield from blocks
        if not notes.exists() or _state(str(notes)) != self.noted:
            raise InputError(f"{notes.parent} is no longer for these answers: another run has begun there")
