"""The report of a job as one HTML page with styles and figures inside, without scripts and without a network."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kway
from kway.auto.columns import summarize_columns
from kway.auto.hierarchy import job_levels, level_lines
from kway.auto.job import JobResult
from kway.auto.multilabel import MultilabelResult
from kway.auto.race.pool import BLEND
from kway.auto.race.scoring import setting_in_words
from kway.auto.reasons import Reasons
from kway.auto.refit import size_in_words
from kway.auto.verdict import measured, verdict
from kway.report.confusion import MOST_NAMED
from kway.report.figures import PagePicture, draw_pictures
from kway.tables.outputs import replacing

_LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba")


def write_page(
    path: str | Path,
    found: JobResult | MultilabelResult,
    command: str = "",
    figures: Path | None = None,
    most_classes: int = 500,
) -> None:
    """Write the report, complete or not at all; with a folder `figures`, also write each figure into it.

    At most `most_classes` classes are listed, because ten thousand would make a page of megabytes.
    """
    if isinstance(found, MultilabelResult):
        write_multilabel_page(path, found, command, most_classes)
        return
    drawn = draw_pictures(found, figures)
    text = _template().render(**facts(found, drawn, command, most_classes))
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8")
    for picture in drawn:
        if picture.error is not None:
            raise picture.error


def write_multilabel_page(path: str | Path, found: MultilabelResult, command: str, most_labels: int) -> None:
    """Write the report of a job with several labels per row."""
    scores = found.evaluation.scores
    labels = sorted(scores.labels, key=lambda line: line["f1"])[:most_labels]
    values = {
        "found": found,
        "data": found.data,
        "test": scores,
        "best": found.comparison.best,
        "labels": labels,
        "command": command,
        "features": summarize_columns(found.features, found.data),
        "n_numbers": found.model.estimator_.n_features_in_,
        "seed": found.options.seed,
        "versions": _versions(),
    }
    text = _template("multilabel.html").render(**values)
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8")


def _versions() -> dict[str, str]:
    return {"kway": kway.__version__, "Python": platform.python_version(), **{n: version(n) for n in _LIBRARIES}}


def _template(name: str = "report.html") -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    # everything that came with the data is escaped; only the figures are not
    environment = Environment(
        loader=PackageLoader("kway.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"percent": _percent, "size": size_in_words, "setting": setting_in_words}
    return environment.get_template(name)


def facts(found: JobResult, drawn: list[PagePicture], command: str, most_classes: int) -> dict[str, Any]:
    """Return the values that the template needs."""
    scores = found.evaluation.scores
    hardest = sorted(scores.classes, key=lambda c: c["f1"])
    return {
        "found": found,
        "leaks": [str(leak) for leak in found.leaks if leak.warns],
        "verdict": verdict(scores, found.baselines["majority class"]),
        "measured": measured(scores, found.comparison.measure.name),
        "data": found.data,
        "test": found.evaluation.scores,
        "best": found.best,
        "lines": found.leaderboard,
        "weights": found.weights,
        "skipped": found.comparison.skipped,
        "measure": found.comparison.measure,
        "references": found.comparison.references,
        "reasons": found.reasons,
        "reason_lines": _reason_lines(found.reasons, {str(c["class"]) for c in hardest[:most_classes]}, most_classes),
        "classes": hardest[:most_classes],
        "descriptions": {
            BLEND: "the product of the members' probabilities, each to the power of its weight",
            **{name: family.description for name, family in found.comparison.families.items()},
        },
        "n_tested": len(hardest),
        "open_classes": len(found.model.classes_) <= MOST_NAMED,
        "n_classes": len(found.model.classes_),
        "features": summarize_columns(found.features, found.data),
        "n_numbers": found.X.shape[1],
        "pictures": drawn,
        "runner_up": found.runner_up,
        "levels": _levels(found),
        "command": command,
        "seed": found.options.seed,
        "budget": found.options.budget,
        "versions": _versions(),
    }


def _reason_lines(reasons: Reasons | None, hardest: set[str], most: int) -> list[tuple[str, str]]:
    """Return the reasons of all classes, or of the hardest if there are more than `most`."""
    lines = [] if reasons is None else reasons.strongest().lines()
    return lines if len(lines) <= most else [line for line in lines if line[0] in hardest]


def _levels(found: JobResult) -> dict[str, Any] | None:
    """Return the table of the accuracy per level, if the labels are paths."""
    levels = job_levels(found)
    if levels is None:
        return None
    columns, lines = level_lines(levels.records())
    return {"columns": columns, "lines": lines, "sep": found.data.hierarchy, "sets": found.sets is not None}


def _percent(share: float | None, digits: int = 1) -> str:
    return "–" if share is None else f"{100 * share:.{digits}f}%"
