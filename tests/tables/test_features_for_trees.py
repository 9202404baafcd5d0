"""Features(form="columns"): one column per column of the table, as trees take them."""

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import kway
from kway.errors import InputError
from kway.pipelines import FeaturedClassifier
from kway.tables.features.features import Features

N = 300


@pytest.fixture
def frame():
    rng = np.random.default_rng(1)
    age = rng.normal(40, 10, N)
    age[::9] = np.nan
    color = rng.choice(["red", "green", "blue", None], N, p=[0.5, 0.3, 0.1, 0.1])
    return pd.DataFrame(
        {
            "row": np.arange(N),
            "age": age,
            "owner": rng.random(N) < 0.4,
            "color": color,
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1000, N), "D"),
            "town": [f"town {i}" for i in rng.integers(0, 120, N)],
            "note": [f"bring {w} to room {i} please" for i, w in enumerate(rng.choice(["water", "towels"], N))],
        }
    )


def test_every_column_becomes_one_column_and_gaps_stay(frame):
    features = Features(form="columns")
    X = features.fit_transform(frame)
    names = list(features.get_feature_names_out())
    assert names == ["age", "owner", "since.year", "since.month", "since.day", "since.weekday", "color", "town"]
    assert X.shape == (N, len(names)) == (N, features.n_features_out_)
    assert X.dtype == np.float64
    np.testing.assert_array_equal(X[:, 0], frame["age"])
    np.testing.assert_array_equal(X[:, 1], frame["owner"])
    np.testing.assert_array_equal(X[:, 3], frame["since"].dt.month)
    expected = frame["color"].map({"blue": 0.0, "green": 1.0, "red": 2.0}).astype(float)
    np.testing.assert_array_equal(X[:, 6], expected)
    assert features.categorical_ == [6, 7]
    np.testing.assert_array_equal(features.transform(frame), X)


def test_levels_are_numbered_in_alphabetical_order_and_unknown_ones_are_missing(frame):
    features = Features(form="columns").fit(frame)
    codes = features.transform(frame)[:, 7]
    np.testing.assert_array_equal(codes, np.unique(frame["town"].astype(str), return_inverse=True)[1])
    later = features.transform(frame.head(2).assign(town=["Atlantis", None], color=["red", "pink"]))
    assert np.isnan(later[:, 7]).all()
    assert later[0, 6] == 2
    assert np.isnan(later[1, 6])


def test_more_levels_than_sets_hold_are_compared_by_frequency():
    rng = np.random.default_rng(0)
    words = np.array([f"w{i}" for i in np.minimum(rng.geometric(0.004, 3000), 900)])
    table = {"word": words, "x": rng.normal(size=3000)}
    features = Features(kinds={"word": "category"}, form="columns")
    X = features.fit_transform(table)
    assert features.categorical_ == []
    counts = pd.Series(words).map(pd.Series(words).value_counts()).to_numpy()
    assert np.isnan(X[counts == 1, 1]).all()
    order = np.argsort(X[counts > 1, 1], kind="stable")
    assert (np.diff(counts[counts > 1][order]) <= 0).all()
    assert "by frequency" in features.explain()[0]["done"]


def test_a_category_without_a_level_that_occurs_twice_is_left_out():
    table = {"word": [f"w{i}" for i in range(300)], "x": np.arange(300) ** 0.5}
    features = Features(kinds={"word": "category"}, form="columns").fit(table)
    assert features.explain()[0]["done"] == "dropped: no level occurs twice"
    assert list(features.get_feature_names_out()) == ["x"]


def test_what_was_done_with_each_column_is_explained(frame):
    records = {r["column"]: r for r in Features(form="columns").fit(frame).explain()}
    assert records["age"]["done"] == "not changed"
    assert records["color"]["done"] == "3 levels as numbers, in alphabetical order"
    assert records["since"]["done"] == "year, month, day, weekday as numbers"
    assert "standardized" in {r["column"]: r for r in Features().fit(frame).explain()}["since"]["done"]
    assert [c for c, r in records.items() if not r["used"]] == ["row", "note"]
    assert "free text" in records["note"]["done"]


def test_vectors_and_matrices_stay_as_they_are():
    table = pa.table({"v": [[1.0, 2.0], None, [5.0, 6.0]], "t": pa.array([datetime.time(h) for h in (1, 2, 3)])})
    features = Features(form="columns")
    X = features.fit_transform(table)
    assert list(features.get_feature_names_out()) == ["t.hour", "v[0]", "v[1]"]
    np.testing.assert_array_equal(X, [[1, 1, 2], [2, np.nan, np.nan], [3, 5, 6]])
    matrix = np.array([[1.0, np.nan], [3.0, 4.0], [5.0, 8.0]])
    features = Features(form="columns")
    np.testing.assert_array_equal(features.fit_transform(matrix), matrix)
    np.testing.assert_array_equal(features.transform(matrix[:1]), matrix[:1])
    assert features.categorical_ == []


def test_an_unknown_form_is_refused(frame):
    with pytest.raises(InputError, match="form must be 'scaled', 'columns', got 'wide'"):
        Features(form="wide").fit(frame)


@pytest.mark.parametrize("kind", ["boosted", "extra"])
def test_trees_behind_features_answer_the_same_from_a_file(frame, kind, tmp_path):
    y = np.where((frame["color"] == "red") ^ (frame["age"] > 40), "yes", "no")
    trees = kway.TreesClassifier(kind, n_trees=20)
    model = FeaturedClassifier(trees, Features(form="columns")).fit(frame, y)
    assert trees.categorical_features is None
    assert model.estimator_.categorical_features == [6, 7]
    assert model.score(frame, y) > 0.9
    model.save(tmp_path / "model.kway")
    loaded = kway.load(tmp_path / "model.kway")
    later = frame.assign(town="Atlantis", age=np.nan)
    for rows in (frame, later):
        np.testing.assert_array_equal(loaded.predict_proba(rows), model.predict_proba(rows))
    assert loaded.features_.categorical_ == [6, 7]


def test_trees_inside_a_wrapper_get_the_columns_of_categories(frame):
    y = np.where(frame["color"] == "red", "yes", "no")
    inside = kway.TemperatureScaledClassifier(kway.TreesClassifier(n_trees=5), cv=0.3)
    model = FeaturedClassifier(inside, Features(form="columns")).fit(frame, y)
    assert model.estimator_.estimator_.categorical_features == [6, 7]
    assert model.score(frame, y) > 0.9
