"""Costs of mistakes: predictions have the lowest expected cost, and the saving is shown."""

from pathlib import Path

import numpy as np
import pytest

import kway
from kway.auto.costs import read_costs
from kway.confidence.costs import CostSensitiveClassifier
from kway.errors import InputError

COSTS = "true,b,a\na,10,0\nb,0,1\n"  # predicting b for a row of a costs ten times as much as the other mistake


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 600)
    X = rng.normal(size=(600, 3)) + 0.8 * y[:, None]
    rows = [",".join([*(f"{v:.4f}" for v in x), "ab"[k]]) for x, k in zip(X, y)]
    Path("t.csv").write_text("u,v,w,y\n" + "\n".join(rows) + "\n")
    Path("costs.csv").write_text(COSTS)


@pytest.mark.parametrize("models", ["softmax", "all"])
def test_decisions_save_costs(table, answer, cli, read_csv, models):
    options = ("fit", "t.csv", "-t", "y", "--model", models, "--costs", "costs.csv")
    found = answer(*options)
    costs = found["costs"]
    assert costs["saving"] == pytest.approx(costs["by_probability"] - costs["by_expected_cost"])
    assert costs["saving"] > 0.2
    assert costs["by_expected_cost"] < costs["one_label"]
    model, C = kway.load("model.kway"), np.array([[0, 10], [1, 0]])
    assert answer("predict", "model.kway", "t.csv", "-t", "y", "-o", "p.csv", "--proba")["rows"] == 600
    lines = read_csv("p.csv")
    p = np.array([[float(line["p_a"]), float(line["p_b"])] for line in lines])
    decided = np.array(["a", "b"])[(p @ C).argmin(axis=1)]  # by the definition
    assert [line["prediction"] for line in lines] == decided.tolist()
    assert (decided != np.array(["a", "b"])[p.argmax(axis=1)]).mean() > 0.05
    import pandas as pd

    rows = pd.read_csv("t.csv").drop(columns="y")
    assert model.predict(rows).tolist() == decided.tolist()
    assert model.predict_topk(rows, 1).ids[:, 0].tolist() == decided.tolist()
    if models == "softmax":
        assert "Costs: mean cost 0." in cli(*options)[1]
        assert answer("explain", "model.kway")["reasons"]


def test_costs_from_python(table):
    found = kway.fit("t.csv", "y", models="softmax", also=(), costs=[[0, 10], [1, 0]])
    assert found.result.costs.saving > 0.2
    assert "costs: mean cost" in str(found)


def test_equal_costs_change_nothing():
    X, y = np.random.default_rng(0).normal(size=(80, 2)), np.arange(80) % 4
    softmax = kway.SoftmaxClassifier().fit(X, y)
    model = CostSensitiveClassifier.of(softmax, 1 - np.eye(4))
    assert (model.predict(X) == softmax.predict(X)).all()
    assert model.decision_function(X).argmax(axis=1).tolist() == model.predict(X).tolist()
    fitted = CostSensitiveClassifier(kway.SoftmaxClassifier(), 1 - np.eye(4)).fit(X, y)
    assert (fitted.predict(X) == softmax.predict(X)).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [("true,a\na,0\n", "does not give all costs of 'a', 'b'"), ("true,a,b\na,0,x\nb,1,0\n", "costs must be numbers"),
     ("true,a,b\na,0,inf\nb,1,0\n", "NaN or infinity"), ("", "cannot be read as a csv file"),
     ("true,a,b\na,0,1\nb,1,0\na ,0,9\n", "several rows for 'a'"),
     ("true,a,b,a\na,0,1,5\nb,1,0,5\n", "several columns for 'a'")],
)  # fmt: skip
def test_bad_costs(table, cli, text, message):
    Path("costs.csv").write_text(text)
    code, _, err = cli("fit", "t.csv", "-t", "y", "--model", "softmax", "--costs", "costs.csv")
    assert code == 1
    assert message in err
    assert not Path("model.kway").exists()


def test_spaces_around_labels_do_not_count(tmp_path):
    path = tmp_path / "costs.csv"
    path.write_text("true, b ,a\na , 10, 0\nb, 0, 1\n")
    np.testing.assert_array_equal(read_costs(path, np.array(["a ", "b"])), [[0, 10], [1, 0]])


def test_costs_do_not_work_with_guarantees(table, cli):
    code, _, err = cli("fit", "t.csv", "-t", "y", "--costs", "costs.csv", "--sets", "0.9")
    assert code == 2
    assert "--costs" in err


@pytest.mark.parametrize(
    ("estimator", "costs", "message"),
    [(kway.SoftmaxClassifier(), None, "got None"), (kway.SoftmaxClassifier(), 1 - np.eye(3), "has shape"),
     (kway.PerceptronClassifier(), 1 - np.eye(2), "costs need probabilities")],
)  # fmt: skip
def test_a_refused_fit_changes_nothing(estimator, costs, message):
    X, y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 2
    model = CostSensitiveClassifier(kway.SoftmaxClassifier(), 1 - np.eye(2)).fit(X, y)
    before = model.estimator_
    with pytest.raises(InputError, match=message):
        model.set_params(estimator=estimator, costs=costs).fit(X, y)
    assert model.estimator_ is before
    assert model.costs_.shape == (2, 2)
