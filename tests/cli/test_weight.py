"""Weights of rows: models learn with them, and all scores are weighted means."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import kway
from kway.auto.fit_options import FitOptions
from kway.auto.race.compare import compare_rows
from kway.auto.race.families import FAMILIES
from kway.auto.race.scoring import ACCURACY, FoldedRows
from kway.confidence.splits import Split
from kway.labels import encode


def make_table(n=600, seed=0):
    """Return rows of three classes, with whole weights from 1 to 3."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    X = rng.normal(size=(n, 3)) + 0.8 * np.eye(3)[y]
    return pd.DataFrame(
        {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "w": rng.integers(1, 4, n), "y": np.array(["p", "q", "r"])[y]}
    )


@pytest.fixture
def table():
    frame = make_table()
    frame.to_csv("t.csv", index=False)
    return frame


@pytest.fixture
def flipped():
    """Write rows of pure noise, of which a fourth, the heavy ones, have the rare label."""
    rng = np.random.default_rng(1)
    y = np.repeat(["often", "seldom"], [300, 100])
    frame = pd.DataFrame(
        {"a": rng.normal(size=400), "b": rng.normal(size=400), "w": np.where(y == "seldom", 20, 1), "y": y}
    )
    frame.to_csv("f.csv", index=False)
    return frame


@pytest.mark.parametrize("models", ["softmax", "all"])
def test_weights_flip_the_predicted_label(flipped, answer, cli, read_csv, models):
    light = answer("fit", "f.csv", "-t", "y", "--drop", "w", "--model", models, "--budget", "30")
    assert light["weight"] is None
    assert light["baselines"]["majority class"] == pytest.approx(0.75, abs=0.01)
    heavy = answer("fit", "f.csv", "-t", "y", "--weight", "w", "--model", models, "--budget", "30")
    assert heavy["weight"] == "w"
    assert heavy["baselines"]["majority class"] == pytest.approx(20 * 0.25 / (20 * 0.25 + 0.75), abs=0.01)
    assert heavy["test"]["accuracy"] > 0.8
    flipped[["a", "b"]].to_csv("new.csv", index=False)  # the column of weights is not needed
    answer("predict", "model.kway", "new.csv", "-o", "p.csv")
    predicted = [line["prediction"] for line in read_csv("p.csv")]
    assert predicted.count("seldom") > 0.9 * len(predicted)
    assert answer("evaluate", "model.kway", "f.csv", "-t", "y")["rows"] == 400


def test_the_output_states_the_weights(table, cli):
    code, out, err = cli("fit", "t.csv", "-t", "y", "--weight", "w", "--model", "softmax")
    assert code == 0
    assert "rows are weighted by column w, so all scores are weighted means" in " ".join((out + err).split())


def test_test_scores_are_weighted_means(table):
    found = kway.fit(table, "y", weight="w", models="softmax", also=())
    data, predicted = found.result.data, found.result.evaluation.predicted
    correct, w = predicted == data.test_y, data.test_weights
    scores = found.test
    assert scores.accuracy == pytest.approx(np.average(correct, weights=w))
    recalls = [np.average(correct[data.test_y == c], weights=w[data.test_y == c]) for c in "pqr"]
    assert [line["recall"] for line in scores.classes] == pytest.approx(recalls)
    assert [line["rows"] for line in scores.classes] == [(data.test_y == c).sum() for c in "pqr"]
    p = found.model.predict_proba(data.test_rows)[np.arange(len(w)), np.searchsorted(["p", "q", "r"], data.test_y)]
    assert scores.log_loss == pytest.approx(np.average(-np.log(p), weights=w))
    assert scores.rows == len(w)


@pytest.mark.parametrize("models", ["softmax", pytest.param("all", marks=pytest.mark.slow)])
def test_equal_weights_change_nothing(table, answer, models):
    table[:300].assign(w=3).to_csv("t.csv", index=False)
    plain = answer("fit", "t.csv", "-t", "y", "--drop", "w", "--model", models)
    equal = answer("fit", "t.csv", "-t", "y", "--weight", "w", "--model", models)
    assert equal["test"] == plain["test"]
    assert [row["fold_accuracy"] for row in equal["models"]] == [row["fold_accuracy"] for row in plain["models"]]
    assert equal["weight"] == "w"


FAMILIES_WITH_WEIGHTS = [
    "centroid", "softmax", "svm-one-vs-all", "extra-trees", "kernel-softmax", "boosted", "boosted-gentle",
    "least-squares", "logistic", "perceptron", "svm",
]  # fmt: skip


@pytest.mark.parametrize("metric", ["accuracy", "balanced", "macro-f1", "log-loss"])
def test_a_race_with_ones_equals_a_race_without_weights(table, metric):
    X, labels = table[["a", "b", "c"]].to_numpy()[:240], encode(table["y"][:240])
    models = FAMILIES_WITH_WEIGHTS if metric == "accuracy" else ["softmax", "extra-trees"]
    options = FitOptions(models=models, metric=metric, budget=1000)
    plain, ones = (compare_rows(X, labels, options, weights=w) for w in (None, np.ones(240)))
    assert [row.model for row in ones.rows] == [row.model for row in plain.rows]
    assert {row.model for row in ones.rows} == set(models)
    for mine, theirs in zip(ones.rows, plain.rows):
        assert mine.fold_scores == pytest.approx(theirs.fold_scores)
        assert mine.setting == theirs.setting


@pytest.mark.parametrize("family", ["centroid", "softmax", "svm-one-vs-all", "least-squares"])
def test_whole_weights_are_like_repeated_rows(table, family):
    w, X = table["w"].to_numpy(), table[["a", "b", "c"]].to_numpy()
    codes, folds, copies = encode(table["y"]).codes, np.arange(len(w)) % 5, np.repeat(np.arange(len(w)), w)
    weighted = FoldedRows(X, codes, folds, weights=w.astype(float))
    repeated = FoldedRows(X[copies], codes[copies], folds[copies])
    settings = FAMILIES[family].settings(weighted)
    scores, losses = [], []
    for data in (weighted, repeated):
        split = Split(np.flatnonzero(data.folds != 0), np.flatnonzero(data.folds == 0))
        active = range(len(settings))
        predictions = FAMILIES[family].fit_predict(data, split, settings, active, lambda: False)
        predictions = predictions.weighted(data, split.held_out)
        scores.append(ACCURACY.of(predictions, data.codes[split.held_out]))
        losses.append(predictions.loss())
    assert scores[0] == pytest.approx(scores[1], abs=0.01)
    assert losses[0] == pytest.approx(losses[1], abs=0.005, nan_ok=True)


def test_rows_of_weight_zero_are_left_out(table):
    kept = kway.fit(table[table["w"] > 1], "y", weight="w", models="softmax", also=())
    zeros = kway.fit(
        table.assign(w=np.where(table["w"] > 1, table["w"], 0)), "y", weight="w", models="softmax", also=()
    )
    assert zeros.test == kept.test
    assert any("rows of weight 0 were left out" in note for note in zeros.notes)


@pytest.mark.parametrize("rows", ["table", "matrix"])
def test_weights_in_memory(table, rows):
    X, y, w = table[["a", "b", "c"]], table["y"], table["w"]
    named = kway.fit(table, "y", weight="w", models="softmax", also=())
    given = kway.fit(X if rows == "table" else X.to_numpy(), y.to_numpy(), weight=w.tolist(), models="softmax", also=())
    assert given.test.accuracy == pytest.approx(named.test.accuracy, abs=0.02)
    assert given.result.data.weights.tolist() == named.result.data.weights.tolist()
    assert any("weighted by the array weight" in note for note in given.notes)
    assert len(given.predict(X if rows == "table" else X.to_numpy())) == len(y)


def test_a_split_column_and_a_test_file_keep_their_weights(table, answer, cli):
    table.assign(split=np.where(table.index % 4, "train", "test")).to_csv("split.csv", index=False)
    table[table.index % 4 > 0].to_csv("train.csv", index=False)
    table[table.index % 4 == 0].to_csv("test.csv", index=False)
    options = ("-t", "y", "--weight", "w", "--model", "softmax", "--alpha", "0.01")
    divided = answer("fit", "split.csv", *options)
    files = answer("fit", "train.csv", "--test", "test.csv", *options)
    assert divided["test"]["log_loss"] == pytest.approx(files["test"]["log_loss"])
    assert divided["test"]["classes"] == files["test"]["classes"]
    table[table.index % 4 == 0].drop(columns="w").to_csv("test.csv", index=False)
    code, _, err = cli("fit", "train.csv", "--test", "test.csv", *options)
    assert code == 2
    assert "'w'" in err


def test_families_that_ignore_weights_are_left_out(table, answer):
    table[:300].to_csv("t.csv", index=False)
    found = answer("compare", "t.csv", "-t", "y", "--weight", "w", "--budget", "20")
    assert found["weight"] == "w"
    assert "weights of the rows" in found["skipped"]["neighbors-nca"]
    assert "neighbors" in {row["model"] for row in found["models"]}


def test_costs_and_levels_are_weighted(table):
    found = kway.fit(table, "y", weight="w", models="softmax", also=(), costs=1 - np.eye(3))
    assert found.result.costs.by_expected_cost == pytest.approx(1 - found.test.accuracy)
    paths = kway.fit(table.assign(y="x/" + table["y"]), "y", weight="w", models="softmax", also=(), hierarchy="/")
    assert paths.levels[-1].accuracy == pytest.approx(paths.test.accuracy)


@pytest.mark.parametrize(
    ("cell", "message"),
    [("-1", "is -1 in row 2"), ("", "is missing in row 2"), ("inf", "is inf in row 2")],
)
def test_bad_weights(table, cli, cell, message):
    lines = Path("t.csv").read_text().splitlines()
    cells = lines[2].split(",")
    lines[2] = ",".join([*cells[:3], cell, cells[4]])
    Path("t.csv").write_text("\n".join(lines) + "\n")
    code, _, err = cli("fit", "t.csv", "-t", "y", "--weight", "w")
    assert code == 1
    assert message in err
    assert "correct these rows" in err


def test_weights_that_cannot_be_used(table, cli):
    table.assign(w=0).to_csv("zero.csv", index=False)
    table.assign(w=np.where(table.index % 2, "low", "high")).to_csv("text.csv", index=False)
    for arguments, code, message in [
        (("zero.csv", "--weight", "w"), 1, "is 0 in all rows"),
        (("text.csv", "--weight", "w"), 1, "not a column of numbers"),
        (("t.csv", "--weight", "v"), 2, "'v'"),
        (("t.csv", "--weight", "y"), 2, "both 'y'"),
        (("t.csv", "--weight", "w", "--sets", "0.9"), 2, "--weight"),
        (("t.csv", "--weight", "w", "--model", "neighbors-nca"), 1, "cannot learn with weights"),
        (("t.csv", "--weight", "w", "--multilabel", ";"), 2, "weight= does not work"),
    ]:
        found, _, err = cli("fit", *arguments, "-t", "y")
        assert found == code, err
        assert message in err
    with pytest.raises(kway.errors.InputError, match="weight has shape"):
        kway.fit(table[["a", "b"]], table["y"].to_numpy(), weight=[1, 2])
    with pytest.raises(kway.errors.InputError, match="test="):
        kway.fit(table[["a"]], table["y"].to_numpy(), weight=table["w"], test=(table[["a"]], table["y"].to_numpy()))
