"""The pictures of a job as text for its page: every other one is drawn on another core, where there is one."""

from __future__ import annotations

import json
from typing import NamedTuple

from kway.compute.beside import beside
from kway.report.export import to_svg
from kway.report.pictures import PICTURES, Picture, pictures
from kway.select.job import JobResult


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
    others = beside(lambda: json.dumps([_drawn(picture) for picture in pictures(found, names[1::2])]))
    drawn = [_drawn(picture) for picture in pictures(found, names[::2])]
    drawn += [DrawnPicture(*fields) for fields in json.loads(others())]
    return sorted(drawn, key=lambda picture: names.index(picture.name))


def _drawn(picture: Picture) -> DrawnPicture:
    name, title, text, figure = picture
    if figure is None:
        return DrawnPicture(name, title, text, None, 0)
    wide = round(112 * figure.get_figwidth())  # a small one is not blown up until its words are larger than the page's
    return DrawnPicture(name, title, text, to_svg(figure, title), wide)
