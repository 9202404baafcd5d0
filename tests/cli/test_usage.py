"""Exit codes, one line on stderr, and what JSON cannot say."""

import subprocess
import sys

import numpy as np
import pytest

import kway
from kway.cli.output import say

FAILED, MISUSED = 1, 2
FAILURES = [
    (["fit", "irsi"], FAILED, "did you mean 'iris'"),
    (["fit", "iris.csv"], FAILED, "name the column that holds them with --target; its columns are"),
    (["fit", "iris.csv", "--target", "species", "--group", "specie"], MISUSED, "did you mean 'species'"),
    (["fit", "iris.csv", "--target", "spices"], MISUSED, "did you mean 'species'"),
    (["fit", "iris.csv", "--target", "species", "--id", "idd"], MISUSED, "no id column 'idd'"),
    (["fit", "iris.csv", "--target", "species", "--drop", "sepal length"], MISUSED, "no such column 'sepal length'"),
    (["fit", "iris", "--target", "x"], MISUSED, "rows of numbers that come with their labels; leave out --target"),
    (["fit", "iris", "--drop", "x"], MISUSED, "rows of numbers, which have no columns by name; leave out --drop"),
    (["predict", "nothing.kway", "iris"], FAILED, "nothing.kway cannot be read: No such file"),
    (["predict", "iris.csv", "iris"], FAILED, "not a kway model file"),
    (["predict", "model.kway", "digits"], FAILED, "this matrix has 784; pass a table with columns sepal length"),
    (["fit", "iris.csv", "--target", "species", "--report", "no/r.html"], MISUSED, "no folder no"),
    (["fit", "iris", "--model", "softmaxx"], MISUSED, "no model 'softmaxx' .did you mean 'softmax'"),
    (["fit", "iris", "--budget", "soon"], MISUSED, "--budget must be a time such as 60s"),
    (["fit", "iris", "--out", "no/m.kway"], MISUSED, "no folder no"),
    (["fit", "iris", "--sep", "ab"], MISUSED, "--sep is 'ab'; it must be one character"),
    (["compare", "iris", "--decimal", "x"], MISUSED, "--decimal is 'x'; it may be . or ,"),
    (["evaluate", "m", "iris", "--encoding", "klingon"], MISUSED, "--encoding 'klingon' is not known"),
    (["neighbors", "m", "iris", "--types", "a=nubmer"], MISUSED, "did you mean 'number'"),
    (["fit", "iris", "--types", "number"], MISUSED, "write COLUMN=KIND"),
    (["predict", "model.kway", "iris.csv", "-o", "o.xlsx"], MISUSED, "must end in .csv"),
    (["predict", "model.kway", "iris.csv", "--format", "xlsx"], MISUSED, "may be csv, jsonl, parquet"),
    (["predict", "model.kway", "iris.csv", "--format", "parquet"], MISUSED, "parquet goes to a file; name it by -o"),
    (["data", "export", "iris", "--out", "o.csv", "--part", "half"], MISUSED, "no part 'half'"),
    (["fit", "iris", "--metric", "accurate"], MISUSED, "--metric is 'accurate'"),
    (["compare", "iris", "--class-weight", "even"], MISUSED, "--class-weight is 'even'; it may be balanced"),
    (["fit", "iris", "--sets", "90"], MISUSED, "--sets is 90; it must be a share between 0 and 1, such as 0.9"),
    (["fit", "iris", "--unknown", "0"], MISUSED, "--unknown is 0; it must be a share"),
    (["fit", "iris", "--also", "forest"], MISUSED, "also names 'forest', which cannot be imported"),
    (["compare", "iris", "--also", "sklearn.svm.SCV"], MISUSED, "also names 'sklearn.svm.SCV'"),
    (["compare", "iris", "--also", "sklearn.linear_model.LinearRegression"], MISUSED, "LinearRegression is none"),
    (["fit", "iris", "--device", "tpu"], MISUSED, "--device is 'tpu'; it may be cpu, cuda, auto"),
    (["fit", "iris.csv", "--target", "species", "--order", "when"], MISUSED, "no order column 'when'"),
    (["fit", "iris.csv", "--target", "species", "--types", "when=date"], MISUSED, "no such column 'when'"),
    (["predict", "model.kway", "iris.csv", "--keep", "when"], MISUSED, "no such column 'when'"),
    (["fit", "iris.csv", "--target", "species", "--drop", "species"], MISUSED, "'species' is both --target and --drop"),
    (["compare", "iris.csv", "-t", "species", "--id", "species"], MISUSED, "'species' is both --target and --id"),
    (["fit", "iris.csv", "-t", "species", "--group", "species"], MISUSED, "'species' is both --target and --group"),
    (
        ["predict", "model.kway", "iris.csv", "--drop", "sepal width (cm)"],
        MISUSED,
        "model uses the column 'sepal width",
    ),
    (["evaluate", "model.kway", "iris.csv", "--drop", "species"], MISUSED, "'species' is both --target and --drop"),
    (["bench", "T1", "--out", "iris.csv"], MISUSED, "--out iris.csv is a file; name a folder"),
    (["bench", "T1", "--out", "no/where"], MISUSED, "no folder no"),
    (["fit", "iris", "--figures", "iris.csv"], MISUSED, "--figures iris.csv is a file; name a folder"),
    (["bench", "T999"], MISUSED, "nothing to measure is called 'T999'"),
]


@pytest.mark.parametrize(
    ("arguments", "expected", "message"), FAILURES, ids=lambda v: " ".join(v) if isinstance(v, list) else ""
)
def test_failures_are_one_line_on_stderr(iris, cli, arguments, expected, message):
    import re

    code, out, err = cli(*arguments)
    assert (code, out) == (expected, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert re.search(message, err)


@pytest.mark.parametrize(
    "arguments", [["fit"], ["fitt"], ["fit", "iris", "--colour"], ["fit", "iris", "--seed", "x"], ["predict", "m"], []]
)
def test_bad_usage(cli, arguments):
    code, out, err = cli(*arguments)
    assert code == 2
    assert "Usage" in out + err


def test_version_and_help_as_a_process():
    done = subprocess.run([sys.executable, "-m", "kway.cli", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"kway {kway.__version__}\n"
    done = subprocess.run(
        [sys.executable, "-m", "kway.cli", "fit", "--help"], capture_output=True, text=True, check=True
    )
    assert "--target" in done.stdout


def test_kway_is_a_program_of_python():
    done = subprocess.run([sys.executable, "-m", "kway", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"kway {kway.__version__}\n"


def test_lines_are_broken_between_words_by_a_terminal_and_whole_in_a_pipe(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = " ".join(["leaderboard"] * 20)
    say(text)
    assert capsys.readouterr().out == f"{text}\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    say(text)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert set(" ".join(lines).split()) == {"leaderboard"}


def test_an_unexpected_error_is_one_line_too(cli, monkeypatch):
    from kway.select import train_test

    monkeypatch.setattr(train_test, "read_fitting", lambda *_, **__: 1 // 0)
    code, out, err = cli("fit", "iris")
    assert (code, out) == (1, "")
    assert err.startswith("error: ZeroDivisionError")
    monkeypatch.setenv("KWAY_TRACEBACK", "1")
    assert "Traceback" in cli("fit", "iris")[2]


def test_values_that_json_cannot_say():
    from kway.cli.output import plain

    given = {"a": np.float32(1.5), "b": [np.inf, np.nan], 3: (np.array([1, 2]), kway.Gaussian(2.0)), "c": len}
    assert plain(given) == {"a": 1.5, "b": [None, None], "3": [[1, 2], repr(kway.Gaussian(2.0))], "c": str(len)}


def test_warnings_are_one_line(cli, monkeypatch):
    import warnings

    from kway.select import train_test

    read = train_test.read_fitting

    def warn(*arguments, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("mind\nthe gap", UserWarning, stacklevel=2)
        return read(*arguments, **options)

    monkeypatch.setattr(train_test, "read_fitting", warn)
    code, _, err = cli("fit", "iris", "--model", "centroid")
    assert code == 0
    assert err.startswith("warning: mind the gap\n")
