"""The command line as people and scripts use it: output, files, exit codes."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import kway
from kway.cli import run

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(autouse=True)
def plain_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KWAY_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "160")


@pytest.fixture(autouse=True)
def no_page(monkeypatch):
    """The page takes seconds to draw and has tests of its own."""
    from kway.report import page

    monkeypatch.setattr(page, "write_page", lambda path, *_: open(path, "w").close())


@pytest.fixture
def cli(capfd):
    """Run a command line; its exit code, stdout and stderr."""

    def call(*arguments):
        code = run([str(a) for a in arguments])
        return code, *capfd.readouterr()

    return call


@pytest.fixture
def answer(cli):
    """Run a command line that must succeed with --json; the one object it prints."""

    def call(*arguments):
        code, out, err = cli(*arguments, "--json")
        assert code == 0, err
        assert out.count("\n") == 1
        return json.loads(out)

    return call


@pytest.fixture
def iris(cli, tmp_path):
    """iris.csv, its target in the column `species`, and a model fitted to it."""
    assert cli("data", "export", "iris", "--out", "iris.csv")[0] == 0
    path = tmp_path / "iris.csv"
    path.write_text(path.read_text().replace('"target"', '"species"', 1))
    assert cli("fit", "iris.csv", "--target", "species", "--model", "softmax")[0] == 0
    return path


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


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
    result = answer("fit", "wine")
    done = {m["model"]: m["accuracy"] for m in result["models"] if not m["note"]}
    assert done[result["best"]] == max(done.values())
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
    assert result["baselines"]["majority class"] < 0.15 < result["baselines"]["straw man"] < test["accuracy"]
    runner = result["runner_up"]
    assert runner["model"] == "centroid"
    difference = runner["test"]["only_first"] - runner["test"]["only_second"]
    assert difference == round(test["rows"] * (test["accuracy"] - runner["accuracy"]))
    assert runner["test"]["p_value"] < 0.05


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
    result = answer("fit", "iris", "--model", "centroid,softmax")
    assert [m["model"] for m in result["models"]] == ["softmax"]
    assert result["notes"] == ["centroid was left out: it cannot be [so]"]
    assert "centroid was left out: it cannot be [so]" in cli("fit", "iris", "--model", "centroid,softmax")[1]
    code, out, err = cli("fit", "iris", "--model", "centroid", "--out", "none.kway")
    assert (code, out) == (1, "")
    assert "no model could be fitted; centroid: it cannot be [so]" in err
    assert not Path("none.kway").exists()


def test_a_class_that_only_the_test_rows_have(cli):
    data = kway.datasets.load("iris")
    some = data.y_train < 2
    np.savez("t.npz", x_train=data.x_train[some], y_train=data.y_train[some], x_test=data.x_test, y_test=data.y_test)
    code, _, err = cli("fit", "t.npz", "--model", "softmax")
    assert code == 1
    assert "labels that training never saw: '2'" in err or "labels that training never saw: 2" in err


def test_compare_leaves_the_test_rows_alone_and_writes_nothing(answer, cli, tmp_path):
    result = answer("compare", "iris", "--model", "softmax,centroid")
    assert {m["model"] for m in result["models"]} == {"softmax", "centroid"}
    assert "test" not in result
    assert not list(tmp_path.iterdir())
    assert "softmax" in cli("compare", "iris", "--model", "softmax")[1]


def test_a_budget_cuts_the_comparison(answer, cli):
    result = answer("fit", "iris", "--budget", "0.000001s")
    assert not result["finished"]
    assert len(result["models"]) == 1
    assert "cut short" in result["notes"][0]
    code, _, err = cli("fit", "iris", "--budget", "soon")
    assert code == 1
    assert "--budget must be a time such as 60s" in err


def test_the_names_of_models_are_those_of_the_families():
    from kway.cli.models import MODELS
    from kway.select.families import FAMILIES, STRAW_MAN

    assert set(MODELS) == {*FAMILIES, STRAW_MAN.name}


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
    code, out, _ = cli("fit", "iris")
    assert code == 0
    assert "iris: 120 train and 30 test rows, 4 features, 3 classes" in out
    assert "softmax" in out
    assert "Best:" in out
    assert "95 % interval" in out
    assert "Saved model.kway and report.html" in out


def test_the_whole_way_through_files(iris, answer, cli):
    assert answer("evaluate", "model.kway", "iris.csv")["accuracy"] > 0.9  # the file remembers its target
    assert cli("predict", "model.kway", "iris.csv", "-o", "out.csv")[0] == 0
    predicted = [row["prediction"] for row in read_csv("out.csv")]
    truth = [row["species"] for row in read_csv("iris.csv")]
    assert np.mean([p == t for p, t in zip(predicted, truth, strict=True)]) > 0.9


def test_columns_are_found_by_name_whatever_their_order(iris, answer, tmp_path):
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
    assert "the labels are text such as" in err


def test_test_file(iris, answer):
    lines = iris.read_text().splitlines(keepends=True)
    with open("a.csv", "w") as a, open("b.csv", "w") as b:
        a.writelines(lines[:1] + lines[1::2])
        b.writelines(lines[:1] + lines[2::2])
    result = answer("fit", "a.csv", "-t", "species", "--test", "b.csv", "--model", "softmax")
    assert (result["data"]["train_rows"], result["test"]["rows"]) == (75, 75)
    assert result["test"]["accuracy"] == answer("evaluate", "model.kway", "b.csv")["accuracy"]


def test_libsvm_and_npz(answer, tmp_path):
    from sklearn.datasets import dump_svmlight_file

    data = kway.datasets.load("iris")
    dump_svmlight_file(data.x_train, data.y_train, "train.svm")
    np.savez("all.npz", x_train=data.x_train, y_train=data.y_train, x_test=data.x_test, y_test=data.y_test)
    assert answer("fit", "train.svm", "--model", "softmax")["test"]["accuracy"] > 0.8
    result = answer("fit", "all.npz", "--model", "softmax")
    assert result["test"]["rows"] == 30
    assert answer("evaluate", "model.kway", "all.npz")["rows"] == 30


def test_evaluate_names_the_classes(iris, answer, cli):
    result = answer("evaluate", "model.kway", "iris.csv")
    assert [c["class"] for c in result["classes"]] == ["setosa", "versicolor", "virginica"]
    assert sum(c["rows"] * c["recall"] for c in result["classes"]) == pytest.approx(150 * result["accuracy"])
    assert "worst first" in cli("evaluate", "model.kway", "iris.csv")[1]


def test_info(iris, answer, cli):
    held = answer("info", "model.kway", "--verify")
    assert held["class_name"] == "FeaturedClassifier"
    assert held["verified"] is True
    assert (held["n_classes"], held["n_features"]) == (3, 4)
    assert held["notes"]["target"] == "species"
    assert "content verified" in cli("info", "model.kway", "--verify")[1]


def test_info_finds_an_altered_payload(iris, cli, tmp_path):
    content = bytearray((tmp_path / "model.kway").read_bytes())
    content[-1] ^= 1
    (tmp_path / "altered.kway").write_bytes(content)
    assert cli("info", "altered.kway")[0] == 0
    code, out, err = cli("info", "altered.kway", "--verify", "--json")
    assert (code, out) == (1, "")
    assert err.startswith("error: altered.kway was altered")


def test_data_list(answer, cli):
    sets = {s["name"]: s for s in answer("data", "list")["sets"]}
    assert sets["digits"]["train"] == 5000
    assert sets["digits"]["classes"] == 10
    assert "MNIST" in cli("data", "list")[1]


@pytest.mark.parametrize("name", ["o.csv", "o.csv.gz", "o.parquet", "o.npz"])
def test_data_export(answer, name):
    assert answer("data", "export", "iris", "--out", name)["bytes"] > 0
    assert answer("fit", name, "--target", "target", "--model", "centroid")["data"]["classes"] == 3


def test_data_export_of_one_part(answer):
    answer("data", "export", "iris", "--out", "o.csv", "--part", "test")
    assert len(read_csv("o.csv")) == 30


FAILURES = [
    (["fit", "irsi"], "did you mean 'iris'"),
    (["fit", "iris.csv"], "name the column that holds them with --target; its columns are"),
    (["fit", "iris.csv", "--target", "species", "--group", "specie"], "did you mean 'species'"),
    (["fit", "iris.csv", "--target", "species", "--report", "no/r.html"], "no folder no"),
    (["fit", "iris.csv", "--target", "spices"], "did you mean 'species'"),
    (["fit", "iris", "--model", "softmaxx"], "no model 'softmaxx' .did you mean 'softmax'"),
    (["fit", "iris", "--out", "no/m.kway"], "no folder no"),
    (["predict", "nothing.kway", "iris"], "nothing.kway cannot be read: No such file"),
    (["predict", "iris.csv", "iris"], "not a kway model file"),
    (["predict", "model.kway", "digits"], "pass one with columns sepal length"),
    (["predict", "model.kway", "iris.csv", "-o", "o.xlsx"], "must end in .csv"),
    (["data", "export", "iris", "--out", "o.csv", "--part", "half"], "no part 'half'"),
]


@pytest.mark.parametrize(("arguments", "message"), FAILURES, ids=lambda v: " ".join(v) if isinstance(v, list) else "")
def test_failures_are_one_line_on_stderr(iris, cli, arguments, message):
    import re

    code, out, err = cli(*arguments)
    assert code == 1
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert re.search(message, err)


@pytest.mark.parametrize(
    "arguments", [["fit"], ["fitt"], ["fit", "iris", "--colour"], ["fit", "iris", "--seed", "x"], ["predict", "m"], []]
)
def test_bad_usage(cli, arguments):
    code, out, err = cli(*arguments)
    assert code == 2
    assert "Usage" in out + err


def test_a_model_without_probabilities_gets_them_by_temperature(cli, answer):
    assert answer("fit", "iris", "--model", "svm")["test"]["log_loss"] < 1
    assert cli("predict", "model.kway", "iris", "--proba")[0] == 0


def test_no_probabilities(cli):
    data = kway.datasets.load("iris")
    kway.SVMClassifier().fit(data.x_train, data.y_train).save("model.kway")
    code, _, err = cli("predict", "model.kway", "iris", "--proba")
    assert code == 1
    assert "has no probabilities" in err


def test_version_and_help_as_a_process():
    done = subprocess.run([sys.executable, "-m", "kway.cli", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"kway {kway.__version__}\n"
    done = subprocess.run(
        [sys.executable, "-m", "kway.cli", "fit", "--help"], capture_output=True, text=True, check=True
    )
    assert "--target" in done.stdout


def test_an_unexpected_error_is_one_line_too(cli, monkeypatch):
    from kway.select import split

    monkeypatch.setattr(split, "read_raw", lambda *_, **__: 1 // 0)
    code, out, err = cli("fit", "iris")
    assert (code, out) == (1, "")
    assert err.startswith("error: ZeroDivisionError")
    monkeypatch.setenv("KWAY_TRACEBACK", "1")
    assert "Traceback" in cli("fit", "iris")[2]


def test_names_with_brackets_are_not_taken_for_markup(iris, cli, tmp_path):
    iris.rename(tmp_path / "[bold]iris.csv")
    code, out, _ = cli("evaluate", "model.kway", "[bold]iris.csv")
    assert code == 0
    assert "[bold]iris.csv" in out


def test_values_that_json_cannot_say():
    from kway.cli.output import plain

    given = {"a": np.float32(1.5), "b": [np.inf, np.nan], 3: (np.array([1, 2]), kway.Gaussian(2.0)), "c": len}
    assert plain(given) == {"a": 1.5, "b": [None, None], "3": [[1, 2], repr(kway.Gaussian(2.0))], "c": str(len)}


def test_warnings_are_one_line(cli, monkeypatch):
    import warnings

    from kway.select import split

    read = split.read_raw

    def warn(*arguments, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("mind\nthe gap", UserWarning, stacklevel=2)
        return read(*arguments, **options)

    monkeypatch.setattr(split, "read_raw", warn)
    code, _, err = cli("fit", "iris", "--model", "centroid")
    assert code == 0
    assert err == "warning: mind the gap\n"
