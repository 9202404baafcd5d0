"""Parts of files: together they are the rows, in their order, whatever a part is."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kway.errors import InputError
from kway.tables.reading import DEFAULT_OPTIONS, NO_REQUIREMENTS, read_rows
from kway.tables.row_stream import part_stream, row_parts
from kway.tables.sources import table_files


def together(path, how=DEFAULT_OPTIONS):
    blocks = [block.rows for part in row_parts(path, how) for block in part_stream(part, how, NO_REQUIREMENTS)]
    return np.concatenate(blocks) if isinstance(blocks[0], np.ndarray) else pa.concat_tables(blocks)


@pytest.mark.parametrize("seed", range(4))
def test_row_groups_are_cut_into_runs(tmp_path, monkeypatch, seed):
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(table_files, "LARGE", int(rng.integers(1, 4000)))
    for name in "abc":
        n = int(rng.integers(0, 900))
        table = pa.table({"x": rng.normal(size=n), "word": [f"{name}{i}" for i in range(n)]})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=int(rng.integers(1, 300)))
    assert together(tmp_path).equals(read_rows(tmp_path).rows)


def test_csv_files_are_parts(tmp_path):
    (tmp_path / "a.csv").write_text('x;w\n1;"a\nb"\n2;c\n')
    (tmp_path / "b.csv").write_text("x;w\n")
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress(b"x;w\n3;d\n"))
    assert len(row_parts(tmp_path, DEFAULT_OPTIONS)) == 3
    assert together(tmp_path).to_pylist() == read_rows(tmp_path).rows.to_pylist()
    (tmp_path / "d.csv").write_bytes("x;w\n4;ä\n".encode("utf-16"))
    assert together(tmp_path / "d.csv").to_pylist() == [{"x": 4, "w": "ä"}]


def test_arrays_are_cut_by_rows_and_labels_left_out(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    monkeypatch.setattr(table_files, "LARGE", 160)
    monkeypatch.setattr("kway.tables.sources.csv_files.PIECE_BYTES", 64)
    for name, n in (("a", 7), ("b", 1)):
        np.save(tmp_path / f"{name}.npy", rng.normal(size=(n, 3)))
    np.save(tmp_path / "y.npy", np.arange(8))
    assert len(row_parts(tmp_path, DEFAULT_OPTIONS)) == 3
    np.testing.assert_array_equal(together(tmp_path), read_rows(tmp_path).rows)


def test_columns_by_the_place_of_a_file(tmp_path):
    for year in (2023, 2024):
        (tmp_path / f"year={year}").mkdir()
        pq.write_table(pa.table({"x": [1, 2]}), tmp_path / f"year={year}" / "a.parquet")
    assert together(tmp_path).to_pylist() == read_rows(tmp_path).rows.to_pylist()


def test_what_cannot_be_cut_is_refused(tmp_path):
    with pytest.raises(InputError, match="no file or folder"):
        row_parts(tmp_path / "none", DEFAULT_OPTIONS)
    (tmp_path / "a.jsonl").write_text("{}")
    with pytest.raises(InputError, match="cannot be divided"):
        row_parts(tmp_path / "a.jsonl", DEFAULT_OPTIONS)
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(InputError, match="cannot be divided"):
        row_parts(tmp_path, DEFAULT_OPTIONS)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(InputError, match=r"bad.parquet cannot be read"):
        row_parts(tmp_path, DEFAULT_OPTIONS)
