"""The pictures of a job's page, drawn by copies of this process that have matplotlib ready when they are needed.

Importing matplotlib and drawing ten figures takes longer than comparing families on a small table. So the command
begins its copies before the work (`begin_drawing`) and asks for the pictures as soon as the test rows are answered.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kway import light_imports
from kway.compute.forked_work import Copies, copies
from kway.report.sketches import DrawnPicture, Picture, from_line, to_line

if TYPE_CHECKING:
    from kway.select.job import JobResult

# as kway.report.pictures has them, which is slow to load; tests hold them equal
NAMES = (
    "leaderboard", "neighbours", "alpha", "confusion", "reliability", "sets", "unknown", "more-rows", "regions",
    "where", "templates", "mistakes", "history",
)  # fmt: skip
_SECOND = ("neighbours", "confusion", "sets", "regions", "templates")  # what the second copy draws: regions take long


class Drawing:
    """Pictures, drawn by copies from when they are asked for, or here; their files go to `folder`, if there is one."""

    def __init__(self, folder: Path | None = None, helpers: Copies | None = None) -> None:
        self._folder, self._helpers = folder, helpers
        self._asked: list[Picture] = []

    def begin(self, found: JobResult) -> None:
        """Ask for every picture that this outcome allows, but for those that were asked for before."""
        from kway.report.pictures import pictures  # and with them all of the job

        there = {picture.name for picture in self._asked}
        for picture in pictures(found, [name for name in NAMES if name not in there]):
            self._asked.append(picture)
            if self._helpers is not None:
                self._helpers.ask(int(picture.name in _SECOND), to_line(picture))

    def drawn(self) -> list[DrawnPicture]:
        """All that were asked for, in the order of the page."""
        answers = None if self._helpers is None else self._helpers.answers()
        if answers is None:
            light_imports.matplotlib_figure()
            from kway.report.drawing import drawn_picture

            drawn = [drawn_picture(picture, self._folder) for picture in self._asked]
        else:
            drawn = [DrawnPicture(*json.loads(line)) for own in answers for line in own]
        return sorted(drawn, key=lambda picture: NAMES.index(picture.name))


def begin_drawing(folder: Path | None = None) -> Drawing:
    """Before anything heavy: copies that make ready to draw, where there is a core for them."""
    return Drawing(folder, copies(lambda: _ready(folder), 2))


def _ready(folder: Path | None) -> Callable[[str], str]:
    """What answers the line of a picture; a first drawing loads fonts and half of matplotlib."""
    light_imports.matplotlib_figure()
    from kway.report.drawing import drawn_picture
    from kway.report.sketches import Sketch

    drawn_picture(Picture("", "", "", Sketch("history", {"curves": {"": [2.0, 1.0]}})))
    return lambda line: json.dumps(drawn_picture(from_line(line), folder))
