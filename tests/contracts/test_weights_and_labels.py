"""Every classifier: weights of rows are used or refused, labels of mixed types are refused, predict is the argmax."""

import numpy as np
import pytest
import sklearn
from tests.helpers.models import small

import kway
from kway import ExemplarClassifier, SoftmaxClassifier
from kway.errors import InputError, KindError
from kway.pipelines import FeaturedClassifier

RNG = np.random.default_rng(0)
X, Y = np.abs(RNG.normal(size=(90, 4))), np.arange(90) % 3
WEIGHT = RNG.uniform(0.1, 5, 90)
CLASSIFIERS = [
    *(getattr(kway, name) for name in kway.__all__ if name.endswith("Classifier")),
    FeaturedClassifier,
]
AROUND_ONE = [cls for cls in CLASSIFIERS if "estimator" in cls().get_params(deep=False)]

pytestmark = pytest.mark.filterwarnings("ignore")
every_classifier = pytest.mark.parametrize("cls", CLASSIFIERS, ids=lambda cls: cls.__name__)


def scores(model):
    return model.predict_proba(X) if hasattr(model, "predict_proba") else model.decision_function(X)


@every_classifier
def test_weights_change_the_fit_or_are_refused(cls):
    if cls is ExemplarClassifier:
        with pytest.raises(KindError, match="sample_weight"):
            cls().fit(X, Y, sample_weight=WEIGHT)
        return
    same, weighted = (small(cls).fit(X, Y, sample_weight=w) for w in (np.ones(90), np.where(Y == 0, 20.0, 1.0)))
    np.testing.assert_allclose(scores(small(cls).fit(X, Y)), scores(same), atol=1e-5)
    assert np.abs(scores(weighted) - scores(same)).max() > 1e-3


@every_classifier
def test_labels_that_mix_none_and_text_are_refused(cls):
    y = np.array(["a", "b", "c"], object)[Y]
    y[0] = None
    for labels in (y, y.tolist()):
        with pytest.raises(InputError, match="NaN or None"):
            small(cls).fit(X, labels)


@every_classifier
def test_the_predicted_label_is_the_most_probable_one(cls):
    model = small(cls).fit(X.astype(np.float32), Y)
    if hasattr(model, "predict_proba"):
        best = model.classes_[model.predict_proba(X.astype(np.float32)).argmax(axis=1)]
        np.testing.assert_array_equal(model.predict(X.astype(np.float32)), best)


@pytest.mark.parametrize("cls", AROUND_ONE, ids=lambda cls: cls.__name__)
def test_weights_are_routed_to_the_estimator_that_requests_them(cls):
    plain = cls(SoftmaxClassifier()).fit(X, Y, sample_weight=WEIGHT)
    with sklearn.config_context(enable_metadata_routing=True):
        wanted = SoftmaxClassifier().set_fit_request(sample_weight=True)
        routed = cls(wanted).fit(X, Y, sample_weight=WEIGHT)
        np.testing.assert_allclose(scores(routed), scores(plain), atol=1e-6)
        with pytest.raises(ValueError, match="sample_weight"):
            cls(SoftmaxClassifier()).fit(X, Y, sample_weight=WEIGHT)
