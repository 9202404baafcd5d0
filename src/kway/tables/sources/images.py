"""Folders of images, one sub-folder per class -> rows (n, height * width * channels) of bytes, labels, file names.

All images are resized to one form (height, width, channels): the size that most of them have, else 32 x 32, with one
channel if all of them are gray, else three (RGB).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.errors import InputError
from kway.progress import track
from kway.suggest import listing

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")  # Pillow runs other programs for some others
SIDE = 32  # height and width of images without a common size, or with sides above four times this (CIFAR's size)


class ImageForm(NamedTuple):
    """The form to which every image is resized."""

    height: int
    width: int
    channels: int

    def __str__(self) -> str:
        return f"{self.height} x {self.width} {'gray' if self.channels == 1 else 'RGB'}"


class Images(NamedTuple):
    """Rows (n, d) uint8, labels (n,) or None, the files, the form, notes on both, and the skipped files."""

    rows: NDArray[np.uint8]
    labels: NDArray[np.str_] | None
    files: tuple[str, ...]
    form: ImageForm
    notes: tuple[str, ...]
    skipped: tuple[str, ...] = ()


def class_folders(folder: Path) -> list[Path]:
    """Return the sub-folders that contain images."""
    return [sub for sub in sorted(folder.iterdir()) if sub.is_dir() and image_files(sub)]


def image_files(folder: Path) -> list[Path]:
    """Return the image files of a folder by name, without hidden files and pipes."""
    named = (p for p in folder.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES and not p.name.startswith("."))
    return sorted(p for p in named if p.is_file())


def read_images(
    files: Sequence[Path], labels: Sequence[str] | None = None, form: ImageForm | None = None, skip_bad: bool = False
) -> Images:
    """Read images in one form; if `form` is None, it is chosen from the images."""
    notes: tuple[str, ...] = ()
    if form is None:
        form, note = choose_form(files, skip_bad)
        notes = (note,)
    rows = np.empty((len(files), form.height * form.width * form.channels), np.uint8)
    good = np.ones(len(files), bool)
    for i, path in track(enumerate(files), f"reading {len(files):,} images", len(files)):
        try:
            rows[i] = pixels(path, form)
        except InputError:
            if not skip_bad:
                raise
            good[i] = False
    skipped = tuple(str(f) for f, ok in zip(files, good) if not ok)
    if not good.any():
        raise InputError(f"none of the {len(files)} images can be read; give images in {listing(IMAGE_SUFFIXES)}")
    kept = tuple(str(f) for f, ok in zip(files, good) if ok)
    return Images(rows[good], None if labels is None else np.array(labels)[good], kept, form, notes, skipped)


def skipped_note(files: Sequence[str]) -> str:
    """Return the note about images that were left out, with the names of the first few."""
    return f"{len(files):,} unreadable images skipped: {listing((Path(f).name for f in files), 5)}"


def choose_form(files: Sequence[Path], skip_bad: bool = False) -> tuple[ImageForm, str]:
    """Return the form of these images and a note with the reason."""
    sizes: Counter[tuple[int, int]] = Counter()
    gray = True
    for path in files:
        try:
            with _open(path) as image:
                sizes[image.height, image.width] += 1
                gray = gray and _is_gray(image)
        except InputError:
            if not skip_bad:
                raise
    (height, width), count = sizes.most_common(1)[0] if sizes else ((SIDE, SIDE), 0)
    common = count > len(files) / 2
    if not common or max(height, width) > 4 * SIDE:
        why = "no common size" if not common else f"common size {height} x {width} is large"
        form = ImageForm(SIDE, SIDE, 1 if gray else 3)
        return form, f"images resized to {form} ({why})"
    form = ImageForm(height, width, 1 if gray else 3)
    what = "the size of all images" if count == len(files) else "the most common size; others resized"
    return form, f"images read as {form} ({what})"


def pixels(path: Path, form: ImageForm) -> NDArray[np.uint8]:
    """Return one image in a form as a row (d,)."""
    with _open(path) as image:
        try:
            flat = _eight_bits(image).convert("L" if form.channels == 1 else "RGB")
            if flat.size != (form.width, form.height):
                flat = flat.resize((form.width, form.height))
            return np.asarray(flat, np.uint8).reshape(-1)
        except Exception as error:  # Pillow decodes on first use, and each format raises its own errors
            raise _unreadable(path, error) from error


def _open(path: Path) -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise InputError(f"images need the package pillow ({error}); install it: pip install pillow") from error
    if not path.is_file():  # reading a pipe could wait forever
        raise _unreadable(path, OSError("it is not a regular file"))
    try:
        image = Image.open(path, formats=_FORMATS)
    except Exception as error:
        raise _unreadable(path, error) from error
    if image.width * image.height > (Image.MAX_IMAGE_PIXELS or math.inf):  # a small file that becomes huge
        image.close()
        raise _unreadable(path, ValueError(f"it has {image.width:,} x {image.height:,} pixels"))
    return image


def _eight_bits(image: Any) -> Any:
    """Return a gray image of 16 or 32 bits with 8 bits per pixel; Pillow would clip its values at 255.

    Values up to 65,535 are divided by 257, and fractions up to 1 multiplied by 255. Other ranges are scaled to their
    maximum.
    """
    from PIL import Image

    if image.mode != "F" and not image.mode.startswith("I"):
        return image
    values = np.asarray(image, np.float64)
    most, usual = float(values.max(initial=0.0)), 1.0 if image.mode == "F" else 65535.0
    return Image.fromarray(np.clip(np.rint(values * (255 / max(usual, most))), 0, 255).astype(np.uint8))


def _is_gray(image: Any) -> bool:
    if image.mode in ("1", "L", "LA", "F") or image.mode.startswith("I"):
        return True
    small = np.asarray(image.convert("RGB").resize((64, 64)), np.int16)
    return bool((small.max(axis=2) - small.min(axis=2)).max() <= 4)  # JPEG rounds gray by a level or two


def _unreadable(path: Path, error: Exception) -> InputError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return InputError(
        f"image {path} cannot be read ({reason}); remove or repair it, or leave such files out: skip_bad=True"
    )
