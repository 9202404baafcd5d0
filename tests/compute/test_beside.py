"""Text from a forked copy: the same as from here, and from here where the copy fails."""

import os
import sys
import time

import pytest

from kway.compute import beside as module
from kway.compute.beside import beside

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="copies are made on Linux")


@pytest.fixture(autouse=True)
def own_process(monkeypatch):
    """As in the command's own process, with two cores."""
    monkeypatch.setattr(module.PROCESS, "own", True)
    monkeypatch.setattr(module, "cores", lambda: 2)
    for name in ("torch", "ray"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_the_text_comes_from_another_process():
    here = os.getpid()
    waiting = beside(lambda: f"{os.getpid()} {'é' * 300_000}")  # more than a pipe holds
    who, letters = waiting().split()
    assert int(who) != here
    assert letters == "é" * 300_000


def test_a_copy_that_fails_leaves_the_work_here():
    here = os.getpid()
    assert beside(lambda: str(os.getpid()) if os.getpid() == here else 1 / 0)() == str(here)


def test_a_copy_that_stands_still_is_ended(monkeypatch):
    monkeypatch.setattr(module, "STANDSTILL", 0.2)
    here = os.getpid()
    begun = time.perf_counter()
    assert beside(lambda: "here" if os.getpid() == here else time.sleep(600) or "there")() == "here"
    assert time.perf_counter() - begun < 60


def test_elsewhere_nothing_is_copied(monkeypatch):
    monkeypatch.setattr(module.PROCESS, "own", False)
    here = os.getpid()
    assert beside(lambda: str(os.getpid()))() == str(here)
