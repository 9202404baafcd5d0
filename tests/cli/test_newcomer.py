"""What a newcomer's trial found, as tables through the real command line: the results may not mislead."""

import csv
from pathlib import Path

import numpy as np
import pytest
from tests.helpers import leaky

import kway
from kway.errors import BudgetError
from kway.planning import costs


def write(name, **columns):
    with open(name, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*(np.asarray(values).tolist() for values in columns.values())))


def blobs(n=300, seed=0, classes=3, spread=1.0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    X = rng.normal(size=(n, 2)) * spread + np.stack([4 * np.cos(2 * y), 4 * np.sin(2 * y)], axis=1)
    return {"u": X[:, 0], "v": X[:, 1]}, np.array(list("abcdefgh"))[y]


def test_no_better_than_the_majority_class_is_said(answer, cli):
    rng = np.random.default_rng(0)
    write("noise.csv", u=rng.normal(size=300), v=rng.normal(size=300), y=(rng.random(300) < 0.2).astype(int))
    found = answer("fit", "noise.csv", "-t", "y", "--model", "softmax")
    assert "etter than always predicting the most frequent class" in found["verdict"]
    out = cli("fit", "noise.csv", "-t", "y", "--model", "softmax")[1]
    assert out.index(found["verdict"]) < out.index("Test accuracy")
    columns, y = blobs()
    write("blobs.csv", **columns, y=y)
    assert answer("fit", "blobs.csv", "-t", "y", "--model", "centroid")["verdict"] is None


@pytest.mark.parametrize("metric", ["macro-f1", "balanced"])
def test_the_metric_asked_for_is_the_metric_shown(answer, cli, metric):
    columns, y = blobs(spread=2.5)
    write("blobs.csv", **columns, y=y)
    options = ("fit", "blobs.csv", "-t", "y", "--model", "centroid", "--metric", metric, "--class-weight", "balanced")
    found = answer(*options)
    want = {"macro-f1": found["test"]["macro_f1"], "balanced": np.mean([c["recall"] for c in found["test"]["classes"]])}
    assert found["test_score"] == pytest.approx(want[metric])
    in_python = kway.fit("blobs.csv", "y", models="centroid", metric=metric, class_weight="balanced", also=())
    words = {"macro-f1": "macro F1", "balanced": "balanced accuracy"}[metric]
    assert f"Test {words}: {want[metric]:.4f}." in cli(*options)[1]
    assert f"test: {words} {want[metric]:.4f}, accuracy" in str(in_python)


def test_families_are_named_in_python_as_on_the_command_line():
    columns, y = blobs()
    found = kway.fit(columns, y, models="softmax,centroid", also=())
    assert {row.model for row in found.leaderboard.rows} == {"softmax", "centroid"}


def test_classes_of_one_row_explain_a_lower_cross_validation(answer):
    columns, y = blobs(400)
    y = y.astype("U9")
    y[:60] = [f"rare {i}" for i in range(60)]
    write("rare.csv", **columns, y=y)
    found = answer("fit", "rare.csv", "-t", "y", "--model", "neighbors")
    assert found["test"]["accuracy"] - found["models"][0]["accuracy"] > 0.1
    rows = found["data"]["train_rows"]
    assert any(n.startswith(f"60 of {rows} training rows ({60 / rows:.1%}) have no other row") for n in found["notes"])


def test_evaluate_says_that_rows_are_training_rows(answer, cli):
    columns, y = blobs()
    write("blobs.csv", **columns, y=y)
    found = answer("fit", "blobs.csv", "-t", "y", "--model", "centroid")
    assert answer("evaluate", "model.kway", "blobs.csv")["trained_rows"] == found["data"]["train_rows"] == 240
    out = cli("evaluate", "model.kway", "blobs.csv")[1]
    assert "240 of these 300 rows are training rows of the model" in " ".join(out.split())
    columns, y = blobs(seed=1)
    write("new.csv", **columns, y=y)
    assert answer("evaluate", "model.kway", "new.csv")["trained_rows"] == 0
    assert "training rows" not in cli("evaluate", "model.kway", "new.csv")[1]
    assert Path("model.kway").stat().st_size < 20_000
    assert "hashes" not in cli("info", "model.kway")[1]


def test_empty_sets_are_explained(answer, cli):
    columns, y = blobs(600)
    write("blobs.csv", **columns, y=y)
    found = answer("fit", "blobs.csv", "-t", "y", "--model", "softmax", "--sets", "0.8")
    assert "of the sets are empty: no label is likely enough" in found["sets"]["note"]
    out = cli("fit", "blobs.csv", "-t", "y", "--model", "softmax", "--sets", "0.8")[1]
    assert "a higher share (sets=) makes fewer empty sets (--sets)" in " ".join(out.split())


def test_a_class_that_is_mostly_taken_for_unknown_is_named(answer):
    rng = np.random.default_rng(0)
    y = np.array(["common"] * 300 + ["other"] * 300 + ["strange"] * 20)
    X = rng.normal(size=(620, 2)) * np.where(y == "strange", 30, 0.5)[:, None] + 5 * (y == "other")[:, None]
    write("t.csv", u=X[:, 0], v=X[:, 1], y=y)
    found = answer("fit", "t.csv", "-t", "y", "--model", "neighbors", "--unknown", "0.05")
    assert found["unknown"]["note"].startswith("most test rows of these classes are predicted as 'unknown': strange (")


TOPICS = {
    "billing": "invoice charged refund payment card receipt twice amount",
    "login": "password reset account locked email code sign username",
    "delivery": "package late courier tracking address parcel arrived box",
}
REST = ["please", "help", "i", "have", "my", "the", "order", "and", "it", "was", "not", "again", "could", "you"]


def test_dates_and_numbers_do_not_drown_the_text(answer):
    rng = np.random.default_rng(0)
    n, names = 300, list(TOPICS)
    y = rng.integers(0, 3, n)
    texts = [" ".join(rng.permutation([*rng.choice(TOPICS[names[k]].split(), 3), *rng.choice(REST, 6)])) for k in y]
    days = np.datetime64("2024-01-01") + rng.integers(0, 200, n)
    columns = {"opened": days.astype(str), "age": rng.integers(18, 90, n), "spent": rng.normal(size=n).round(2)}
    write("tickets.csv", **columns, text=texts, topic=np.array(names)[y])
    found = answer("fit", "tickets.csv", "-t", "topic", "--model", "softmax")
    assert found["test"]["accuracy"] > 0.9
    strongest = {reason["class"]: reason["column"] for reason in reversed(answer("explain", "model.kway")["reasons"])}
    for topic, column in strongest.items():  # the first column of each class
        assert column.removeprefix("text: ") in TOPICS[topic].split()


def test_training_rows_are_recognized_if_the_model_reads_some_columns_only(answer):
    leaky.write_csv(Path("t.csv"), leaky.patients(120))
    rows = answer("fit", "t.csv", "-t", "dx", "--model", "naive-bayes")["data"]["train_rows"]
    assert kway.load("model.kway").features_.requirements().columns == ("who",)
    assert answer("evaluate", "model.kway", "t.csv")["trained_rows"] >= rows


@pytest.mark.parametrize("error", [BudgetError, MemoryError])
@pytest.mark.parametrize("first", [1, 3, 6])
def test_a_family_that_runs_out_of_memory_is_left_out(answer, monkeypatch, error, first):
    """Memory that another process takes while the job runs, after `first` fits."""
    calls, check = [], costs.check_fit

    def taken(name, *arguments):
        calls.append(name)
        if name.startswith("Softmax") and len(calls) >= first:
            raise error("another process took the memory")
        return check(name, *arguments)

    monkeypatch.setattr(costs, "check_fit", taken)
    columns, y = blobs()
    write("blobs.csv", **columns, y=y)
    found = answer("fit", "blobs.csv", "-t", "y", "--model", "softmax,centroid")
    assert found["best"] == "centroid"
    assert "softmax was left out: another process took the memory" in found["notes"]
