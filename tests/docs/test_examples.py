"""The examples that run anywhere, at a size that takes seconds."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def million():
    return runpy.run_path(str(EXAMPLES / "million_classes.py"))


def test_class_means_are_found_exactly_and_as_bits(million):
    found = million["means"](3000, 64)
    assert found["exactly"].right > 0.99
    assert found["as bits"].right > 0.8


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), ("means, asked exactly", "means, asked as bits", "fresh rows right")),
        (("--way", "softmax", "--epochs", "2"), ("rows a second", "exact loss", "fresh rows right")),
    ],
)
def test_a_run_says_what_it_did(million, capsys, options, told):
    million["main"](["--classes", "1e3", "--features", "32", *options])
    said = capsys.readouterr().out
    assert "1,000 classes x 32 features" in said
    assert all(words in said for words in ("sampled softmax", "GiB", "MiB of memory at most", *told))
