"""The winner of a job as a model file, with notes on where it comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kway import store
from kway.select.job import JobResult


def save_model(found: JobResult, path: str | Path, target: str | None = None) -> None:
    """Write the model file, complete or not at all."""
    store.save(found.model, path, notes=model_notes(found, target))


def model_notes(found: JobResult, target: str | None) -> dict[str, Any]:
    """What `kway info` says of the job."""
    line = found.best.standing
    return {
        "data": found.parts.name,
        "target": target,
        "model": line.model,
        "setting": dict(line.setting),
        "test_accuracy": found.evaluation.scores.accuracy,
        "embed": str(embed) if (embed := getattr(found.model.features_, "embed_", None)) else None,
    }
