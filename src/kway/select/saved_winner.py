"""The winner of a job as a model file, with notes on where it comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kway import store
from kway.select.job import JobResult


def save_model(
    found: JobResult, path: str | Path, target: str | None = None, id: str | None = None, force: bool = False
) -> None:
    """Write the model file, complete or not at all; over a file that is no model only with `force`."""
    store.save(found.model, path, model_notes(found, target, id), force=force)


def model_notes(found: JobResult, target: str | None, id: str | None = None) -> dict[str, Any]:
    """What `kway info` says of the job; `reading` is how later rows are to be read, `id` the column that names them."""
    line, parts = found.best.standing, found.parts
    form = {key: value for key, value in vars(parts.form).items() if value is not None}
    how = {"form": form, "written": {w.column: w.how for w in parts.written}, "id": id}
    return {
        "data": parts.name,
        "target": target,
        "model": line.model,
        "setting": dict(line.setting),
        "test_accuracy": found.evaluation.scores.accuracy,
        "embed": str(embed) if (embed := getattr(found.model.features_, "embed_", None)) else None,
        "reading": {key: value for key, value in how.items() if value} or None,
    }
