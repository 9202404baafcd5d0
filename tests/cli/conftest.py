"""The command line as people and scripts use it: run in an empty folder, output and exit codes caught."""

import csv
import json
import shutil

import pytest

from kway.cli import run


@pytest.fixture(autouse=True)
def plain_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KWAY_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "160")


@pytest.fixture(autouse=True)
def quick_trees(few_trees):
    """Every race of this folder has small forests."""


@pytest.fixture(autouse=True)
def no_page(monkeypatch):
    """The page takes seconds to draw and has tests of its own."""
    from kway.report import page

    monkeypatch.setattr(page, "write_page", lambda path, *_: open(path, "w").close())


@pytest.fixture
def cli(capfd):
    """Run a command line; its exit code, stdout and stderr."""

    def call(*arguments):
        code = run([str(a) for a in arguments])
        return code, *capfd.readouterr()

    return call


@pytest.fixture
def answer(cli):
    """Run a command line that must succeed with --json; the one object it prints."""

    def call(*arguments):
        code, out, err = cli(*arguments, "--json")
        assert code == 0, err
        assert out.count("\n") == 1
        return json.loads(out)

    return call


@pytest.fixture(scope="session")
def fitted_iris(tmp_path_factory):
    """A folder with iris.csv, its target in the column `species`, and a model fitted to it; made once."""
    folder = tmp_path_factory.mktemp("iris")
    table, model, page = (str(folder / name) for name in ("iris.csv", "model.kway", "report.html"))
    assert run(["data", "export", "iris", "--out", table]) == 0
    path = folder / "iris.csv"
    path.write_text(path.read_text().replace('"target"', '"species"', 1))
    assert (
        run(["fit", table, "-t", "species", "--model", "softmax", "--alpha", "0.01", "-o", model, "--report", page])
        == 0
    )
    return folder


@pytest.fixture
def iris(fitted_iris, tmp_path, capfd):
    """iris.csv and model.kway, fitted to it, in the folder of the test."""
    for name in ("iris.csv", "model.kway"):
        shutil.copy(fitted_iris / name, tmp_path / name)
    capfd.readouterr()
    return tmp_path / "iris.csv"


@pytest.fixture
def read_csv():
    """Rows of a csv file as dictionaries."""

    def read(path):
        with open(path, newline="") as file:
            return list(csv.DictReader(file))

    return read
