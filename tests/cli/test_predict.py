"""`kway predict`: columns by name, the k best labels, probabilities."""

import csv

import numpy as np
import pyarrow.parquet as pq

import kway


def test_the_whole_way_through_files(iris, answer, cli, read_csv):
    assert answer("evaluate", "model.kway", "iris.csv")["accuracy"] > 0.9  # the file remembers its target
    assert cli("predict", "model.kway", "iris.csv", "-o", "out.csv")[0] == 0
    predicted = [row["prediction"] for row in read_csv("out.csv")]
    truth = [row["species"] for row in read_csv("iris.csv")]
    assert np.mean([p == t for p, t in zip(predicted, truth, strict=True)]) > 0.9


def test_columns_are_found_by_name_whatever_their_order(iris, answer, tmp_path, read_csv):
    lines = read_csv("iris.csv")
    names = list(lines[0])[::-1]
    with open("turned.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, ["extra", *names])
        writer.writeheader()
        writer.writerows({**line, "extra": "text"} for line in lines)
    assert answer("evaluate", "model.kway", "turned.csv") == answer("evaluate", "model.kway", "iris.csv")


def test_predict_topk_and_probabilities(iris, answer, cli):
    assert cli("predict", "model.kway", "iris.csv", "--topk", 2, "--proba", "-o", "out.parquet")[0] == 0
    table = pq.read_table("out.parquet")
    assert table.column_names == [
        "prediction", "label_1", "score_1", "label_2", "score_2", "p_setosa", "p_versicolor", "p_virginica",
    ]  # fmt: skip
    p = np.column_stack([table[f"p_{c}"].to_numpy() for c in ("setosa", "versicolor", "virginica")])
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(p.max(axis=1), table["score_1"].to_numpy(), rtol=1e-4)
    assert table["prediction"].to_pylist() == table["label_1"].to_pylist()
    several = answer("predict", "model.kway", "iris.csv", "--topk", 99)["predictions"]
    assert "label_3" in several
    assert "label_4" not in several


def test_predictions_on_stdout(iris, cli):
    code, out, _ = cli("predict", "model.kway", "iris.csv")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == '"prediction"'
    assert len(lines) == 151


def test_a_model_without_names_of_columns_takes_them_in_order(answer, cli):
    answer("fit", "digits", "--model", "centroid")
    answer("data", "export", "digits", "--out", "d.csv", "--part", "test")
    code, _, err = cli("predict", "model.kway", "d.csv")
    assert code == 1
    assert "785" in err
    assert answer("predict", "model.kway", "d.csv", "--target", "target")["rows"] == 1000
    assert answer("evaluate", "model.kway", "d.csv", "-t", "target") == answer("evaluate", "model.kway", "digits")


def test_a_model_without_probabilities_gets_them_by_temperature(cli, answer):
    assert answer("fit", "iris", "--model", "svm")["test"]["log_loss"] < 1
    assert cli("predict", "model.kway", "iris", "--proba")[0] == 0


def test_no_probabilities(cli):
    data = kway.datasets.load("iris")
    kway.SVMClassifier().fit(data.x_train, data.y_train).save("model.kway")
    code, _, err = cli("predict", "model.kway", "iris", "--proba")
    assert code == 1
    assert "gives no probabilities" in err


def test_a_model_of_a_table_of_numbers_takes_a_matrix_of_them(iris, answer, cli):
    data = kway.datasets.load("iris")
    np.savez("rows.npz", x=data.x_test)
    assert answer("predict", "model.kway", "rows.npz")["rows"] == 30
    np.savez("few.npz", x=data.x_test[:, :3])
    code, _, err = cli("predict", "model.kway", "few.npz")
    assert code == 1
    assert "pass a table with columns sepal length" in err


def test_a_file_in_pieces_is_answered_as_one(iris, cli, answer, monkeypatch, read_csv):
    whole = answer("evaluate", "model.kway", "iris.csv")
    assert cli("predict", "model.kway", "iris.csv", "--keep", "species", "-o", "whole.csv")[0] == 0
    monkeypatch.setattr("kway.tables.sources.table_files.LARGE", 0)
    monkeypatch.setattr("kway.tables.sources.csv_files.PIECE_BYTES", 500)
    assert cli("predict", "model.kway", "iris.csv", "--keep", "species", "-o", "parts.csv")[0] == 0
    assert read_csv("parts.csv") == read_csv("whole.csv")
    found = answer("evaluate", "model.kway", "iris.csv")
    assert found["classes"] == whole["classes"]
    assert abs(found["log_loss"] - whole["log_loss"]) < 1e-6
