"""Exit codes, one line on stderr, and what JSON cannot say."""

import subprocess
import sys

import numpy as np
import pytest

import kway
from kway.cli.options import with_flags
from kway.cli.output import say

FAILED, MISUSED = 1, 2
FAILURES = [
    (["fit", "irsi"], FAILED, "did you mean 'iris'"),
    (["fit", "iris.csv"], FAILED, "name the column with the labels: target=; its columns are"),
    (["fit", "iris.csv", "--target", "species", "--group", "specie"], MISUSED, "did you mean 'species'"),
    (["fit", "iris.csv", "--target", "spices"], MISUSED, "did you mean 'species'"),
    (["fit", "iris.csv", "--target", "species", "--id", "idd"], MISUSED, "no id column 'idd'"),
    (["fit", "iris.csv", "--target", "species", "--drop", "sepal length"], MISUSED, "no such column 'sepal length'"),
    (
        ["fit", "iris", "--target", "x"],
        MISUSED,
        "contains its labels; leave out target= .--target.",
    ),
    (
        ["fit", "iris", "--drop", "x"],
        MISUSED,
        "have no named columns; leave out drop= .--drop.",
    ),
    (["predict", "nothing.kway", "iris"], FAILED, "nothing.kway cannot be read: No such file"),
    (["predict", "iris.csv", "iris"], FAILED, "not a kway model file"),
    (["predict", "model.kway", "digits"], FAILED, "this matrix has 784; pass a table with columns sepal length"),
    (["fit", "iris.csv", "--target", "species", "--report", "no/r.html"], MISUSED, "no folder "),
    (["fit", "iris", "--model", "softmaxx"], MISUSED, "--model has no 'softmaxx' .did you mean 'softmax'"),
    (
        ["fit", "iris", "--budget", "soon"],
        MISUSED,
        "--budget must be a number of seconds above 0 or a time",
    ),
    (["fit", "iris", "--out", "no/m.kway"], MISUSED, "no folder "),
    (["fit", "iris", "--sep", "ab"], MISUSED, "--sep is 'ab'; it must be one character"),
    (["compare", "iris", "--decimal", "x"], MISUSED, "--decimal is 'x'; it must be . or ,"),
    (["evaluate", "m", "iris", "--encoding", "klingon"], MISUSED, "--encoding is 'klingon', which is not known"),
    (["neighbors", "m", "iris", "--types", "a=nubmer"], MISUSED, "did you mean 'number'"),
    (["fit", "iris", "--types", "number"], MISUSED, "write COLUMN=TYPE"),
    (["predict", "model.kway", "iris.csv", "-o", "o.xlsx"], MISUSED, "must end in .csv"),
    (["predict", "model.kway", "iris.csv", "--format", "xlsx"], MISUSED, "must be csv, jsonl, parquet"),
    (
        ["predict", "model.kway", "iris.csv", "--format", "parquet"],
        MISUSED,
        "parquet cannot be written to stdout",
    ),
    (
        ["data", "export", "iris", "--out", "o.csv", "--part", "half"],
        MISUSED,
        "--part must be one of train",
    ),
    (["fit", "iris", "--metric", "accurate"], MISUSED, "--metric must be one of accuracy, balanced"),
    (["compare", "iris", "--class-weight", "even"], MISUSED, "--class-weight must be None or 'balanced', got 'even'"),
    (["fit", "iris", "--sets", "90"], MISUSED, "--sets must be None or a number between 0 and 1, got 90"),
    (["fit", "iris", "--unknown", "0"], MISUSED, "--unknown must be None or a number between 0 and 1"),
    (["fit", "iris", "--also", "forest"], MISUSED, "also names 'forest', which cannot be imported"),
    (["compare", "iris", "--also", "sklearn.svm.SCV"], MISUSED, "also names 'sklearn.svm.SCV'"),
    (["compare", "iris", "--also", "sklearn.linear_model.LinearRegression"], MISUSED, "LinearRegression is none"),
    (["fit", "iris", "--device", "tpu"], MISUSED, "--device must be one of 'cpu', 'cuda', 'auto'"),
    (["fit", "iris.csv", "--target", "species", "--order", "when"], MISUSED, "no order column 'when'"),
    (["fit", "iris.csv", "--target", "species", "--types", "when=date"], MISUSED, "no such column 'when'"),
    (["predict", "model.kway", "iris.csv", "--keep", "when"], MISUSED, "no such column 'when'"),
    (["fit", "iris.csv", "--target", "species", "--drop", "species"], MISUSED, "target and drop are both 'species'"),
    (["compare", "iris.csv", "-t", "species", "--id", "species"], MISUSED, "target and id are both 'species'"),
    (["fit", "iris.csv", "-t", "species", "--group", "species"], MISUSED, "target and group are both 'species'"),
    (
        ["predict", "model.kway", "iris.csv", "--drop", "sepal width (cm)"],
        MISUSED,
        "model uses the column 'sepal width",
    ),
    (["evaluate", "model.kway", "iris.csv", "--drop", "species"], MISUSED, "target and drop are both 'species'"),
    (["fit", "iris", "--figures", "iris.csv"], MISUSED, "--figures iris.csv is a file; name a folder"),
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
    done = subprocess.run([sys.executable, "-m", "kway", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"kway {kway.__version__}\n"
    done = subprocess.run([sys.executable, "-m", "kway", "fit", "--help"], capture_output=True, text=True, check=True)
    assert "--target" in done.stdout


def test_kway_is_a_program_of_python():
    done = subprocess.run([sys.executable, "-m", "kway", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"kway {kway.__version__}\n"


@pytest.mark.parametrize(
    "text",
    [
        "unknown encoding in the file",
        "order of the rows",
        "target",
        "`folds` of the file",
        "",
        "the folds must be even",
    ],
)
def test_words_that_are_also_options_stay_words(text):
    assert with_flags(text, first=True) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("skip_bad is 3; it must be True", "--skip-bad is 3; it must be True"),
        ("models has no 'x'", "--model has no 'x'"),
        ("bad line; pass skip_bad=True", "bad line; pass skip_bad=True (--skip-bad)"),
        ("weight= does not work; leave it out", "weight= does not work; leave it out (--weight)"),
    ],
)
def test_options_in_messages_get_their_flags(text, shown):
    assert with_flags(text, first=True) == shown


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
    from kway.auto import train_test

    monkeypatch.setattr(train_test, "read_what_fits", lambda *_, **__: 1 // 0)
    code, out, err = cli("fit", "iris")
    assert (code, out) == (1, "")
    assert err.startswith("error: ZeroDivisionError")
    monkeypatch.setenv("KWAY_TRACEBACK", "1")
    assert "Traceback" in cli("fit", "iris")[2]


def test_values_that_json_cannot_say():
    from kway.text_tables import plain

    given = {"a": np.float32(1.5), "b": [np.inf, np.nan], 3: (np.array([1, 2]), kway.Gaussian(2.0)), "c": len}
    assert plain(given) == {"a": 1.5, "b": [None, None], "3": [[1, 2], repr(kway.Gaussian(2.0))], "c": str(len)}


def test_warnings_are_one_line(cli, monkeypatch):
    import warnings

    from kway.auto import train_test

    read = train_test.read_what_fits

    def warn(*arguments, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("mind\nthe gap", UserWarning, stacklevel=2)
        return read(*arguments, **options)

    monkeypatch.setattr(train_test, "read_what_fits", warn)
    code, _, err = cli("fit", "iris", "--model", "centroid")
    assert code == 0
    assert err.startswith("warning: mind the gap\n")
