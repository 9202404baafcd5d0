"""The report of a job as one HTML page that needs nothing else: styles and figures inside, no script, no network."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kway
from kway.data.atomic import replacing
from kway.data.sources.writing import refuse_missing_folder
from kway.report.columns import columns_read
from kway.report.drawn import DrawnPicture, drawn_pictures
from kway.report.export import save
from kway.report.pictures import Picture, pictures
from kway.select.contest.compare import setting_in_words
from kway.select.job import JobResult, Wishes
from kway.select.leaderboard import size_in_words
from kway.select.reasons import Reasons

_LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba")
_OPEN_CLASSES = 20  # classes up to which their table is open,
LISTED = 500  # and of which it tells: ten thousand would make a page of megabytes that nobody reads


def write_page(
    path: str | Path, found: JobResult, wishes: Wishes, command: str = "", folder: str | Path | None = None
) -> None:
    """Write the page, complete or not at all; each figure also as svg and png into `folder` where one is given."""
    text = page(found, wishes, drawn_pictures(found), command)
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8")
    if folder is not None:
        save_figures(list(pictures(found)), Path(folder))


def save_figures(drawn: list[Picture], folder: Path) -> None:
    """NAME.svg and NAME.png of every figure."""
    refuse_missing_folder(folder)
    folder.mkdir(exist_ok=True)
    for picture in drawn:
        if picture.figure is not None:
            for ending in (".svg", ".png"):
                save(picture.figure, folder / f"{picture.name}{ending}")


def page(found: JobResult, wishes: Wishes, drawn: list[DrawnPicture], command: str = "") -> str:
    """The page as text."""
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
    return shelf.get_template("report.html").render(**facts(found, wishes, drawn, command))


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
    if reasons is None or len(reasons.classes) <= LISTED:
        return [] if reasons is None else reasons.lines()
    listed = set(hardest[:LISTED])
    return [line for line in reasons.lines() if line[0] in listed]


def _percent(share: float | None, digits: int = 1) -> str:
    return "–" if share is None else f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"
