"""Why raw pixels are a poor space: three altered images at exactly the same L2 distance from the original.

    shifted   moved by some pixels; its distance D is what the other two are made to have
    boxed     x + s (box - x) on the smallest square for which s <= 1
    tinted    x + s (colour - x) everywhere

The distance of a blend is s times that of s = 1, so s = D / ||full - x|| meets D to the last digit, and a blend stays
within the range of its ends: nothing is clipped. Images are (h, w, 3) in [0, 1]; grey ones are ink on white paper.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from kway.errors import InputError
from kway.report import style

_TINTS = ((1.0, 0.75, 0.2), (0.25, 0.55, 1.0))


class Altered(NamedTuple):
    """An altered image (h, w, 3) and its L2 distance from the original."""

    name: str
    image: NDArray
    distance: float


def as_colour(image: ArrayLike) -> NDArray:
    """(h, w, 3) in [0, 1] from grey levels or colours, 0..1 or 0..255; grey becomes ink on white."""
    pixels = np.asarray(image, float)
    if pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] != 3):
        raise InputError(f"an image has shape (h, w) or (h, w, 3), got {pixels.shape}")
    pixels = pixels / 255 if pixels.max(initial=0) > 1 else pixels
    return np.repeat(1 - pixels[:, :, None], 3, axis=2) if pixels.ndim == 2 else pixels


def alterations(image: ArrayLike, pixels: int = 1) -> list[Altered]:
    """The image boxed, shifted and tinted, all at one L2 distance from it."""
    x = as_colour(image)
    shifted = _shift(x, pixels)
    far = float(np.linalg.norm(shifted - x))
    if far == 0:
        raise InputError(f"an image that a shift of {pixels} pixels does not change has no distance to match")
    made = [("boxed", _boxed(x, far)), ("shifted", shifted), ("tinted", _tinted(x, far))]
    return [Altered(name, y, float(np.linalg.norm(y - x))) for name, y in made]


def _shift(x: NDArray, pixels: int) -> NDArray:
    """Moved right and down; the edge that appears repeats the old one."""
    rows = np.clip(np.arange(x.shape[0]) - pixels, 0, None)
    columns = np.clip(np.arange(x.shape[1]) - pixels, 0, None)
    return x[rows][:, columns]


def _boxed(x: NDArray, far: float) -> NDArray:
    h, w = x.shape[:2]
    fill = 0.0 if x.mean() > 0.5 else 1.0
    for side in range(1, max(h, w) + 1):
        top, left = max(h - side, 0) // 2, max(w - side, 0) // 2
        full = x.copy()
        full[top : top + side, left : left + side] = fill
        if np.linalg.norm(full - x) >= far:
            return _blend(x, full, far)
    raise InputError(f"no box is as far from the image as {far:.3g}; alter it by fewer pixels")


def _tinted(x: NDArray, far: float) -> NDArray:
    fulls = [np.broadcast_to(np.asarray(c), x.shape) for c in _TINTS]
    full = max(fulls, key=lambda colour: float(np.linalg.norm(colour - x)))
    if np.linalg.norm(full - x) < far:
        raise InputError(f"no tint is as far from the image as {far:.3g}; alter it by fewer pixels")
    return _blend(x, full, far)


def _blend(x: NDArray, full: NDArray, far: float) -> NDArray:
    return x + far / float(np.linalg.norm(full - x)) * (full - x)


def same_distance(image: ArrayLike, pixels: int = 1, other: ArrayLike | None = None, other_name: str = "") -> Figure:
    """The original and its three alterations with their distances; `other` adds an image of another class."""
    x = as_colour(image)
    shown = [Altered("original", x, 0.0), *alterations(image, pixels)]
    if other is not None:
        y = as_colour(other)
        shown.append(Altered(other_name or "another class", y, float(np.linalg.norm(y - x))))
    figure = style.figure(height=0.95 + style.FIGURE_WIDTH / len(shown) * x.shape[0] / x.shape[1])
    for axes, one in zip(figure.subplots(1, len(shown)), shown):
        axes.imshow(np.clip(one.image, 0, 1), interpolation="nearest")
        style.bare(axes, one.name, style.LABEL)
        axes.set_xlabel(f"distance {one.distance:.3f}", fontsize=style.SMALL, color=style.INK)
    nearer = other is not None and shown[-1].distance < shown[1].distance
    note = "and an image of another class is nearer than any of them" if nearer else ""
    style.headline(figure, "LabelledRows pixels: different changes, the same L2 distance", note)
    return figure
