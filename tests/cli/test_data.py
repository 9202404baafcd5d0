"""`kway data`: sets by name, and files of them."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest


def test_data_list(answer, cli):
    sets = {s["name"]: s for s in answer("data", "list")["sets"]}
    assert sets["digits"]["train"] == 5000
    assert sets["digits"]["classes"] == 10
    assert "MNIST" in cli("data", "list")[1]


@pytest.mark.parametrize("name", ["o.csv", "o.csv.gz", "o.parquet", "o.npz"])
def test_data_export(answer, name):
    assert answer("data", "export", "iris", "--out", name)["bytes"] > 0
    assert answer("fit", name, "--target", "target", "--model", "centroid")["data"]["classes"] == 3


def test_data_export_of_one_part(answer, read_csv):
    answer("data", "export", "iris", "--out", "o.csv", "--part", "test")
    assert len(read_csv("o.csv")) == 30


TABLE = 'code,big,n,tags,kind\n007,9007199254740993,1,,"p"\n012,,,red,"q"\n'


def test_data_export_keeps_gaps_integers_and_ids(answer):
    Path("t.csv").write_text(TABLE)
    answer("data", "export", "t.csv", "-t", "kind", "--id", "code", "-o", "o.parquet")
    assert pq.read_table("o.parquet").to_pylist() == [
        {"code": "007", "big": 2**53 + 1, "n": 1, "tags": "", "target": "p"},
        {"code": "012", "big": None, "n": None, "tags": "red", "target": "q"},
    ]
    answer("data", "export", "t.csv", "-t", "kind", "--id", "code", "-o", "o.csv")
    assert Path("o.csv").read_text().splitlines()[1:] == ['"007",9007199254740993,1,"","p"', '"012",,,"red","q"']


def test_data_export_does_not_overwrite_a_feature_called_target(cli, answer, read_csv):
    Path("t.csv").write_text(TABLE.replace("big", "target"))
    code, _, err = cli("data", "export", "t.csv", "-t", "kind", "-o", "o.csv")
    assert code == 1
    assert "t.csv has a column 'target' besides the labels" in err
    assert not Path("o.csv").exists()
    answer("data", "export", "t.csv", "-t", "kind", "--drop", "target", "-o", "o.csv")
    assert [row["target"] for row in read_csv("o.csv")] == ["p", "q"]


def test_data_export_refuses_ids_of_training_and_test_rows(cli):
    Path("t.csv").write_text("code,x,kind,split\na,1,p,test\nb,2,q,train\nc,3,p,train\n")
    code, _, err = cli("data", "export", "t.csv", "-t", "kind", "--id", "code", "-o", "o.csv")
    assert code == 2
    assert "has training and test rows, so its ids cannot be written; leave out --id" in err
