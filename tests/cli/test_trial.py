"""A new user's afternoon, through the real command: odd files in, models, answers and messages out.

The first line of each kind is a process of its own, as a person starts it; the others run in this one, as a start takes
longer than the work. The table is written as a German shop's till writes it.
"""

import csv
import datetime as dt
import io
import json
import os
import random
import subprocess
import sys

import pyarrow.parquet
import pytest

SHELVES = {"Käse": 12.0, "Brot": 3.5, "Öl": 1500.0}
N = 150
AS_READ = {
    "Nummer": "id", "Preis": "number", "Anteil": "number", "Tag": "date", "Laden": "category", "leer": "empty",
}  # fmt: skip


def comma(value, digits=2):
    return f"{value:,.{digits}f}".translate(str.maketrans(",.", ".,"))


def receipts(n=N, seed=0):
    rng = random.Random(seed)
    for i in range(n):
        kind = rng.choice(list(SHELVES))
        yield {
            "Nummer": f"A-{i:05d}",
            "Preis": comma(SHELVES[kind] * rng.lognormvariate(0, 0.3)) + " €",
            "Anteil": comma({"Käse": 20, "Brot": 50, "Öl": 70}[kind] + 9 * rng.random(), 1) + " %",
            "Tag": (dt.date(2024, 1, 1) + dt.timedelta(days=rng.randrange(700))).strftime("%d.%m.%Y"),
            "Laden": rng.choice(["Süd", "Nord", "West"]),
            "leer": "",
            "Sorte": kind,
        }


def delimited(rows, sep, header=True):
    rows = list(rows)
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), delimiter=sep, lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def json_lines(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """The folder of the afternoon: laden.csv in cp1252 and a model of it, with what the fit said."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "laden.csv").write_bytes(delimited(receipts(), ";").encode("cp1252"))
    (folder / "neu.csv").write_bytes(delimited(receipts(3, seed=9), ";").encode("cp1252"))
    done = kway(folder, "fit", "laden.csv", "-t", "Sorte", "--model", "centroid,least-squares", "--also", "none", "-v")
    assert done.returncode == 0, done.stderr
    return folder, done


def kway(folder, *arguments, given=None, **environment):
    env = {**os.environ, "COLUMNS": "80", **environment}
    env.pop("KWAY_DATA", None)
    command = [sys.executable, "-m", "kway", *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, input=given, capture_output=True, env=env, timeout=300)
    done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def at_once(cli, monkeypatch):
    """Run a command line in a folder, without a process of its own."""
    monkeypatch.setenv("COLUMNS", "80")

    def call(folder, *arguments):
        monkeypatch.chdir(folder)
        code, out, err = cli(*arguments)
        assert "Traceback" not in err
        return subprocess.CompletedProcess(arguments, code, out, err)

    return call


def as_read(text):
    """Column -> kind of the lines that a fit says before its work."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.endswith(" columns"))
    end = next((i for i, line in enumerate(lines) if line.startswith("Note:")), len(lines))
    words = (line.split() for line in lines[start + 1 : end] if line.startswith("  "))
    return {column: kind for column, kind, *_ in words}


def test_a_german_file_is_read_and_said(shop):
    _, done = shop
    assert as_read(done.stderr) == AS_READ
    assert "read as cp1252" in done.stderr
    assert "decimal comma" in done.stderr
    assert "Next: kway predict model.kway NEW_DATA" in done.stdout
    board = done.stdout[: done.stdout.index("Winner:")]
    assert max(map(len, board.splitlines())) <= 80  # in a pipe, and a plain terminal
    assert "centroid" in board


FORMS = {
    "laden.tsv": (lambda rows: delimited(rows, "\t"), "Sorte", AS_READ),
    "laden.jsonl": (json_lines, "Sorte", AS_READ),
    "ohne.csv": (lambda rows: delimited(rows, ";", header=False), "c7",
                 {f"c{j + 1}": kind for j, kind in enumerate(AS_READ.values())}),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_other_files_of_the_same_rows(tmp_path, at_once, name):
    write, target, kinds = FORMS[name]
    (tmp_path / name).write_text(write(receipts()))
    done = at_once(tmp_path, "compare", name, "-t", target, "--model", "centroid", "--also", "none", "-v")
    assert done.returncode == 0, done.stderr
    assert as_read(done.stderr) == kinds


def test_answers_come_beside_what_was_asked(shop, at_once):
    folder, _ = shop
    want = [row["Sorte"] for row in receipts(3, seed=9)]
    done = kway(folder, "predict", "model.kway", "neu.csv", "--keep", "Preis", "--id", "Nummer")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert list(rows[0]) == ["Nummer", "Preis", "prediction"]
    assert [row["prediction"] for row in rows] == want
    assert [row["Preis"] for row in rows] == [row["Preis"] for row in receipts(3, seed=9)]
    for out in ("a.csv", "a.parquet", "a.jsonl"):
        done = at_once(folder, "predict", "model.kway", "neu.csv", "--keep", "all", "--topk", 2, "-o", out)
        assert done.stdout == f"Wrote 3 predictions to {out}.\n", done.stderr
    assert pyarrow.parquet.read_table(folder / "a.parquet").column("prediction").to_pylist() == want
    lines = [json.loads(line) for line in (folder / "a.jsonl").read_text().splitlines()]
    assert [line["label_1"] for line in lines] == want
    assert list(lines[0])[:3] == ["Nummer", "Preis", "Anteil"]


def test_rows_come_through_a_pipe_in_any_form(shop):
    folder, _ = shop
    want = [row["Sorte"] for row in receipts(3, seed=9)]
    for given in ((folder / "neu.csv").read_bytes(), json_lines(receipts(3, seed=9)).encode()):
        done = kway(folder, "predict", "model.kway", "-", given=given)
        assert done.stdout.split() == ['"prediction"', *(f'"{label}"' for label in want)], done.stderr


def test_a_model_of_a_frame_is_evaluated_on_files(tmp_path, at_once):
    """It once crashed: 'str' object has no attribute 'item'."""
    import pandas as pd

    import kway as library

    found = library.fit(pd.DataFrame(receipts()), "Sorte", models=["centroid"], also=())
    found.save(tmp_path / "m.kway")
    (tmp_path / "laden.csv").write_bytes(delimited(receipts(60, seed=5), ";").encode("cp1252"))
    done = at_once(tmp_path, "evaluate", "m.kway", "laden.csv", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["accuracy"] > 0.9


MISUSES = {
    "fit": ["fit", "laden.csv", "-t", "Sorte", "--metric", "acc"],
    "fit onto its data": ["fit", "laden.csv", "-t", "Sorte", "-o", "laden.csv", "--force"],
    "fit's page onto its data": ["fit", "laden.csv", "-t", "Sorte", "--report", "laden.csv", "--force"],
    "compare": ["compare", "laden.csv", "-t", "Sorte", "--also", "nonsense"],
    "predict": ["predict", "model.kway", "neu.csv", "--format", "xls"],
    "predict onto its data": ["predict", "model.kway", "neu.csv", "-o", "neu.csv", "--force"],
    "evaluate": ["evaluate", "model.kway", "neu.csv", "--types", "Preis=nubmer"],
    "explain": ["explain", "model.kway", "--decimal", "x"],
    "neighbors": ["neighbors", "model.kway", "neu.csv", "--encoding", "klingon"],
    "info": ["info"],
    "plan": ["plan", "--samples", "many"],
    "data": ["data", "export", "iris", "-o", "iris.xls"],
    "no such verb": ["fitt", "laden.csv"],
}


def test_what_cannot_be_meant_exits_with_2_and_changes_nothing(shop, at_once):
    folder, _ = shop
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name, arguments in MISUSES.items():
        done = at_once(folder, *arguments)
        assert (done.returncode, done.stdout) == (2, ""), (name, done.stderr)
        assert done.stderr, name
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    alone = kway(folder, *MISUSES["fit"])
    assert (alone.returncode, alone.stdout) == (2, ""), alone.stderr
