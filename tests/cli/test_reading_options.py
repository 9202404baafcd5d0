"""Tables as people write them, through the command line: recognised and said, or settled by an option."""

import datetime as dt
import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_wine

import kway
from kway.tables.read_options import ReadOptions
from kway.tables.reading import read_rows

WINE = load_wine()
NAMES = [str(n).split("/")[0] for n in WINE.feature_names]


def german(value):
    """1234.5 as 1.234,5."""
    return f"{value:,.6f}".rstrip("0").rstrip(".").translate(str.maketrans(",.", ".,"))


def write_wine(path, sep=",", number=str, header=True, encoding="utf-8", rows=None):
    lines = [sep.join([*NAMES, "sorte"])] if header else []
    chosen = range(len(WINE.data)) if rows is None else rows
    lines += [sep.join([*map(number, map(float, WINE.data[i])), f"güte {WINE.target[i]}"]) for i in chosen]
    Path(path).write_bytes(("\n".join(lines) + "\n").encode(encoding))


FORMS = {
    "semicolon and comma": {"sep": ";", "number": german},
    "latin-1 as well": {"sep": ";", "number": german, "encoding": "latin-1"},
    "utf-16 with tabs": {"sep": "\t", "encoding": "utf-16"},
    "no header": {"header": False},
    "byte-order mark": {"encoding": "utf-8-sig"},
    "percent": {"number": lambda v: f"{v} %"},
    "dollars": {"number": lambda v: f'"${v:,.2f}"'},
    "euros": {"sep": ";", "number": lambda v: german(v) + " €"},
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_thirteen_numbers_are_thirteen_numbers(answer, cli, form):
    """A decimal comma once made 3,432 hashed letters of them, without a word."""
    write_wine("odd.csv", **form)
    target = "sorte" if form.get("header", True) else "c14"
    code, _, err = cli("fit", "odd.csv", "-t", target, "--model", "centroid", "-o", "odd.kway", "-v")
    assert code == 0, err
    assert "odd.csv: 13 columns" in err
    model = kway.load("odd.kway")
    assert model.features_.n_features_out_ == 13
    assert {r["kind"] for r in model.features_.explain()} == {"number"}
    assert answer("evaluate", "odd.kway", "odd.csv")["accuracy"] > 0.95
    write_wine("one.csv", rows=[100], **form)  # a single row says little: it is read as training was
    assert answer("predict", "odd.kway", "one.csv")["predictions"]["prediction"] == [f"güte {WINE.target[100]}"]


def test_the_same_numbers_come_out(tmp_path):
    """Whatever the notation, the values are those of the plain file."""
    write_wine("plain.csv")
    want = np.column_stack([c.to_numpy() for c in read_rows("plain.csv", ReadOptions("sorte")).rows.columns])
    np.testing.assert_array_equal(want, WINE.data)
    for name, form in FORMS.items():
        write_wine("odd.csv", **form)
        target = "sorte" if form.get("header", True) else "c14"
        got = np.column_stack([c.to_numpy() for c in read_rows("odd.csv", ReadOptions(target)).rows.columns])
        np.testing.assert_allclose(got, WINE.data, atol=0.005 if name == "dollars" else 0, err_msg=name)


def test_thousands_without_a_fraction_follow_the_file(answer):
    """1.234 in a file of decimal commas is 1234, and 2.5 is still 2.5."""
    rows = [f"{i},5;{i % 9 + 1}.{i:03d};{i}.5;{'ab'[i % 2]}" for i in range(40)]
    Path("t.csv").write_text("price;people;ratio;k\n" + "\n".join(rows) + "\n")
    found = read_rows("t.csv", ReadOptions("k")).rows.to_pydict()
    assert found["price"][:2] == [0.5, 1.5]
    assert found["people"][:2] == [1000, 2001]
    assert found["ratio"][:2] == [0.5, 1.5]


def test_ambiguous_numbers_are_said_and_settled(cli, answer):
    rows = [f'"{i % 9 + 1},{i * 7 % 1000:03d}",{"ab"[i % 2]}' for i in range(40)]
    Path("t.csv").write_text("x,k\n" + "\n".join(rows) + "\n")
    _, _, err = cli("compare", "t.csv", "-t", "k", "--model", "centroid")
    assert ", between thousands (decimal=',' to change it)" in err
    answer("fit", "t.csv", "-t", "k", "--model", "centroid", "--decimal", ",")
    assert kway.modelfile.info("model.kway").notes["reading"]["form"]["decimal"] == ","
    assert kway.load("model.kway").features_.parts_[0].numbers.mean[0] < 10


DATES = {
    "day first": ("31/12/2024", "%d/%m/%Y", "day first"),
    "month first": ("12/31/2024", "%m/%d/%Y", "month first"),
    "dots": ("31.12.2024", "%d.%m.%Y", "day first"),
    "with a time": ("31.12.2024 23:59", "%d.%m.%Y %H:%M", "day first"),
    "as Excel has it": ("12/31/2024 11:59 PM", "%m/%d/%Y %I:%M %p", "month first"),
    "a month's name": ("Dec 31, 2024", "%b %d, %Y", ""),
}


@pytest.mark.parametrize(("like", "form", "said"), DATES.values(), ids=DATES.keys())
def test_dates_as_people_write_them(cli, answer, like, form, said):
    days = [dt.datetime(2024, 1, 1, 23, 59) + dt.timedelta(days=9 * i) for i in range(60)]
    rows = [f'"{d.strftime(form)}",{"ab"[d.month > 6]}' for d in days]
    Path("t.csv").write_text("when,k\n" + "\n".join(rows) + "\n")
    _, _, err = cli("fit", "t.csv", "-t", "k", "--model", "centroid", "-v")
    assert "date" in err
    assert said in err
    record = kway.load("model.kway").features_.explain()[0]
    assert record["kind"] == "date"
    assert "month" in record["done"]
    Path("one.csv").write_text(f'when\n"{like}"\n')
    assert answer("predict", "model.kway", "one.csv")["predictions"]["prediction"] == ["b"]


def test_dates_that_could_be_either_are_said_and_settled(cli):
    rows = [f"{i % 12 + 1:02d}/{i % 5 + 1:02d}/2024,{'ab'[i % 2]}" for i in range(60)]
    Path("t.csv").write_text("when,k\n" + "\n".join(rows) + "\n")
    assert "types={'when': 'month-first'} to change it" in cli("compare", "t.csv", "-t", "k", "--model", "centroid")[2]
    cli("fit", "t.csv", "-t", "k", "--model", "centroid", "--types", "when=month-first")
    assert kway.load("model.kway").features_.written_ == {"when": "%m/%d/%Y"}


def test_dates_that_are_none_are_shown(cli):
    rows = [f"{i % 28 + 1:02d}.03.2024,{'ab'[i % 2]}" for i in range(60)]
    Path("t.csv").write_text("when,k\n" + "\n".join([*rows, *["soon,a"] * 20]) + "\n")
    code, _, err = cli("fit", "t.csv", "-t", "k", "--model", "centroid", "--types", "when=date")
    assert code == 1
    assert "column 'when' must contain dates, but has 'soon' and others; write dates as 2024-01-31, " in err
    assert "03:45 PM" in err


def test_seconds_are_dates_where_that_is_said(cli, answer):
    rows = [f"{1_704_067_200 + 86_400 * i},{'ab'[i >= 30]}" for i in range(60)]
    Path("t.csv").write_text("when,k\n" + "\n".join(rows) + "\n")
    err = cli("fit", "t.csv", "-t", "k", "--model", "centroid", "--types", "when=date", "-v")[2]
    assert "seconds since 1970; month, day, weekday as numbers" in err
    assert answer("evaluate", "model.kway", "t.csv")["rows"] == 60


def test_every_column_is_said_with_an_example(cli, answer):
    rng = np.random.default_rng(0)
    head = "id,price,colour,when,remark,same,empty,kind"
    words = ["blue", "late", "broken", "fine", "again", "never", "soon", "often"]
    rows = [
        f'{rng.integers(10**9)},"1.{i:03d},50 €",{"rgb"[i % 3]},{i % 28 + 1}.3.2024,'
        f"{' '.join(rng.choice(words, 6))} {i},x,,{'ab'[i % 2]}"
        for i in range(200)
    ]
    Path("t.csv").write_text(head + "\n" + "\n".join(rows) + "\n")
    code, _, err = cli("fit", "t.csv", "-t", "kind", "--model", "centroid", "-v")
    assert code == 0
    lines = {line.split()[0]: line for line in err.splitlines() if line.startswith("  ")}
    told = {"id": "id", "price": "number", "colour": "category", "when": "date", "remark": "text",
            "same": "constant", "empty": "empty"}  # fmt: skip
    for column, kind in told.items():
        assert lines[column].split()[1] == kind, lines[column]
    assert '"1.000,50 €"' in lines["price"]
    assert "€ removed" in lines["price"]
    assert "day first" in lines["when"]
    assert all("dropped" in lines[c] for c in ("id", "same", "empty"))
    err = cli("fit", "t.csv", "-t", "kind", "--model", "centroid")[2]
    assert [line.split()[0] for line in err.splitlines() if line.startswith("  ")] == [
        "id", "price", "when", "same", "empty",
    ]  # fmt: skip
    assert cli("fit", "t.csv", "-t", "kind", "--model", "centroid", "--json")[2] == ""


def test_an_example_of_a_converted_column_is_a_word_of_the_file(cli):
    """A column of 2.180e+02 was shown as 218.0."""
    rows = [f"{100 * (i % 9) + 218:.3e};0,{i % 7}0;{i % 5}.0;{'ab'[i % 2]}" for i in range(60)]
    for start in ("", "sep=;\n", "\ufeff"):
        Path("t.csv").write_text(start + "x;y;z;k\n" + "\n".join(rows) + "\n")
        code, _, err = cli("compare", "t.csv", "-t", "k", "--model", "centroid", "--decimal", ",", "-v")
        assert code == 0, err
        assert '"2.180e+02"' in err


def test_many_columns_are_said_in_short(cli):
    rows = [",".join([*(f"${i * j % 17}.{j}" for j in range(1, 41)), "ab"[i % 2]]) for i in range(50)]
    Path("t.csv").write_text(",".join([*(f"f{j}" for j in range(40)), "k"]) + "\n" + "\n".join(rows) + "\n")
    err = cli("compare", "t.csv", "-t", "k", "--model", "centroid")[2]
    assert "t.csv: 40 columns, 40 to check (--verbose lists all)" in err
    assert err.count("\n") == 14
    assert "and 28 more" in err


def test_types_drop_and_id(answer, cli, read_csv):
    rows = [f"{i % 5},{i % 3:03d},u{i * 7919 % 1000},{i % 4 if i % 4 else 'many'},{'ab'[i % 2]}" for i in range(60)]
    Path("t.csv").write_text("x,zip,name,count,k\n" + "\n".join(rows) + "\n")
    answer("fit", "t.csv", "-t", "k", "--model", "centroid", "--types", "x=category,zip=category,count=number",
           "--id", "name")  # fmt: skip
    records = {r["column"]: r for r in kway.load("model.kway").features_.explain()}
    assert set(records) == {"x", "zip", "count"}
    assert records["x"]["kind"] == "category"
    assert records["zip"]["levels"] == 3
    assert records["count"]["kind"] == "number"
    code, _, err = cli("predict", "model.kway", "t.csv", "-o", "o.csv")
    assert code == 0
    assert "column 'count': 15 cells are not numbers and read as missing: 'many' in rows 1, 5, 9, 13, 17 and 10" in err
    assert next(iter(read_csv("o.csv")[3].items())) == ("name", "u757")  # the model file remembers the id
    answer("fit", "t.csv", "-t", "k", "--model", "centroid", "--drop", "name,count,x")
    assert [r["column"] for r in kway.load("model.kway").features_.explain()] == ["zip"]


OTHERS = {
    "t.tsv": lambda rows: "\n".join("\t".join(map(str, r)) for r in rows),
    "t.data --sep ;": lambda rows: "\n".join(";".join(map(str, r)) for r in rows),
    "t.jsonl": lambda rows: "\n".join(json.dumps(dict(zip(rows[0], r))) for r in rows[1:]),
    "t.ndjson": lambda rows: "\n".join(json.dumps(dict(zip(rows[0], r))) for r in rows[1:]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_files(answer, name):
    rows = [("x", "word", "k"), *((i % 3 + 0.5, ["one, two", "three"][i % 2], "ab"[i % 2]) for i in range(60))]
    file, *options = name.split()
    Path(file).write_text(OTHERS[name](rows) + "\n")
    assert answer("fit", file, "-t", "k", "--model", "centroid", *options)["test"]["accuracy"] == 1
    assert answer("evaluate", "model.kway", file, *options)["accuracy"] == 1
    assert {r["kind"] for r in kway.load("model.kway").features_.explain()} == {"number", "category"}


def test_headers(answer, cli):
    Path("years.csv").write_text("name,2019,2020,k\n" + "".join(f"n{i},{i},{i % 7},{'ab'[i % 2]}\n" for i in range(40)))
    answer("fit", "years.csv", "-t", "k", "--model", "centroid")
    assert "2019" in kway.load("model.kway").features_.feature_names_in_
    Path("bare.csv").write_text("".join(f"{i},{i % 7 + 100},{'ab'[i % 2]}\n" for i in range(40)))
    err = cli("fit", "bare.csv", "-t", "c3", "--model", "centroid")[2]
    assert "no header: its columns are called c1 to c3 (header=True to change it)" in err
    code, _, err = cli("fit", "bare.csv", "-t", "c3", "--model", "centroid", "--header")
    assert code == 2
    assert "no target column 'c3'" in err
    Path("whole.csv").write_text("".join(f"{i},{i * i + 1000},{i % 2 + 5000}\n" for i in range(40)))
    err = cli("compare", "whole.csv", "-t", "5000", "--model", "centroid")[2]
    assert "no header" not in err
    assert "header=False to change it" in read_rows("whole.csv").notes[0]
    assert answer("fit", "whole.csv", "--no-header", "-t", "c3", "--model", "centroid")["data"]["classes"] == 2


def test_old_model_files_without_reading_notes(iris, answer):
    """A model saved by Python has no notes on reading."""
    kway.load("model.kway").save("bare.kway")
    assert answer("evaluate", "bare.kway", "iris.csv", "-t", "species")["accuracy"] > 0.9
