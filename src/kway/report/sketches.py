"""Sketches: a figure as the name of what draws it (drawing.FIGURES) and plain arguments, arrays among them.

A sketch needs no matplotlib until it is drawn, and can be handed to another process as one line of text.
"""

from __future__ import annotations

import base64
import json
from typing import Any, NamedTuple

import numpy as np

_ARRAY = "array:"  # key of an array in JSON; no argument is called so


class Sketch(NamedTuple):
    """What is to be drawn: numbers, text, lists, dictionaries by name, and arrays of numbers."""

    figure: str
    arguments: dict[str, Any]


class Picture(NamedTuple):
    """A sketch with its title and how to read it; `sketch` None where there is none, `text` then says why."""

    name: str
    title: str
    text: str
    sketch: Sketch | None


class DrawnPicture(NamedTuple):
    """A picture with its <svg> element, None where it could not be drawn, and the pixels that this may take.

    `lost`: number, words and name of the file that could not be written, where files were asked for.
    """

    name: str
    title: str
    text: str
    svg: str | None = None
    wide: int = 0
    lost: tuple[int, str, str] | None = None


def to_line(picture: Picture) -> str:
    """A picture as JSON, without line breaks."""
    return json.dumps(picture, default=_plain)


def from_line(line: str) -> Picture:
    """The picture of a line."""
    name, title, text, sketch = json.loads(line, object_hook=_array)
    return Picture(name, title, text, None if sketch is None else Sketch(*sketch))


def _plain(value: Any) -> Any:
    """What JSON does not know: arrays and numbers of numpy."""
    if isinstance(value, np.generic):
        return value.item()
    content = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
    return {_ARRAY: content, "dtype": value.dtype.str, "shape": value.shape}


def _array(found: dict[str, Any]) -> Any:
    if _ARRAY not in found:
        return found
    return np.frombuffer(base64.b64decode(found[_ARRAY]), found["dtype"]).reshape(found["shape"])
