"""Tables out: what is written is read back, and a failed write leaves what was there."""

import os

import numpy as np
import pyarrow as pa
import pytest

from kway.errors import InputError
from kway.tables.labeled_rows import number_rows
from kway.tables.outputs import replacing
from kway.tables.read_options import ReadOptions
from kway.tables.reading import read_rows
from kway.tables.sources import writing


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.parquet"])
def test_what_is_written_is_read_back(tmp_path, name):
    columns = {"x": np.array([1.5, 2.5]), "n": np.array([1, 2]), "label": np.array(["a,b", 'c"d'], dtype=object)}
    writing.write_columns(columns, tmp_path / name)
    data = number_rows(read_rows(tmp_path / name, ReadOptions("label")))
    assert data.rows.tolist() == [[1.5, 1.0], [2.5, 2.0]]
    assert data.y.tolist() == ["a,b", 'c"d']
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_a_csv_has_no_formula_in_text_of_any_type(tmp_path, kind):
    words = pa.array(["=1+1", "a", None, "-5"], pa.string())
    writing.write_columns({"x": words.cast(kind)}, tmp_path / "o.csv")
    assert (tmp_path / "o.csv").read_text().splitlines() == ['"x"', '"\'=1+1"', '"a"', "", '"-5"']


def test_npz_written(tmp_path):
    writing.write_npz(tmp_path / "o.npz", x=np.eye(2), y=np.array(["a", "b"]))
    assert read_rows(tmp_path / "o.npz").y.tolist() == ["a", "b"]


def test_writing_refuses_early(tmp_path):
    with pytest.raises(InputError, match=r"must end in \.csv"):
        writing.write_columns({"a": np.zeros(1)}, tmp_path / "o.xlsx")
    with pytest.raises(InputError, match="no folder"):
        writing.write_columns({"a": np.zeros(1)}, tmp_path / "no" / "o.csv")


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "o.csv"
    path.write_text("old")
    with pytest.raises(pa.ArrowInvalid):
        writing.write_columns({"a": np.zeros(1), "b": np.zeros(2)}, path)
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_an_interrupted_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "o.csv"
    path.write_text("old")

    def interrupted():
        with replacing(path) as draft:
            draft.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_link_stays_a_link_and_its_target_is_written(tmp_path):
    (tmp_path / "sets").mkdir()
    link = tmp_path / "current.csv"
    link.symlink_to("sets/today.csv")
    for value in (0.0, 1.0):  # the target is not there yet, then it is
        writing.write_columns({"a": np.full(1, value)}, link)
        assert link.is_symlink()
        assert [p.name for p in (tmp_path / "sets").iterdir()] == ["today.csv"]
    assert link.read_text().splitlines()[1] in ("1", "1.0")


def test_what_is_no_plain_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "ring.csv").symlink_to("ring.csv")
    for name, said in (("pipe.csv", r"is a pipe"), ("ring.csv", "symbolic link that leads to itself")):
        with pytest.raises(InputError, match=said):
            writing.write_columns({"a": np.zeros(1)}, tmp_path / name)
    assert (tmp_path / "pipe.csv").is_fifo()
    assert (tmp_path / "ring.csv").is_symlink()
