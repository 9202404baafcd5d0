"""The page: whole, self-contained, escaped, with the figures that the outcome allows."""

import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from kway.data.reading import ReadOptions
from kway.report.drawing import FIGURES, drawn_picture
from kway.report.mistakes import find_mistakes, picture_shape, rows_in_words
from kway.report.page import write_page
from kway.report.picture_workers import Drawing, begin_drawing
from kway.report.pictures import _drawn_folds, pictures
from kway.report.sketches import from_line, to_line
from kway.select.job import run_job
from kway.select.train_test import read_parts
from kway.select.wishes import Wishes

WISHES = Wishes(["softmax", "neighbors", "centroid"])


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    import kway

    data = kway.datasets.load("digits")
    path = tmp_path_factory.mktemp("page") / "some.npz"
    np.savez(path, x_train=data.x_train[:400], y_train=data.y_train[:400], x_test=data.x_test[:150],
             y_test=data.y_test[:150])  # fmt: skip
    return run_job(read_parts(str(path)), WISHES)


class Reader(HTMLParser):
    """Tags that must be closed, and every address."""

    def __init__(self):
        super().__init__()
        self.open, self.addresses, self.ids = [], [], []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self.addresses += [v for k, v in attrs if k in ("href", "src", "xlink:href")]
        self.ids += [v for k, v in attrs if k == "id" and tag == "section"]  # figures name parts by their content

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def written(digits, tmp_path_factory):
    """The folder of a page, drawn in this process alone, and of its figures."""
    place = tmp_path_factory.mktemp("written")
    write_page(place / "r.html", digits, WISHES, "kway fit digits", Drawing(place / "figures"))
    return place


def test_the_page_is_whole_and_needs_nothing_else(digits, written):
    text = (written / "r.html").read_text()
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    assert all(a.startswith(("#", "data:")) for a in reader.addresses)
    assert len(reader.ids) == len(set(reader.ids))
    linked = set(re.findall('<a href="#(.*?)"', text))
    assert linked == set(reader.ids)
    assert "<script" not in text
    assert f"{100 * digits.evaluation.scores.accuracy:.1f}\N{NO-BREAK SPACE}%" in text
    assert "the folds of the comparison share them" in text
    assert "kway fit digits" in text
    assert "could not be drawn" not in text
    assert text.count("--wide: ") == text.count('class="figure"')  # no figure is blown up beyond its own size
    names = {"leaderboard", "neighbours", "alpha", "confusion", "reliability", "regions", "templates", "mistakes",
             "more-rows", "where", "history"}  # fmt: skip
    assert {f.name for f in (written / "figures").iterdir()} == {f"{n}{e}" for n in names for e in (".svg", ".png")}


def test_mistakes_are_the_surest_with_their_nearest_rows(digits):
    assert picture_shape(digits) == (28, 28)
    found = find_mistakes(digits, most=3, k=2)
    wrong = digits.evaluation.predicted != digits.parts.test_y
    assert found[0].confidence == pytest.approx(digits.evaluation.confidence[wrong].max())
    assert [m.confidence for m in found] == sorted((m.confidence for m in found), reverse=True)
    for mistake in found:
        assert mistake.true != mistake.predicted
        assert mistake.neighbors.shape == (2, 784)


def test_words_from_the_data_are_escaped(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["x,text,<b>y"]
    for i in range(120):
        label = "<i>" if i % 2 else "a&b"
        lines.append(f"{i % 2 + rng.normal() / 2:.3f},some <u>words</u> {i % 7},{label}")
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    found = run_job(read_parts(str(tmp_path / "t.csv"), ReadOptions("<b>y")), Wishes(["softmax"]))
    write_page(tmp_path / "r.html", found, WISHES, "kway fit '<script>'")
    text = (tmp_path / "r.html").read_text()
    for bad in ("<i>", "<u>", "<script>", "<b>"):
        assert bad not in text
    assert "&lt;i&gt;" in text


@pytest.mark.skipif(sys.platform != "linux", reason="copies are made on Linux")
def test_the_page_is_the_same_where_copies_draw_it(digits, written, tmp_path, monkeypatch):
    from kway.compute import forked_work

    monkeypatch.setattr(forked_work.PROCESS, "own", True)
    monkeypatch.setattr(forked_work, "cores", lambda: 2)
    for name in ("torch", "ray"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    drawing = begin_drawing(tmp_path / "figures")
    monkeypatch.setattr("kway.report.drawing.drawn_picture", None)  # nothing is drawn here
    write_page(tmp_path / "r.html", digits, WISHES, "kway fit digits", drawing)
    # matplotlib names a clip path by where it lies in memory
    here, there = (re.sub(r"\bp[0-9a-f]{10}\b", "p", (at / "r.html").read_text()) for at in (written, tmp_path))
    assert here == there
    names = ({f.name for f in (at / "figures").iterdir()} for at in (written, tmp_path))
    assert next(names) == next(names)


def test_a_figure_that_fails_is_left_out_with_the_reason(digits, monkeypatch):
    def fail(*_, **__):
        raise ValueError("no ink")

    monkeypatch.setitem(FIGURES, "confusion_of", fail)
    drawn = {p.name: drawn_picture(p) for p in pictures(digits, ["confusion", "leaderboard"])}
    assert drawn["confusion"].svg is None
    assert "no ink" in drawn["confusion"].text
    assert drawn["leaderboard"].svg is not None


def test_a_file_that_fails_is_told_when_the_page_is_written(digits, tmp_path):
    (tmp_path / "figures").write_text("a file")
    with pytest.raises(OSError, match="exists") as told:
        write_page(tmp_path / "r.html", digits, WISHES, "", Drawing(tmp_path / "figures"))
    assert told.value.filename == str(tmp_path / "figures")
    assert "Written by kway" in (tmp_path / "r.html").read_text()


def test_a_picture_is_a_line_of_text(digits):
    for picture in pictures(digits):
        line = to_line(picture)
        assert "\n" not in line
        again = from_line(line)
        assert again[:3] == picture[:3]
        assert to_line(again) == line
        for name, value in picture.sketch.arguments.items():
            if isinstance(value, np.ndarray):
                np.testing.assert_array_equal(again.sketch.arguments[name], value, strict=True)


def test_a_spent_budget_leaves_out_what_is_slow_to_draw(digits):
    drawn = {p.name: p for p in pictures(replace(digits, hurried=True))}
    assert drawn["regions"].sketch is None
    assert "budget" in drawn["regions"].text
    assert drawn["mistakes"].sketch is not None


def test_the_picture_of_alphas_is_of_folds_and_settings_run_with_each_other():
    nan = np.nan
    folds, run = _drawn_folds(np.array([[0.1, 0.2, 0.3, nan], [nan, 0.2, 0.4, nan]]))
    assert (folds.tolist(), run.tolist()) == ([0, 1], [1, 2])
    folds, run = _drawn_folds(np.array([[0.1, 0.2, 0.3, nan], [nan, 0.2, nan, nan]]))
    assert (folds.tolist(), run.tolist()) == ([0], [0, 1, 2])


def test_nothing_half_written(digits, tmp_path, monkeypatch):
    from kway.report import page

    (tmp_path / "r.html").write_text("old")
    monkeypatch.setattr(page, "facts", lambda *_: {})
    with pytest.raises(Exception, match="undefined"):
        write_page(tmp_path / "r.html", replace(digits, hurried=True), WISHES)
    assert [(f.name, f.read_text()) for f in tmp_path.iterdir()] == [("r.html", "old")]


def test_rows_in_words():
    assert rows_in_words(np.array([[1.0, 2.5]])) == ["1, 2.5"]
    assert re.fullmatch(r"0, 0, 0, 0, 0, 0, \.\.\.", rows_in_words(np.zeros((1, 9)))[0])


def test_of_very_many_classes_the_hardest_are_listed(digits, tmp_path, monkeypatch):
    monkeypatch.setattr("kway.report.page.LISTED", 3)
    write_page(tmp_path / "r.html", replace(digits, hurried=True), WISHES)
    text = (tmp_path / "r.html").read_text()
    hardest = sorted(digits.evaluation.scores.classes, key=lambda line: line["f1"])
    table = text[text.index('<section id="classes">') : text.index('<section id="features">')]
    assert "The 3 hardest of 10 classes" in table
    assert re.findall("<tr><td>(.*?)</td>", table) == [str(line["class"]) for line in hardest[:3]]
