"""`kway fit` and `kway compare --device cuda`: every family computes there, or here where it cannot.

Without a GPU "cuda" is made to mean torch on the CPU.
"""

import importlib
import json

import numpy as np
import pytest

pytest.importorskip("torch")

import kway
from kway.cli import run
from kway.rows.gpu.device import ChosenDevice

WHO_ASKS = (
    "kway.linear.plan",
    "kway.neighbors.centroid",
    "kway.search.flat",
    "kway.auto.race.compare",
)


@pytest.fixture
def cuda(device, monkeypatch):
    """The device under test, wherever "cuda" is asked for."""

    def resolve(word, pays=True):
        return ChosenDevice(None if word == "cpu" else device, "on the device under test")

    for name in WHO_ASKS:
        module = importlib.import_module(name)
        if hasattr(module, "resolve"):
            monkeypatch.setattr(module, "resolve", resolve)
    return device


def test_every_family_is_compared_on_a_device(cuda, capfd):
    assert run(["compare", "iris", "--device", "cuda", "--json"]) == 0
    found = json.loads(capfd.readouterr()[0])
    scored = {line["model"] for line in found["models"]}
    assert {"softmax", "centroid", "neighbors", "neighbors-manhattan", "neighbors-nca"} <= scored


def test_a_fit_of_neighbors_searches_all_rows_on_the_gpu(cuda, capfd, monkeypatch, tmp_path):
    monkeypatch.setattr("kway.auto.refit._SLOW_SEARCH", 0.0)  # any number of rows takes long
    rng = np.random.default_rng(0)
    y = np.arange(2500) % 3
    rows = np.column_stack([5 * rng.standard_normal((3, 9))[y] + rng.standard_normal((2500, 9)), y])
    names = [*(f"c{j}" for j in range(9)), "kind"]
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",", header=",".join(names), comments="", fmt="%.5f")
    out = tmp_path / "model.kway"
    asked = ["fit", tmp_path / "rows.csv", "-t", "kind", "--model", "neighbors", "--device", "cuda", "--out", out]
    monkeypatch.setattr("kway.report.page.write_page", lambda path, *_: open(path, "w").close())
    assert run([*map(str, asked), "--report", str(tmp_path / "page.html"), "--json"]) == 0
    assert json.loads(capfd.readouterr()[0])["test"]["accuracy"] > 0.99
    assert "on the device under test" in told(kway.load(out))


def told(model):
    """The reason of the index somewhere inside a saved model."""
    todo = [model]
    while not hasattr(todo[0], "index_"):
        held = vars(todo.pop(0)).values() if hasattr(todo[0], "__dict__") else todo.pop(0)
        todo += [one for one in held if isinstance(one, list | tuple) or type(one).__module__.startswith("kway")]
    return todo[0].index_.why_
