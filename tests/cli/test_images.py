"""Models of images through the command line: what is no image is told so, what is skipped is told, too."""

import io
import sys
from pathlib import Path

import numpy as np
import pytest

pillow = pytest.importorskip("PIL.Image")


@pytest.fixture
def images(answer):
    """A folder of images of two kinds, and a model fitted to it; then two files in it are spoilt."""
    rng = np.random.default_rng(0)
    for kind, level in (("dark", 40), ("light", 200)):
        Path("images", kind).mkdir(parents=True)
        for i in range(12):
            values = rng.integers(level - 30, level + 30, (8, 8)).astype(np.uint8)
            pillow.fromarray(values).save(Path("images", kind, f"{i}.png"))
    answer("fit", "images", "--model", "centroid")
    for file in ("dark/3.png", "light/7.png"):
        Path("images", file).write_text("no image")


def test_skipped_images_are_counted_and_named(images, cli, answer):
    code, out, err = cli("predict", "model.kway", "images", "--skip-bad")
    assert code == 0, err
    assert len(out.splitlines()) == 23
    assert err == "note: images: 2 unreadable images skipped: 3.png, 7.png\n"
    code, _, err = cli("evaluate", "model.kway", "images", "--skip-bad", "--json")
    assert code == 0, err
    assert "note: images: 2 unreadable images skipped: 3.png, 7.png" in err
    assert answer("evaluate", "model.kway", "images", "--skip-bad")["skipped"] == [
        "images/dark/3.png", "images/light/7.png",
    ]  # fmt: skip


def test_labels_of_images_are_their_folders(images, cli):
    assert cli("fit", "images", "-t", "kind") == (
        2,
        "",
        "error: images has images, and the labels of images are the names of their folders; "
        "leave out target= (--target)\n",
    )  # fmt: skip
    code, _, err = cli("fit", "images/dark", "--skip-bad")
    assert code == 1
    assert "dark has images without labels; give a folder with one sub-folder per class" in err


def test_a_table_is_told_that_the_model_takes_images(images, cli):
    Path("d.csv").write_text("a,b,label\n1,2,x\n3,4,y\n")
    code, out, err = cli("predict", "model.kway", "d.csv")
    assert (code, out) == (1, "")
    assert "the model takes images (8 x 8 gray), but d.csv is a table of 3 columns; pass an image" in err
    pixels = np.full((2, 64), 200)
    Path("pixels.csv").write_text("\n".join(",".join(map(str, row)) for row in [[f"p{j}" for j in range(64)], *pixels]))
    assert cli("predict", "model.kway", "pixels.csv")[:2] == (0, '"prediction"\n"light"\n"light"\n')


def test_an_image_on_stdin_is_told_apart_from_a_table(images, cli, monkeypatch):
    content = Path("images/dark/1.png").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    code, out, err = cli("predict", "model.kway", "-")
    assert (code, out) == (1, "")
    assert "stdin is an image, and only tables are read from stdin; name the image file" in err


@pytest.mark.parametrize("family", ["centroid", "neighbors", "softmax"])
def test_where_a_model_of_images_looks_is_kept_and_measured(family, answer, cli):
    """Kinds that differ in one corner only: whatever answers, that part is told first, of the model and of rows."""
    rng = np.random.default_rng(0)
    for kind, level in (("dark", 40), ("light", 200)):
        Path("corners", kind).mkdir(parents=True)
        for i in range(30):
            values = rng.integers(0, 255, (20, 20)).astype(np.uint8)
            values[:4, 16:] = level
            pillow.fromarray(values).save(Path("corners", kind, f"{i}.png"))
    answer("fit", "corners", "--model", family)
    for rows, whose in (((), "12 test rows"), (("corners",), "60 rows given")):
        told = answer("explain", "model.kway", *rows, "-n", 3)
        assert f"on {whose}) if a part comes from another image" in told["how"]
        assert len(told["reasons"]) == 3
        assert told["reasons"][0]["column"] == "pixels 0-3 down, 16-19 across"
        assert told["reasons"][0]["pull"] > 0.1
    code, out, _ = cli("explain", "model.kway")
    assert code == 0
    assert "part" in out
