"""Ctrl-C in a real terminal: the process that a person stops keeps the best so far, and leaves no half-written file."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.rows import blobs

PATIENCE = 600.0  # seconds until the live view must have shown what is waited for; on a quiet machine some

pytestmark = pytest.mark.skipif(os.name != "posix", reason="a terminal is a posix thing")


def start(*arguments):
    """A child with a terminal as its stderr, as the live view needs; the child and our end of the terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "kway", *arguments]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, start_new_session=True)
    os.close(theirs)
    os.set_blocking(ours, False)
    return child, ours


def read_until(ours, words, child):
    """What the terminal showed until `words` were on it (until the child ended where words are None)."""
    seen, begun = "", time.monotonic()
    while words is None or words not in seen:
        try:
            seen += os.read(ours, 65536).decode(errors="replace")
        except BlockingIOError:
            if child.poll() is not None:
                break
            assert time.monotonic() - begun < PATIENCE, seen[-2000:]
            time.sleep(0.01)
        except OSError:  # the other end is closed
            break
    return seen


def test_ctrl_c_keeps_the_best_so_far():
    X, y = blobs(1000, 12, 8)
    names = ",".join([*(f"x{j}" for j in range(12)), "label"])
    np.savetxt("t.csv", np.c_[X, y], delimiter=",", header=names, comments="", fmt=[*["%.4f"] * 12, "c%d"])
    child, ours = start("fit", "t.csv", "-t", "label", "--json", "--budget", "10m")
    seen = read_until(ours, "extra-trees: ", child)
    assert "Ctrl-C keeps the best so far" in seen
    child.send_signal(signal.SIGINT)
    read_until(ours, None, child)
    out, _ = child.communicate(timeout=PATIENCE)
    assert child.returncode == 0
    found = json.loads(out)
    assert found["finished"] is False
    assert found["best"] in {model["model"] for model in found["models"]}
    assert found["test"]["accuracy"] > 0.85
    assert found["notes"][0].startswith("Ctrl-C ended the comparison early")
    assert Path("model.kway").exists()
    assert Path("model.kway.resume").is_dir()  # the same command continues
    assert Path("report.html").stat().st_size > 10_000


def test_ctrl_c_before_anything_was_scored_leaves_nothing():
    child, ours = start("fit", "digits")
    read_until(ours, "reading", child)
    child.send_signal(signal.SIGINT)
    read_until(ours, None, child)
    child.communicate(timeout=PATIENCE)
    assert child.returncode == 128 + signal.SIGINT
    assert not os.listdir()


def test_the_view_goes_on_while_the_report_is_written():
    child, ours = start("fit", "iris", "--model", "centroid", "--also", "none")
    seen = read_until(ours, None, child)
    child.communicate(timeout=PATIENCE)
    assert child.returncode == 0
    work, _, rest = seen.partition("writing the report")
    assert "reading" in work
    assert rest
    assert "reading" not in rest
    times = [re.findall(r"\d+:\d\d:\d\d", part) for part in (work, rest)]
    assert times[0][-1] <= times[1][0]  # the clock goes on
