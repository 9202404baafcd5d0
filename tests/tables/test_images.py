"""Folders of images: labels from sub-folders, one form for all, errors that name the file."""

import numpy as np
import pytest
from PIL import Image

from kway.errors import InputError
from kway.tables.read_options import ReadOptions
from kway.tables.reading import read_rows
from kway.tables.sources.images import ImageForm

RNG = np.random.default_rng(0)


def make(folder, name, shape=(8, 8), colour=False):
    folder.mkdir(parents=True, exist_ok=True)
    pixels = RNG.integers(0, 256, (*shape, 3) if colour else shape, np.uint8)
    Image.fromarray(pixels).save(folder / name)
    return pixels


@pytest.fixture
def folder(tmp_path):
    for label in ("cat", "dog"):
        for i in range(3):
            make(tmp_path / label, f"{i}.png")
    return tmp_path


def test_rows_are_the_pixels(tmp_path):
    cat, dog = make(tmp_path / "cat", "a.png"), make(tmp_path / "dog", "b.png")
    (tmp_path / "notes.txt").write_text("not an image")
    found = read_rows(tmp_path)
    np.testing.assert_array_equal(found.rows, [cat.ravel(), dog.ravel()])
    assert found.y.tolist() == ["cat", "dog"]
    assert found.image == ImageForm(8, 8, 1)
    assert found.files[0].endswith("cat/a.png")
    assert found.notes == ("images read as 8 x 8 gray (the size of all images)",)


def test_colour_is_kept(tmp_path):
    pixels = make(tmp_path / "a", "0.png", colour=True)
    make(tmp_path / "b", "0.png")
    found = read_rows(tmp_path)
    assert found.image == ImageForm(8, 8, 3)
    np.testing.assert_array_equal(found.rows[0], pixels.ravel())
    np.testing.assert_array_equal(found.rows[1].reshape(64, 3).std(axis=1), 0)


def test_grey_saved_as_colour_is_grey(tmp_path):
    for label in "ab":
        (tmp_path / label).mkdir()
        grey = Image.fromarray(RNG.integers(0, 256, (8, 8), np.uint8))
        grey.convert("RGB").save(tmp_path / label / "0.png")
    assert read_rows(tmp_path).image == ImageForm(8, 8, 1)


def test_the_most_common_size_or_32(folder):
    make(folder / "cat", "large.png", (40, 20))
    found = read_rows(folder)
    assert found.image == ImageForm(8, 8, 1)
    assert "most common" in found.notes[0]
    for i in range(9):
        make(folder / "dog", f"odd{i}.png", (10 + i, 12))
    assert read_rows(folder).image == ImageForm(32, 32, 1)


def test_large_images_are_brought_down(tmp_path):
    for label in "ab":
        make(tmp_path / label, "0.png", (300, 200))
    found = read_rows(tmp_path)
    assert found.rows.shape == (2, 32 * 32)
    assert "common size 300 x 200 is large" in found.notes[0]


def test_the_form_of_training_is_used(folder, tmp_path_factory):
    found = read_rows(folder)
    other = tmp_path_factory.mktemp("other")
    make(other, "x.png", (30, 30), colour=True)  # no sub-folders: rows to predict
    rows = read_rows(other, requirements=found.requirements())
    assert rows.image == found.image
    assert rows.y is None
    assert rows.rows.shape == (1, 64)


def test_an_unreadable_image_is_named(folder):
    (folder / "dog" / "bad.png").write_bytes(b"not a png")
    with pytest.raises(InputError, match=r"dog/bad\.png cannot be read .*skip_bad=True"):
        read_rows(folder)
    found = read_rows(folder, ReadOptions(skip_bad=True))
    assert len(found.rows) == 6
    assert "1 unreadable images skipped: bad.png" in found.left_out[-1]


def test_a_cut_image_is_named(folder):
    whole = (folder / "dog" / "0.png").read_bytes()
    (folder / "dog" / "cut.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"dog/cut\.png cannot be read"):
        read_rows(folder)


def test_folders_that_hold_nothing(tmp_path):
    with pytest.raises(InputError, match="neither parquet, csv or npy files nor images"):
        read_rows(tmp_path)


def test_pillow_missing(folder, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(InputError, match=r"pip install pillow"):
        read_rows(folder)
