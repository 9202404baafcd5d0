import re
import threading
from xml.etree import ElementTree

import pytest

from kway.errors import InputError
from kway.report import charts, confusion, style

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def figure():
    return charts.cross_validation([1, 3], [[0.5, 0.6], [0.7, 0.8]], 3, title="Choosing k")


def test_text_stays_text(figure):
    root = ElementTree.fromstring(style.to_svg(figure))
    words = {"".join(t.itertext()).strip() for t in root.iter(f"{SVG}text")}
    assert {"Choosing k", "accuracy", "one fold"} <= words


def test_the_same_figure_gives_the_same_bytes(figure):
    assert style.to_svg(figure) == style.to_svg(figure)


def test_everything_referred_to_is_there_and_no_name_is_positional(figure):
    svg = style.to_svg(figure)
    referred = set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))
    names = set(re.findall(r' id="([^"]+)"', svg))
    assert referred
    assert referred <= names
    assert not [name for name in names if re.search(r"_\d+$", name)]


def test_a_title_for_screen_readers_is_escaped(figure):
    root = ElementTree.fromstring(style.to_svg(figure, "accuracy < 1 & k"))
    assert root.get("role") == "img"
    assert root.find(f"{SVG}title").text == "accuracy < 1 & k"


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("A.SVG", b"<?xml")])
def test_save_writes_the_format_of_the_name_and_nothing_else(figure, tmp_path, name, start):
    assert style.save(figure, tmp_path / name).read_bytes().startswith(start)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_an_unknown_ending_is_refused_and_nothing_is_written(figure, tmp_path):
    with pytest.raises(InputError, match=r"\.png or \.svg, got 'a\.gif'"):
        style.save(figure, tmp_path / "a.gif")
    assert list(tmp_path.iterdir()) == []


def test_threads_draw_and_save_at_once():
    alone = style.to_svg(charts.history({"a": [3, 2, 1]}))
    together = []
    workers = [
        threading.Thread(target=lambda: together.append(style.to_svg(charts.history({"a": [3, 2, 1]}))))
        for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert together == [alone] * 4


@pytest.mark.parametrize("k", [1, 2, 10, 11, 150])
def test_every_class_has_its_colour(k):
    colours = style.class_colors(k)
    assert len(set(colours)) == len(colours) == k


def test_palette_is_told_apart_without_red_or_green():
    """Machado's simulation of protanopia and deuteranopia, distances in Lab: all ten classes stay apart."""
    import numpy as np
    from matplotlib.colors import to_rgb

    def lab(rgb):
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        xyz = linear @ np.array([[0.4124, 0.2126, 0.0193], [0.3576, 0.7152, 0.1192], [0.1805, 0.0722, 0.9505]])
        f = np.cbrt(xyz / [0.9505, 1.0, 1.089])
        return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1)

    protan = np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    )
    deutan = np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    )
    rgb = np.array([to_rgb(c) for c in style.PALETTE])
    for matrix in (np.eye(3), protan, deutan):
        seen = lab(np.clip(rgb @ matrix.T, 0, 1))
        gaps = np.linalg.norm(seen[:, None] - seen[None], axis=2)[np.triu_indices(len(rgb), 1)]
        assert gaps.min() > 8  # 2 is just noticeable side by side


def test_names_in_any_script_and_with_dollars_stay_as_they_are():
    names = ["from $US to $CA", "日本語", "<b>&"]
    root = ElementTree.fromstring(style.to_svg(confusion.confusion_matrix([[3, 1, 0], [1, 3, 0], [0, 0, 3]], names)))
    assert set(names) <= {"".join(t.itertext()).strip() for t in root.iter(f"{SVG}text")}
