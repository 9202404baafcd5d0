"""Which matrices are left alone, and that the others end at mean 0 and standard deviation 1."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from kway.errors import InputError
from kway.tables.features.features import Features
from kway.tables.features.numbers import column_moments

RNG = np.random.default_rng(0)
UNIT = RNG.normal(size=(200, 32))
UNIT /= np.linalg.norm(UNIT, axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("X", "divisor", "words"),
    [
        (RNG.integers(0, 256, (50, 784), np.uint8), 255, "bytes of images: divided by 255"),
        (RNG.integers(0, 256, (50, 3072), np.uint8), 255, "bytes of images"),
        (RNG.integers(0, 17, (50, 64), np.uint8), 16, "divided by 16"),
        (RNG.random((50, 784)).astype(np.float32), 1, "within 0 and 1"),
        (UNIT.astype(np.float16), 1, "rows of length 1"),
        (UNIT, 1, "rows of length 1"),
        (RNG.normal(size=(100, 100)) * 3, 1, "columns of similar spread"),
    ],
)
def test_left_alone_or_divided(X, divisor, words):
    features = Features()
    out = features.fit_transform(X)
    np.testing.assert_allclose(out, X / divisor, rtol=1e-6)
    assert words in features.explain()[0]["done"]


@pytest.mark.parametrize(
    "X",
    [
        RNG.integers(0, 16, (200, 16), np.uint8),
        RNG.normal(size=(100, 5)) * [1, 10, 100, 1e4, 1e6] + 1e6,
        RNG.normal(size=(100, 60)) * np.logspace(0, 4, 60),
    ],
)
def test_other_columns_are_standardized(X):
    out = Features().fit_transform(X)
    np.testing.assert_allclose(out, StandardScaler().fit_transform(X.astype(float)), atol=1e-4)


def test_asked_scaling():
    X = RNG.normal(size=(100, 5)) * 7 + 3
    assert Features(scale="none").fit_transform(X) is X
    np.testing.assert_allclose(Features(scale="standard").fit_transform(UNIT).std(axis=0), 1, rtol=1e-5)
    with pytest.raises(InputError, match="it must be auto, none, standard"):
        Features(scale="max").fit(X)


def test_gaps_are_filled_and_flagged():
    X = RNG.normal(size=(100, 3)) * [1, 50, 2]
    X[::7, 1] = np.nan
    features = Features()
    out = features.fit_transform(X)
    assert out.shape == (100, 4)
    np.testing.assert_array_equal(out[:, 3], np.isnan(X[:, 1]))
    assert np.isfinite(out).all()
    assert list(features.get_feature_names_out()) == ["x0", "x1", "x2", "x1 is missing"]
    assert features.explain()[0]["missing"] == pytest.approx(np.isnan(X).mean())


def test_sparse():
    X = sp.random(100, 30, 0.1, format="csr", random_state=0)
    assert "left alone" in (f := Features().fit(X)).explain()[0]["done"]
    assert (f.transform(X) != X).nnz == 0
    out = Features().fit_transform(X * 50)
    np.testing.assert_allclose(out.toarray(), MaxAbsScaler().fit_transform(X).toarray(), rtol=1e-5)


def test_moments_far_from_zero():
    X = RNG.normal(size=(10_000, 2)) * 1e-3 + 1e6
    mean, spread = column_moments(X)
    np.testing.assert_allclose(mean, X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(spread, X.std(axis=0), rtol=1e-6)


def test_pictures_given_as_such_are_flattened():
    X = RNG.integers(0, 256, (20, 8, 8), np.uint8)
    np.testing.assert_allclose(Features().fit_transform(X), X.reshape(20, 64) / 255, rtol=1e-6)


def test_bad_matrices():
    with pytest.raises(InputError, match="expecting 5 features"):
        Features().fit(np.eye(5)).transform(np.eye(4))
    with pytest.raises(InputError, match="got dtype <U1"):
        Features().fit(np.array([["a", "b"]]))
