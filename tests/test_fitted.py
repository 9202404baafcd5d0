"""kway.fit: the whole job from Python, from frames of every make, a matrix or a path."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline

import kway
from kway.errors import InputError

QUICK = {"models": ["softmax", "centroid"], "also": ()}


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
    assert kway.store.info(tmp_path / "m.kway").notes["target"] == "kind"


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
    with pytest.raises(InputError, match="one label a row"):
        kway.fit(mixed(), [1, 2, 3])
    with pytest.raises(InputError, match="it is a matrix"):
        kway.fit(np.zeros((4, 2)), "kind")
    with pytest.raises(InputError, match="metric must be one of"):
        kway.fit(mixed(), "kind", metric="f1")


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
