"""The report of a job as one HTML page that needs nothing else: styles and figures inside, no script, no network."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kway
from kway.data.outputs.atomic import replacing
from kway.report.columns import columns_read
from kway.report.picture_workers import Drawing
from kway.report.sketches import DrawnPicture
from kway.select.contest.compare import setting_in_words
from kway.select.job import JobResult
from kway.select.leaderboard import size_in_words
from kway.select.reasons import SHOWN, Reasons
from kway.select.wishes import Wishes

_LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba")
_OPEN_CLASSES = 20  # classes up to which their table is open,
LISTED = 500  # and of which it tells: ten thousand would make a page of megabytes that nobody reads


def write_page(
    path: str | Path, found: JobResult, wishes: Wishes, command: str = "", drawing: Drawing | None = None
) -> None:
    """Write the page, complete or not at all; the figures, and files of them, are left to `drawing`."""
    drawing = drawing or Drawing()
    drawing.begin(found)
    template = _template()
    drawn = drawing.drawn()
    text = template.render(**facts(found, wishes, drawn, command))
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8")
    for picture in drawn:
        if picture.lost is not None:
            raise OSError(*picture.lost)


def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    # everything that came with the data is escaped; only the figures, which are ours, go in as they are
    shelf = Environment(
        loader=PackageLoader("kway.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    shelf.filters |= {
        "percent": _percent,
        "size": size_in_words,
        "setting": setting_in_words,
    }
    return shelf.get_template("report.html")


def facts(found: JobResult, wishes: Wishes, drawn: list[DrawnPicture], command: str) -> dict[str, Any]:
    """What the template is filled with."""
    hardest = sorted(found.evaluation.scores.classes, key=lambda c: c["f1"])
    return {
        "found": found,
        "parts": found.parts,
        "test": found.evaluation.scores,
        "best": found.best.standing,
        "lines": found.lines,
        "idle": found.comparison.idle,
        "measure": found.comparison.measure,
        "references": found.comparison.references,
        "reasons": found.reasons,
        "reason_lines": _listed_reasons(found.reasons, [str(c["class"]) for c in hardest]),
        "classes": hardest[:LISTED],
        "n_tested": len(hardest),
        "open_classes": len(found.model.classes_) <= _OPEN_CLASSES,
        "n_classes": len(found.model.classes_),
        "features": columns_read(found.model.features_, found.parts),
        "pictures": drawn,
        "runner_up": found.runner_up,
        "command": command,
        "seed": wishes.seed,
        "budget": wishes.budget,
        "versions": {
            "kway": kway.__version__,
            "Python": platform.python_version(),
            **{n: version(n) for n in _LIBRARIES},
        },
    }


def _listed_reasons(reasons: Reasons | None, hardest: list[str]) -> list[tuple[str, str]]:
    """All of them, or where classes are many those of the hardest."""
    if reasons is None:
        return []
    lines = reasons.strongest(SHOWN).lines()
    listed = set(hardest[:LISTED])
    return lines if len(lines) <= LISTED else [line for line in lines if line[0] in listed]


def _percent(share: float | None, digits: int = 1) -> str:
    return "–" if share is None else f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"
