"""The examples that run anywhere, at a size that takes seconds."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def million():
    return runpy.run_path(str(EXAMPLES / "million_classes.py"))


def test_class_means_are_found_exactly_and_as_bits(million):
    runs = million["means"](3000, 64)
    assert runs["exactly"].accuracy > 0.99
    assert runs["as bits"].accuracy > 0.8


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), ("means, searched exactly", "means, searched as bits", "new rows correct")),
        (("--way", "softmax", "--epochs", "2"), ("rows per second", "exact loss", "new rows correct")),
    ],
)
def test_a_run_prints_its_results(million, capsys, options, expected):
    million["main"](["--classes", "1e3", "--features", "32", *options])
    printed = capsys.readouterr().out
    assert "1,000 classes x 32 features" in printed
    assert all(words in printed for words in ("sampled softmax", "GiB", "MiB", *expected))
