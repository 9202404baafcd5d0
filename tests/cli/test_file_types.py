"""Excel, SQLite, ARFF, Feather, nested JSON, and lines above a table, through the command line."""

import datetime as dt
import json
import sqlite3
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import kway
from kway.tables.read_options import ReadOptions
from kway.tables.reading import read_rows

RNG = np.random.default_rng(0)
SIZES = np.round(RNG.uniform(1, 9, 120), 2).tolist()
KINDS = ["small" if size < 5 else "large" for size in SIZES]
FIT = ("--model", "centroid")


def cell(value):
    if isinstance(value, str):
        return f'<c t="inlineStr"><is><t>{value}</t></is></c>'
    return "<c/>" if value is None else f"<c><v>{value}</v></c>"


def write_excel(path, sheets):
    """Write a workbook by hand: no library of the tests writes one."""
    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    names = list(sheets)
    listed = "".join(f'<sheet name="{n}" sheetId="{i}" r:id="r{i}"/>' for i, n in enumerate(names, 1))
    links = "".join(
        f'<Relationship Id="r{i}" Type="{office}/worksheet" Target="worksheets/sheet{i}.xml"/>'
        for i in range(1, len(names) + 1)
    )
    with zipfile.ZipFile(path, "w") as book:
        book.writestr("[Content_Types].xml", f'<Types xmlns="{package}/content-types"/>')
        book.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" Type="{office}/officeDocument" '
            'Target="xl/workbook.xml"/></Relationships>',
        )
        book.writestr("xl/workbook.xml", f'<workbook {main} xmlns:r="{office}"><sheets>{listed}</sheets></workbook>')
        book.writestr(
            "xl/_rels/workbook.xml.rels", f'<Relationships xmlns="{package}/relationships">{links}</Relationships>'
        )
        for i, name in enumerate(names, 1):
            rows = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in sheets[name])
            book.writestr(f"xl/worksheets/sheet{i}.xml", f"<worksheet {main}><sheetData>{rows}</sheetData></worksheet>")


ROWS = [["size", "kind"], *map(list, zip(SIZES, KINDS))]


def test_a_workbook(answer, cli, read_csv):
    write_excel("one.xlsx", {"2023": ROWS, "notes": []})
    assert answer("fit", "one.xlsx", "-t", "kind", *FIT)["data"]["train_rows"] == 96
    assert cli("predict", "model.kway", "one.xlsx", "-o", "o.csv")[0] == 0
    assert len(read_csv("o.csv")) == 120
    write_excel("years.xlsx", {"2023": ROWS[:61], "2024": [ROWS[0], *ROWS[61:]]})
    assert answer("compare", "years.xlsx", "-t", "kind", *FIT)["data"]["train_rows"] == 96
    assert answer("compare", "years.xlsx", "-t", "kind", "--table", "2024", *FIT)["data"]["train_rows"] == 48
    write_excel("mixed.xlsx", {"rows": ROWS, "legend": [["word", "meaning"], ["a", "b"]]})
    code, _, err = cli("compare", "mixed.xlsx", "-t", "kind", *FIT)
    assert code == 2
    assert "has the sheets 'rows', 'legend' with different columns; name one: table= (--table)" in err
    assert "did you mean 'rows'" in cli("compare", "mixed.xlsx", "-t", "kind", "--table", "row", *FIT)[2]
    write_excel("titled.xlsx", {"a": [["Sizes of 2023", None], *ROWS]})
    assert answer("compare", "titled.xlsx", "-t", "kind", "--skip-rows", 1, *FIT)["data"]["train_rows"] == 96


def test_whole_numbers_between_words_of_a_workbook_are_written_as_in_a_csv():
    write_excel("codes.xlsx", {"a": [["code", "size", "kind"], [12, 1.5, 7], ["x", 2, "p"], [3.5, None, "q"]]})
    Path("codes.csv").write_text("code,size,kind\n12,1.5,7\nx,2,p\n3.5,,q\n")
    options = ReadOptions("kind")
    workbook, text = (read_rows(name, options) for name in ("codes.xlsx", "codes.csv"))
    assert workbook.rows.to_pydict() == text.rows.to_pydict() == {"code": ["12", "x", "3.5"], "size": [1.5, 2.0, None]}
    assert workbook.y.tolist() == text.y.tolist() == ["7", "p", "q"]


def test_a_workbook_without_its_library_says_what_to_install(cli, monkeypatch):
    write_excel("one.xlsx", {"a": ROWS})
    monkeypatch.setitem(__import__("sys").modules, "python_calamine", None)
    code, _, err = cli("compare", "one.xlsx", "-t", "kind", *FIT)
    assert code == 1
    assert "pip install python-calamine, or save the sheet as csv" in err


def test_a_damaged_file_is_named(cli):
    for name in ("t.xlsx", "t.sqlite", "t.feather", "t.arff"):
        Path(name).write_bytes(b"not a file of this kind " * 20)
        code, _, err = cli("compare", name, "-t", "kind", *FIT)
        assert (code, err.count("\n")) == (1, 1)
        assert name in err


def test_a_database(answer, cli):
    with sqlite3.connect("t.sqlite") as base:
        base.execute("CREATE TABLE plants (size REAL, kind TEXT)")
        base.executemany("INSERT INTO plants VALUES (?, ?)", zip(SIZES, KINDS))
    assert answer("fit", "t.sqlite", "-t", "kind", *FIT)["data"]["train_rows"] == 96
    with sqlite3.connect("t.sqlite") as base:
        base.execute("CREATE TABLE users (name TEXT)")
        base.execute("INSERT INTO users VALUES ('a')")
    assert "has the tables 'plants', 'users'" in cli("compare", "t.sqlite", "-t", "kind", *FIT)[2]
    assert answer("evaluate", "model.kway", "t.sqlite", "--table", "plants")["rows"] == 120


def test_arff_and_feather(answer):
    head = "% comment\n@RELATION plants\n@ATTRIBUTE 'leaf size' NUMERIC\n@attribute kind {small,large}\n@DATA\n"
    Path("t.arff").write_text(head + "?,small\n" + "\n".join(f"{s},{k}" for s, k in zip(SIZES, KINDS)) + "\n")
    assert answer("fit", "t.arff", "-t", "kind", *FIT)["data"]["train_rows"] == 97
    assert kway.load("model.kway").features_.feature_names_in_.tolist() == ["leaf size"]
    pyarrow.feather.write_feather(pa.table({"size": SIZES, "kind": KINDS}), "t.feather")
    assert answer("compare", "t.feather", "-t", "kind", *FIT)["data"]["train_rows"] == 96


def test_nested_json_and_numbers_as_text(answer):
    lines = [
        {"user": {"age": s if i % 50 else str(s), "home": {"town": "ab"[i % 2]}}, "tags": ["a", k], "kind": k}
        for i, (s, k) in enumerate(zip(SIZES, KINDS))
    ]
    Path("t.jsonl").write_text("\n".join(map(json.dumps, lines)))
    answer("fit", "t.jsonl", "-t", "kind", "--model", "centroid")
    kinds = {r["column"]: r["kind"] for r in kway.load("model.kway").features_.explain()}
    assert kinds == {"user.age": "number", "user.home.town": "category", "tags": "category"}


def test_lists_structs_and_durations_of_parquet(answer, cli):
    table = pa.table(
        {
            "trip": [{"km": s, "via": k[0]} for s, k in zip(SIZES, KINDS)],
            "took": [dt.timedelta(minutes=10 * s) for s in SIZES],
            "stops": [list(range(1 + i % 3)) for i in range(120)],
            "words": [["red", k] for k in KINDS],
            "kind": KINDS,
        }
    )
    pq.write_table(table, "t.parquet")
    err = cli("fit", "t.parquet", "-t", "kind", *FIT, "-v")[2]
    assert "dropped: lists of 1 to 3 numbers, not of one length" in err
    records = {r["column"]: r["kind"] for r in kway.load("model.kway").features_.explain()}
    assert records == {
        "trip.km": "number", "trip.via": "category", "took": "number", "stops": "unknown", "words": "category",
    }  # fmt: skip
    assert (
        kway.load("model.kway").predict(table).tolist() == kway.load("model.kway").predict(table.to_pylist()).tolist()
    )


def test_lines_above_the_table(answer, cli, monkeypatch):
    body = "\n".join(f"{s};{k}" for s, k in zip(SIZES, KINDS))
    Path("t.csv").write_text(f"Plants of 2023\nsizes, in cm\nsize;kind\n{body}\n")
    assert cli("compare", "t.csv", "-t", "kind", *FIT)[0] != 0
    found = answer("fit", "t.csv", "-t", "kind", "--skip-rows", 2, *FIT)
    assert found["data"]["train_rows"] == 96
    assert answer("evaluate", "model.kway", "t.csv", "--skip-rows", 2)["rows"] == 120
    monkeypatch.setattr("kway.tables.sources.table_files.LARGE", 0)
    monkeypatch.setattr("kway.tables.sources.csv_files.PIECE_BYTES", 400)
    assert answer("evaluate", "model.kway", "t.csv", "--skip-rows", 2)["rows"] == 120
    assert "skip_rows is -1" in cli("compare", "t.csv", "-t", "kind", "--skip-rows", -1, *FIT)[2].replace(
        "--skip-rows", "skip_rows"
    )


@pytest.mark.parametrize("typed", [True, False])
def test_a_parquet_file_that_expands_too_much_is_refused(cli, typed):
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(2000, np.int32)), ["z" * 5_000_000])
    table = pa.table({"t": text, "label": ["a", "b"] * 1000})
    pq.write_table(table, "t.parquet", compression="zstd", store_schema=typed)
    assert Path("t.parquet").stat().st_size < 100_000
    code, _, err = cli("compare", "t.parquet", "--target", "label", *FIT)
    assert code == 1
    assert "far more than a data file of this size has" in err
