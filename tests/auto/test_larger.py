"""DATA larger than memory is read in part, at random, and says so."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kway.auto import larger_than_memory
from kway.auto.larger_than_memory import read_what_fits
from kway.auto.train_test import read_train_test
from kway.tables.read_options import ReadOptions


@pytest.fixture
def scarce(monkeypatch):
    monkeypatch.setattr("kway.tables.sources.table_files.LARGE", 0)
    monkeypatch.setattr("kway.tables.sources.csv_files.PIECE_BYTES", 480)
    monkeypatch.setattr(larger_than_memory, "available_bytes", lambda: 20_000)


def test_a_part_of_a_table(tmp_path, scarce):
    rng = np.random.default_rng(0)
    names = np.array(["ant", "bee"])[rng.integers(0, 2, 4000)]
    pq.write_table(pa.table({"a": rng.normal(size=4000), "b": np.arange(4000), "kind": names}), tmp_path / "t.parquet")
    parts = read_train_test(str(tmp_path / "t.parquet"), ReadOptions("kind"))
    n = parts.n + len(parts.test_y)
    assert 20 <= n < 1000
    assert any("larger than memory" in note and f"{n:,} of its 4,000 rows" in note for note in parts.notes)
    places = np.sort(np.concatenate([r.column("b").to_numpy() for r in (parts.rows, parts.test_rows)]))
    assert places.max() > 1000  # not the beginning alone
    order = np.concatenate([parts.y, parts.test_y])
    at = np.concatenate([r.column("b").to_numpy() for r in (parts.rows, parts.test_rows)])
    np.testing.assert_array_equal(order, names[at])


def test_a_part_has_its_positions_and_ids(tmp_path, scarce):
    rng = np.random.default_rng(0)
    table = pa.table(
        {"a": rng.normal(size=4000), "b": np.arange(4000), "kind": np.array(["u", "v"])[np.arange(4000) % 2]}
    )
    pq.write_table(table, tmp_path / "t.parquet")
    rows, larger = read_what_fits(str(tmp_path / "t.parquet"), ReadOptions("kind", id="b"))
    assert larger is not None
    assert rows.kept_columns["b"].to_pylist() == rows.positions.tolist()
    assert (np.array(["u", "v"])[rows.positions % 2] == rows.y).all()


def test_a_part_of_arrays(tmp_path, scarce):
    X = np.arange(6000, dtype=np.float64).reshape(2000, 3)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", np.arange(2000) % 4)
    parts = read_train_test(str(tmp_path), ReadOptions())
    assert 20 <= parts.n < 500
    np.testing.assert_array_equal(parts.y, parts.rows[:, 0] // 3 % 4)


def test_all_of_what_fits(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((50, 3)))
    np.save(tmp_path / "y.npy", np.arange(50) % 4)
    parts = read_train_test(str(tmp_path), ReadOptions())
    assert parts.n + len(parts.test_y) == 50
