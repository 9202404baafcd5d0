"""Progress changes nothing but what a person sees."""

import io
import sys

import numpy as np
import pytest

import kway
from kway.progress import News, bar, portion, stage, step, track, watched
from kway.search import Landmarks


class Terminal(io.StringIO):
    def isatty(self):
        return True


def as_stderr(monkeypatch):
    """Not a fixture: pytest puts a stderr of its own in place when the test itself begins."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    return terminal


def test_nobody_watches(capsys):
    assert list(track(iter(range(200)), "counting", 200)) == list(range(200))
    with stage("fitting"):
        step(1, 2, "half")
    assert capsys.readouterr().err == ""


def test_a_terminal_sees_a_bar(monkeypatch):
    screen = as_stderr(monkeypatch)
    assert list(track(iter(range(60)), "counting", 60)) == list(range(60))
    assert "counting" in screen.getvalue()
    seen = len(screen.getvalue())
    assert list(track(iter(range(5)), "counting", 5)) == list(range(5))  # too short for a bar
    assert len(screen.getvalue()) == seen


def test_a_watcher_is_told_in_place_of_a_bar(monkeypatch):
    screen = as_stderr(monkeypatch)
    told = []
    with watched(told.append):
        assert list(track("abc", "spelling", 3)) == ["a", "b", "c"]
        with bar("solving", 10) as at:
            at(4, "objective 0.5")
    assert told == [News("spelling", done, 3) for done in range(3)] + [News("solving, objective 0.5", 4, 10)]
    assert screen.getvalue() == ""
    assert list(track("abc", "spelling", 3, worth=2)) == ["a", "b", "c"]
    assert len(told) == 4
    assert "spelling" in screen.getvalue()


def test_steps_are_parts_of_the_stage_that_runs():
    told = []
    lines = (("softmax", "0.9"),)
    with watched(told.append):
        with stage("outer", 2, 4, lines):
            step(1, 4, "fit 2 of 4")
            with stage("inner"):
                step(0, 1, "alone")
            step(3, 4, "fit 4 of 4")
        with pytest.raises(KeyboardInterrupt), stage("cut"):
            raise KeyboardInterrupt
        step(0, 1, "nothing runs")
    assert told == [
        News("outer", 2, 4, lines),
        News("outer, fit 2 of 4", 2.25, 4, lines),
        News("inner", 0.0),
        News("inner, alone", 0.0, 1.0),
        News("outer, fit 4 of 4", 2.75, 4, lines),
        News("cut", 0.0),
        News("nothing runs", 0.0, 1.0),
    ]


def test_talkative_work_is_shown_to_whoever_watches(monkeypatch):
    screen = as_stderr(monkeypatch)
    data = kway.datasets.overlapping(60, seed=0)
    model = kway.SoftmaxClassifier(verbose=1).fit(data.x_train, data.y_train)
    assert "objective" in screen.getvalue()
    told, seen = [], len(screen.getvalue())
    with watched(told.append):
        kway.SoftmaxClassifier(verbose=1).fit(data.x_train, data.y_train)
    assert len(screen.getvalue()) == seen
    assert "objective" in told[-1].what
    assert told[-1].done <= model.max_iter


def test_landmarks_are_placed_in_view_of_whoever_watches(monkeypatch):
    screen = as_stderr(monkeypatch)
    rows = np.random.default_rng(0).normal(size=(200, 3))
    Landmarks(5).build(rows)
    assert not screen.getvalue()
    Landmarks(5, verbose=True).build(rows)
    assert "landmarks" in screen.getvalue()
    told, seen = [], len(screen.getvalue())
    with watched(told.append):
        Landmarks(5, verbose=True).build(rows)
    assert len(screen.getvalue()) == seen
    assert [news.what for news in told] == [f"landmarks, round {i} of 4" for i in (1, 2, 3, 4)]


def test_a_comparison_tells_its_steps_and_its_scores():
    data = kway.datasets.overlapping(60, seed=0)
    told = []
    with watched(told.append):
        kway.compare(data.x_train, data.y_train, ["centroid", "softmax"])
    assert told[0].what.startswith("centroid: ")
    assert any(", fit 1 of 2" in news.what for news in told)
    assert [news.done for news in told] == sorted(news.done for news in told)
    assert max(news.done for news in told) < told[0].of
    names = {cells[0] for cells in told[-1].lines}
    assert names == {"centroid", "softmax"}
    assert all(cells[2].startswith("fold ") for cells in told[-1].lines)


def test_a_part_of_the_whole_goes_on_from_the_last():
    told = []
    with watched(told.append):
        with portion(0.0, 0.5), stage("first", 1, 2):
            step(1, 2, "half of it")
        with portion(0.5, 1.0), stage("second"):
            pass
    assert [(news.what, news.done, news.of) for news in told] == [
        ("first", 0.25, 1.0),
        ("first, half of it", 0.375, 1.0),
        ("second", 0.5, 1.0),
    ]


def test_the_whole_job_shows_every_stage_and_never_goes_back():
    from sklearn.datasets import load_iris

    import kway

    told = []
    with watched(told.append):
        kway.fit(*load_iris(return_X_y=True), models=["centroid", "softmax"], also=())
    seen = " ".join(news.what for news in told)
    for what in ("centroid: 96 rows", "all training rows", "testing", "explaining"):
        assert what in seen
    shares = [news.done / news.of for news in told]
    assert shares == sorted(shares)
    assert shares[-1] < 1
