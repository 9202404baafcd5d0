"""`kway fit` on a folder larger than memory that is broken, or changes while it is read: a sentence, or rows in memory.

Places of rows are counted: a file that comes, goes or changes between the two readings would bring the rows of the test
into training, unnoticed.
"""

import gzip
import json
import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

import kway
from kway.auto.larger_than_memory import LargeData
from kway.cli import run
from kway.tables.sources.table_files import read_table

D = 5
NAMES = np.array(["ant", "bee", "cat"])


@pytest.fixture(autouse=True)
def scarce(monkeypatch, tmp_path):
    """Memory for some thousand rows, read some hundred at a time; no page is drawn."""
    from kway.report import page

    monkeypatch.setenv("KWAY_MEMORY", "300MB")
    monkeypatch.setattr("kway.auto.larger_than_memory.JOB_BYTES", 5000.0)
    monkeypatch.setattr("kway.tables.sources.table_files.LARGE", 0)
    monkeypatch.setattr("kway.tables.sources.csv_files.PIECE_BYTES", 300 * 8 * 5)
    monkeypatch.setattr(page, "write_page", lambda path, *_: open(path, "w").close())
    monkeypatch.chdir(tmp_path)


def table(seed, n=1200):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    X = rng.normal(size=(n, D)) + 3 * np.eye(3, D)[y]
    return pa.table({f"a{j}": X[:, j] for j in range(D)} | {"kind": NAMES[y]})


def write(place, rows):
    if place.suffix == ".parquet":
        pq.write_table(rows, place)
        return
    pc.write_csv(rows, place)
    if place.name.endswith(".gz"):
        place.write_bytes(gzip.compress(place.read_bytes()))


def folder(ending):
    home = Path("big")
    home.mkdir()
    for i in range(5):
        write(home / f"p{i}.{ending}", table(i))
    return home


def cut(place):
    place.write_bytes(place.read_bytes()[:-700])


CHANGES = {
    "gone": lambda place: place.unlink(),
    "cut": cut,
    "of other rows": lambda place: write(place, table(9)),
    "of more rows": lambda place: write(place, table(9, 1500)),
    "beside another": lambda place: write(place.with_name(f"p9{place.suffix}"), table(9)),
}


@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("when", ["before", "during"])
def test_a_folder_that_changes_between_its_readings_is_not_learned_from_twice(change, when, ending, monkeypatch, capfd):
    home = folder(ending)
    blocks = LargeData.blocks

    def changed(self):
        if when == "before":
            CHANGES[change](home / f"p1.{ending}")
            yield from blocks(self)
            return
        for at, block in enumerate(blocks(self)):
            if at == 1:
                CHANGES[change](home / f"p1.{ending}")
            yield block

    monkeypatch.setattr(LargeData, "blocks", changed)
    assert run(["fit", "big", "--target", "kind", "--model", "centroid", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["data"]["fitted_rows"] == found["data"]["train_rows"]
    assert any("not on all 6,000: " in note for note in found["notes"])
    assert kway.load("model.kway").predict(table(7).drop_columns(["kind"])).shape == (1200,)


BROKEN = {
    "cut parquet": ("parquet", cut, "p3.parquet cannot be read: "),
    "empty parquet": ("parquet", lambda place: place.write_bytes(b""), "p3.parquet cannot be read: "),
    "cut gzip": ("csv.gz", cut, "p3.csv.gz cannot be read: "),
    "no gzip": ("csv.gz", lambda place: place.write_bytes(b"abc"), "p3.csv.gz cannot be read: "),
    "words for numbers": (
        "csv",
        lambda place: write(place, table(3).set_column(1, "a1", pa.array(["x"] * 1200))),
        "must contain numbers, as in training",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_among_whole_ones_is_named(name, monkeypatch, capfd):
    ending, change, said = BROKEN[name]
    # so that the broken one is among those compared on
    monkeypatch.setattr("kway.auto.larger_than_memory.JOB_BYTES", 1250.0)
    change(folder(ending) / f"p3.{ending}")
    assert run(["fit", "big", "--target", "kind", "--model", "centroid"]) == 1
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err
    assert "KWAY_TRACEBACK" not in err
    assert not Path("model.kway").exists()


ODD_PARTS = {
    "in another order": (lambda rows: rows.select(rows.column_names[::-1]), ""),
    "a column less": (lambda rows: rows.drop_columns(["more"]), "only some files have the columns more"),
    "other values": (lambda rows: rows.set_column(6, "more", pa.array(["x"] * len(rows))), "different types in"),
}


@pytest.mark.parametrize("out", ["p.csv", "p.jsonl", "p.parquet"])
@pytest.mark.parametrize("name", ODD_PARTS)
def test_columns_that_are_kept_stay_in_their_place(name, out, capfd):
    change, said = ODD_PARTS[name]
    rows = [table(i, 400).append_column("more", pa.array(np.arange(400) + 0.5)) for i in range(3)]
    kway.fit(rows[0].drop_columns(["more"]), target="kind", models=["centroid"]).save("model.kway")
    Path("big").mkdir()
    for i, part in enumerate(rows):
        pq.write_table(change(part) if i == 1 else part, f"big/p{i}.parquet")
    code = run(["predict", "model.kway", "big", "--keep", "all", "--out", out])
    if said and (out == "p.parquet" or "column less" in name):
        assert code == 1
        assert said in capfd.readouterr().err
        assert not Path(out).exists()
        return
    assert code == 0
    kept = read_table(Path(out))
    given = pa.concat_tables(rows)
    for column in ("a0", "a4"):
        np.testing.assert_allclose(kept[column], given[column])
    assert kept["kind"].to_pylist() == given["kind"].to_pylist()
    assert [str(x) for x in kept["more"].to_pylist()[400:402]] == (["x", "x"] if said else ["0.5", "1.5"])


def test_rows_on_their_way_have_no_name_that_a_kill_could_leave_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen = list[list[str]]()

    def blocks():
        for i in range(3):
            rows = table(i)
            yield np.column_stack([rows[f"a{j}"] for j in range(D)]), rows["kind"].to_numpy()
            seen.append(os.listdir(tmp_path))

    model = kway.SoftmaxClassifier(alpha=0.01).fit_blocks(blocks())
    assert model.why_ == "3,600 rows in files, read a block at a time"
    assert seen == [[]] * 3
