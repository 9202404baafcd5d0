"""The bar changes nothing but what a person sees."""

import io
import sys

from kway.data.progress import track, watched


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_items_pass_unchanged(capsys):
    assert list(track(iter(range(200)), "counting", 200)) == list(range(200))
    assert capsys.readouterr().err == ""


def test_a_terminal_sees_a_bar(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    assert list(track(iter(range(60)), "counting", 60)) == list(range(60))
    assert "counting" in screen.getvalue()
    seen = len(screen.getvalue())
    assert list(track(iter(range(5)), "counting", 5)) == list(range(5))  # too short for a bar
    assert len(screen.getvalue()) == seen


def test_a_watcher_is_told_in_place_of_a_bar(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    told = []
    with watched(lambda *news: told.append(news)):
        assert list(track("abc", "spelling", 3)) == ["a", "b", "c"]
    assert told == [("spelling", 0, 3), ("spelling", 1, 3), ("spelling", 2, 3)]
    assert screen.getvalue() == ""
    assert list(track("abc", "spelling", 3, worth=2)) == ["a", "b", "c"]
    assert len(told) == 3
    assert "spelling" in screen.getvalue()
