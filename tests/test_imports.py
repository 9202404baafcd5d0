"""`import kway` and `kway --help` answer at once: nothing heavy is loaded before it is used."""

import statistics
import subprocess
import sys
import time

import pytest

HEAVY = ("numba", "sklearn", "scipy", "numpy", "pyarrow", "pandas", "polars", "matplotlib", "rich", "typer", "torch")


def seconds(*command):
    started = time.perf_counter()
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def extra_seconds(*command, rounds=5):
    """The median above that of starting Python, each taken in turn, so that a slow machine slows both."""
    pairs = [(seconds("-c", "pass"), seconds(*command)) for _ in range(rounds)]
    return statistics.median(b for _, b in pairs) - statistics.median(a for a, _ in pairs)


def loaded_by(statement):
    code = f"import sys; {statement}; print(*sorted({{m.partition('.')[0] for m in sys.modules}}))"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


def test_import_is_quick():
    assert extra_seconds("-c", "import kway") < 0.3


def test_help_is_quick():
    assert extra_seconds("-m", "kway.cli", "--help") < 0.5


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("import kway; dir(kway); kway.errors", set()),
        ("import kway.cli", {"typer", "rich"}),
        ("import kway.store", {"numpy"}),
        ("import kway.datasets", {"numpy"}),
    ],
)
def test_nothing_heavy_is_loaded(statement, allowed):
    assert loaded_by(statement) & set(HEAVY) <= allowed
