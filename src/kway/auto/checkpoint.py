"""Saves the best model so far and the cross-validation predictions of a job, so that an interrupted job can resume.

    model.kway                 the best family so far (`Checkpoint.on_round`), until the finished model replaces it
    model.unfinished.kway      the same, if model.kway is a finished model of an earlier job, which is not replaced
    a folder .resume           key.json with the digest of the job, and one file of predictions per model family, number
                               of training rows and fold

A job with the same digest (`job_digest`) reads the predictions instead of refitting the folds; a job with another
digest removes them when it starts. A finished job removes the folder. Every file is first written under a temporary
name, so an interrupted write leaves no damaged file.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from zipfile import BadZipFile

import numpy as np

import kway
from kway import modelfile
from kway.auto.fit_options import FitOptions
from kway.auto.race.folds import weights_to_fit
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
    """The predictions of the job with this digest in a folder, one file each; those of any other job are removed."""

    def __init__(self, folder: Path, digest: str) -> None:
        self.folder, self.digest = folder, digest
        stored = self._stored_digest()
        if stored is None and folder.exists() and any(folder.iterdir()):
            raise UsageError(f"{folder} has files that kway did not write; rename it, as kway keeps its progress there")
        if stored != digest:
            self.remove()

    def _stored_digest(self) -> str | None:
        """Return the digest of the job that wrote the folder; None if there is none."""
        try:
            return str(json.loads((self.folder / _KEY).read_text())["key"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def get(self, name: str) -> Predictions | None:
        """Return the predictions stored under this name; None if there are none, or if the file is damaged."""
        try:
            with self._path(name).open("rb") as file, np.load(file, allow_pickle=False) as stored:
                return Predictions(**{field: stored[field] for field in stored})
        except (OSError, ValueError, KeyError, TypeError, BadZipFile):
            return None

    def put(self, name: str, predictions: Predictions) -> None:
        """Store predictions under a name."""
        if self._stored_digest() is None:
            self.folder.mkdir(exist_ok=True)
            with replacing(self.folder / _KEY) as temporary:
                temporary.write_text(json.dumps({"key": self.digest}))
        arrays = {field: value for field, value in predictions._asdict().items() if value is not None}
        with replacing(self._path(name)) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)

    def _path(self, name: str) -> Path:
        return self.folder / f"{quote(name, safe=' ').replace(' ', '_')}.npz"

    def remove(self) -> None:
        """Remove the files and the folder, if they are those of a checkpoint."""
        if self._stored_digest() is None:
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
        Training rows and test rows of the job.
    options : FitOptions
        Options of the job.
    notes : dict
        Notes of the model files, as `JobResult.file_notes` returns them.
    """

    def __init__(self, path: Path, data: TrainTest, options: FitOptions, notes: dict[str, Any]) -> None:
        self.path, self.data, self.options, self.notes = path, data, options, notes
        self.store = PredictionFiles(path.with_name(path.name + ".resume"), job_digest(data, options))
        self._saved: str | None = None  # family of the saved model, "" if it has learned from a sample of the rows

    @property
    def _side_path(self) -> Path:
        """Path of the unfinished model next to a finished one."""
        return self.path.with_name(f"{self.path.stem}.unfinished{self.path.suffix}")

    def unfinished_path(self) -> Path:
        """Return the path of the unfinished model, which never replaces a finished one."""
        has_finished = self.path.exists() and not is_unfinished(self.path)
        return self._side_path if has_finished else self.path

    def on_round(self, race: Race, views: dict[str, View]) -> None:
        """Fit the best family so far on the rows of the round, and save it.

        Models of samples of the rows are saved once, after the first round. A model that has learned from all rows is
        replaced by one of another family only.
        """
        row = race.leaderboard(False)[0]
        runner = race.runners[row.model]
        state = row.model if runner.rows == race.all_rows else ""
        if state == self._saved:
            return
        view = views.get(runner.family.view, views[""])
        rows = slice(None) if runner.rows == race.all_rows else race.split(runner.rows, 0).train
        try:
            estimator = runner.family.make(row.setting, self.options.seed)
            model = estimator.fit(view.X[rows], self.data.y[rows], **weights_to_fit(self.data.weights, rows))
            self.save(FeaturedClassifier.of(view.features, model, view.X), row.model)
        except (KwayError, MemoryError, OSError):  # a checkpoint must not end the job; the next round tries again
            return
        self._saved = state

    def save(self, model: Any, name: str) -> None:
        """Save a model as unfinished."""
        notes = {**self.notes, "model": name, UNFINISHED: True}
        modelfile.save(model, self.unfinished_path(), notes, force=True)

    def finish(self) -> None:
        """Remove the predictions, and the unfinished model next to the finished one."""
        self.store.remove()
        if self._side_path.exists() and is_unfinished(self._side_path):
            self._side_path.unlink()


def is_unfinished(path: Path) -> bool:
    """Return whether a file is a model of an unfinished job."""
    try:
        return bool(modelfile.info(path).notes.get(UNFINISHED))
    except (KwayError, OSError):
        return False


def job_digest(data: TrainTest, options: FitOptions) -> str:
    """Return a digest of everything on which the predictions of a job depend, which decides whether they are reused.

    These are the training rows with their labels, groups, order and weights, the kinds of columns that the user named,
    the version of kway, and all options except for the budget. Options count by their repr, so a job with an option
    whose repr contains an address, such as a function, is never resumed.
    """
    digest = hashlib.blake2b(digest_size=20)
    values = {f.name: repr(getattr(options, f.name)) for f in fields(options) if f.name != "budget"}
    digest.update(json.dumps([kway.__version__, values, dict(data.kinds)], sort_keys=True).encode())
    for part in (data.rows, data.labels.classes, data.labels.codes, data.groups, data.order, data.weights):
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
