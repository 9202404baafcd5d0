"""`--multilabel`: several labels per row, from the command line and from Python."""

import csv
import json

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score, hamming_loss, log_loss
from sklearn.multiclass import OneVsRestClassifier

import kway
from kway.auto.multilabel import score_sets
from kway.errors import BudgetError, InputError, UsageError

NAMES = np.array(["food", "music", "sport", "travel"])


def rows(n=300, seed=0):
    rng = np.random.default_rng(0)
    W = rng.normal(size=(4, 5))
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    return X, X @ W.T + rng.normal(size=(n, 4)) > 1


@pytest.fixture
def file(tmp_path):
    def write(X, sets, name="tags.csv"):
        with open(tmp_path / name, "w", newline="") as out:
            writer = csv.writer(out)
            writer.writerow([*"abcde", "tags"])
            writer.writerows([*x, labels] for x, labels in zip(X, sets))
        return name

    return write


@pytest.fixture
def data(file):
    X, Y = rows()
    return file(X, [";".join(NAMES[row]) for row in Y])


def test_fit_predict_and_evaluate(answer, cli, data, tmp_path):
    result = answer("fit", data, "-t", "tags", "--multilabel", ";")
    assert {m["model"] for m in result["models"]} == {"logistic", "neighbors", "neighbors-cosine"}
    assert result["test"]["micro_f1"] > result["baseline"]
    assert [line["label"] for line in result["test"]["labels"]] == NAMES.tolist()
    assert cli("predict", "model.kway", data, "-o", "p.csv")[0] == 0
    texts = [row["prediction"] for row in csv.DictReader((tmp_path / "p.csv").read_text().splitlines())]
    assert cli("predict", "model.kway", data, "-o", "p.jsonl", "--proba", "--topk", "2")[0] == 0
    lines = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert [";".join(line["prediction"]) for line in lines] == texts
    assert "" in texts
    p = np.array([[line[f"p_{name}"] for name in NAMES] for line in lines])
    assert [line["label_1"] for line in lines] == NAMES[p.argmax(axis=1)].tolist()
    checked = answer("evaluate", "model.kway", data)
    chosen = np.array([[name in line["prediction"] for name in NAMES] for line in lines])
    _, Y = rows()
    assert checked["micro_f1"] == pytest.approx(f1_score(Y, chosen, average="micro"))
    assert checked["subset_accuracy"] == pytest.approx(accuracy_score(Y, chosen))
    code, out, _ = cli("evaluate", "model.kway", data)
    assert code == 0
    assert "Labels, lowest F1 first" in out
    for command in (["explain", "model.kway"], ["suggest", "model.kway", data]):
        code, _, err = cli(*command)
        assert code == 1
        assert "several labels per row" in err


def test_scores_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    p, Y = rng.random((80, 4)), rng.random((80, 4)) < 0.3
    found = score_sets(p, Y.astype(float), NAMES, np.full(4, 0.6))
    chosen = p >= 0.6
    assert found.micro_f1 == pytest.approx(f1_score(Y, chosen, average="micro"))
    assert found.macro_f1 == pytest.approx(f1_score(Y, chosen, average="macro"))
    assert found.subset_accuracy == pytest.approx(accuracy_score(Y, chosen))
    assert found.hamming_loss == pytest.approx(hamming_loss(Y, chosen))
    assert found.log_loss == pytest.approx(np.mean([log_loss(Y[:, j], p[:, j]) for j in range(4)]))


def test_it_is_not_worse_than_one_vs_rest():
    """On 2,000 new rows; the F1 of one draw has a standard error of about 0.008."""
    ours, theirs = [], []
    new, true = rows(2000, seed=99)
    for seed in range(3):
        X, Y = rows(200, seed=seed + 1)
        found = kway.fit(X, [NAMES[row].tolist() for row in Y], multilabel=";", models=["logistic"], seed=seed)
        chosen = np.array([[name in labels for name in NAMES] for labels in found.predict(new)])
        other = OneVsRestClassifier(LogisticRegression()).fit(X, Y)
        ours.append([f1_score(true, chosen, average=a) for a in ("micro", "macro")])
        theirs.append([f1_score(true, other.predict(new), average=a) for a in ("micro", "macro")])
    assert (np.mean(ours, axis=0) > np.mean(theirs, axis=0) - 0.002).all(), (ours, theirs)


def test_from_python(tmp_path):
    X, Y = rows()
    sets = [NAMES[row].tolist() for row in Y]
    found = kway.fit(X, sets, multilabel=";", models=["neighbors"], metric="macro-f1")
    assert len(set(found.model.estimator_.thresholds_)) > 1
    assert isinstance(found.predict(X)[0], list)
    assert "micro F1" in str(found)
    assert found.score(X, sets) == found.score(X, [";".join(labels) for labels in sets])
    found.save(tmp_path / "m.kway")
    assert kway.load(tmp_path / "m.kway").predict(X).tolist() == found.predict(X).tolist()
    with pytest.raises(InputError, match="several labels per row"):
        kway.explain(found)


def test_labels_are_joined(answer, file):
    X, Y = rows()
    texts = [";".join(NAMES[row]) for row in Y]
    data = file(X, [text.upper() if i % 5 == 0 else text for i, text in enumerate(texts)])
    result = answer("fit", data, "-t", "tags", "--multilabel", ";", "--join-labels", "--model", "logistic")
    assert [line["label"] for line in result["test"]["labels"]] == NAMES.tolist()
    checked = answer("evaluate", "model.kway", data, "--join-labels")
    assert [line["label"] for line in checked["labels"]] == NAMES.tolist()


def test_labels_that_were_not_learned_count_as_missed(answer, data, file):
    answer("fit", data, "-t", "tags", "--multilabel", ";", "--model", "logistic")
    X, Y = rows(50, seed=5)
    checked = answer("evaluate", "model.kway", file(X, [";".join([*NAMES[row], "new"]) for row in Y], "new.csv"))
    assert checked["labels"][-1] | {"f1": 0.0, "recall": 0.0, "rows": 50, "label": "new"} == checked["labels"][-1]
    assert checked["subset_accuracy"] == 0


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--sets", "0.9"], "sets= does not work"),
        (["--hierarchy", "/"], "hierarchy= and multilabel="),
        (["--metric", "balanced"], "--metric"),
        (["--model", "softmax"], "has 'softmax'"),
        (["--figures", "f"], "--figures"),
    ],
)
def test_options_without_a_meaning_are_refused(cli, data, options, error):
    code, _, err = cli("fit", data, "-t", "tags", "--multilabel", ";", *options)
    assert code == 2
    assert error in err


@pytest.mark.parametrize("options", [{"weight": np.arange(20)}, {"costs": 1 - np.eye(2)}])
def test_arrays_without_a_meaning_are_refused(options):
    X, _ = rows(20)
    with pytest.raises(UsageError, match=f"{next(iter(options))}= does not work with multilabel="):
        kway.fit(X, ["a", "a;b"] * 10, multilabel=";", **options)


def test_the_baseline_counts_labels_that_only_test_rows_have():
    X, Y = rows()
    new, true = rows(50, seed=5)
    sets, test_sets = ([NAMES[row].tolist() for row in part] for part in (Y, true))
    options = {"multilabel": ";", "models": ["logistic"], "alpha": 1e-2}
    found = kway.fit(X, sets, test=(new, [[*labels, "new"] for labels in test_sets]), **options).result
    Y_test = np.column_stack([true, np.ones(50, bool)])
    everything = np.column_stack([np.ones((50, 4), bool), np.zeros(50, bool)])  # every label that was learned
    assert found.scores.labels[-1]["label"] == "new"
    assert found.baseline == pytest.approx(f1_score(Y_test, everything, average="micro"))


def test_sets_that_make_no_sense_are_refused():
    X, _ = rows(20)
    with pytest.raises(InputError, match="no row has a label"):
        kway.fit(X, [""] * 20, multilabel=";")
    with pytest.raises(InputError, match="give one per row"):
        kway.fit(X, ["a"] * 19, multilabel=";")
    with pytest.raises(UsageError, match="multilabel is empty"):
        kway.fit(X, ["a"] * 20, multilabel="")


def test_tables_that_do_not_fit_are_refused(monkeypatch):
    monkeypatch.setenv("KWAY_MEMORY", "1MB")
    X, Y = rows(5000)
    with pytest.raises(BudgetError, match="rows x 4 labels need"):
        kway.fit(X, [NAMES[row].tolist() for row in Y], multilabel=";")


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_rows_are_refused_with_a_plain_error(n):
    X, _ = rows(n)
    with pytest.raises(InputError, match="row"):
        kway.fit(X, [["a"], ["a", "b"], []][:n], multilabel=";")


def test_six_rows_are_enough():
    X, _ = rows(6)
    found = kway.fit(X, [["a"], ["a", "b"], [], ["b"], ["a"], ["a", "b"]], multilabel=";")
    assert len(found.predict(X)) == 6
