"""Text from a forked copy: the same as from here, and from here where the copy fails."""

import os
import signal
import sys
import time

import pytest

from kway.compute import forked_work as module
from kway.compute.forked_work import beside, copies

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
    assert copies(lambda: str, 2) is None


def test_copies_answer_each_its_own_lines_in_order():
    def ready():
        os.environ["KWAY_TEST_READY"] = str(os.getpid())  # of the one that was made ready
        return lambda line: f"{os.getpid()} {os.environ['KWAY_TEST_READY']} {line.strip() * 100_000}"

    both = copies(ready, 2)
    for which, line in ((0, "a"), (1, "b"), (0, "é")):
        both.ask(which, line)
    other = os.fork()  # holds the pipes as well
    if other == 0:
        time.sleep(600)
    first, second = both.answers()
    os.kill(other, signal.SIGKILL)
    os.waitpid(other, 0)
    assert [line.split()[2][:1] for line in first] == ["a", "é"]
    assert [len(line.split()[2]) for line in (*first, *second)] == [100_000] * 3
    assert len({line.split()[0] for line in first} | {line.split()[0] for line in second}) == 2
    assert {line.split()[1] for line in (*first, *second)} == {first[0].split()[0]}


@pytest.mark.parametrize("fails", ["a", "b"])
def test_copies_of_which_one_fails_give_nothing(fails):
    def ready():
        return lambda line: line if line.strip() != fails else str(1 / 0)

    both = copies(ready, 2)
    both.ask(0, "a")
    both.ask(1, "b")
    assert both.answers() is None


def test_copies_that_stand_still_are_ended(monkeypatch):
    monkeypatch.setattr(module, "STANDSTILL", 0.2)
    one = copies(lambda: lambda line: time.sleep(600) or line, 1)
    one.ask(0, "a")
    one.ask(0, "b" * 1_000_000)  # more than a pipe holds
    assert one.answers() is None


def _gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_copies_of_a_process_that_is_killed_end_as_well(tmp_path):
    def note(name):
        (tmp_path / name).write_text(str(os.getpid()))
        return "a" * 1_000_000  # more than a pipe holds

    killed = os.fork()
    if killed == 0:
        both = copies(lambda: lambda line: note(line.strip()), 2)
        both.ask(0, "first")
        both.ask(1, "second")
        beside(lambda: note("third"))
        time.sleep(600)
    until = time.monotonic() + 60
    while len(list(tmp_path.iterdir())) < 3 and time.monotonic() < until:
        time.sleep(0.02)
    os.kill(killed, signal.SIGKILL)
    os.waitpid(killed, 0)
    pids = [int(file.read_text()) for file in tmp_path.iterdir()]
    while not all(map(_gone, pids)) and time.monotonic() < until:
        time.sleep(0.02)
    assert len(pids) == 3
    assert all(map(_gone, pids))
