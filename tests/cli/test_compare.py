"""`kway compare`: the leaderboard only."""

import re

import numpy as np
import pytest

import kway


def test_compare_leaves_the_test_rows_alone_and_writes_nothing(answer, cli, tmp_path):
    result = answer("compare", "iris", "--model", "softmax,centroid")
    assert {m["model"] for m in result["models"]} == {"softmax", "centroid"}
    assert "test" not in result
    assert not list(tmp_path.iterdir())
    assert "softmax" in cli("compare", "iris", "--model", "softmax")[1]


def test_compare_asks_for_a_device_as_fit_does(answer, cli):
    result = answer("compare", "iris", "--model", "softmax,centroid", "--device", "auto")
    assert {m["model"] for m in result["models"]} == {"softmax", "centroid"}
    code, _, said = cli("compare", "iris", "--model", "softmax", "--device", "abacus")
    assert code == 2
    assert "--device must be one of 'cpu', 'cuda', 'auto' or 'cuda:N', got 'abacus'" in said


@pytest.mark.filterwarnings("error")
def test_two_rows_a_class_are_no_ground_for_a_choice(answer, cli):
    rng = np.random.default_rng(0)
    words = [a + b for a in ("ba", "ce", "di", "fo", "gu", "ka") for b in ("ra", "te", "si", "lo", "mu")]
    lines = [f"{' '.join(rng.choice(words, 8))},c{code}" for code in range(16) for _ in range(2)]
    with open("few.csv", "w") as out:
        out.write("\n".join(["text,label", *lines]))
    found = answer("fit", "few.csv", "-t", "label")
    assert found["data"]["test_part"] == "50% of the rows, stratified by class"
    assert found["test"]["low"] >= 0
    (note,) = [note for note in found["notes"] if "too few rows" in note]
    assert "16 of 16 training rows" in note
    assert "add rows per class, or name a family (models=)" in note
    assert "too few rows" in " ".join(cli("compare", "few.csv", "-t", "label")[1].split())


def notes_of_text(n):
    """Rows of two kinds with a text of many words and a number."""
    rng = np.random.default_rng(0)
    words = np.array([a + b + c for a in ("ba", "ce", "di") for b in ("ra", "te", "si", "lo") for c in "nmst"])
    kinds = np.arange(n) % 2
    texts = [" ".join(rng.choice(words[24 * kind :][:24], 9)) for kind in kinds]
    return ["note,size,kind", *(f"{t},{v:.3f},k{k}" for t, v, k in zip(texts, rng.normal(size=n), kinds))]


def test_trees_are_skipped_on_text_and_other_libraries_are_not(answer):
    with open("texts.csv", "w") as out:
        out.write("\n".join(notes_of_text(80)))
    found = answer("compare", "texts.csv", "-t", "kind", "--also", "sklearn.ensemble.RandomForestClassifier")
    assert [line["model"] for line in found["references"]] == ["RandomForest"]


def test_scores_stay_in_one_line_of_80_letters(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with open("texts.csv", "w") as out:
        out.write("\n".join(notes_of_text(80)))
    lines = [line for line in cli("compare", "texts.csv", "-t", "kind")[1].splitlines() if line.startswith("  ")]
    (long,) = [line for line in lines if "neighbors-manhattan-no-text" in line]
    assert re.search(r"0\.\d{3} ± 0\.\d{3}", long)  # whole
    assert max(map(len, lines)) <= 80


def test_fewer_folds_than_asked_for_are_told(answer):
    few = answer("compare", "iris", "--model", "centroid", "--folds", 500)["notes"]
    assert "there are 120 folds instead of 500, because there are too few rows" in few
    assert not any("folds instead of" in note for note in answer("compare", "iris", "--model", "centroid")["notes"])


def test_families_that_stopped_early_are_one_line_unless_verbose(cli):
    data = kway.datasets.load("iris")
    np.savez("some.npz", x_train=data.x_train, y_train=data.y_train, x_test=data.x_test, y_test=data.y_test)
    out = cli("compare", "some.npz")[1]
    assert re.search(r"\d+ families not run; --verbose lists them\.", out)
    assert ": not run, " not in out
    out = cli("compare", "some.npz", "--verbose")[1]
    assert "naive-bayes: not run, " in out
    assert "lists them" not in out
