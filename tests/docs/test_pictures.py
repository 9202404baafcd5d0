"""The pictures of the pages: each is drawn by the tool, used by a page, small and reproducible."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
MAX_BYTES = 150_000
PICTURE = re.compile(r"!\[[^\]]+\]\(([^)\s]+\.(?:png|svg))\)")


@pytest.fixture(scope="module")
def tool():
    sys.path.insert(0, str(ROOT / "tools"))  # where the script itself would be started
    try:
        import make_pictures

        yield make_pictures
    finally:
        sys.path.remove(str(ROOT / "tools"))


def used():
    """Return the pictures that the README, the tutorial and the lessons show, as paths below docs/images."""
    pages = [
        ROOT / "README.md",
        ROOT / "docs" / "index.md",
        ROOT / "docs" / "tutorial.md",
        *(ROOT / "docs" / "lessons").glob("*.md"),
    ]
    shown = {(page.parent / link).resolve() for page in pages for link in PICTURE.findall(page.read_text())}
    return {str(path.relative_to(IMAGES)) for path in shown}


def test_what_is_drawn_is_what_the_pages_show(tool):
    lying = {str(p.relative_to(IMAGES)) for p in (IMAGES / "lessons").iterdir()} | {"regions.png"}
    assert set(tool.PICTURES) == lying == used() - {"report.png"}  # a screenshot of the report, which no tool draws


def test_every_lesson_has_a_picture():
    for page in (ROOT / "docs" / "lessons").glob("*.md"):
        assert PICTURE.search(page.read_text()), page.name


def test_pictures_are_small(tool):
    assert {name: size for name in tool.PICTURES if (size := (IMAGES / name).stat().st_size) > MAX_BYTES} == {}


@pytest.mark.parametrize("name", ["lessons/losses.svg", "lessons/temperature.svg", "lessons/many-classes.svg"])
def test_a_picture_is_reproducible(tool, tmp_path, name):
    new, old = tool.draw(name, tmp_path).read_text(), (IMAGES / name).read_text()
    assert words(new) == words(old)
    assert new.count("<path") == old.count("<path")


def words(svg):
    return re.findall(r"<text[^>]*>([^<]+)</text>", svg)


def test_a_png_is_reproducible_and_has_few_colors(tool, tmp_path):
    import numpy as np
    from PIL import Image

    name = "lessons/same-distance.png"
    with Image.open(tool.draw(name, tmp_path)) as new, Image.open(IMAGES / name) as old:
        assert new.size == old.size
        assert len(new.getcolors()) <= tool.COLORS
        apart = np.asarray(new.convert("L"), float) - np.asarray(old.convert("L"), float)
        assert np.abs(apart).mean() < 3  # letters may be drawn a little differently elsewhere


def test_an_unknown_picture_is_refused(tool):
    with pytest.raises(SystemExit, match="no picture is called nonsense; known: alpha, "):
        tool.main(["nonsense"])
