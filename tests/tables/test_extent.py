"""How much there is, told without reading all of it."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from kway.tables.read_options import ReadOptions
from kway.tables.row_stream import Extent, measure_extent


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr("kway.tables.sources.table_files.LARGE", 0)
    monkeypatch.setattr("kway.tables.sources.csv_files.PIECE_BYTES", 4000)


def table(n=2000, classes=40):
    rng = np.random.default_rng(0)
    named = np.array([f"class {i:04d}" for i in range(classes)])[rng.integers(0, classes, n)]
    return pa.table({"a": rng.normal(size=n).round(3), "b": rng.normal(size=n).round(3), "kind": named})


def test_parquet_is_counted(tmp_path):
    whole = table()
    pq.write_table(whole[:1500], tmp_path / "1.parquet")
    pq.write_table(whole[1500:], tmp_path / "2.parquet")
    assert measure_extent(str(tmp_path), ReadOptions("kind")) == Extent(2000, 2, 40, 1.0)


def test_csv_is_estimated_from_its_first_piece(tmp_path, monkeypatch):
    pyarrow.csv.write_csv(table(), tmp_path / "t.csv")
    found = measure_extent(str(tmp_path / "t.csv"), ReadOptions("kind"))
    assert abs(found.n - 2000) < 40
    assert (found.d, found.density) == (2, 1.0)
    assert 34 <= found.K <= 48  # the first piece has about 150 rows
    monkeypatch.setattr("kway.tables.sources.table_files.LARGE", 2**40)
    assert measure_extent(str(tmp_path / "t.csv"), ReadOptions("kind")) == Extent(2000, 2, 40, 1.0)


def test_arrays_are_counted(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((700, 9), np.float32))
    np.save(tmp_path / "y.npy", np.arange(700) % 7)
    assert measure_extent(str(tmp_path), ReadOptions()) == Extent(700, 9, 7, 1.0)
