"""Rows in pieces: the same rows as all at once, whatever they come as, and wherever a piece ends."""

import csv
import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kway.data.labelled_rows import ReadOptions
from kway.data.reading import read_rows
from kway.data.row_stream import row_stream
from kway.data.sources import npy_files, pieces
from kway.data.sources.requirements import RowRequirements
from kway.errors import InputError


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(pieces, "LARGE", 0)
    monkeypatch.setattr(pieces, "BYTES", 300)
    monkeypatch.setattr(pieces, "ROWS", 17)
    monkeypatch.setattr(npy_files, "FILE_BLOCK", 100)


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
    beside = [v for part in found for v in part.beside["size"].to_pylist()]
    assert beside == whole.beside["size"].to_pylist()


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
