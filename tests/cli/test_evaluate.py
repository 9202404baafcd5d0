"""`kway evaluate`: labels known against labels predicted."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score

import kway


def test_labels_that_look_like_numbers_in_one_file_only(answer, cli):
    def write(name, labels):
        with open(name, "w") as file:
            file.write("x,y\n" + "".join(f"{i % 3}.5,{labels[i % len(labels)]}\n" for i in range(30)))

    write("train.csv", ["1", "2", "other"])
    write("some.csv", ["1", "2", "1"])
    result = answer("fit", "train.csv", "-t", "y", "--test", "some.csv", "--model", "centroid")
    assert result["test"]["accuracy"] == pytest.approx(2 / 3)
    assert answer("evaluate", "model.kway", "some.csv")["accuracy"] == pytest.approx(2 / 3)
    answer("fit", "some.csv", "-t", "y", "--model", "centroid")
    code, _, err = cli("evaluate", "model.kway", "train.csv")
    assert code == 1
    assert "labels that are not plain numbers: 'other' in rows 3, 6, 9, 12, 15 and 5 more; " in err
    assert "the classes of the model are 1, 2; " in err
    write("words.csv", ["one", "two"])
    assert "the labels are text such as 'one'" in cli("evaluate", "model.kway", "words.csv")[2]


def test_evaluate_names_the_classes(iris, answer, cli):
    result = answer("evaluate", "model.kway", "iris.csv")
    assert [c["class"] for c in result["classes"]] == ["setosa", "versicolor", "virginica"]
    assert sum(c["rows"] * c["recall"] for c in result["classes"]) == pytest.approx(150 * result["accuracy"])
    assert "lowest recall first" in cli("evaluate", "model.kway", "iris.csv")[1]


def test_names_with_brackets_are_not_taken_for_markup(iris, cli, tmp_path):
    iris.rename(tmp_path / "[bold]iris.csv")
    code, out, _ = cli("evaluate", "model.kway", "[bold]iris.csv")
    assert code == 0
    assert "[bold]iris.csv" in out


FROM_FRAMES = {
    "softmax": kway.SoftmaxClassifier(alpha=1.0),
    "neighbors": kway.NeighborsClassifier(40),
    "conformal": kway.ConformalClassifier(kway.CentroidClassifier(), random_state=0),
}


@pytest.mark.parametrize("model", FROM_FRAMES.values(), ids=FROM_FRAMES.keys())
def test_a_model_of_a_data_frame(iris, answer, cli, model):
    """Labels of a frame are Python objects; the columns of the file are found by name, in the model's order."""
    frame = pd.read_csv("iris.csv")
    X, y = frame.drop(columns="species").iloc[:, ::-1], frame["species"].astype(object)
    model.fit(X, y).save("frame.kway")
    found = answer("evaluate", "frame.kway", "iris.csv", "--target", "species")
    assert found["accuracy"] == pytest.approx(accuracy_score(frame["species"], model.predict(X)))
    assert found["accuracy"] < 1  # so that some class is taken for another
    assert {c["taken_for"] for c in found["classes"]} - {None} <= set(frame["species"])
    code, out, err = cli("evaluate", "frame.kway", "iris.csv", "--target", "species")
    assert (code, err) == (0, "")
    assert "versicolor" in out
    said = answer("predict", "frame.kway", "iris.csv")["predictions"]["prediction"]
    np.testing.assert_array_equal(said, model.predict(X))
