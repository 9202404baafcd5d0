"""A classifier behind a learned map: better where columns differ in worth, the same through a model file."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import kway
from kway.errors import InputError, ModelFileError
from kway.pipelines import FeaturedClassifier


@pytest.fixture(scope="module")
def noisy():
    """Three classes told by two columns of twenty."""
    rng = np.random.default_rng(0)
    y = rng.choice(["ant", "bee", "cat"], 900)
    X = rng.normal(size=(900, 20))
    X[:, 3] += 2.5 * (y == "bee")
    X[:, 7] += 2.5 * (y == "cat")
    return X[:600], y[:600], X[600:], y[600:]


@pytest.mark.parametrize("kind", ["scales", "mixtures"])
def test_columns_that_tell_are_found(noisy, kind):
    X, y, Q, answers = noisy
    plain, mapped = kway.NeighborsClassifier(9), kway.MappedClassifier(kway.NeighborsClassifier(9), kind)
    assert mapped.fit(X, y).score(Q, answers) > plain.fit(X, y).score(Q, answers) + 0.05


@pytest.mark.parametrize("kind", ["scales", "mixtures"])
@pytest.mark.parametrize("inner", [kway.NeighborsClassifier(3), kway.SoftmaxClassifier(), None])
def test_round_trip(noisy, kind, inner, tmp_path):
    X, y, Q, _ = noisy
    model = kway.MappedClassifier(inner, kind, random_state=3).fit(X, y)
    model.save(tmp_path / "m.kway")
    loaded = kway.load(tmp_path / "m.kway", verify=True)
    np.testing.assert_array_equal(loaded.predict(Q), model.predict(Q))
    np.testing.assert_array_equal(loaded.predict_proba(Q), model.predict_proba(Q))
    np.testing.assert_array_equal(loaded.mapped(Q), model.mapped(Q))
    assert hasattr(loaded, "kneighbors") == (not isinstance(inner, kway.SoftmaxClassifier))


def test_it_is_the_estimator_on_mapped_rows(noisy):
    X, y, Q, _ = noisy
    model = kway.MappedClassifier(kway.NeighborsClassifier(3), "mixtures").fit(X, y)
    behind = kway.NeighborsClassifier(3).fit(model.mapped(X), y)
    np.testing.assert_array_equal(model.predict_proba(Q), behind.predict_proba(model.mapped(Q)))
    np.testing.assert_array_equal(model.kneighbors(Q)[1], behind.kneighbors(model.mapped(Q))[1])


def test_a_seed_decides_and_none_is_a_seed(noisy):
    X, y, _, _ = noisy
    fitted = [kway.MappedClassifier(random_state=seed).fit(X, y).map_.scale for seed in (None, None, 5)]
    np.testing.assert_array_equal(fitted[0], fitted[1])
    assert (fitted[0] != fitted[2]).any()


def test_inside_features_and_calibration(noisy, tmp_path):
    X, y, Q, _ = noisy
    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(20)])
    inside = kway.TemperatureScaledClassifier(kway.MappedClassifier(), cv=0.3)
    model = FeaturedClassifier(clone(inside)).fit(frame, y)
    model.save(tmp_path / "m.kway")
    asked = pd.DataFrame(Q, columns=frame.columns)
    np.testing.assert_array_equal(kway.load(tmp_path / "m.kway").predict(asked), model.predict(asked))


def test_wrong_parameters_are_named(noisy):
    with pytest.raises(InputError, match=r"^map must be one of 'scales', 'mixtures', got 'full'"):
        kway.MappedClassifier(map="full").fit(*noisy[:2])


@pytest.mark.parametrize(
    ("name", "shape"), [("map.scale", (7,)), ("map.rotation", (20, 7)), ("map.rotation", (7, 20)), ("map.center", ())]
)
def test_a_file_whose_map_does_not_fit_is_refused(noisy, name, shape):
    from kway.modelfile import pack, unpack

    model = kway.MappedClassifier(map="mixtures").fit(*noisy[:2])
    manifest, arrays = pack(model)
    with pytest.raises(ModelFileError):
        unpack(manifest, {**arrays, name: np.ones(shape)})
    with pytest.raises(ModelFileError):
        unpack(manifest, {**arrays, name: np.full(arrays[name].shape, np.nan)})
