"""`kway evaluate --drift`: columns that changed are named, with and without labels, and drawn."""

import pandas as pd
import pytest


@pytest.fixture
def shifted(iris):
    """Iris with longer petals, and the same without labels."""
    rows = pd.read_csv("iris.csv")
    petals = rows.columns[2]
    rows[petals] += 2.5
    rows.to_csv("new.csv", index=False)
    rows.drop(columns="species").to_csv("unlabeled.csv", index=False)
    return petals


def test_a_shifted_column(shifted, cli, answer):
    found = answer("evaluate", "model.kway", "new.csv", "--drift")
    assert shifted in found["drift"]["drifted"]
    assert 0 <= found["accuracy"] <= 1
    bare = answer("evaluate", "model.kway", "unlabeled.csv", "--drift")
    assert bare["drift"] == found["drift"]
    assert "accuracy" not in bare
    assert answer("evaluate", "model.kway", "iris.csv", "--drift")["drift"]["drifted"] == []
    code, out, _ = cli("evaluate", "model.kway", "new.csv", "--drift")
    assert code == 0
    assert "lowest recall first" in out
    line = next(line for line in out.splitlines() if shifted in line)
    assert "█" in line


def test_labels_that_are_missing(shifted, cli, answer):
    rows = pd.read_csv("new.csv")
    rows.loc[3, "species"] = None
    rows.to_csv("gap.csv", index=False)
    code, _, err = cli("evaluate", "model.kway", "gap.csv", "--drift")
    assert code == 1
    assert "'species' of gap.csv is empty in 1 of " in err
    assert 0 <= answer("evaluate", "model.kway", "gap.csv", "--drift", "--skip-bad")["accuracy"] <= 1
    rows["species"] = None
    rows.to_csv("empty.csv", index=False)
    assert "accuracy" not in answer("evaluate", "model.kway", "empty.csv", "--drift")


@pytest.mark.parametrize("name", ["d.svg", "d.html", "d.png"])
def test_a_figure(shifted, cli, name, tmp_path):
    for _ in range(2):  # its own file is overwritten
        code, _, err = cli("evaluate", "model.kway", "unlabeled.csv", "--drift", "--figure", name)
        assert code == 0, err
    content = (tmp_path / name).read_bytes()
    assert name.endswith("png") or (shifted.encode() in content and b"<svg" in content)


def test_bad_usage(iris, cli):
    code, _, err = cli("evaluate", "model.kway", "iris.csv", "--figure", "d.svg")
    assert (code, "add --drift" in err) == (2, True)
    code, _, err = cli("evaluate", "model.kway", "iris.csv", "--drift", "--figure", "iris.csv")
    assert code == 2
    code, _, err = cli("evaluate", "model.kway", "iris.csv", "--drift", "--target", "kind")
    assert code != 0
    assert "kind" in err
