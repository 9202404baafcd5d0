"""`kway fit`: compare, choose, calibrate, test once, save."""

from pathlib import Path

import numpy as np
import pytest

import kway


def test_fit_compares_saves_and_tests(answer, tmp_path):
    result = answer("fit", "iris", "--out", "m.kway")
    assert {m["model"] for m in result["models"]} >= {"softmax", "logistic", "svm", "perceptron", "least-squares"}
    assert result["best"] in {m["model"] for m in result["models"]}
    assert result["test"]["accuracy"] > 0.85
    assert result["test"]["rows"] == 30
    assert result["seconds"] > 0
    assert result["model"] == "m.kway"
    best = kway.load(tmp_path / "m.kway")
    assert best.classes_.tolist() == ["setosa", "versicolor", "virginica"]


def test_the_best_is_the_best_on_rows_held_out(answer):
    result = answer("fit", "wine", "--model", "softmax,kernel-softmax,svm,neighbors,neighbors-manhattan")
    done = {m["model"]: m["log_loss"] for m in result["models"] if not m["note"] and m["log_loss"] is not None}
    assert done[result["best"]] < min(done.values()) + 0.02
    assert result["models"][0]["model"] == result["best"]
    for costs in ("fit_seconds", "predict_seconds", "bytes"):
        assert result["models"][0][costs] > 0


def test_the_test_is_told_in_full(answer):
    result = answer("fit", "digits8x8", "--model", "neighbors,centroid")
    test = result["test"]
    assert 0 < test["low"] < test["accuracy"] < test["high"] < 1
    assert test["accuracy"] <= test["top5"] <= 1
    assert abs(test["macro_f1"] - test["accuracy"]) < 0.05
    assert 0 < test["log_loss"] < 1
    assert 0 < test["ece"] < 0.2
    assert sum(c["rows"] for c in test["classes"]) == test["rows"]
    assert result["baselines"]["majority class"] < 0.15 < result["baselines"]["class number"] < test["accuracy"]
    runner = result["runner_up"]
    assert runner["model"] == "centroid"
    difference = runner["test"]["only_first"] - runner["test"]["only_second"]
    assert difference == round(test["rows"] * (test["accuracy"] - runner["accuracy"]))
    assert runner["test"]["p_value"] < 0.05


def test_the_baselines_are_named(cli):
    code, out, _ = cli("fit", "iris", "--model", "centroid")
    assert code == 0
    assert "Baselines: always the most frequent class 0." in out
    assert "least squares on the class number 0." in out


def inner(path="model.kway"):
    """The classifier inside the features and the temperature."""
    model = kway.load(path)
    assert type(model).__name__ == "FeaturedClassifier"
    assert type(model.estimator_).__name__ == "TemperatureScaledClassifier"
    return model.estimator_.estimator_


def test_alpha_is_chosen_on_rows_held_out_unless_given(answer):
    chosen = answer("fit", "wine", "--model", "softmax")
    assert inner().alpha == chosen["setting"]["alpha"]
    given = answer("fit", "wine", "--model", "softmax", "--alpha", 0.5)
    assert given["models"][0]["setting"] == {"alpha": 0.5}
    assert inner().alpha == 0.5


def test_the_choice_does_not_change_with_the_units(answer):
    data = kway.datasets.load("iris")
    for name, unit in (("cm.npz", 1.0), ("um.npz", 10000.0)):
        np.savez(name, x_train=data.x_train * unit, y_train=data.y_train, x_test=data.x_test * unit, y_test=data.y_test)
    a, b = (answer("fit", name, "--model", "softmax") for name in ("cm.npz", "um.npz"))
    assert a["models"][0]["accuracy"] == b["models"][0]["accuracy"]
    assert a["test"]["accuracy"] == b["test"]["accuracy"]


def test_a_model_that_cannot_be_fitted_is_left_out(cli, answer, monkeypatch):
    from kway.errors import CombinationError

    def refuse(*_):
        raise CombinationError("it cannot be [so]")

    monkeypatch.setattr(kway.CentroidClassifier, "fit", refuse)
    result = answer("fit", "iris", "--model", "centroid,softmax", "--alpha", 0.01)
    assert [m["model"] for m in result["models"]] == ["softmax"]
    assert result["notes"] == ["centroid was left out: it cannot be [so]"]
    told = cli("fit", "iris", "--model", "centroid,softmax", "--alpha", 0.01)[1]
    assert "centroid was left out: it cannot be [so]" in told
    code, out, err = cli("fit", "iris", "--model", "centroid", "--out", "none.kway")
    assert (code, out) == (1, "")
    assert "no model could be fitted; centroid: it cannot be [so]" in err
    assert not Path("none.kway").exists()


def test_a_class_that_only_the_test_rows_have(cli):
    data = kway.datasets.load("iris")
    some = data.y_train < 2
    np.savez("t.npz", x_train=data.x_train[some], y_train=data.y_train[some], x_test=data.x_test, y_test=data.y_test)
    code, _, err = cli("fit", "t.npz", "--model", "centroid")
    assert code == 1
    assert "labels that do not occur in training: '2'" in err or "labels that do not occur in training: 2" in err


def test_a_budget_cuts_the_comparison(answer):
    result = answer("fit", "iris", "--budget", "0.000001s")
    assert not result["finished"]
    assert len(result["models"]) == 1
    assert result["best"] == "centroid"
    assert "ended the comparison early" in result["notes"][0]
    assert "softmax" not in [model["model"] for model in result["models"]]


def test_fit_is_the_same_for_the_same_seed(answer):
    a, b = (answer("fit", "iris", "--model", "softmax", "--seed", 3) for _ in range(2))
    assert a["test"] == b["test"]


@pytest.mark.parametrize(
    "model", ["softmax", "logistic", "svm", "perceptron", "least-squares", "neighbors", "centroid"]
)
def test_every_model_by_name(answer, model):
    result = answer("fit", "iris", "--model", model)
    assert result["best"] == model
    assert result["test"]["accuracy"] > 0.6
    assert answer("evaluate", "model.kway", "iris")["accuracy"] == result["test"]["accuracy"]


def test_text_for_people(cli):
    code, out, _ = cli("fit", "iris", "--model", "softmax,centroid", "--alpha", 0.01)
    assert code == 0
    assert "iris: 120 training rows, 30 test rows, 4 features, 3 classes" in out
    assert "softmax" in out
    assert "Winner: softmax (alpha 0.01)" in out
    assert "95% interval" in out
    assert "Saved model.kway and report.html" in out


def test_test_file(iris, answer):
    lines = iris.read_text().splitlines(keepends=True)
    with open("a.csv", "w") as a, open("b.csv", "w") as b:
        a.writelines(lines[:1] + lines[1::2])
        b.writelines(lines[:1] + lines[2::2])
    result = answer("fit", "a.csv", "-t", "species", "--test", "b.csv", "--model", "softmax", "--alpha", 0.01)
    assert (result["data"]["train_rows"], result["test"]["rows"]) == (75, 75)
    assert result["test"]["accuracy"] == answer("evaluate", "model.kway", "b.csv")["accuracy"]


def test_libsvm_and_npz(answer, tmp_path):
    from sklearn.datasets import dump_svmlight_file

    data = kway.datasets.load("iris")
    dump_svmlight_file(data.x_train, data.y_train, "train.svm")
    np.savez("all.npz", x_train=data.x_train, y_train=data.y_train, x_test=data.x_test, y_test=data.y_test)
    assert answer("fit", "train.svm", "--model", "softmax", "--alpha", 0.01)["test"]["accuracy"] > 0.8
    result = answer("fit", "all.npz", "--model", "centroid")
    assert result["test"]["rows"] == 30
    assert answer("evaluate", "model.kway", "all.npz")["rows"] == 30
