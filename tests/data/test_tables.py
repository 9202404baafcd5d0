"""Tables in and out: every format gives the same rows, every mistake a sentence."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

from kway.data.atomic import replacing
from kway.data.sources import numeric as source
from kway.data.sources import tables, writing
from kway.errors import InputError

CSV = "width,height,kind\n1.5,2,ant\n2.5,3,bee\n3.5,4,ant\n"


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(CSV)
    return path


def test_csv(csv):
    data = tables.read(csv, "kind")
    assert data.x_train.tolist() == [[1.5, 2.0], [2.5, 3.0], [3.5, 4.0]]
    assert data.y_train.tolist() == ["ant", "bee", "ant"]
    assert data.feature_names == ("width", "height")
    assert data.x_test is None


def test_compressed_csv_and_parquet_are_the_same(csv, tmp_path):
    with gzip.open(tmp_path / "t.csv.gz", "wt") as out:
        out.write(CSV)
    pq.write_table(pa.csv.read_csv(csv), tmp_path / "t.parquet")
    expected = tables.read(csv, "kind")
    for name in ("t.csv.gz", "t.parquet"):
        data = tables.read(tmp_path / name, "kind")
        np.testing.assert_array_equal(data.x_train, expected.x_train)
        assert data.y_train.tolist() == expected.y_train.tolist()


def test_columns_by_name_in_the_order_asked_for(csv):
    data = tables.read(csv, None, features=["height", "width"])
    assert data.x_train[0].tolist() == [2.0, 1.5]
    assert data.y_train is None


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
    data = tables.read(tmp_path / "t.parquet", "y")
    assert data.x_train.dtype == np.dtype(dtype)
    assert [None if np.isnan(v) else v for v in data.x_train[:, 0]] == column.to_pylist()


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
    assert tables.read(tmp_path / "t.parquet", "y").y_train.tolist() == expected


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
    found = tables.read(path, "y").y_train.tolist()
    assert found == labels
    assert [type(v) for v in found] == [type(v) for v in labels]


@pytest.mark.parametrize("gap", ["", "NA", "nan", "null"])
def test_a_gap_among_numbers(tmp_path, gap):
    path = tmp_path / "t.csv"
    path.write_text(f"x,y\n1,0\n1,{gap}\n")
    with pytest.raises(InputError, match=r"target 'y' of t\.csv is empty in 1 of 2 rows; drop"):
        tables.read(path, "y")


def test_libsvm(tmp_path):
    x = sp.csr_matrix([[0.0, 2.0, 0.0], [1.0, 0.0, 0.0]])
    dump_svmlight_file(x, [3, 5], str(tmp_path / "t.svm"))
    data = tables.read(tmp_path / "t.svm")
    assert sp.issparse(data.x_train)
    assert data.y_train.tolist() == [3, 5]
    assert data.y_train.dtype == np.int64
    assert tables.read(tmp_path / "t.svm", n_features=7).x_train.shape == (2, 7)


def test_npz_with_capital_x(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.eye(3), y=[0, 1, 0])
    data = tables.read(tmp_path / "t.npz")
    assert data.x_train.shape == (3, 3)
    assert data.y_train.tolist() == [0, 1, 0]


def bad(tmp_path, name, content):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return tmp_path / name


@pytest.mark.parametrize(
    ("name", "content", "target", "message"),
    [
        ("t.csv", CSV, "knd", "no target column 'knd' .did you mean 'kind'.*its columns are width, height, kind"),
        ("t.csv", CSV, "width", "columns that are not numbers: kind; encode"),
        ("t.csv", "a,b\n1,x\n,\n", "b", "empty in 1 of 2 rows"),
        ("t.csv", "a,b\n1,1\n2,\n", "b", "empty in 1 of 2 rows"),
        ("t.csv", "a,a,b\n1,2,x\n", "b", "more than one column named a"),
        ("t.csv", "a,b\n", "b", "0 rows"),
        ("t.csv", "b\nx\n", "b", "0 feature columns"),
        ("t.csv", "", "b", "cannot be read"),
        ("t.csv", "a,b\n1,2,3\n", "b", "cannot be read"),
        ("t.csv.gz", CSV, "kind", "cannot be read"),
        ("t.parquet", CSV, "kind", "cannot be read"),
        ("t.npz", CSV, None, "cannot be read as npz"),
        ("t.svm", "1 a:2\n", None, "cannot be read as libsvm"),
        ("t.txt", CSV, "kind", "must end in .csv"),
    ],
)
def test_bad_files(tmp_path, name, content, target, message):
    with pytest.raises(InputError, match=message):
        tables.read(bad(tmp_path, name, content), target)


def test_dates_are_not_labels(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": [1], "day": pa.array([0], pa.date32())}), path)
    with pytest.raises(InputError, match=r"target 'day' of t.parquet is of type date32"):
        tables.read(path, "day")


def test_rows_and_labels_of_npz_must_be_as_many(tmp_path):
    np.savez(tmp_path / "t.npz", x=np.eye(3), y=[0, 1])
    with pytest.raises(InputError, match="3 rows and 2 labels"):
        tables.read(tmp_path / "t.npz")


def test_a_missing_file_offers_the_nearest(csv):
    with pytest.raises(InputError, match=r"did you mean 't\.csv'"):
        tables.read(csv.with_name("tt.csv"))


def test_a_source_is_a_file_or_a_name(csv):
    assert source.read(str(csv), "kind").y_train.tolist() == ["ant", "bee", "ant"]
    assert set(source.read("iris").y_test) == {"setosa", "versicolor", "virginica"}
    with pytest.raises(InputError, match=r"neither a file nor a known set .did you mean 'iris'"):
        source.read("irsi")
    with pytest.raises(InputError, match=r"no labels; name the column .* --target; its columns are width, height"):
        source.labelled(source.read(str(csv), None, ["width", "height"]), None)


def test_columns_of_a_known_set_by_name():
    names = ["petal width (cm)", "sepal length (cm)"]
    data = source.read("iris", features=names)
    assert data.feature_names == tuple(names)
    assert data.x_train.shape == (120, 2)
    with pytest.raises(InputError, match="has no feature colour"):
        source.read("iris", features=["colour"])


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.parquet"])
def test_what_is_written_is_read_back(tmp_path, name):
    columns = {"x": np.array([1.5, 2.5]), "n": np.array([1, 2]), "label": np.array(["a,b", 'c"d'], dtype=object)}
    writing.write_columns(columns, tmp_path / name)
    data = tables.read(tmp_path / name, "label")
    assert data.x_train.tolist() == [[1.5, 1.0], [2.5, 2.0]]
    assert data.y_train.tolist() == ["a,b", 'c"d']
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_npz_written(tmp_path):
    writing.write_npz(tmp_path / "o.npz", x=np.eye(2), y=np.array(["a", "b"]))
    assert tables.read(tmp_path / "o.npz").y_train.tolist() == ["a", "b"]


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
