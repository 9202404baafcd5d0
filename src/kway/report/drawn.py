"""The pictures of a job's page, drawn by copies of this process that have matplotlib ready when they are needed.

Importing matplotlib and drawing ten figures takes longer than comparing families on a small table. So the command
begins its copies before the work (`begin_drawing`), and waits for half of the drawing alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from kway import light_imports
from kway.compute.beside import Copies, copies
from kway.report.sketches import DrawnPicture, Picture, from_line, to_line

_SECOND = ("neighbours", "confusion", "sets", "regions", "templates")  # what the second copy draws: regions take long


class Drawing:
    """Pictures, drawn by copies from when they are asked for, or here; their files go to `folder`, if there is one."""

    def __init__(self, folder: Path | None = None, helpers: Copies | None = None) -> None:
        self._folder, self._helpers = folder, helpers
        self._asked: list[Picture] = []

    def ask(self, asked: Iterable[Picture]) -> None:
        """Begin these."""
        for picture in asked:
            self._asked.append(picture)
            if self._helpers is not None:
                self._helpers.ask(int(picture.name in _SECOND), to_line(picture))

    def drawn(self) -> list[DrawnPicture]:
        """All that were asked for, in the order of asking."""
        answers = None if self._helpers is None else self._helpers.answers()
        if answers is None:
            light_imports.matplotlib_figure()
            from kway.report.drawing import drawn_picture

            return [drawn_picture(picture, self._folder) for picture in self._asked]
        found = {(picture := DrawnPicture(*json.loads(line))).name: picture for own in answers for line in own}
        return [found[picture.name] for picture in self._asked]


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
