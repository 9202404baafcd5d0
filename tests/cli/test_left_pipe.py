"""A reader that leaves, as `head` does: the job goes on and its files are written, and nobody sees a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FIT = ["fit", "iris.csv", "--target", "species", "--model", "centroid", "-o", "new.kway", "--report", "new.html"]


def unheard(*arguments):
    """A child whose stdout nobody reads any more; its exit code and stderr."""
    theirs_end, ours = os.pipe()
    os.close(theirs_end)
    child = subprocess.run([sys.executable, "-m", "kway", *arguments], stdout=ours, stderr=subprocess.PIPE)
    os.close(ours)
    return child.returncode, child.stderr.decode()


@pytest.mark.parametrize("more", [[], ["--json"]], ids=["text", "json"])
def test_a_fit_still_writes_its_files(iris, more):
    code, err = unheard(*FIT, *more)
    assert code == 0, err
    assert "rror" not in err
    assert Path("new.kway").stat().st_size > 0
    assert "Written by kway" in Path("new.html").read_text()


def test_a_comparison_ends_without_a_word(iris):
    code, err = unheard("compare", "iris.csv", "--target", "species", "--model", "centroid")
    assert code == 0, err
    assert "rror" not in err


@pytest.mark.parametrize("more", [[], ["--format", "jsonl"]], ids=["csv", "jsonl"])
def test_a_stream_of_predictions_ends_as_other_commands_do(iris, more):
    assert unheard("predict", "model.kway", "iris.csv", *more) == (141, "")


@pytest.mark.parametrize("more", ["", "--json"])
def test_a_closed_stdout_gets_nothing(iris, more):
    command = f"{sys.executable} -m kway info model.kway {more} >&-"
    done = subprocess.run(command, shell=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
