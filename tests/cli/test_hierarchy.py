"""`--hierarchy`: accuracy per level, sets that are nodes, and paths as predictions."""

import csv
import json

import numpy as np
import pytest

import kway
from kway.auto.hierarchy import score_levels
from kway.errors import InputError

LEAVES = ["animal/dog/beagle", "animal/dog/poodle", "animal/cat", "plant/tree", "plant/flower/rose"]


def table(n=240, noise=1.0, leaves=LEAVES):
    """Leaves around centers that share a part with their parents."""
    rng = np.random.default_rng(0)
    parts = {}
    centers = []
    for leaf in LEAVES:
        path = leaf.split("/")
        steps = ["/".join(path[: i + 1]) for i in range(len(path))]
        centers.append(sum(parts.setdefault(s, rng.normal(size=3) * 4 / 2**i) for i, s in enumerate(steps)))
    y = np.arange(n) % len(LEAVES)
    X = np.array(centers)[y] + noise * rng.normal(size=(n, 3))
    return {"u": X[:, 0], "v": X[:, 1], "w": X[:, 2], "kind": [leaves[i] for i in y]}


@pytest.fixture
def file(tmp_path):
    def write(columns, name="tree.csv"):
        with open(tmp_path / name, "w", newline="") as out:
            csv.writer(out).writerows([list(columns), *zip(*columns.values())])
        return name

    return write


def test_levels_sets_and_paths(answer, cli, file):
    data = file(table(noise=2.5))
    result = answer("fit", data, "-t", "kind", "--hierarchy", "/", "--sets", "0.8", "--model", "softmax,centroid")
    levels = result["levels"]
    assert [level["level"] for level in levels] == [0, 1, 2, 3]
    assert [level["nodes"] for level in levels] == [1, 2, 4, 3]
    accuracy = [level["accuracy"] for level in levels]
    assert accuracy[0] == 1 > accuracy[1] > accuracy[3] == result["test"]["accuracy"]
    assert sum(level["sets"] for level in levels) == pytest.approx(1)
    code, out, _ = cli("predict", "model.kway", data, "--format", "jsonl")
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()]
    assert {row["prediction"] for row in rows} <= set(LEAVES)
    assert all(row["set"] == "/" or (row["prediction"] + "/").startswith(row["set"] + "/") for row in rows)
    assert any(row["set"] != row["prediction"] for row in rows)
    checked = answer("evaluate", "model.kway", data)
    assert checked["levels"][-1]["accuracy"] == checked["accuracy"]


def test_the_text_shows_every_level(cli, file):
    code, out, _ = cli("fit", file(table()), "-t", "kind", "--hierarchy", "/", "--model", "centroid")
    assert code == 0
    assert "Accuracy by level of the hierarchy" in out
    assert "sets that stop here" not in out
    _, out, _ = cli("evaluate", "model.kway", "tree.csv")
    assert "Accuracy by level of the hierarchy" in out


def test_from_python(tmp_path):
    columns = table()
    found = kway.fit(columns, target="kind", hierarchy="/", sets=0.9, models=["centroid"], also=())
    assert [level.level for level in found.levels] == [0, 1, 2, 3]
    assert found.predict_node(columns).tolist()[0].startswith("animal")
    assert "Accuracy by level" in str(found.levels)
    found.save(tmp_path / "m.kway")
    assert np.array_equal(kway.load(tmp_path / "m.kway").predict_node(columns), found.predict_node(columns))
    plain = kway.fit(columns, target="kind", models=["centroid"], also=())
    assert plain.levels is None
    with pytest.raises(InputError, match="hierarchy="):
        plain.predict_node(columns)


def test_labels_are_joined_level_by_level(answer, file):
    written = table()
    odd = {"animal/dog/beagle": "Animal / Dog/beagle ", "plant/tree": "PLANT/tree"}
    written["kind"] = [odd.get(k, k) if i % 4 == 0 else k for i, k in enumerate(written["kind"])]
    result = answer("fit", file(written), "-t", "kind", "--hierarchy", "/", "--join-labels", "--model", "centroid")
    assert sorted(c["class"] for c in result["test"]["classes"]) == sorted(LEAVES)
    checked = answer("evaluate", "model.kway", "tree.csv", "--join-labels")
    assert sorted(c["class"] for c in checked["classes"]) == sorted(LEAVES)


@pytest.mark.parametrize(("label", "error"), [("animal//dog", "empty level"), ("animal/", "empty level")])
def test_empty_levels_are_refused(cli, file, label, error):
    columns = table()
    columns["kind"][:20] = [label] * 20
    code, _, err = cli("fit", file(columns), "-t", "kind", "--hierarchy", "/", "--model", "centroid")
    assert code == 1
    assert error in err


def test_a_separator_that_no_label_has_is_refused(cli, file):
    code, _, err = cli("fit", file(table()), "-t", "kind", "--hierarchy", ">", "--model", "centroid")
    assert code == 1
    assert "--hierarchy" in err


def test_a_label_with_fewer_levels_counts_as_a_whole():
    pairs = {("a/b/c", "a/b"): 1, ("a/b", "a/b"): 2, ("a/b", "d"): 1}
    scores = score_levels(pairs, np.array(["a/b", "a/b/c", "d"]), "/")
    assert [level.accuracy for level in scores] == [0.75, 0.75, 0.5]
    assert [level.nodes for level in scores] == [2, 1, 1]
