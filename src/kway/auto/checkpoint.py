"""The best model and the predictions of a race on disk, so that an interrupted job leaves a model and can resume.

    model.kway                 the best family after each round, until the finished model replaces it
    model.unfinished.kway      instead, if model.kway is a finished model of an earlier job: it is not replaced
    MODEL.resume/              key.json, and one file of predictions per family, rows and fold

The key is a digest of the training rows, their labels and the options. A job with the same key reads the predictions
instead of learning the splits again; any other key removes them. A finished job removes the folder. Every file is
written completely or not at all, so a kill at any time leaves files that can be read.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

import kway
from kway import modelfile
from kway.auto.fit_options import FitOptions
from kway.auto.race.rounds import Race
from kway.auto.race.scoring import Predictions
from kway.auto.train_test import TrainTest
from kway.errors import KwayError, UsageError
from kway.pipelines import FeaturedClassifier
from kway.tables.outputs import replacing

if TYPE_CHECKING:
    from kway.auto.compare_data import View

UNFINISHED = "unfinished"  # the note of a model file that a later round, or the end of the job, replaces
_KEY = "key.json"


class PredictionFiles:
    """Predictions in a folder, one file each; those of another job are removed."""

    def __init__(self, folder: Path, key: str) -> None:
        self.folder = folder
        if self._key() is None and folder.exists() and any(folder.iterdir()):
            raise UsageError(f"{folder} has files that kway did not write; rename it, as kway keeps its progress there")
        if self._key() != key:
            self.remove()
        self.key = key

    def _key(self) -> str | None:
        """Return the key of the folder; None if there is none."""
        try:
            return str(json.loads((self.folder / _KEY).read_text())["key"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def get(self, key: str) -> Predictions | None:
        """Return stored predictions, if there are any."""
        try:
            with self._path(key).open("rb") as file, np.load(file, allow_pickle=False) as stored:
                return Predictions(**{name: stored[name] for name in stored})
        except (OSError, ValueError, KeyError, TypeError, BadZipFile):
            return None

    def put(self, key: str, predictions: Predictions) -> None:
        """Store predictions."""
        if self._key() is None:
            self.folder.mkdir(exist_ok=True)
            with replacing(self.folder / _KEY) as draft:
                draft.write_text(json.dumps({"key": self.key}))
        arrays = {name: value for name, value in predictions._asdict().items() if value is not None}
        with replacing(self._path(key)) as draft, draft.open("wb") as file:
            np.savez(file, **arrays)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key.replace(' ', '_')}.npz"

    def remove(self) -> None:
        """Remove the files and the folder, if they are those of a checkpoint."""
        if self._key() is None:
            return
        for path in [*self.folder.glob("*.npz"), self.folder / _KEY]:
            path.unlink()
        if not any(self.folder.iterdir()):
            self.folder.rmdir()


class Checkpoint:
    """Keeps the best model so far at `path`, and the predictions next to it.

    Parameters
    ----------
    path : Path
        Model file of the job.
    data : TrainTest
        The rows.
    options : FitOptions
        The options.
    notes : dict
        Notes of the model files, as `JobResult.file_notes` returns them.
    """

    def __init__(self, path: Path, data: TrainTest, options: FitOptions, notes: dict[str, Any]) -> None:
        self.path, self.data, self.options, self.notes = path, data, options, notes
        self.store = PredictionFiles(path.with_name(path.name + ".resume"), job_key(data, options))
        self._saved: tuple[Any, ...] = ()

    def draft_path(self) -> Path:
        """Return where an unfinished model goes: never onto a finished one."""
        taken = self.path.exists() and not is_unfinished(self.path)
        return self.path.with_name(f"{self.path.stem}.unfinished{self.path.suffix}") if taken else self.path

    def on_round(self, race: Race, views: dict[str, View]) -> None:
        """Fit the best family so far on the rows of the round, and save it."""
        row = race.leaderboard(False)[0]
        runner = race.runners[row.model]
        state = row.model, row.setting, runner.rows
        if state == self._saved:
            return
        view = views.get(runner.family.view, views[""])
        some = slice(None) if runner.rows == race.all_rows else race.split(runner.rows, 0).train
        try:
            model = runner.family.make(row.setting, self.options.seed).fit(view.X[some], self.data.y[some])
            self.save(FeaturedClassifier.of(view.features, model, view.X), row.model)
        except (KwayError, MemoryError, OSError):  # the next round tries again
            return
        self._saved = state

    def save(self, model: Any, name: str) -> None:
        """Save a model as unfinished."""
        notes = {**self.notes, "model": name, UNFINISHED: True}
        modelfile.save(model, self.draft_path(), notes, force=True)

    def finish(self) -> None:
        """Remove the predictions, and the unfinished model if it is not at the place of the finished one."""
        self.store.remove()
        draft = self.path.with_name(f"{self.path.stem}.unfinished{self.path.suffix}")
        if draft.exists() and is_unfinished(draft):
            draft.unlink()


def is_unfinished(path: Path) -> bool:
    """Return whether a file is a model of an unfinished job."""
    try:
        return bool(modelfile.info(path).notes.get(UNFINISHED))
    except (KwayError, OSError):
        return False


def job_key(data: TrainTest, options: FitOptions) -> str:
    """Return a digest of the training rows with their labels, and of the options except for the budget."""
    digest = hashlib.blake2b(digest_size=20)
    asked = {f.name: repr(getattr(options, f.name)) for f in fields(options) if f.name != "budget"}
    digest.update(json.dumps([kway.__version__, asked, dict(data.kinds)], sort_keys=True).encode())
    for part in (data.rows, data.labels.classes, data.labels.codes, data.groups, data.order):
        for piece in _pieces(part):
            digest.update(piece)
    return digest.hexdigest()


def _pieces(part: Any) -> Any:
    """Yield the bytes of a table, a matrix or an array."""
    if part is None:
        return
    if hasattr(part, "column_names"):
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, part.schema) as writer:
            writer.write_table(part.combine_chunks())
        yield memoryview(sink.getvalue())
    elif hasattr(part, "tocsr"):
        rows = part.tocsr()
        yield from (array.tobytes() for array in (rows.data, rows.indices, rows.indptr))
    else:
        array = np.asarray(part)
        text = array.dtype.kind in "OU"
        yield str(array.shape).encode()
        yield "\0".join(map(str, array.ravel())).encode() if text else array.tobytes()
