"""The job on tables of every kind of column: test rows untouched, groups and order kept, the best saved and told."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from sklearn.datasets import load_digits

import kway
from kway.auto.compare_data import compare_data, other_views
from kway.auto.fit_options import FitOptions
from kway.auto.job import run_job
from kway.auto.race.compare import chosen_families
from kway.auto.race.families import COLUMNS, EDGES, NO_TEXT, TEXT, LinearFamily
from kway.auto.race.scoring import FoldedRows
from kway.auto.train_test import read_train_test
from kway.confidence.splits import Split
from kway.errors import InputError
from kway.tables.features.features import Features
from kway.tables.read_options import ReadOptions
from kway.tables.reading import RowsInMemory


def write(path, n=240, seed=0, **more):
    """A table with a telling number, a telling word, a gap and noise; the label is one of three."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    columns = {
        "size": np.where(rng.random(n) < 0.1, np.nan, y + rng.normal(scale=0.6, size=n)),
        "colour": np.array(["red", "green", "blue"])[np.where(rng.random(n) < 0.8, y, rng.integers(0, 3, n))],
        "noise": rng.normal(size=n),
        "kind": np.array(["ant", "bee", "cat"])[y],
        **{name: make(rng, y) for name, make in more.items()},
    }
    table = pa.table({k: pa.array(v.tolist(), from_pandas=True) for k, v in columns.items()})
    pa.csv.write_csv(table, path)
    return table


def test_a_table_end_to_end(tmp_path):
    write(tmp_path / "t.csv")
    parts = read_train_test(str(tmp_path / "t.csv"), ReadOptions("kind"))
    assert (parts.n, len(parts.test_y)) == (192, 48)
    found = run_job(parts, FitOptions(["softmax", "neighbors", "centroid"]))
    scores = found.evaluation.scores
    assert scores.accuracy > 0.8 > found.baselines["majority class"] + 0.2
    assert scores.low < scores.accuracy < scores.high
    assert found.runner_up is not None
    assert found.temperature > 0
    found.model.save(tmp_path / "m.kway")
    again = kway.load(tmp_path / "m.kway").predict(parts.test_rows)
    assert np.mean(again == parts.test_y) == scores.accuracy


def test_nothing_is_learned_from_test_rows(tmp_path):
    """Other test rows change the test, and neither the features nor the choice."""
    write(tmp_path / "t.csv")
    write(tmp_path / "a.csv", 60, seed=1)
    write(tmp_path / "b.csv", 60, seed=2)
    wishes = FitOptions(["softmax", "centroid"])
    a, b = (
        run_job(read_train_test(str(tmp_path / "t.csv"), ReadOptions("kind"), str(tmp_path / f)), wishes)
        for f in ("a.csv", "b.csv")
    )
    assert a.comparison.records()[0]["fold_accuracy"] == b.comparison.records()[0]["fold_accuracy"]
    np.testing.assert_array_equal(a.X, b.X)
    assert a.temperature == b.temperature
    assert a.evaluation.scores.rows == 60
    np.testing.assert_array_equal(a.model.predict(b.data.test_rows), b.evaluation.predicted)


def test_groups_and_order_are_kept(tmp_path):
    write(tmp_path / "t.csv", who=lambda rng, y: rng.integers(0, 30, len(y)), day=lambda rng, y: np.arange(len(y)))
    path = str(tmp_path / "t.csv")
    parts = read_train_test(path, ReadOptions("kind", group="who"))
    assert "who" not in parts.rows.column_names
    found = run_job(parts, FitOptions(["softmax", "neighbors"]))
    folds = found.comparison.folds
    assert all(len(set(folds[parts.groups == g])) == 1 for g in np.unique(parts.groups))
    assert found.model.estimator_.cv == "prefit"  # and no row numbers in the model file
    found.model.save(tmp_path / "m.kway")
    np.testing.assert_array_equal(kway.load(tmp_path / "m.kway").predict(parts.test_rows), found.evaluation.predicted)
    parts = read_train_test(path, ReadOptions("kind", order="day"))
    assert parts.test_part == "20% of the rows, the last in order"
    found = run_job(parts, FitOptions(["neighbors", "softmax", "centroid"]))
    assert set(found.comparison.folds) == {-1, 0}
    assert parts.order[found.comparison.folds == 0].min() > parts.order[found.comparison.folds == -1].max()
    assert found.evaluation.scores.accuracy > 0.7


def test_alpha_and_families_as_wished():
    (family,) = chosen_families(FitOptions(["softmax"], alpha=0.3))
    assert family.alphas == (0.3,)
    parts = read_train_test("iris")
    found = compare_data(parts, FitOptions(["softmax"], alpha=0.3)).comparison
    assert found.best.setting == {"alpha": 0.3}


def test_one_group_cannot_be_split(tmp_path):
    write(tmp_path / "t.csv", who=lambda rng, y: np.zeros(len(y), int))
    with pytest.raises(InputError, match="all rows belong to one group"):
        read_train_test(str(tmp_path / "t.csv"), ReadOptions("kind", group="who"))


def test_alphas_follow_the_units():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(90, 3)), np.repeat([0, 1, 2], 30)
    family = LinearFamily("softmax", "SoftmaxClassifier")
    split = Split(np.arange(0, 60), np.arange(60, 90))
    found = []
    for unit in (1.0, 1000.0):
        data = FoldedRows(X * unit, y, np.arange(90) % 3)
        settings = family.settings(data)
        found.append((settings, family.fit_predict(data, split, settings, range(len(settings)), lambda: False)))
    (one, predictions), (other, others) = found
    for a, b in zip(one, other):
        assert b["alpha"] == pytest.approx(1e6 * a["alpha"])
    assert (predictions.predicted == others.predicted).mean() > 0.96


def test_neighbors_are_also_tried_without_the_text(tmp_path):
    """Rings of two numbers, which only neighbors tell apart, beside a text that says nothing."""
    rng = np.random.default_rng(0)
    n = 900
    y, angle = rng.integers(0, 4, n), rng.uniform(0, 2 * np.pi, n)
    radius = 1 + 0.3 * y + rng.normal(scale=0.03, size=n)
    words = ["a", "few", "words", "drawn", "by", "lot", "that", "tell", "you", "nothing", "at", "all"]
    text = [" ".join(rng.choice(words, 4)) for _ in range(n)]
    table = pa.table({"u": radius * np.cos(angle), "v": radius * np.sin(angle), "note": text, "ring": y})
    pa.csv.write_csv(table, tmp_path / "t.csv")
    found = run_job(read_train_test(str(tmp_path / "t.csv"), ReadOptions("ring")), FitOptions())
    assert found.best.model.endswith("-no-text")
    assert found.evaluation.scores.accuracy > 0.9
    assert {line.model for line in found.comparison.rows} >= {"softmax", "neighbors", "neighbors-no-text"}
    assert found.runner_up is not None
    found.model.save(tmp_path / "m.kway")
    again = kway.load(tmp_path / "m.kway")
    rows = found.data.test_rows.drop_columns(["note"])
    np.testing.assert_array_equal(again.predict(rows), found.evaluation.predicted)


def test_images_are_also_seen_as_edges_and_patches():
    X, y = load_digits(return_X_y=True)
    some = np.flatnonzero(np.isin(y, (3, 5, 8)))[:240]
    images, labels = X[some].astype(np.uint8), y[some]
    chosen = compare_data(
        read_train_test(RowsInMemory(images, labels, "digits"), ReadOptions(), None, 0), FitOptions(also=())
    )
    view = chosen.view("least-squares-edges")
    assert {"least-squares-edges", "softmax-edges"} <= set(chosen.comparison.scans)
    assert view.X.shape[1] > 64 == chosen.view("softmax").X.shape[1]
    assert view.features.shapes


def test_views():
    X = np.random.default_rng(0).integers(0, 256, (30, 100), np.uint8)
    features = Features()
    features.fit(X)
    assert [name for name, _ in other_views(features, X, X)] == [EDGES]
    plain = Features()
    plain.fit(X.astype(float))
    assert not list(other_views(plain, X.astype(float), X.astype(float)))  # no sign that these numbers are images
    texts = ["the first of many words", "some other words here", "words and words again"] * 20
    table = pa.table(
        {"text": [f"{text} {i}" for i, text in enumerate(texts)], "size": np.random.default_rng(0).normal(size=60)}
    )
    mixed = Features({"text": "text"})
    numbers = mixed.fit_transform(table)
    found = [name for name, _ in other_views(mixed, table, numbers)]
    assert found == [NO_TEXT, TEXT] + ([] if hasattr(numbers, "tocsr") else [COLUMNS])
    alone = Features({"text": "text"})
    numbers = alone.fit_transform(table.select(["text"]))
    assert not list(other_views(alone, table.select(["text"]), numbers))


@pytest.mark.parametrize("unknown", [None, 0.1])
def test_the_limit_of_sets_that_is_kept_lies_on_the_curve(unknown):
    X, y = load_digits(return_X_y=True)
    noisy = X + np.random.default_rng(0).normal(scale=6.0, size=X.shape)
    kept = kway.fit(noisy[:600], y[:600], models=["softmax"], also=(), sets=0.9, unknown=unknown).result.sets
    assert kept.at in set(zip(kept.x.tolist(), kept.y.tolist()))
    assert (np.diff(kept.x) >= 0).all()
