"""`kway plan`: a size or data in, a table of 80 columns or one JSON object out."""

import json

import pytest

from kway.cli import run


def test_a_size(capsys):
    assert run(["plan", "--samples", "1e9", "--features", "512", "--classes", "1e9", "--memory", "24GB", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["n_samples"], said["n_features"], said["n_classes"]) == (10**9, 512, 10**9)
    assert said["advised"] is None
    assert {way["name"] for way in said["ways"]} >= {"softmax", "one-vs-all", "centroids", "kNN flat", "kNN bits"}


def test_the_table_fits_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["plan", "--samples", "1e9", "--features", "512", "--classes", "1e9", "--memory", "24GB"]) == 0
    said = capsys.readouterr().out
    lines = said.splitlines()
    table = lines[: next(i for i, line in enumerate(lines) if line.startswith("  softmax:"))]
    assert all(len(line.rstrip()) <= 80 for line in table)
    assert sum(" kNN " in line for line in table) == 6  # one line a way: nothing was wrapped
    assert "Nothing fits" in said


def test_data(capsys):
    assert run(["plan", "iris", "--memory", "24GB", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["n_features"], said["n_classes"], said["advised"]) == (4, 3, "softmax")


@pytest.mark.parametrize("arguments", [[], ["--samples", "10"], ["iris", "--classes", "3"]])
def test_half_a_size_is_refused(arguments, capsys):
    assert run(["plan", *arguments]) == 2
    assert "give either DATA, or all of" in capsys.readouterr().err


def test_sizes_that_cannot_be_meant_are_bad_usage(cli):
    for size in ("-5", "0"):
        code, out, err = cli("plan", "--samples", size, "--features", 100, "--classes", 10)
        assert (code, out) == (2, "")
        assert "n_samples must be a whole number of at least 1" in err
