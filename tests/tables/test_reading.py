"""DATA as it came: files, folders and names into rows, labels, groups and order; what is wrong is said in words."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kway.auto.train_test import check_known, checked_labels
from kway.errors import InputError
from kway.tables.features.features import Features
from kway.tables.read_options import ReadOptions
from kway.tables.reading import RowsInMemory, read_rows

CSV = "age,town,day,kind\n" + "".join(
    f"{20 + i % 7},{'PQ'[i % 2]}-ton,2024-01-{i % 28 + 1:02d},{'abc'[i % 3]}\n" for i in range(60)
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(CSV)
    return path


def test_csv(file):
    found = read_rows(file, ReadOptions("kind", "town", "day"))
    assert found.rows.column_names == ["age"]
    assert found.n == 60
    assert found.y[:3].tolist() == ["a", "b", "c"]
    assert set(found.groups) == {"P-ton", "Q-ton"}
    assert found.order[0] == np.datetime64("2024-01-01")
    assert found.test_rows is None


def test_a_folder_of_parquet_files(tmp_path):
    table = pa.table({"x": [1.5, 2.5], "kind": ["a", "b"]})
    (tmp_path / "more").mkdir()
    pq.write_table(table, tmp_path / "0.parquet")
    pq.write_table(table.slice(1), tmp_path / "more" / "1.parquet")
    pq.write_table(table, tmp_path / "_temporary.parquet")
    found = read_rows(tmp_path, ReadOptions(target="kind"))
    assert found.rows.column("x").to_pylist() == [1.5, 2.5, 2.5]
    assert found.y.tolist() == ["a", "b", "b"]
    pq.write_table(pa.table({"x": [["no"]]}), tmp_path / "2.parquet")
    with pytest.raises(InputError, match="do not have the same columns"):
        read_rows(tmp_path, ReadOptions(target="kind"))


def test_a_split_column_cuts(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x,kind,split\n1,a,train\n2,b,test\n3,a,val\n4,b,train\n")
    found = read_rows(path, ReadOptions(target="kind"))
    assert found.rows.to_pydict() == {"x": [1, 3, 4]}
    assert found.test_rows.to_pydict() == {"x": [2]}
    assert found.test_y.tolist() == ["b"]
    assert "3 for training, 1 for testing" in found.notes[0]
    path.write_text("x,kind,split\n1,a,left\n2,b,right\n")
    assert read_rows(path, ReadOptions(target="kind")).rows.column_names == ["x", "split"]


def test_npz_and_known_sets(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "t.npz", x=rng.random((6, 4, 4)), y=np.arange(6) % 2, who=np.arange(6))
    found = read_rows(tmp_path / "t.npz", ReadOptions(group="who"))
    assert found.rows.shape == (6, 16)
    assert found.image == (4, 4, 1)
    assert found.groups.tolist() == list(range(6))
    with pytest.raises(InputError, match="no array 'when' with one value per row for order; it has who"):
        read_rows(tmp_path / "t.npz", ReadOptions(order="when"))
    assert read_rows("digits").rows.shape == (5000, 784)
    assert read_rows("iris").y[0] in ("setosa", "versicolor", "virginica")


def test_texts_of_the_data_folder(tmp_path, monkeypatch):
    (tmp_path / "texts.csv.gz").write_bytes(__import__("gzip").compress(b"text,label\nhello you,1\nbye now,2\n"))
    monkeypatch.setenv("KWAY_DATA", str(tmp_path))
    found = read_rows("texts")
    assert (found.name, found.rows.column_names, found.y.tolist()) == ("texts", ["text"], [1, 2])


def test_later_rows_are_read_as_the_first_were(tmp_path):
    """Codes stay text although a file of few rows would read them as numbers."""
    train, later = tmp_path / "train.csv", tmp_path / "later.csv"
    train.write_text(
        "code,x,kind\n" + "".join(f"{'007' if i % 2 else 'A1'},{i * i},{'ab'[i % 2]}\n" for i in range(40))
    )
    later.write_text("extra,x,code\n1,5,007\n1,6,007\n")
    found = read_rows(train, ReadOptions(target="kind"))
    features = Features().fit(found.rows)
    for wanted in (found.requirements(), features.requirements()):
        rows = read_rows(later, requirements=wanted).rows
        assert rows.column("code").to_pylist() == ["007", "007"]
        assert "extra" not in rows.column_names
    X = features.transform(rows)
    assert X[:, list(features.get_feature_names_out()).index("code=007")].tolist() == [1, 1]


def test_types_are_told_from_all_rows(tmp_path):
    path = tmp_path / "long.csv"
    body = "".join(f"{i},{i % 3}\n" for i in range(200_000))
    path.write_text(f"x,kind\n{body}?,1\n0.5,2\n")
    found = read_rows(path, ReadOptions(target="kind"))
    assert found.rows.column("x").to_pylist()[-2:] == [None, 0.5]


@pytest.mark.parametrize("separator", [";", "\t"])
def test_other_separators(tmp_path, separator):
    (tmp_path / "t.csv").write_text(CSV.replace(",", separator))
    assert read_rows(tmp_path / "t.csv", ReadOptions(target="kind")).rows.column_names == ["age", "town", "day"]


BAD = {
    "wrong target": (CSV, {"target": "kinds"}, r"no target column 'kinds' \(did you mean 'kind'\?\)"),
    "wrong group": (CSV, {"target": "kind", "group": "twn"}, r"did you mean 'town'\?"),
    "duplicate header": ("a,a,k\n1,2,x\n", {"target": "k"}, "more than one column named a"),
    "empty file": ("", {"target": "k"}, "t.csv cannot be read: it is empty"),
    "header only": ("a,k\n", {"target": "k"}, "a header but no rows"),
    "ragged": ("a,k\n1,x\n1\n", {"target": "k"}, "line 3 has 1 cell, but the first row has 2: '1'; complete the row"),
    "gap in target": ("a,k\n1,x\n2,\n", {"target": "k"}, "target 'k' of t.csv is empty in 1 of 2 rows"),
    "target only": ("k\nx\ny\n", {"target": "k"}, "add columns to learn from"),
    "gap in order": ("a,t,k\n1,,x\n2,3,y\n", {"target": "k", "order": "t"}, "order 't' of t.csv is empty in 1 of 2"),
}


@pytest.mark.parametrize(("content", "options", "message"), BAD.values(), ids=BAD.keys())
def test_bad_files(tmp_path, content, options, message):
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(InputError, match=message):
        read_rows(tmp_path / "t.csv", ReadOptions(**options))


ENCODINGS = {
    "utf-8": (), "utf-8-sig": (), "latin-1": ("cp1252", "encoding="), "cp1252": ("cp1252", "encoding="),
    "utf-16": ("utf-16",), "utf-16-le": ("utf-16-le", "encoding="), "utf-16-be": ("utf-16-be", "encoding="),
}  # fmt: skip


@pytest.mark.parametrize(("encoding", "said"), ENCODINGS.items(), ids=ENCODINGS.keys())
def test_encodings_are_recognised_and_said(tmp_path, encoding, said):
    text = "größe,k\n" + "".join(f"caf\u00e9 {i},{'xy'[i % 2]}\n" for i in range(9))
    (tmp_path / "t.csv").write_bytes(text.encode(encoding))
    found = read_rows(tmp_path / "t.csv", ReadOptions(target="k"))
    assert found.rows.column_names == ["größe"]
    assert found.rows.column("größe")[0].as_py() == "café 0"
    assert all(word in " ".join(found.notes) for word in said)
    assert bool(found.notes) == bool(said)
    asked = ReadOptions(target="k", encoding=encoding)
    assert read_rows(tmp_path / "t.csv", asked).rows.column("größe")[0].as_py() == "café 0"


def test_bytes_that_are_not_utf8_in_a_late_row(tmp_path):
    rows = "".join(f"word{i},{i % 2}\n" for i in range(200_000))
    (tmp_path / "t.csv").write_bytes(f"name,k\n{rows}".encode() + "caf\u00e9,1\n".encode("cp1252"))
    found = read_rows(tmp_path / "t.csv", ReadOptions(target="k"))
    assert found.rows.column("name")[-1].as_py() == "café"
    assert "read as cp1252" in found.notes[0]


def test_missing_files_and_names(file):
    with pytest.raises(InputError, match=r"did you mean 't\.csv'"):
        read_rows(file.with_name("tt.csv"))
    with pytest.raises(
        InputError, match=r"neither a file, a folder nor a built-in dataset \(did you mean 'digits'\?\)"
    ):
        read_rows("digit")


def test_columns_asked_for_must_be_there(file, tmp_path):
    found = read_rows(file, ReadOptions(target="kind"))
    (tmp_path / "o.csv").write_text("age,towns,day\n1,x,2024-01-01\n")
    with pytest.raises(InputError, match=r"no feature column 'town' \(did you mean 'towns'\?\)"):
        read_rows(tmp_path / "o.csv", requirements=found.requirements())


def test_labels_that_can_be_learned():
    assert checked_labels(np.array(["a", "b", "a", "b"]), "t")[1] == ()
    assert "1 classes have only one row (c)" in checked_labels(np.array(["a", "b", "a", "b", "c"]), "t")[1][0]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.array(["a", "a"]), "one class only"),
        (np.arange(10), "a different label in each of its 10 rows"),
        (np.array([0.5, 0.5, 1.0, 2.0]), "such as 0.5, so it is a measurement"),
    ],
)
def test_labels_that_cannot(y, message):
    with pytest.raises(InputError, match=message):
        checked_labels(y, "target 'k' of t.csv")


def test_a_label_never_seen():
    with pytest.raises(InputError, match=r"do not occur in training: 'z' \(2 rows\)"):
        check_known(np.array(["a", "z", "z"]), np.array(["a", "b"]), "test.csv")
    check_known(np.array(["a"]), np.array(["a", "b"]), "test.csv")


def test_categories_of_numbers_are_numbers():
    frame = pd.DataFrame({"x": [1.5, 2.5, 3.5], "y": pd.Categorical([3, 1, 3])})
    y = read_rows(RowsInMemory(frame), ReadOptions("y")).y
    assert y.tolist() == [3, 1, 3]
