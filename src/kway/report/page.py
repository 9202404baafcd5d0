"""The report of a job as one HTML page that needs nothing else: styles and figures inside, no script, no network."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kway
from kway.auto.job import JobResult
from kway.auto.race.scoring import setting_in_words
from kway.auto.reasons import SHOWN, Reasons
from kway.auto.refit import size_in_words
from kway.report.columns import columns_read
from kway.report.confusion import MOST_WRITTEN
from kway.report.pictures import PagePicture, draw_pictures
from kway.tables.outputs import replacing

_LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba")
LISTED = 500  # classes of the table: ten thousand would make a page of megabytes


def write_page(path: str | Path, found: JobResult, command: str = "", figures: Path | None = None) -> None:
    """Write the page, complete or not at all; if `figures` is a folder, also write each figure into it."""
    drawn = draw_pictures(found, figures)
    text = _template().render(**facts(found, drawn, command))
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8")
    for picture in drawn:
        if picture.error is not None:
            raise picture.error


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


def facts(found: JobResult, drawn: list[PagePicture], command: str) -> dict[str, Any]:
    """What the template is filled with."""
    hardest = sorted(found.evaluation.scores.classes, key=lambda c: c["f1"])
    return {
        "found": found,
        "data": found.data,
        "test": found.evaluation.scores,
        "best": found.best,
        "lines": found.leaderboard,
        "skipped": found.comparison.skipped,
        "measure": found.comparison.measure,
        "references": found.comparison.references,
        "reasons": found.reasons,
        "reason_lines": _listed_reasons(found.reasons, [str(c["class"]) for c in hardest]),
        "classes": hardest[:LISTED],
        "n_tested": len(hardest),
        "open_classes": len(found.model.classes_) <= MOST_WRITTEN,
        "n_classes": len(found.model.classes_),
        "features": columns_read(found.model.features_, found.data),
        "pictures": drawn,
        "runner_up": found.runner_up,
        "command": command,
        "seed": found.options.seed,
        "budget": found.options.budget,
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
