"""tools/check_docstrings.py: what it finds in docstrings that are right, wrong or missing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("numpydoc")
sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
from check_docstrings import find_problems, public_objects


def described(a: int, b: int) -> int:
    """Add.

    Parameters
    ----------
    a, b : int
        Numbers.

    Returns
    -------
    int
        The sum.
    """


def stale(a: int, c: int) -> int:
    """Add.

    Parameters
    ----------
    a : int
        A number.
    b : int
        Another.
    """


class Record(NamedTuple):
    """A pair.

    Attributes
    ----------
    x : int
        The first.
    """

    x: int


def test_what_is_found():
    assert find_problems(described) == []
    assert find_problems(Record) == []
    assert find_problems(stale) == [
        "does not describe c",
        "describes b, which the signature does not have",
        "has no Returns",
    ]


def test_methods_of_public_classes_are_found():
    names = [name for name, _ in public_objects()]
    assert "kway.base.classifier.Classifier.predict_topk" in names
    assert len(names) == len(set(names))
