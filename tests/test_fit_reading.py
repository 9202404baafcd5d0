"""kway.fit reads tables by the same options as the command, and names them as Python does."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import kway
from kway.auto.fit_options import FitOptions
from kway.declared_options import options_of
from kway.errors import InputError
from kway.tables.read_options import ReadOptions

QUICK = {"models": ["centroid"], "also": ()}


@pytest.fixture(autouse=True)
def plain_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def frame(n=60):
    return pd.DataFrame({
        "code": np.arange(n) % 5,
        "when": [f"{i % 12 + 1:02d}/{i % 5 + 1:02d}/2024" for i in range(n)],
        "amount": [f"{i % 9 + 1}.{i * 7 % 1000:03d}" for i in range(n)],
        "name": [f"u{i * 7919 % 1000}" for i in range(n)],
        "kind": ["ab"[i % 2] for i in range(n)],
    })  # fmt: skip


def kinds(found):
    return {record["column"]: record["kind"] for record in found.model.features_.explain()}


def test_a_column_of_a_frame_is_what_is_said():
    types = {"code": "category", "when": "month-first"}
    found = kway.fit(frame(), "kind", types=types, id="name", decimal=",", **QUICK)
    assert kinds(found) == {"code": "category", "when": "date", "amount": "number"}
    written = {w.column: w.how for w in found.result.data.written}
    assert written == {"when": "%m/%d/%Y", "amount": ","}
    found.save("m.kway")
    assert kway.modelfile.info("m.kway").notes["reading"]["id"] == "name"


def test_a_file_is_read_as_is_said():
    text = frame().to_csv(index=False, header=False, sep="^")
    Path("t.odd").write_bytes(text.replace("u", "ü").encode("latin-1"))
    found = kway.fit(
        "t.odd", "c5", sep="^", encoding="latin-1", header=False, drop="c4", types={"c1": "category"}, **QUICK
    )
    assert kinds(found) == {"c1": "category", "c2": "date", "c3": "number"}


WRONG = {
    "no such option": ({"typs": {}}, "unknown option 'typs' .did you mean 'types'"),
    "no such kind": ({"types": {"code": "numbr"}}, "types is 'numbr' for column 'code' .did you mean 'number'"),
    "no mapping": ({"types": "code=number"}, "types is 'code=number'; it must map columns to kinds"),
    "no such column": ({"types": {"cod": "number"}}, "no such column 'cod' .did you mean 'code'"),
    "no such id": ({"id": "nam"}, "no id column 'nam'"),
    "no text": ({"id": 3}, "id is 3; it must be text"),
    "no mark": ({"decimal": ";"}, "decimal is ';'; it must be . or ,"),
    "no yes or no": ({"header": "yes"}, "header is 'yes'; it must be True or False"),
    "of files alone": ({"sep": ";"}, "sep is for files, but the data is in memory"),
}


@pytest.mark.parametrize(("given", "said"), WRONG.values(), ids=WRONG.keys())
def test_what_cannot_be_meant_is_named(given, said):
    with pytest.raises(InputError, match=said):
        kway.fit(frame(), "kind", **given, **QUICK)


def test_messages_name_arguments():
    with pytest.raises(InputError, match="name the column with the labels: target=; its columns are code"):
        kway.fit(frame())


def test_compare_names_the_columns_that_are_no_numbers():
    with pytest.raises(InputError, match=r"drop the columns when, amount, name, or let kway\.fit read the table"):
        kway.compare(frame().drop(columns="kind"), frame()["kind"])


def test_the_docstrings_list_every_option():
    for function, command, classes in (
        (kway.fit, "fit", (FitOptions, ReadOptions)),
        (kway.compare, "compare", (FitOptions,)),
    ):
        documented = set(re.findall(r"^    (\w[\w, ]*) : ", function.__doc__, re.MULTILINE))
        names = {name.strip() for line in documented for name in line.split(",")}
        assert {name for cls in classes for name in options_of(cls, command)} <= names
