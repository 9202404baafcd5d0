"""The page: whole, self-contained, escaped, with the figures that the outcome allows."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pyarrow as pa
import pytest

from kway.auto.fit_options import FitOptions
from kway.auto.job import run_job
from kway.auto.train_test import read_train_test
from kway.report.figures import PICTURES, Drawn, _drawn_folds, draw_pictures, group_pictures, picture
from kway.report.mistakes import find_mistakes, picture_shape, rows_as_text
from kway.report.page import write_page
from kway.tables.read_options import ReadOptions


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    import kway

    data = kway.datasets.load("digits")
    path = tmp_path_factory.mktemp("page") / "some.npz"
    np.savez(path, x_train=data.x_train[:400], y_train=data.y_train[:400], x_test=data.x_test[:150],
             y_test=data.y_test[:150])  # fmt: skip
    return run_job(read_train_test(str(path)), FitOptions(["softmax", "neighbors", "centroid"]))


@pytest.fixture(scope="module")
def flowers():
    """A result that is quicker to draw."""
    return run_job(read_train_test("iris"), FitOptions(["softmax", "neighbors", "centroid"]))


@pytest.fixture(scope="module")
def hurried(digits):
    """The figures of the digits, after the budget was spent."""
    return draw_pictures(replace(digits, hurried=True))


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
    """The folder of a page, and of its figures."""
    place = tmp_path_factory.mktemp("written")
    write_page(place / "r.html", digits, "kway fit digits", place / "figures")
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
    assert f"{100 * digits.evaluation.scores.accuracy:.1f}%" in text
    assert "the folds of the comparison share them" in text
    assert "kway fit digits" in text
    assert "could not be drawn" not in text
    assert text.count("--wide: ") == text.count('class="figure"')  # no figure is blown up beyond its own size
    names = {"leaderboard", "neighbors", "alpha", "confusion", "reliability", "regions", "templates", "mistakes",
             "more-rows", "where", "wrong-labels", "history"}  # fmt: skip
    assert {f.name for f in (written / "figures").iterdir()} == {f"{n}{e}" for n in names for e in (".svg", ".png")}


def test_mistakes_are_the_surest_with_their_nearest_rows(digits):
    assert picture_shape(digits) == (28, 28)
    found = find_mistakes(digits, max_mistakes=3, k=2)
    wrong = digits.evaluation.predicted != digits.data.test_y
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
    found = run_job(read_train_test(str(tmp_path / "t.csv"), ReadOptions("<b>y")), FitOptions(["softmax"]))
    write_page(tmp_path / "r.html", found, "kway fit '<script>'")
    text = (tmp_path / "r.html").read_text()
    for bad in ("<i>", "<u>", "<script>", "<b>"):
        assert bad not in text
    assert "&lt;i&gt;" in text


def test_a_figure_that_fails_is_left_out_with_the_reason(flowers, monkeypatch):
    def fail(*_, **__):
        raise ValueError("no ink")

    monkeypatch.setattr("kway.report.confusion.confusion_of", fail)
    drawn = {p.name: p for p in draw_pictures(flowers)}
    assert drawn["confusion"].svg is None
    assert "no ink" in drawn["confusion"].text
    assert drawn["leaderboard"].svg is not None


def test_a_file_that_fails_is_told_when_the_page_is_written(flowers, tmp_path):
    (tmp_path / "figures").write_text("a file")
    with pytest.raises(OSError, match="exists") as told:
        write_page(tmp_path / "r.html", flowers, "", tmp_path / "figures")
    assert told.value.filename == str(tmp_path / "figures")
    assert "Written by kway" in (tmp_path / "r.html").read_text()


def test_a_new_figure_needs_no_other_change(flowers, tmp_path, monkeypatch):
    from kway.report import charts

    monkeypatch.setattr("kway.report.figures.PICTURES", {**PICTURES})
    names = list(PICTURES)

    @picture("added", "An added figure")
    def _added(result):
        return Drawn(charts.history({"loss": [2.0, 1.0, 0.5]}), "The text of the added figure.")

    write_page(tmp_path / "r.html", replace(flowers, hurried=True))
    text = (tmp_path / "r.html").read_text()
    section = text[text.index('<section id="added">') :]
    assert section.index("<svg") < section.index("</section>")
    assert "The text of the added figure." in section
    assert '<a href="#added">' in text
    places = [text.index(f'<section id="{name}">') for name in names if f'<section id="{name}">' in text]
    assert places == sorted(places)  # in the order of the functions
    assert len(places) >= 8


def test_every_figure_is_in_one_group(hurried):
    groups = group_pictures(hurried)
    assert [each for group in groups for each in group] == hurried
    assert ["neighbors", "alpha"] in [[each.name for each in group] for group in groups]
    assert group_pictures(hurried[2:])[0] == hurried[2:3]  # the figure that it is put beside is missing
    assert all(each.beside in (None, *PICTURES) for each in PICTURES.values())


def test_a_spent_budget_leaves_out_what_is_slow_to_draw(hurried):
    drawn = {p.name: p for p in hurried}
    assert drawn["regions"].svg is None
    assert "budget" in drawn["regions"].text
    assert drawn["mistakes"].svg is not None


def test_the_picture_of_alphas_is_of_folds_and_settings_run_with_each_other():
    nan = np.nan
    folds, run = _drawn_folds(np.array([[0.1, 0.2, 0.3, nan], [nan, 0.2, 0.4, nan]]))
    assert (folds.tolist(), run.tolist()) == ([0, 1], [1, 2])
    folds, run = _drawn_folds(np.array([[0.1, 0.2, 0.3, nan], [nan, 0.2, nan, nan]]))
    assert (folds.tolist(), run.tolist()) == ([0], [0, 1, 2])


def test_nothing_half_written(flowers, tmp_path, monkeypatch):
    from kway.report import page

    (tmp_path / "r.html").write_text("old")
    monkeypatch.setattr(page, "template_values", lambda *_: {})
    with pytest.raises(Exception, match="undefined"):
        write_page(tmp_path / "r.html", replace(flowers, hurried=True))
    assert [(f.name, f.read_text()) for f in tmp_path.iterdir()] == [("r.html", "old")]


def test_rows_as_text():
    assert rows_as_text(np.array([[1.0, 2.5]])) == ["1, 2.5"]
    assert re.fullmatch(r"0, 0, 0, 0, 0, 0, \.\.\.", rows_as_text(np.zeros((1, 9)))[0])


def test_mistakes_in_texts_are_listed_with_the_text_first(tmp_path):
    import kway

    rng = np.random.default_rng(0)
    words = rng.choice(["red", "blue", "<b>"], (200, 4))
    frame = {"ticket": [f"T-{i}" for i in range(200)], "n": rng.normal(size=200), "note": [" ".join(w) for w in words]}
    found = kway.fit(frame, rng.choice(["x", "y"], 200), models="neighbors", also=(), folds=2)
    found.report(tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    table = text[text.index('<section id="mistakes">') : text.index('<section id="wrong-labels">')]
    assert re.search(r'<th class="words">note (red|blue|&lt;b&gt;) .*, n -?[0-9]', table)
    assert "T-" not in table
    assert table.count("<table>") == 6
    assert 'class="right"' in table


def test_of_very_many_classes_the_hardest_are_listed(digits, tmp_path):
    write_page(tmp_path / "r.html", replace(digits, hurried=True), max_classes=3)
    text = (tmp_path / "r.html").read_text()
    hardest = sorted(digits.evaluation.scores.classes, key=lambda line: line["f1"])
    table = text[text.index('<section id="classes">') : text.index('<section id="features">')]
    assert "The 3 hardest of 10 classes" in table
    assert re.findall("<tr><td>(.*?)</td>", table) == [str(line["class"]) for line in hardest[:3]]


def test_rows_with_line_breaks_are_one_line():
    table = pa.table({"text": ["a\nb\tc", "d" * 400]})
    assert rows_as_text(table) == ["a b c", "d" * 299 + "…"]
    assert len(rows_as_text(np.full((1, 3), 1 / 3), length=10)[0]) == 10
