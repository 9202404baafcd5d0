"""Every public classifier goes into a file and comes back the same, and is as alive as before."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from tests.helpers.models import small

import kway
from kway.modelfile.values import estimator_class
from kway.pipelines import FeaturedClassifier

NAMES = [name for name in kway.__all__ if name.endswith("Classifier") and estimator_class(name)]
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

MORE = {  # parameters that are parts, dicts or infinite
    "NeighborsClassifier": [
        {"metric": kway.Gaussian(2.0), "weights": "similarity"},
        {"metric": "manhattan", "index": kway.search.KDTree()},
        {"class_weight": {"setosa": 2.0, "versicolor": 1.0, "virginica": 1.0}},
    ],
    "LinearClassifier": [
        {"loss": "hinge"},
        {"loss": "logistic", "multiclass": "one-vs-all"},
        {"penalty": "l1", "alpha": 0.01},
    ],
    "LeastSquaresClassifier": [{"targets": "number"}],
}
CASES = [(name, params) for name in NAMES for params in [{}, *MORE.get(name, [])]]


@pytest.fixture(scope="module")
def iris():
    data = load_iris()
    return data.data, data.target_names[data.target]


@pytest.mark.parametrize(("name", "params"), CASES, ids=lambda v: v if isinstance(v, str) else ",".join(map(str, v)))
def test_round_trip(name, params, iris, tmp_path):
    X, y = iris
    if params.get("targets") == "number":
        y = np.unique(y, return_inverse=True)[1]
    model = small(getattr(kway, name), **params)
    if "random_state" in model.get_params():
        model.set_params(random_state=0)
    model.fit(X, y)
    model.save(tmp_path / "m.kway")
    loaded = kway.load(tmp_path / "m.kway")
    assert repr(loaded.get_params()) == repr(model.get_params())
    assert loaded.n_features_in_ == 4
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    for method in ("decision_function", "predict_proba"):
        if hasattr(model, method):
            np.testing.assert_allclose(getattr(loaded, method)(X), getattr(model, method)(X), rtol=1e-12)
    before, after = model.predict_topk(X, 2), loaded.predict_topk(X, 2)
    np.testing.assert_array_equal(after[0], before[0])
    np.testing.assert_allclose(after[1], before[1], rtol=1e-12)
    fitted = {key for key in vars(model) if key.endswith("_") and not key.startswith("_")}
    assert fitted <= set(vars(loaded)) | {key for key in fitted if hasattr(loaded, key)}


@pytest.mark.parametrize("name", NAMES)
def test_a_loaded_model_lives_on(name, iris, tmp_path):
    """Mapped arrays are read-only: saving, pickling, cloning, fitting and learning further must all still work."""
    X, y = iris
    small(getattr(kway, name)).fit(X, y).save(tmp_path / "m.kway")
    loaded = kway.load(tmp_path / "m.kway")
    loaded.save(tmp_path / "again.kway")
    np.testing.assert_array_equal(kway.load(tmp_path / "again.kway").predict(X), loaded.predict(X))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(loaded)).predict(X), loaded.predict(X))
    clone(loaded).fit(X, y)
    if hasattr(loaded, "partial_fit"):
        loaded.partial_fit(X[::2], y[::2])
        loaded.predict(X)
    loaded.fit(X, y)


@pytest.mark.parametrize("name", ["SoftmaxClassifier", "PerceptronClassifier"])
def test_partial_fit_continues_after_loading(name, iris, tmp_path):
    X, y = iris
    model = getattr(kway, name)()
    for _ in range(5):
        model.partial_fit(X[::2], y[::2])
    model.save(tmp_path / "m.kway")
    loaded = kway.load(tmp_path / "m.kway")
    for each in (model, loaded):
        each.partial_fit(X[1::2], y[1::2])
    np.testing.assert_array_equal(loaded.coef_, model.coef_)
    assert loaded.n_iter_ == model.n_iter_ == 6


def test_a_classifier_inside_five_others(iris, tmp_path):
    """0.1.0 doubled the depth of the file with each, and could not write the fourth."""
    X, y = iris
    model = kway.NeighborsClassifier(3)
    for around in (kway.TemperatureScaledClassifier, kway.ConformalClassifier, FeaturedClassifier) * 2:
        model = around(model)
    model.fit(X, y).save(tmp_path / "m.kway")
    np.testing.assert_array_equal(kway.load(tmp_path / "m.kway").predict(X), model.predict(X))
