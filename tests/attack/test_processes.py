"""Processes that are killed while they save, and that fork while they answer; each in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def outcome(script, n, seconds):
    """What a campaign printed; it fails where the campaign does, or takes longer."""
    done = subprocess.run(
        [sys.executable, HERE / script, str(n)], capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_killed_save_leaves_one_whole_file():
    said = outcome("killed_saves.py", 12, 600)
    assert said.startswith("12 saves ended (3 SIGINT, 6 SIGKILL, 3 SIGTERM)")


def test_forks_beside_threads_that_predict():
    assert outcome("forked_answers.py", 8, 600).startswith("8 forks beside 3 threads")


@pytest.mark.slow
def test_a_hundred_forks():
    outcome("forked_answers.py", 100, 1800)


@pytest.mark.slow
def test_a_thousand_killed_saves():
    outcome("killed_saves.py", int(os.environ.get("KWAY_KILLS", "1000")), 1800)
