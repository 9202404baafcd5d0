"""tools/check_structure.py: sizes and public names cannot grow or change unnoticed."""

from tools.check_structure import compare, count_code_lines, count_tuning_numbers

SOURCE = '''"""A module.

Two paragraphs.
"""

LIMIT = 2**20  # a tuning number
NAMES = ("a", "b")
PAIR = {"x": 1, "y": (2.0, 3)}


class _Private:
    rate = 0.5


def work(n=7):
    """A docstring."""
    # a comment
    return n
'''


def test_counts():
    assert count_code_lines(SOURCE) == 7
    assert count_tuning_numbers(SOURCE) == 5


def test_growth_and_changed_names_are_reported():
    stored = {"modules": 2, "lines of code": 10, "public names": {"kway.a": "x", "kway.b": "y"}}
    found = {"modules": 3, "lines of code": 9, "public names": {"kway.a": "x, z", "kway.c": ""}}
    assert compare(stored, stored) == []
    assert compare(found, stored) == [
        "modules: 3, stored 2",
        "kway.c is a new public name",
        "kway.b is no longer a public name",
        "kway.a takes (x, z), stored (x)",
    ]
