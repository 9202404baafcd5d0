"""A classifier with its features inside: raw rows in, through a model file and back."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import kway
from kway import modelfile
from kway.errors import InputError, ModelFileError
from kway.pipelines import FeaturedClassifier
from kway.tables.features.features import Features

N = 240


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    y = rng.choice(["pay", "lost", "rain"], N)
    verbs = {"pay": "send money to", "lost": "cannot find", "rain": "will it rain near"}
    age = rng.normal(40, 9, N) + 20 * (y == "rain")
    age[::11] = np.nan
    X = pd.DataFrame(
        {
            "text": [
                f"{verbs[label]} {w} {i}" for i, (label, w) in enumerate(zip(y, rng.choice(["home", "a card"], N)))
            ],
            "age": age,
            "town": rng.choice(["Ulm", "Bonn", None], N),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, N), "D"),
        }
    )
    return X, y


ESTIMATORS = [
    kway.SoftmaxClassifier(alpha=1e-3),
    kway.NeighborsClassifier(n_neighbors=3),
    kway.CentroidClassifier(),
    kway.TemperatureScaledClassifier(kway.SoftmaxClassifier(alpha=1e-3)),
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_round_trip(table, estimator, tmp_path):
    X, y = table
    model = FeaturedClassifier(estimator, Features(kinds={"town": "category"})).fit(X, y)
    assert model.score(X, y) > 0.9
    model.save(tmp_path / "m.kway")
    loaded = kway.load(tmp_path / "m.kway", verify=True)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    for method in ("predict_proba", "decision_function"):
        assert hasattr(loaded, method) == hasattr(estimator, method)
        if hasattr(model, method):
            np.testing.assert_allclose(getattr(loaded, method)(X), getattr(model, method)(X), rtol=1e-6)
    best = loaded.predict_topk(X, 2)
    np.testing.assert_array_equal(best[0], model.predict_topk(X, 2)[0])
    assert loaded.features_.explain() == model.features_.explain()
    assert loaded.features_.requirements() == model.features_.requirements()
    assert list(loaded.feature_names_in_) == list(X.columns)
    assert modelfile.info(tmp_path / "m.kway").class_name == "FeaturedClassifier"
    loaded.save(tmp_path / "again.kway")
    np.testing.assert_array_equal(kway.load(tmp_path / "again.kway").predict(X), model.predict(X))


def test_fitted_parts_joined(table, tmp_path):
    X, y = table
    features = Features()
    inner = kway.SoftmaxClassifier().fit(features.fit_transform(X), y)
    model = FeaturedClassifier.of(features, inner)
    np.testing.assert_array_equal(model.predict(X), inner.predict(features.transform(X)))
    model.save(tmp_path / "m.kway")
    np.testing.assert_array_equal(kway.load(tmp_path / "m.kway").predict(X), model.predict(X))
    with pytest.raises(Exception, match="not fitted"):
        FeaturedClassifier.of(features, kway.SoftmaxClassifier())


@pytest.mark.parametrize("rows", ["bytes", "sparse", "gaps"])
def test_matrices(rows, tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(100) % 3
    X = rng.integers(0, 200, (100, 64), np.uint8) + (y * 20).astype(np.uint8)[:, None]
    if rows == "sparse":
        X = sp.csr_matrix(X * (rng.random(X.shape) < 0.1) * 1.0)
    if rows == "gaps":
        X = np.where(rng.random(X.shape) < 0.05, np.nan, X * np.logspace(0, 3, 64))
    model = FeaturedClassifier(kway.CentroidClassifier()).fit(X, y)
    model.save(tmp_path / "m.kway")
    np.testing.assert_array_equal(kway.load(tmp_path / "m.kway").predict(X), model.predict(X))


def test_a_function_is_asked_for_again(table, tmp_path):
    X, y = table
    model = FeaturedClassifier(kway.SoftmaxClassifier(), Features(embed=letters)).fit(X[["text"]], y)
    model.save(tmp_path / "m.kway")
    loaded = kway.load(tmp_path / "m.kway")
    with pytest.raises(InputError, match="letters, which is not part of a model file"):
        loaded.predict(X)
    loaded.features_.use_embed(letters)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def letters(texts):
    return np.array([[t.count(c) for c in "abcdefghijklmnopqrstuvwxyz "] for t in texts], np.float32)


def test_clone_and_params(table):
    X, y = table
    model = FeaturedClassifier(kway.CentroidClassifier(), Features(scale="none"))
    copy = clone(model)
    assert copy.get_params()["features__scale"] == "none"
    assert not hasattr(copy.fit(X, y).features, "parts_")  # the one given stays as it was


def test_a_foreign_part_is_refused(table, tmp_path):
    X, y = table
    model = FeaturedClassifier(kway.CentroidClassifier()).fit(X, y)
    facts, arrays = model._fitted()
    facts["learned"]["parts"][0]["type"] = "os.system"
    model._fitted = lambda: (facts, arrays)
    model.save(tmp_path / "m.kway")
    with pytest.raises(ModelFileError, match="expected a part"):
        kway.load(tmp_path / "m.kway")


def test_default_is_softmax(table):
    X, y = table
    assert type(FeaturedClassifier().fit(X, y).estimator_) is kway.SoftmaxClassifier


ODD_REASONS = {
    "a column without a pull": {"columns": [["a", "b"]]},
    "a class without a pull": {"classes": ["all classes", "b"], "columns": [["a"], ["a"]]},
    "no class": {"classes": [], "columns": [], "pulls": []},
    "more than a file lists": {"columns": [["a"] * 10_001], "pulls": [[0.0] * 10_001]},
    "a pull that is not finite": {"pulls": [[float("inf")]]},
    "a pull that is none": {"pulls": [[float("nan")]]},
    "words without end": {"how": "x" * 2000},
    "no words": {"how": None},
    "a field too many": {"evil": 1},
}


@pytest.mark.parametrize("odd", ODD_REASONS.values(), ids=ODD_REASONS.keys())
def test_reasons_of_another_make_are_refused(odd, tmp_path):
    rng = np.random.default_rng(0)
    model = FeaturedClassifier(kway.CentroidClassifier()).fit(
        pd.DataFrame({"a": rng.normal(size=20)}), np.arange(20) % 2
    )
    model.reasons_ = {"how": "measured", "classes": ["all classes"], "columns": [["a"]], "pulls": [[0.5]]}
    kway.save(model, tmp_path / "m.kway")
    assert kway.explain(kway.load(tmp_path / "m.kway")).records() == [
        {"class": "all classes", "column": "a", "pull": 0.5}
    ]
    model.reasons_ |= odd
    kway.save(model, tmp_path / "odd.kway")
    with pytest.raises(ModelFileError, match="reasons"):
        kway.load(tmp_path / "odd.kway")
