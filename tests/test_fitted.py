"""kway.fit: the whole job from Python, from frames of every make, a matrix or a path."""

import time

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import kway
from kway import NeighborsClassifier, SoftmaxClassifier
from kway.errors import InputError
from kway.pipelines import FeaturedClassifier

QUICK = {"models": ["softmax", "centroid"], "also": (), "alpha": 1e-3}


def mixed(n=300, seed=0):
    """A frame whose class hangs on a category, a number and words; one column has gaps."""
    rng = np.random.default_rng(seed)
    code = rng.integers(0, 3, n)
    words = np.array(["sun and sea", "snow on hills", "rain in town"])[code]
    return pd.DataFrame({
        "size": code + rng.normal(scale=0.4, size=n),
        "colour": np.where(rng.random(n) < 0.7, np.array(["red", "green", "blue"])[code], "grey"),
        "day": pd.date_range("2024-01-01", periods=n),
        "note": [f"{w} {i}" for i, w in enumerate(words)],
        "gaps": np.where(rng.random(n) < 0.3, np.nan, rng.normal(size=n)),
        "kind": np.array(["holiday", "winter", "work"])[code],
    })  # fmt: skip


@pytest.fixture(scope="module")
def fitted():
    return kway.fit(mixed(), "kind", **QUICK)


def test_a_mixed_frame_becomes_a_model(fitted, tmp_path):
    new = mixed(50, seed=1)
    assert (fitted.predict(new.drop(columns="kind")) == new["kind"]).mean() > 0.95
    assert fitted.score(new, new["kind"]) > 0.95
    np.testing.assert_allclose(fitted.predict_proba(new).sum(axis=1), 1)
    assert fitted.predict_topk(new, 2).ids.shape == (50, 2)
    assert fitted.test.rows == 60
    assert list(fitted.classes_) == ["holiday", "winter", "work"]
    fitted.save(tmp_path / "m.kway")
    again = kway.load(tmp_path / "m.kway")
    assert (again.predict(new) == fitted.predict(new)).all()
    assert kway.modelfile.info(tmp_path / "m.kway").notes["target"] == "kind"


@pytest.mark.parametrize("make", [pl.from_pandas, pa.Table.from_pandas, lambda f: f.to_dict("list")])
def test_frames_of_every_make_give_the_same(fitted, make):
    other = kway.fit(make(mixed()), target="kind", **QUICK)
    assert other.test.accuracy == pytest.approx(fitted.test.accuracy, abs=0.02)
    assert other.leaderboard.best.model == fitted.leaderboard.best.model


def test_labels_beside_the_rows():
    X, y = load_iris(return_X_y=True, as_frame=True)
    beside = kway.fit(X, y, **QUICK)
    matrix = kway.fit(X.to_numpy(), y.to_numpy(), test=(X.to_numpy()[::7], y.to_numpy()[::7]), **QUICK)
    assert beside.test.accuracy > 0.85
    assert matrix.test.rows == 22


def test_a_path_and_a_test_frame(tmp_path):
    mixed().to_csv(tmp_path / "d.csv", index=False)
    found = kway.fit(tmp_path / "d.csv", "kind", test=mixed(40, seed=2), **QUICK)
    assert found.test.rows == 40
    assert found.test.accuracy > 0.9


def test_it_prints_as_a_leaderboard_and_writes_its_page(fitted, tmp_path):
    lines = str(fitted).splitlines()
    assert len(lines) < 10
    assert "softmax" in lines[2]
    assert "untouched rows" in lines[-1]
    assert "<table>" in fitted._repr_html_()
    fitted.report(tmp_path / "r.html")
    assert "kway report" in (tmp_path / "r.html").read_text()


def test_mistakes_are_named():
    with pytest.raises(InputError, match="no target column 'sort'"):
        kway.fit(mixed(), "sort")
    with pytest.raises(InputError, match="one label per row"):
        kway.fit(mixed(), [1, 2, 3])
    with pytest.raises(InputError, match="it is a matrix"):
        kway.fit(np.zeros((4, 2)), "kind")
    with pytest.raises(InputError, match="metric must be one of"):
        kway.fit(mixed(), "kind", metric="f1")
    with pytest.raises(InputError, match="one label per row, as a list"):
        kway.fit(np.zeros((4, 2)), np.eye(4)[:, :2])
    with pytest.raises(InputError, match="rows of different lengths"):
        kway.fit([[1, 2], [3]], [0, 1])


@pytest.mark.parametrize(
    ("name", "value"),
    [("folds", 1), ("folds", 2.5), ("folds", "a"), ("seed", -1), ("seed", 2**40), ("seed", "a"), ("budget", "soon"),
     ("budget", 0), ("budget", float("nan")), ("sets", 2), ("unknown", "x"), ("alpha", -1.0)],
)  # fmt: skip
def test_settings_that_cannot_be_are_named(name, value):
    with pytest.raises(InputError, match=f"{name} must be "):
        kway.fit(mixed(), "kind", **{name: value})


def test_features_are_a_transformer_of_pipelines():
    frame = mixed()
    y = frame.pop("kind")
    pipe = make_pipeline(kway.Features(kinds={"day": "drop"}), kway.SoftmaxClassifier()).fit(frame, y)
    assert pipe.score(frame, y) > 0.95
    features = clone(pipe[0])
    assert features.get_params() == pipe[0].get_params()
    X = features.fit_transform(frame)
    names = features.get_feature_names_out()
    assert len(names) == X.shape[1] == len(set(names))
    assert "size" in names


def test_one_name_is_a_name():
    found = kway.fit(mixed(), "kind", models="centroid", drop="gaps", also=())
    assert found.leaderboard.best.model == "centroid"
    assert "gaps" not in {read["column"] for read in found.model.features_.explain()}
    assert kway.compare(np.eye(8), np.arange(8) % 2, models="centroid").best.model == "centroid"


def german(n=200, seed=0):
    """A frame as pandas reads a German csv without being told: numbers, shares and days are text."""
    rng = np.random.default_rng(seed)
    code = rng.integers(0, 2, n)
    comma = str.maketrans(",.", ".,")
    days = pd.Timestamp("2024-01-15") + pd.to_timedelta(rng.integers(0, 300, n), "D")
    return pd.DataFrame({
        "Preis": [f"{1000 + 900 * c + 300 * rng.normal():,.2f} €".translate(comma) for c in code],
        "Anteil": [f"{30 + 10 * rng.normal():.1f} %".translate(comma) for _ in code],
        "Tag": days.strftime("%d.%m.%Y"),
        "Laden": rng.choice(["Nord", "Süd"], n),
        "Sorte": np.array(["Brot", "Käse"])[code],
    })  # fmt: skip


def test_words_of_a_frame_are_read_as_those_of_the_file(tmp_path):
    """German prices in a column of text were once a hundred levels of a category."""
    frame = german()
    found = kway.fit(frame, "Sorte", models=["centroid"], also=())
    kinds = {r["column"]: r["kind"] for r in found.model.features_.explain()}
    assert kinds == {"Preis": "number", "Anteil": "number", "Tag": "date", "Laden": "category"}
    frame.to_csv(tmp_path / "d.csv", sep=";", index=False)
    of_file = kway.fit(tmp_path / "d.csv", "Sorte", models=["centroid"], also=())
    np.testing.assert_allclose(found.result.X, of_file.result.X, rtol=1e-6)
    assert found.model.features_.written_ == {"Preis": ",", "Anteil": ",", "Tag": "%d.%m.%Y"}
    new = german(40, seed=1)
    assert (found.predict(new) == new["Sorte"]).mean() > 0.8
    for make in (pl.from_pandas, lambda f: f.to_dict("list")):
        assert (found.predict(make(new)) == found.predict(new)).all()
    found.save(tmp_path / "m.kway")
    again = kway.load(tmp_path / "m.kway")
    one = new[:1].assign(Tag="01.02.2024")  # a day that could be a month
    assert (again.predict(one) == found.predict(one)).all()
    np.testing.assert_array_equal(again.numbers(one), of_file.model.numbers(one))
    parsed = new.assign(Preis=[float(p[:-2].replace(".", "").replace(",", ".")) for p in new["Preis"]])
    np.testing.assert_allclose(again.numbers(parsed), again.numbers(new), rtol=1e-6)


@pytest.mark.parametrize("make", [lambda f: f, pl.from_pandas, lambda f: f.to_dict("list")])
def test_features_in_a_pipeline_read_words_too(make):
    frame = german()
    features = kway.Features().fit(make(frame.drop(columns="Sorte")))
    assert [r["kind"] for r in features.explain()] == ["number", "number", "date", "category"]
    told = kway.Features(written={"Tag": "%d.%m.%Y"}).fit(frame[["Tag", "Laden", "Preis"]])
    assert [r["kind"] for r in told.explain()][:2] == ["date", "category"]
    assert told.written_ == {"Tag": "%d.%m.%Y"}
    assert clone(told).written == told.written
    asked = kway.Features(kinds={"Preis": "category"}).fit(frame[["Preis", "Tag"]])
    assert [r["kind"] for r in asked.explain()] == ["category", "date"]


def test_a_group_of_words_and_an_order_of_days():
    frame = german()
    found = kway.fit(frame, "Sorte", order="Tag", models=["centroid"], also=())
    last = pd.to_datetime(frame["Tag"], format="%d.%m.%Y").to_numpy()
    assert found.result.data.order.max() <= np.sort(last)[160]


def test_a_saved_model_says_what_its_weights_weigh(tmp_path):
    """Without rows: the spread of the training columns lies in the file."""
    found = kway.fit(mixed(), "kind", models=["softmax"], also=(), alpha=1e-3)
    found.save(tmp_path / "m.kway")
    told = kway.explain(kway.load(tmp_path / "m.kway"))
    assert told.how.startswith("weight x spread")
    from_rows = kway.explain(found.model, found.result.data.rows)
    assert told.columns == from_rows.columns
    np.testing.assert_allclose(told.pulls, from_rows.pulls, rtol=1e-4)
    plain = kway.SoftmaxClassifier().fit(*load_iris(return_X_y=True))
    plain.save(tmp_path / "p.kway")
    assert kway.explain(kway.load(tmp_path / "p.kway")).how.startswith("weights alone")


@pytest.mark.parametrize("family", ["neighbors", "softmax"])
def test_why_of_what_was_found_is_why_of_its_file(family, tmp_path):
    found = kway.fit(*load_iris(return_X_y=True), models=[family], also=())
    found.save(tmp_path / "m.kway")
    told = [kway.explain(found), found.explain(), kway.explain(kway.load(tmp_path / "m.kway"))]
    assert len({(t.columns, t.how) for t in told}) == 1
    assert len(told[0].columns[0]) == 4


@pytest.mark.parametrize("width", [60, 80, 200])
def test_reasons_print_within_the_terminal(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    names = [f"a_rather_long_name_of_column_{j}" for j in range(8)]
    frame = pd.DataFrame(rng.normal(size=(120, 8)) + y[:, None], columns=names)
    for model in (FeaturedClassifier(), FeaturedClassifier(kway.NeighborsClassifier())):
        told = kway.explain(model.fit(frame, y), frame, y)
        lines = str(told).splitlines()
        assert max(map(len, lines)) <= width
        assert "a_rather_long_name" in str(told)
        assert all(name in told._repr_html_() for name in told.columns[0])


def test_its_files_replace_only_files_of_their_kind_and_never_the_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mixed().to_csv("d.csv", index=False)
    mixed(40, seed=2).to_csv("t.csv", index=False)
    found = kway.fit("d.csv", "kind", test="t.csv", **QUICK)
    (tmp_path / "notes.txt").write_text("years of work")
    (tmp_path / "new").mkdir()
    monkeypatch.chdir("new")  # the data stays what it was
    for write, what in ((found.save, "model"), (found.report, "report")):
        for name, path in (("data", tmp_path / "d.csv"), ("test", "../t.csv")):
            with pytest.raises(InputError, match=f"is {name} itself, which would be lost"):
                write(path, force=True)
        with pytest.raises(InputError, match=f"is no {what} that kway wrote.*force=True"):
            write("../notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "years of work"
    for write, path in ((found.save, "m.kway"), (found.report, "r.html")):
        write(path)
        write(path)
    with pytest.raises(InputError, match="is no report"):
        found.report("m.kway")
    with pytest.raises(InputError, match="is no model"):
        found.save("r.html")
    found.save("../notes.txt", force=True)
    assert kway.load("../notes.txt").classes_.tolist() == ["holiday", "winter", "work"]


def spans_of_every_kind(n=90):
    """Columns that are pandas' own: spans of time, periods, intervals; labels that pd.cut gives."""
    code = np.arange(n) % 3
    return pd.DataFrame({
        "took": pd.to_timedelta(code * 60 + 5, unit="s"),
        "month": pd.PeriodIndex([f"2024-0{c + 1}" for c in code], freq="M"),
        "band": pd.cut(code + 0.5, [0, 1, 2, 3]),
        "y": pd.cut(code, [-1, 0, 1, 2]),
    })  # fmt: skip


def test_spans_of_pandas_are_read_and_may_be_labels(tmp_path):
    frame = spans_of_every_kind()
    found = kway.fit(frame, "y", **QUICK)
    assert {r["column"]: r["kind"] for r in found.model.features_.explain()} == {
        "took": "number", "month": "category", "band": "category",
    }  # fmt: skip
    assert found.classes_.tolist() == ["(-1, 0]", "(0, 1]", "(1, 2]"]
    assert found.score(frame, frame["y"].astype(str)) == 1.0
    found.save(tmp_path / "m.kway")
    assert (kway.load(tmp_path / "m.kway").predict(frame[:9]) == frame["y"][:9].astype(str)).all()


def test_rows_as_dicts_and_columns_named_by_numbers():
    rows = [{"x": float(i % 3), "colour": "rgb"[i % 3], "y": "abc"[i % 3]} for i in range(60)]
    found = kway.fit(rows, "y", **QUICK)
    assert found.predict([{"colour": "g", "x": 1.0}]).tolist() == ["b"]
    numbered = pd.DataFrame(rows).set_axis([0, 1, 2], axis=1)
    assert kway.fit(numbered, 2, **QUICK).predict(numbered[:2]).tolist() == ["a", "b"]


def test_what_is_not_fitted_has_no_reasons():
    with pytest.raises(NotFittedError, match="not fitted"):
        kway.explain(kway.SoftmaxClassifier())


def test_a_table_of_many_columns_is_looked_at_once():
    """Names of columns were listed anew for each: ten seconds a prediction of 3,000 columns."""
    n_columns = 3000
    frame = {f"f{j}": [float(i * j % 7) for i in range(12)] for j in range(n_columns)}
    model = FeaturedClassifier(kway.CentroidClassifier()).fit(frame, np.arange(12) % 2)
    table = pa.table(frame)
    model.predict(table)
    begun = time.process_time()
    model.predict(table)
    assert time.process_time() - begun < 2


def test_a_pipeline_is_explained_by_its_last_step():
    X, y = load_iris(return_X_y=True, as_frame=True)
    pipeline = make_pipeline(StandardScaler(), SoftmaxClassifier()).fit(X, y)
    found = kway.explain(pipeline, X, n_columns=2)
    assert set(found.columns[0]) <= set(X.columns)
    inside = kway.explain(pipeline[-1], pipeline[:-1].transform(X), n_columns=2)
    np.testing.assert_array_equal(found.pulls, inside.pulls)
    alone = make_pipeline(SoftmaxClassifier()).fit(X, y)
    np.testing.assert_array_equal(kway.explain(alone, X).pulls, kway.explain(alone[-1], X).pulls)
    near = make_pipeline(StandardScaler(), NeighborsClassifier()).fit(X, y)
    assert set(kway.explain(near, X, y, n_columns=2).columns[0]) <= set(X.columns)
    with pytest.raises(InputError, match="no weights to read"):
        kway.explain(near)


def test_inspect_by_a_classifier_names_a_missing_target():
    frame = pa.table({"x": [0.0, 1.0, 2.0], "kind": ["a", "b", "a"]})
    judge = kway.SoftmaxClassifier().fit([[0.0], [1.0]], ["a", "b"])
    with pytest.raises(InputError, match=r"no column 'knd' .did you mean 'kind'"):
        kway.inspect(frame, "knd", by=judge)
    with pytest.raises(InputError, match="target is missing"):
        kway.inspect(frame, by=judge)


@pytest.mark.parametrize("model", [SoftmaxClassifier(), NeighborsClassifier(), kway.TreesClassifier(n_trees=5)])
def test_rows_as_lists_and_tables(model):
    X, y = load_iris(return_X_y=True)
    judge = clone(model).fit(X, y)
    found = kway.inspect(X, y, by=judge, rows=7)
    np.testing.assert_array_equal(kway.inspect(X.tolist(), y.tolist(), by=judge, rows=7).rows, found.rows)
    assert str(kway.explain(judge, X.tolist(), y.tolist())) == str(kway.explain(judge, X, y))
    table = pa.table({f"x{j}": X[:, j] for j in range(4)})
    np.testing.assert_array_equal(kway.inspect(table, y, by=clone(model).fit(table, y), rows=7).rows, found.rows)


def test_inspect_refuses_a_negative_number_of_rows():
    with pytest.raises(InputError, match="rows must be a whole number of at least 0, got -1"):
        kway.inspect(*load_iris(return_X_y=True), rows=-1)


def test_explain_refuses_no_rows_and_missing_labels():
    X, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
    model = kway.NeighborsClassifier(3).fit(X, y)
    with pytest.raises(InputError, match="no rows to explain"):
        kway.explain(model, X[:0], y[:0])
    with pytest.raises(InputError, match="20 rows and y has 19 labels"):
        kway.explain(model, X, y[1:])


def test_explain_names_what_stored_values_and_single_classes_mean():
    X, y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 2
    trees = kway.TreesClassifier(n_trees=2).fit(X, y)
    one_class = np.flatnonzero(trees.predict(X) == 0)
    assert "Strongest columns" in str(kway.explain(trees, X[one_class]))
    dropped = kway.explain(kway.NeighborsClassifier(3).fit(X, y), X, y)
    assert "drop in accuracy" in str(dropped)
