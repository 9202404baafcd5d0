"""Rows as numbers: every format gives the same matrix and labels, every mistake a sentence."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

from kway.errors import InputError
from kway.tables.labeled_rows import RowRequirements, number_rows
from kway.tables.read_options import ReadOptions
from kway.tables.reading import read_rows

CSV = "width,height,kind\n1.5,2,ant\n2.5,3,bee\n3.5,4,ant\n"


def read(path, target=None, columns=None, n_features=None):
    like = RowRequirements(columns, n_features=n_features)
    return number_rows(read_rows(path, ReadOptions(target), like), columns)


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(CSV)
    return path


def test_csv(csv):
    data = read(csv, "kind")
    assert data.rows.tolist() == [[1.5, 2.0], [2.5, 3.0], [3.5, 4.0]]
    assert data.y.tolist() == ["ant", "bee", "ant"]
    assert data.feature_names == ("width", "height")
    assert data.test_rows is None


def test_compressed_csv_and_parquet_are_the_same(csv, tmp_path):
    with gzip.open(tmp_path / "t.csv.gz", "wt") as out:
        out.write(CSV)
    pq.write_table(pa.csv.read_csv(csv), tmp_path / "t.parquet")
    expected = read(csv, "kind")
    for name in ("t.csv.gz", "t.parquet"):
        data = read(tmp_path / name, "kind")
        np.testing.assert_array_equal(data.rows, expected.rows)
        assert data.y.tolist() == expected.y.tolist()


def test_columns_by_name_in_the_order_asked_for(csv):
    data = read(csv, None, ("height", "width"))
    assert data.rows[0].tolist() == [2.0, 1.5]
    assert data.y is None


@pytest.mark.parametrize(
    ("column", "dtype"),
    [
        (pa.array([1, 2], "int64"), "f4"),
        (pa.array([1, 2**24 + 1], "int64"), "f8"),
        (pa.array([1, -(2**24) - 1], "int64"), "f8"),
        (pa.array([1, 2], "float64"), "f8"),
        (pa.array([1, 2], "uint8"), "f4"),
        (pa.array([1, 2], "float32"), "f4"),
        (pa.array([True, False]), "f4"),
        (pa.array([1, None], "int64"), "f4"),
        (pa.array([None, None], "int64"), "f4"),
    ],
)
def test_dtypes_of_parquet(tmp_path, column, dtype):
    pq.write_table(pa.table({"x": column, "y": ["a", "b"]}), tmp_path / "t.parquet")
    data = read(tmp_path / "t.parquet", "y")
    assert data.rows.dtype == np.dtype(dtype)
    assert [None if np.isnan(v) else v for v in data.rows[:, 0]] == column.to_pylist()


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (pa.array(["b", "a"]), ["b", "a"]),
        (pa.array(["b", "a"]).dictionary_encode(), ["b", "a"]),
        (pa.array(["b", "a"], pa.large_string()), ["b", "a"]),
        (pa.array(["7", "3"]), ["7", "3"]),
        (pa.array([7, 3]), [7, 3]),
        (pa.array([True, False]), [True, False]),
    ],
)
def test_kinds_of_target(tmp_path, labels, expected):
    pq.write_table(pa.table({"x": [1.0, 2.0], "y": labels}), tmp_path / "t.parquet")
    assert read(tmp_path / "t.parquet", "y").y.tolist() == expected


@pytest.mark.parametrize(
    ("written", "labels"),
    [
        (["1", "2", "-10"], [1, 2, -10]),
        (["007", "7", "08"], ["007", "7", "08"]),
        (["1.0", "2.5", "-3e2"], [1.0, 2.5, -300.0]),
        (["true", "False", "TRUE"], [True, False, True]),
        (["a", "NA", "1"], ["a", "NA", "1"]),
        (["1", "2", "1x"], ["1", "2", "1x"]),
        (["99999999999999999999", "1", "2"], ["99999999999999999999", "1", "2"]),
        (["-", "e5", "."], ["-", "e5", "."]),
    ],
)
def test_labels_of_csv_are_numbers_only_where_nothing_is_lost(tmp_path, written, labels):
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "".join(f"1,{w}\n" for w in written))
    found = read(path, "y").y.tolist()
    assert found == labels
    assert [type(v) for v in found] == [type(v) for v in labels]


@pytest.mark.parametrize("gap", ["", "NA", "nan", "null"])
def test_a_gap_among_numbers(tmp_path, gap):
    path = tmp_path / "t.csv"
    path.write_text(f"x,y\n1,0\n1,{gap}\n")
    with pytest.raises(InputError, match=r"target 'y' of t\.csv is empty in 1 of 2 rows; label these rows"):
        read(path, "y")


def test_libsvm(tmp_path):
    x = sp.csr_matrix([[0.0, 2.0, 0.0], [1.0, 0.0, 0.0]])
    dump_svmlight_file(x, [3, 5], str(tmp_path / "t.svm"))
    data = read(tmp_path / "t.svm")
    assert sp.issparse(data.rows)
    assert data.y.tolist() == [3, 5]
    assert data.y.dtype == np.int64
    assert read(tmp_path / "t.svm", n_features=7).rows.shape == (2, 7)


def test_npz_with_capital_x(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.eye(3), y=[0, 1, 0])
    data = read(tmp_path / "t.npz")
    assert data.rows.shape == (3, 3)
    assert data.y.tolist() == [0, 1, 0]


def bad(tmp_path, name, content):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return tmp_path / name


@pytest.mark.parametrize(
    ("name", "content", "target", "message"),
    [
        ("t.csv", CSV, "width", "columns that are not numeric: kind; encode"),
        ("t.csv.gz", CSV, "kind", "cannot be read"),
        ("t.parquet", CSV, "kind", "cannot be read"),
        ("t.npz", CSV, None, "cannot be read as npz"),
        ("t.svm", "1 a:2\n", None, "cannot be read as libsvm"),
        ("t.txt", "to be\nor not\n", "kind", "must end in .csv"),
    ],
)
def test_bad_files(tmp_path, name, content, target, message):
    with pytest.raises(InputError, match=message):
        read(bad(tmp_path, name, content), target)


def test_dates_are_not_labels(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": [1], "day": pa.array([0], pa.date32())}), path)
    with pytest.raises(InputError, match=r"target 'day' of t.parquet has type date32"):
        read(path, "day")


def test_rows_and_labels_of_npz_must_be_as_many(tmp_path):
    np.savez(tmp_path / "t.npz", x=np.eye(3), y=[0, 1])
    with pytest.raises(InputError, match="3 rows and 2 labels"):
        read(tmp_path / "t.npz")


def test_labels_are_asked_for(csv):
    with pytest.raises(InputError, match=r"no labels; name the column .* target=; its columns are width, height"):
        read(csv, None, ("width", "height")).required_labels()


def test_columns_of_a_known_set_by_name():
    names = ("petal width (cm)", "sepal length (cm)")
    data, whole = read("iris", columns=names), read_rows("iris")
    assert data.feature_names == names
    np.testing.assert_array_equal(data.rows, whole.rows[:, [3, 0]])
    np.testing.assert_array_equal(data.test_rows, whole.test_rows[:, [3, 0]])
    with pytest.raises(InputError, match="has no feature colour"):
        read("iris", columns=("colour",))


def test_a_column_left_out_may_have_gaps(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,x\n2,\n")
    how = ReadOptions("b").without_labels()
    assert number_rows(read_rows(tmp_path / "t.csv", how)).rows.tolist() == [[1.0], [2.0]]
    with pytest.raises(InputError, match="no such column 'c'"):
        read_rows(tmp_path / "t.csv", ReadOptions("c").without_labels())
