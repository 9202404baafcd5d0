"""Parts of images, so that a person can be told where a model looks: pixels have no names, and alone they say little.

A grid of at most 5 x 5 parts, each named by the pixels that it covers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.data.features.shapes import likely_form
from kway.data.sources.images import ImageForm

_SIDE = 5  # parts along each side
MOST_PARTS = _SIDE * _SIDE
_LEAST_SIDE = 8  # pixels of bytes that nobody has called images, but that fill a square


def image_form(features: Any, rows: Any) -> ImageForm | None:
    """The form of rows that are images: as their features know it, or likely; None where they are none."""
    if features is None or features.is_table_:
        return None
    if features.image is not None:
        return ImageForm(*features.image)
    form = likely_form(rows)
    return None if form is None or form.height < _LEAST_SIDE else form


def image_parts(form: ImageForm) -> dict[str, NDArray[np.int64]]:
    """The columns of each part by its name, from the middle outwards: where time ends, edges are left out."""
    columns = np.arange(form.height * form.width * form.channels).reshape(form)
    cells = [(y, x) for y in _cuts(form.height) for x in _cuts(form.width)]
    off = [abs(y.mean() / form.height - 0.5) + abs(x.mean() / form.width - 0.5) for y, x in cells]
    middle_first = [cells[i] for i in np.argsort(np.round(off, 3), kind="stable")]
    return {_part(y, x): columns[y[0] : y[-1] + 1, x[0] : x[-1] + 1].ravel() for y, x in middle_first}


def _part(down: NDArray, across: NDArray) -> str:
    return f"pixels {_range(down)} down, {_range(across)} across"


def as_grid(form: ImageForm, falls: dict[str, float]) -> NDArray[np.float64]:
    """Falls by the names of parts as a picture (parts down, parts across); NaN where there is none."""
    return np.array([[falls.get(_part(y, x), np.nan) for x in _cuts(form.width)] for y in _cuts(form.height)])


def _cuts(side: int) -> list[NDArray]:
    return np.array_split(np.arange(side), min(_SIDE, side))


def _range(pixels: NDArray) -> str:
    return f"{pixels[0]}-{pixels[-1]}" if len(pixels) > 1 else f"{pixels[0]}"
