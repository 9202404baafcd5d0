"""The bar changes nothing but what a person sees."""

import io
import sys

from kway.data.progress import track


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
