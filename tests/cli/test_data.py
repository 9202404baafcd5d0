"""`kway data`: sets by name, and files of them."""

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
