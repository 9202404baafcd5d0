"""The report of a job as one self-contained HTML page.

Styles and figures are inline, there are no scripts, and nothing is loaded from the network. The templates are in
templates/: report.html for one label per row, multilabel.html for several, drift.html for `kway evaluate --drift`.
"""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kway
from kway.auto.columns import summarize_columns
from kway.auto.evaluation import measured, verdict
from kway.auto.hierarchy import job_levels, level_table
from kway.auto.job import JobResult
from kway.auto.multilabel import MultilabelResult
from kway.auto.race.pool import BLEND
from kway.auto.race.scoring import setting_in_words
from kway.auto.reasons import Reasons
from kway.auto.refit import size_in_words
from kway.report.confusion import MAX_NAMED
from kway.report.figures import PagePicture, draw_pictures, group_pictures
from kway.tables.outputs import replacing

_LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba")


def write_page(
    path: str | Path,
    result: JobResult | MultilabelResult,
    command: str = "",
    figures: Path | None = None,
    max_classes: int = 500,
) -> None:
    """Write the report atomically; with a folder `figures`, also write each figure of a single-label job into it.

    If a file of a figure cannot be written, the page is written nevertheless, and then the error of that file is
    raised. At most `max_classes` classes are listed, because ten thousand would make a page of megabytes.
    """
    pictures = list[PagePicture]()
    if isinstance(result, MultilabelResult):
        text = template("multilabel.html").render(**multilabel_values(result, command, max_classes))
    else:
        pictures = draw_pictures(result, figures)
        text = template("report.html").render(**template_values(result, pictures, command, max_classes))
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8")
    for picture in pictures:
        if picture.file_error is not None:
            raise picture.file_error


def multilabel_values(result: MultilabelResult, command: str, max_labels: int) -> dict[str, Any]:
    """Return the values that the template of a job with several labels per row needs."""
    return {
        "result": result,
        "data": result.data,
        "test": result.scores,
        "best": result.comparison.best,
        "labels": sorted(result.scores.labels, key=lambda line: line["f1"])[:max_labels],
        "command": command,
        "features": summarize_columns(result.features, result.data),
        "n_numbers": result.model.estimator_.n_features_in_,
        "versions": _versions(),
    }


def _versions() -> dict[str, str]:
    return {"kway": kway.__version__, "Python": platform.python_version(), **{n: version(n) for n in _LIBRARIES}}


def template(name: str) -> Any:
    """Return a template of the folder templates/."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    # everything that came with the data is escaped; only the figures are not
    environment = Environment(
        loader=PackageLoader("kway.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"percent": _percent, "size": size_in_words, "setting": setting_in_words}
    return environment.get_template(name)


def template_values(result: JobResult, pictures: list[PagePicture], command: str, max_classes: int) -> dict[str, Any]:
    """Return the values that the template of a job needs besides the attributes of `result`."""
    scores, measure = result.evaluation.scores, result.comparison.measure
    hardest = sorted(scores.classes, key=lambda c: c["f1"])
    leaderboard, *others = pictures  # the first picture is always the leaderboard (`draw_pictures`)
    return {
        "result": result,
        "leaks": [str(leak) for leak in result.leaks if leak.warns],
        "verdict": verdict(scores, result.baselines["majority class"]),
        "test_score": measured(scores, measure.name),
        "data": result.data,
        "test": scores,
        "best": result.best,
        "measure": measure,
        "reasons": result.reasons,
        "reason_lines": _reason_lines(result.reasons, {str(c["class"]) for c in hardest[:max_classes]}, max_classes),
        "classes": hardest[:max_classes],
        "descriptions": {
            BLEND: "the product of the members' probabilities, each to the power of its weight",
            **{name: family.description for name, family in result.comparison.families.items()},
        },
        "n_tested": len(hardest),
        "open_classes": len(result.model.classes_) <= MAX_NAMED,
        "features": summarize_columns(result.features, result.data),
        "n_numbers": result.X.shape[1],
        "leaderboard": leaderboard,
        "picture_groups": group_pictures(others),
        "pictures": pictures,
        "levels": _levels(result),
        "command": command,
        "versions": _versions(),
    }


def _reason_lines(reasons: Reasons | None, hardest: set[str], max_classes: int) -> list[tuple[str, str]]:
    """Return the reasons of all classes, or of the hardest if there are more than `max_classes`."""
    lines = [] if reasons is None else reasons.strongest().lines()
    return lines if len(lines) <= max_classes else [line for line in lines if line[0] in hardest]


def _levels(result: JobResult) -> dict[str, Any] | None:
    """Return the table of the accuracy per level, if the labels are paths."""
    levels = job_levels(result)
    if levels is None:
        return None
    columns, lines = level_table(levels.records())
    return {"columns": columns, "lines": lines, "sep": result.data.hierarchy, "sets": result.sets is not None}


def _percent(share: float | None, digits: int = 1) -> str:
    return "–" if share is None else f"{100 * share:.{digits}f}%"
