"""Paths: pipes, folders, sockets, links; drafts of saves that were killed; files read into memory."""

import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import kway
from kway.errors import ModelFileError, UsageError
from kway.tables import outputs
from kway.tables.outputs import replacing


@pytest.fixture
def in_time():
    """A test that hangs fails instead."""
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits for ever"))
    signal.alarm(120)
    yield
    signal.alarm(0)


def test_a_pipe_is_refused_at_once(fitted, tmp_path, in_time):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelFileError, match="is a pipe"):
        kway.load(tmp_path / "pipe")
    with pytest.raises(ModelFileError, match="is a pipe"):
        fitted.save(tmp_path / "pipe")


def test_a_folder_and_a_socket(fitted, tmp_path, in_time, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
        for path, said in ((tmp_path, "is a directory"), (Path("s"), "socket"), (Path("/dev/null"), "is a device")):
            with pytest.raises(ModelFileError, match=said):
                kway.load(path)
            with pytest.raises(ModelFileError, match=said):
                fitted.save(path)


def test_a_save_replaces_models_and_nothing_else_unless_forced(fitted, tmp_path):
    path = tmp_path / "thesis.txt"
    for content in (b"years of work", b"\0" * 100, b'{"__metadata__": {"of": "others"}}'):
        path.write_bytes(content)
        for save in (fitted.save, lambda path: kway.save(fitted, path)):
            with pytest.raises(UsageError, match=r"thesis\.txt exists and is no model that kway wrote.*force=True"):
                save(path)
        assert path.read_bytes() == content
    fitted.save(path, force=True)
    fitted.save(path)  # a model now
    (tmp_path / "empty").touch()
    kway.save(fitted, tmp_path / "empty")
    assert kway.load(path).classes_.tolist() == kway.load(tmp_path / "empty").classes_.tolist()


def test_a_link_to_nothing_and_to_itself(tmp_path):
    (tmp_path / "link").symlink_to("nothing.kway")
    with pytest.raises(ModelFileError, match=r"is a link to nothing\.kway, which does not exist"):
        kway.load(tmp_path / "link")
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(ModelFileError, match="symbolic links"):
        kway.load(tmp_path / "round")
    with pytest.raises(ModelFileError, match="cannot be read"):
        kway.load("a\0b")


def test_a_save_follows_a_link(fitted, tmp_path):
    (tmp_path / "models").mkdir()
    link = tmp_path / "current.kway"
    link.symlink_to("models/today.kway")
    fitted.save(link)  # the target is not there yet
    fitted.save(link)
    assert link.is_symlink()
    assert [p.name for p in (tmp_path / "models").iterdir()] == ["today.kway"]
    assert kway.load(link).n_iter_ == 3


def test_a_loop_of_links_is_not_replaced(fitted, tmp_path):
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(ModelFileError):
        fitted.save(tmp_path / "round")
    assert (tmp_path / "round").is_symlink()


# ---- drafts


def drafts(folder):
    return [p for p in folder.iterdir() if p.name.endswith(".kway-draft")]


def test_the_draft_of_a_killed_save_is_taken_away(fitted, tmp_path):
    code = f"""
import os, signal
from kway.tables.outputs import replacing
with replacing({str(tmp_path / "old.kway")!r}) as draft:
    draft.write_bytes(b"half a model")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    assert len(drafts(tmp_path)) == 1
    other = tmp_path / ".notes.12345678.part"
    other.write_text("somebody else's")
    fitted.save(tmp_path / "m.kway")
    assert {p.name for p in tmp_path.iterdir()} == {"m.kway", other.name}


def test_a_save_that_runs_keeps_its_draft(fitted, tmp_path):
    with replacing(tmp_path / "slow.kway") as draft:
        draft.write_bytes(b"half")
        fitted.save(tmp_path / "m.kway")
        assert drafts(tmp_path) == [draft]
        draft.write_bytes(b"whole")
    assert (tmp_path / "slow.kway").read_bytes() == b"whole"
    assert not drafts(tmp_path)


def test_many_saves_at_once(fitted, tmp_path):
    """Each cleans beside the others: none may take away a draft that is being written."""
    wrong = []

    def save(i):
        try:
            for _ in range(15):
                fitted.save(tmp_path / f"{i % 2}.kway")
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=save, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert {p.name for p in tmp_path.iterdir()} == {"0.kway", "1.kway"}
    kway.load(tmp_path / "0.kway", verify=True)


def test_without_locks_drafts_are_left_alone(fitted, tmp_path, monkeypatch):
    left = tmp_path / ".x.kway.12345678.kway-draft"
    left.write_text("")

    def no_locks(*_):
        raise OSError(95, "not supported")

    monkeypatch.setattr(outputs.fcntl, "flock", no_locks)
    fitted.save(tmp_path / "m.kway")
    assert left.exists()


# ---- into memory


def test_reading_into_memory(fitted, model):
    loaded = kway.load(model, mmap=False)
    model.write_bytes(b"")  # cut under the reader: a mapped one would be ended by the system
    rows = np.random.default_rng(1).standard_normal((50, 4))
    np.testing.assert_array_equal(loaded.predict(rows), fitted.predict(rows))
    assert not loaded.means_.flags.writeable


def test_the_file_is_opened_once(tiny, fitted, model):
    """Header and arrays come from the same file, even where another takes its place in between."""
    stop, other = threading.Event(), tiny().fit(np.random.default_rng(2).normal(size=(80, 6)), np.arange(80) % 40)

    def replace():
        for saved in itertools.cycle([other, fitted]):
            saved.save(model)
            time.sleep(0.001)
            if stop.is_set():
                return

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        for _ in range(40):
            found = kway.load(model, verify=True)
            whole = fitted if len(found.classes_) == 3 else other
            np.testing.assert_array_equal(found.classes_, whole.classes_)
            np.testing.assert_array_equal(found.means_, whole.means_)
    finally:
        stop.set()
        thread.join()
    with suppress(FileNotFoundError):
        model.unlink()


@pytest.mark.parametrize("path", [None, 3, 1.5])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(ModelFileError, match="must be a str or a Path"):
        kway.load(path)
    with pytest.raises(ModelFileError, match="must be a str or a Path"):
        kway.save(kway.CentroidClassifier().fit([[0.0], [1.0]], [0, 1]), path)
