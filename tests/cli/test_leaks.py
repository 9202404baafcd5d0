"""Leaks are named before anything else, with the score of an honest split next to that of a random one."""

from pathlib import Path

import pytest
from tests.helpers import leaky

import kway

LEAKY = {
    "time": (leaky.sensor, "state", ["timestamp"], "order='timestamp' (--order)"),
    "groups": (leaky.patients, "dx", ["who"], "group='who' (--group)"),
    "copies": (leaky.copies, "y", [], "Remove the copies"),
    "near copies": (lambda: leaky.copies(jitter=1e-3), "y", [], "Remove the copies"),
    "column": (leaky.target_column, "churn", ["code"], "drop='code' (--drop)"),
}


@pytest.mark.parametrize("name", LEAKY)
def test_a_leak_is_the_first_thing_that_fit_shows(cli, answer, name):
    make, target, columns, advice = LEAKY[name]
    leaky.write_csv(Path("t.csv"), make())
    found = answer("fit", "t.csv", "-t", target, "--model", "neighbors")
    assert next(iter(found)) == "leaks"
    (leak,) = [each for each in found["leaks"] if each["warns"]]
    assert (leak["kind"], leak["columns"]) == (name.removeprefix("near "), columns)
    assert leak["random"] > 0.9
    assert leak["honest"] < 0.75
    _, out, _ = cli("compare", "t.csv", "-t", target, "--model", "centroid")
    assert out.startswith("Possible leak: ")
    first = " ".join(out[: out.index("t.csv:")].split())
    assert f"{leak['random']:.3f} on a random split, and {leak['honest']:.3f} " in first
    assert advice in first


@pytest.mark.parametrize(
    ("make", "target", "option"),
    [(leaky.sensor, "state", ["--order", "timestamp"]), (leaky.patients, "dx", ["--group", "who"]),
     (leaky.target_column, "churn", ["--drop", "code"])],
)  # fmt: skip
def test_no_leak_is_left_after_the_advice(answer, make, target, option):
    leaky.write_csv(Path("t.csv"), make())
    found = answer("fit", "t.csv", "-t", target, "--model", "neighbors", *option)
    assert found["warnings"] == []
    assert found["test"]["accuracy"] < 0.75


def test_python_shows_leaks_first():
    leaky.write_csv(Path("t.csv"), leaky.target_column())
    found = kway.fit("t.csv", "churn", models="centroid", also=())
    assert str(found).startswith("possible leak: Column 'code' alone predicts every label.")
    assert [leak.kind for leak in found.leaks] == ["column"]
