"""Rows in pieces: the same rows as all at once, whatever they come as, and wherever a piece ends."""

import csv
import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kway.errors import InputError
from kway.tables.labeled_rows import RowRequirements
from kway.tables.read_options import ReadOptions
from kway.tables.reading import read_rows
from kway.tables.row_stream import row_stream


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr("kway.tables.sources.table_files.LARGE", 0)
    monkeypatch.setattr("kway.tables.sources.csv_files.PIECE_BYTES", 300)


def columns(n=200, seed=0):
    """Numbers, words with separators, quotes and line ends in them, and a label."""
    rng = np.random.default_rng(seed)
    words = ["plain", "with, comma", 'a "quoted" word', "two\nlines", ""]
    return {
        "size": rng.normal(size=n).round(3).tolist(),
        "word": [words[i] for i in rng.integers(0, 5, n)],
        "kind": [f"class {i}" for i in rng.integers(0, 3, n)],
    }


def write(path, table):
    if path.suffix == ".parquet":
        pq.write_table(pa.table(table), path)
        return
    with gzip.open(path, "wt", newline="") if path.suffix == ".gz" else path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(table)
        out.writerows(zip(*table.values()))


LIKE = RowRequirements(("size", "word"), words=("word",), text_labels=True)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet"])
@pytest.mark.parametrize("folder", [False, True])
def test_pieces_are_all_rows_in_their_order(tmp_path, name, folder):
    table = columns()
    if folder:
        (tmp_path / "parts").mkdir()
        for i in range(0, 200, 80):
            write(tmp_path / "parts" / f"{i:03d}-{name}", {k: v[i : i + 80] for k, v in table.items()})
        source = tmp_path / "parts"
    else:
        source = tmp_path / name
        write(source, table)
    how = ReadOptions("kind", keep=("size",))
    found = list(row_stream(str(source), how, LIKE))
    assert len(found) > 5
    whole = read_rows(str(source), how, LIKE)
    assert whole.n == 200
    assert pa.concat_tables([part.rows for part in found]).to_pydict() == whole.rows.to_pydict()
    assert np.concatenate([part.y for part in found]).tolist() == table["kind"] == whole.y.tolist()
    beside = [v for part in found for v in part.kept_columns["size"].to_pylist()]
    assert beside == whole.kept_columns["size"].to_pylist()


def test_what_cannot_be_cut_comes_whole(tmp_path):
    table = columns() | {"split": ["train", "test"] * 100}
    write(tmp_path / "t.csv", table)
    (found,) = row_stream(str(tmp_path / "t.csv"), ReadOptions("kind"))
    assert len(found.test_y) == 100
    (tmp_path / "u.csv").write_text("size;word\n1;x\n2;y\n", encoding="utf-16")
    assert [part.n for part in row_stream(str(tmp_path / "u.csv"), ReadOptions(), LIKE)] == [2]
    assert next(row_stream("iris")).n == read_rows("iris").n


def test_folders_of_arrays(tmp_path):
    rng = np.random.default_rng(1)
    rows, y = rng.normal(size=(90, 7)), rng.integers(0, 3, 90)
    for i in range(0, 90, 40):
        np.save(tmp_path / f"x-{i:02d}.npy", rows[i : i + 40])
        np.save(tmp_path / f"y-{i:02d}.npy", y[i : i + 40])
    found = list(row_stream(str(tmp_path)))
    assert len(found) > 5
    np.testing.assert_array_equal(np.concatenate([part.rows for part in found]), rows)
    np.testing.assert_array_equal(np.concatenate([part.y for part in found]), y)
    whole = read_rows(str(tmp_path))
    np.testing.assert_array_equal(whole.rows, rows)
    np.testing.assert_array_equal(whole.y, y)
    assert read_rows(str(tmp_path / "x-00.npy")).rows.shape == (40, 7)
    np.save(tmp_path / "x-99.npy", rows[:, :2])
    with pytest.raises(InputError, match="2 and 7 columns"):
        read_rows(str(tmp_path))
    (tmp_path / "x-99.npy").write_bytes(b"no array")
    with pytest.raises(InputError, match=r"numpy\.save"):
        read_rows(str(tmp_path))


def spoil(folder, name, how):
    """A folder of three files, of which the second is spoilt."""
    folder.mkdir()
    for i in range(3):
        table = columns(60, seed=i)
        if i == 1 and how == "lacks":
            del table["size"]
        if i == 1 and how == "more":
            table["extra"] = table["size"]
        if i == 1 and how == "kind":
            table["size"] = [f"about {v}" for v in table["size"]]
        write(folder / f"{i}-{name}", table)
    if how in ("cut", "empty"):
        file = folder / f"1-{name}"
        file.write_bytes(file.read_bytes()[:200] if how == "cut" else b"")
    return folder


WRONG = {
    "lacks": r"big/1-t\.\w+ has no column 'size', which other files have",
    "more": r"big/0-t\.\w+ has no column 'extra', which other files have",
    "kind": r"column 'size' (has text in big/1-t\.\w+ and numbers in big/0-t\.\w+|must contain numbers)",
    "empty": r"1-t\.\w+ cannot be read",
    "cut": r"1-t\.\w+ cannot be read",
}


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
@pytest.mark.parametrize("how", WRONG)
def test_a_file_unlike_the_others_is_named(tmp_path, name, how, whole):
    if how == "cut" and name == "t.csv":
        return  # fewer rows, and no way to tell
    big = spoil(tmp_path / "big", name, how)
    with pytest.raises(InputError, match=WRONG[how]):
        read_rows(big, ReadOptions(target="kind")) if whole else list(row_stream(big, ReadOptions(target="kind")))


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_columns_that_nobody_asks_for_may_differ(tmp_path, name):
    big = spoil(tmp_path / "big", name, "more")
    assert (
        read_rows(big, ReadOptions(), LIKE).n == sum(piece.n for piece in row_stream(big, ReadOptions(), LIKE)) == 180
    )
    big = spoil(tmp_path / "less", name, "lacks")
    with pytest.raises(InputError, match=r"less/1-t\.\w+ has no .*column 'size'"):
        list(row_stream(big, ReadOptions(), LIKE))


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_a_file_that_is_gone_is_named(tmp_path, name):
    big = spoil(tmp_path / "big", name, "whole")
    pieces = row_stream(big, ReadOptions(target="kind"))
    next(pieces)
    (big / f"2-{name}").unlink()
    with pytest.raises(InputError, match=r"big/2-t\.\w+ was deleted"):
        list(pieces)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_piece_without_a_label_is_left_out_where_rows_are(tmp_path, suffix):
    table = columns()
    table["kind"] = [None if 40 <= i < 160 else kind for i, kind in enumerate(table["kind"])]
    path = tmp_path / f"rows{suffix}"
    write(path, table)
    how = ReadOptions(target="kind", skip_bad=True)
    found = list(row_stream(path, how))
    assert len(found) < len(list(row_stream(path, ReadOptions(unused_target="kind"))))  # whole pieces were left out
    assert np.concatenate([piece.y for piece in found]).tolist() == [k for k in table["kind"] if k]
    write(path, {**table, "kind": [None] * 200})
    with pytest.raises(InputError, match="no row has a label"):
        list(row_stream(path, how))
