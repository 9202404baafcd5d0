"""The pictures of a job as text for its page: half of the work is done on another core, where there is one."""

from __future__ import annotations

import json
from typing import NamedTuple

from kway.compute.beside import beside
from kway.report.export import to_svg
from kway.report.pictures import PICTURES, Picture, pictures
from kway.select.job import JobResult

_THERE = ("neighbours", "confusion", "sets", "regions", "templates")  # regions take as long as two others


class DrawnPicture(NamedTuple):
    """A picture with its <svg> element, None where it could not be drawn, and the pixels that this may take."""

    name: str
    title: str
    text: str
    svg: str | None
    wide: int


def drawn_pictures(found: JobResult) -> list[DrawnPicture]:
    """Every picture that this outcome allows, in the order of the page."""
    names = list(PICTURES)
    others = beside(lambda: json.dumps([_drawn(picture) for picture in pictures(found, _THERE)]))
    drawn = [_drawn(picture) for picture in pictures(found, [name for name in names if name not in _THERE])]
    drawn += [DrawnPicture(*fields) for fields in json.loads(others())]
    return sorted(drawn, key=lambda picture: names.index(picture.name))


def _drawn(picture: Picture) -> DrawnPicture:
    name, title, text, figure = picture
    if figure is None:
        return DrawnPicture(name, title, text, None, 0)
    wide = round(112 * figure.get_figwidth())  # a small one is not blown up until its words are larger than the page's
    return DrawnPicture(name, title, text, to_svg(figure, title), wide)
