"""Features: numbers out of tables, against scikit-learn and pandas as oracles, and learned from training rows only."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import StandardScaler

from kway.errors import InputError
from kway.tables.features.features import Features

N = 300


@pytest.fixture
def frame():
    rng = np.random.default_rng(1)
    age = rng.normal(40, 10, N)
    age[rng.random(N) < 0.1] = np.nan
    return pd.DataFrame(
        {
            "row": np.arange(N),
            "age": age,
            "rooms": rng.integers(1, 6, N),
            "owner": rng.random(N) < 0.4,
            "colour": rng.choice(["red", "green", "blue"], N),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1000, N), "D"),
            "note": [f"bring {w} to room {i} please" for i, w in enumerate(rng.choice(["water", "towels"], N))],
            "blank": [None] * N,
            "same": 1.0,
        }
    )


def test_numbers_are_imputed_flagged_and_scaled(frame):
    features = Features()
    X = features.fit_transform(frame[["age", "rooms"]])
    expected = StandardScaler().fit(frame[["age", "rooms"]])  # ignores NaN
    filled = SimpleImputer(strategy="median").fit_transform(frame[["age", "rooms"]])
    np.testing.assert_allclose(X[:, :2], (filled - expected.mean_) / expected.scale_, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(X[:, 2], frame["age"].isna())
    assert list(features.get_feature_names_out()) == ["age", "rooms", "age is missing"]
    assert X.dtype == np.float32


def test_every_kind_of_column_is_explained(frame):
    features = Features().fit(frame)
    records = {r["column"]: r for r in features.explain()}
    assert {c: r["kind"] for c, r in records.items()} == {
        "row": "id", "age": "number", "rooms": "number", "owner": "true/false", "colour": "category",
        "since": "date", "note": "text", "blank": "empty", "same": "constant",
    }  # fmt: skip
    assert [c for c, r in records.items() if not r["used"]] == ["row", "blank", "same"]
    assert "each in one row only" in records["row"]["done"]
    assert records["age"]["missing"] == pytest.approx(frame["age"].isna().mean())
    assert "flagged" in records["age"]["done"]
    assert records["colour"]["levels"] == 3
    assert "year, month, day, weekday" in records["since"]["done"]
    assert "hour" not in records["since"]["done"]


@pytest.mark.parametrize("make", [pl.from_pandas, pa.Table.from_pandas, lambda f: f.to_dict("list")])
def test_every_make_of_table_gives_the_same(frame, make):
    frame = frame.drop(columns="blank").astype({"since": "datetime64[us]"})
    ours, theirs = Features().fit_transform(frame), Features().fit_transform(make(frame))
    assert sp.issparse(ours) == sp.issparse(theirs)
    np.testing.assert_allclose(_dense(theirs), _dense(ours), atol=1e-6)


def test_categories_are_one_hot_with_rare_and_unseen_levels_together():
    train = {"c": ["a"] * 400 + ["b"] * 300 + [None] * 100 + [f"r{i}" for i in range(50)]}
    features = Features().fit(train)
    assert list(features.get_feature_names_out()) == ["c=a", "c=b", "c=(other)", "c=(missing)"]
    X = features.transform({"c": ["b", "never seen", None, "r3"]})
    np.testing.assert_array_equal(X, [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 1, 0]])


def test_an_unseen_level_is_all_zero_where_no_level_was_rare():
    features = Features().fit({"c": ["a", "b"] * 50})
    np.testing.assert_array_equal(features.transform({"c": ["a", "z", None]}), [[1, 0], [0, 0], [0, 0]])


def test_dates_are_their_parts():
    days = pd.Series(pd.to_datetime(["2020-01-31 10:00", "2021-06-15 12:00", None, "2022-12-01 23:00"]))
    features = Features().fit({"d": days})
    names = list(features.get_feature_names_out())
    assert names == ["d.year", "d.month", "d.day", "d.weekday", "d.hour", *(f"d.{p} is missing" for p in _PARTS)]
    numbers = features.parts_[0].numbers
    raw = features.transform({"d": days})[:, :5] * numbers.spread + numbers.mean
    np.testing.assert_allclose(raw[0], [2020, 1, 31, 4, 10], rtol=1e-5)  # a Friday
    np.testing.assert_allclose(raw[2], numbers.fill, rtol=1e-5)


_PARTS = ("year", "month", "day", "weekday", "hour")


def test_text_beside_numbers_is_sparse(frame):
    rng = np.random.default_rng(2)
    words = ["".join(rng.choice(list("abcdefghijklmnop"), 5)) for _ in range(200)]
    X = Features().fit_transform(frame.assign(note=[" ".join(rng.choice(words, 4)) for _ in range(N)]))
    assert sp.issparse(X)
    assert X.dtype == np.float32
    assert not sp.issparse(Features().fit_transform(frame.drop(columns="note")))


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_rows_do_not_depend_on_their_neighbors(seed):
    """Learned from training rows only: each row alone gives what it gives among others."""
    rng = np.random.default_rng(seed)
    table = {
        "x": np.where(rng.random(60) < 0.2, np.nan, rng.normal(size=60)),
        "c": rng.choice(["a", "b", "c"], 60),
        "t": np.array([" ".join(rng.choice(["find", "my", "lost", "card", "now"], 4)) + f" {i}" for i in range(60)]),
    }
    features = Features().fit({k: v[:40] for k, v in table.items()})
    together = _dense(features.transform(table))
    one = _dense(features.transform({k: v[50:51] for k, v in table.items()}))
    np.testing.assert_allclose(one[0], together[50], atol=1e-6)


def test_transform_of_training_rows_is_fit_transform(frame):
    features = Features()
    X = features.fit_transform(frame)
    np.testing.assert_allclose(_dense(features.transform(frame)), _dense(X))
    assert X.shape[1] == features.n_features_out_ == len(features.get_feature_names_out())


def test_columns_may_come_in_any_order_with_others_between(frame):
    features = Features().fit(frame)
    other = frame[frame.columns[::-1]].assign(more=1)
    np.testing.assert_allclose(_dense(features.transform(other)), _dense(features.transform(frame)))
    features.transform(frame.drop(columns=["row", "blank"]))  # dropped ones need not be there


def test_kinds_override(frame):
    features = Features(kinds={"row": "number", "rooms": "category", "note": "drop"}).fit(frame)
    kinds = {r["column"]: (r["kind"], r["used"]) for r in features.explain()}
    assert kinds["row"] == ("number", True)
    assert kinds["rooms"] == ("category", True)
    assert kinds["note"] == ("unused", False)


def test_vector_columns():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 8)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    features = Features()
    X = features.fit_transform({"e": list(rows), "x": rng.normal(size=50)})
    np.testing.assert_allclose(X[:, 1:], rows)
    assert "left alone (rows of length 1" in features.explain()[0]["done"]
    with pytest.raises(InputError, match="has type double now"):
        features.transform({"e": [1.0], "x": [1.0]})
    with pytest.raises(InputError, match="lists of 3 numbers; they must be 8 numbers long"):
        features.transform({"e": [[1.0, 2.0, 3.0]] * 2, "x": [1.0, 1.0]})
    with pytest.warns(UserWarning, match="column 'e': 1 lists are not 8 numbers long and read as missing"):
        found = features.transform({"e": [[1.0, 2.0, 3.0], *rows[:3]], "x": [1.0] * 4})
    missing = features.transform({"e": [None, *rows[:3]], "x": [1.0] * 4})
    np.testing.assert_array_equal(found, missing)


def test_params_are_only_stored():
    features = Features(kinds={"a": "text"}, scale="none")
    copy = clone(features)
    assert copy.get_params() == features.get_params()


@pytest.mark.parametrize(
    ("table", "kinds", "message"),
    [
        ({"a": [1, 2, 3], "b": [1, 2]}, None, "columns of 2, 3 rows"),
        ({"a": []}, None, "0 rows and 1 columns"),
        ({"a": [1] * 9, "b": ["x"] * 9}, None, r"no column can be used: 'a' \(constant\), 'b' \(constant\)"),
        ({"age": [1, 2]}, {"agge": "text"}, "did you mean 'age'"),
        ({"age": [1, 2]}, {"age": "words"}, "it must be number"),
    ],
)
def test_bad_tables(table, kinds, message):
    with pytest.raises(InputError, match=message):
        Features(kinds=kinds).fit(table)


def test_repeated_header():
    with pytest.raises(InputError, match="more than one column named a"):
        Features().fit(pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]))
    with pytest.raises(InputError, match="more than one column named a"):
        Features().fit(pa.table([[1], [2]], names=["a", "a"]))


def test_a_column_of_mixed_objects_becomes_text():
    table = pd.DataFrame({"m": [1, "x", None, 2.5] * 30, "x": np.arange(120) ** 2})
    features = Features().fit(table)
    assert features.explain()[0]["kind"] == "category"
    assert "mixes numbers" in features.explain()[0]["done"]


def test_bad_rows_at_transform(frame):
    features = Features().fit(frame[["age", "colour"]])
    with pytest.raises(InputError, match=r"no feature column 'age' \(did you mean 'agge'\?\)"):
        features.transform(frame.rename(columns={"age": "agge"}))
    with pytest.warns(UserWarning, match="column 'age': 1 cell is not numbers and read as missing: 'old' in row 1"):
        one = features.transform({"age": ["old", "3"], "colour": ["red", "red"]})
    np.testing.assert_array_equal(one, features.transform({"age": [None, 3], "colour": ["red", "red"]}))
    with pytest.raises(InputError, match="must contain numbers, as in training, but 2 of 3 cells are other words"):
        features.transform({"age": ["old", "new", "3"], "colour": ["red", "red", "red"]})
    with pytest.raises(InputError, match=r"with the category column 'colour'.*columns age, colour"):
        features.transform(np.zeros((2, 2)))
    with pytest.raises(InputError, match="fit was given a matrix"):
        Features().fit(np.eye(3)).transform(frame)


def test_a_matrix_stands_for_a_table_of_numbers():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=60), "row": np.arange(60), "b": rng.integers(0, 9, 60)})
    features = Features().fit(frame)
    assert [r["kind"] for r in features.explain()] == ["number", "id", "number"]
    np.testing.assert_array_equal(features.transform(frame.to_numpy()), features.transform(frame))
    with pytest.raises(InputError, match="table of 3 columns, and this matrix has 2; pass a table with columns a, row"):
        features.transform(frame[["a", "b"]].to_numpy())
    with pytest.raises(InputError, match="this is a csr_matrix; pass a table"):
        features.transform(sp.csr_matrix(frame.to_numpy()))


def test_words_are_gaps_where_they_were_in_training():
    features = Features().fit({"x": ["?", *map(str, range(0, 9900, 100))]})
    with pytest.warns(UserWarning, match="'unknown' in row 2"):
        X = features.transform({"x": ["?", "unknown", "500"]})
    np.testing.assert_array_equal(X[:, 1], [1, 1, 0])


@pytest.mark.parametrize(
    "column",
    [
        pd.array([None, 1, 2, 3] * 10, dtype="Int64"),
        pd.array([True, False, None, None] * 10, dtype="boolean"),
        pd.date_range("2021-01-01", periods=40, freq="h", tz="Europe/Berlin"),
        np.random.default_rng(0).integers(2**60, 2**61, 40),
        np.random.default_rng(0).normal(size=40) * 1e300,
        np.random.default_rng(0).normal(size=40) * 1e-300,
        pd.to_timedelta(np.arange(40), "h"),
        [[1, 2, None]] * 40,
        [1, "a", None, 2.5] * 10,
        [b"x"] * 40,
        ["\U0001f600 hi", "naïve", "  ", ""] * 10,
    ],
)
def test_odd_columns_give_finite_numbers(column):
    frame = pd.DataFrame({"odd": pd.Series(column), "x": np.arange(40) ** 2})
    features = Features()
    X = _dense(features.fit_transform(frame))
    assert np.isfinite(X).all()
    assert features.transform(frame[:0]).shape == (0, X.shape[1])
    np.testing.assert_allclose(_dense(features.transform(frame[:1])), X[:1])


@pytest.mark.parametrize("unit", [1e-310, 1e-200, 1e-13, 1.0, 1e90])
@pytest.mark.parametrize("table", [True, False])
def test_numbers_are_standardized_in_any_unit(unit, table):
    values = np.array([0.5, 1.0, 2.0, 4.0, 1.0])
    rows = np.stack([values, values * unit, np.full(5, min(unit, 1.0))], axis=1)
    X = pd.DataFrame(rows, columns=list("abc")) if table else rows
    made = Features(scale="standard").fit_transform(X)
    np.testing.assert_allclose(made[:, 1], made[:, 0], rtol=1e-5)
    assert np.abs(made[:, 2:]).max(initial=0.0) < 1e-6  # a constant stays one


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"a": [1, 2], "b": ["\ud800", "x"]}, "lone surrogate"),
        ({"\ud800": [1, 2]}, "lone surrogate"),
        ({"a": [1, 2], "b": 3}, "column 'b' is 3; give a list"),
        ({"a": [1, 2], "b": "xy"}, "column 'b' is 'xy'; give a list"),
        (pl.DataFrame({"a": [1, 2]}).lazy(), r"pass the table.collect\(\)"),
    ],
)
def test_what_is_no_table_is_said(table, message):
    with pytest.raises(InputError, match=message):
        Features().fit(table)


@pytest.mark.parametrize(
    "column", [[10**30 * i for i in range(9)], pl.Series([3**i for i in range(9)], dtype=pl.Int128)], ids=type
)
def test_whole_numbers_beyond_arrows_types_are_numbers(column):
    frame = pl.DataFrame if isinstance(column, pl.Series) else pd.DataFrame
    X = frame({"big": column, "a": [0.5, 1, 2, 3, 4, 5, 7, 8, 9]})
    features = Features().fit(X)
    assert [(r["column"], r["kind"]) for r in features.explain()] == [("big", "number"), ("a", "number")]


def test_infinite_numbers_count_as_missing():
    X = Features().fit_transform({"x": [np.inf, 1.0, 2.0, 4.0]})
    np.testing.assert_array_equal(X[:, 1], [1, 0, 0, 0])
    assert np.isfinite(X).all()


def _dense(X):
    return X.toarray() if sp.issparse(X) else X


def test_a_table_of_pixels_is_taken_as_images():
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (100, 64))
    pixels[:, 0] = 0  # a blank edge keeps its place
    table = {"row": np.arange(100), **{f"p{j}": pixels[:, j] for j in range(64)}}
    features = Features()
    np.testing.assert_allclose(features.fit_transform(table), pixels / 255, rtol=1e-6)
    records = features.explain()
    assert len(records) == 65
    assert (records[0]["kind"], records[0]["used"]) == ("id", False)
    assert "bytes of images: divided by 255" in records[1]["done"]
    np.testing.assert_allclose(features.transform({k: v[:3] for k, v in table.items()}), pixels[:3] / 255, rtol=1e-6)


def test_many_columns_of_unlike_spread_are_standardized():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(100, 60)) * np.logspace(0, 4, 60)
    X = Features().fit_transform({f"x{j}": values[:, j] for j in range(60)})
    np.testing.assert_allclose(X.std(axis=0), 1, rtol=1e-4)


def test_without_some_kinds(frame):
    features = Features().fit(frame)
    bare = features.without("text", "category")
    names = bare.fit(frame).get_feature_names_out()
    assert not any(name.startswith(("note", "colour")) for name in names)
    assert "age" in names
    assert features.without("vector") is None
    assert Features().fit(frame[["note"]]).without("text") is None
