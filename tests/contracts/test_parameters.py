"""Every parameter of every estimator, given what it cannot be: a sentence, never an error of Python's own."""

import numpy as np
import pytest

import kway
from kway.errors import KwayError

ESTIMATORS = [getattr(kway, name) for name in kway.__all__ if name.endswith("Classifier")]
ODD = [None, "x", -1, 0, 2.5, float("nan"), float("inf"), [], {}, object(), True, 10**30, lambda *_: 1]
Y = np.arange(12) % 3
X = np.random.default_rng(0).normal(size=(12, 3)) + 3 * np.eye(3)[Y]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: e.__name__)
def test_what_a_parameter_cannot_be_is_said(estimator):
    wrong = []
    for name in estimator().get_params(deep=False):
        for value in ODD:
            if name == "verbose":
                continue
            try:
                estimator().set_params(**{name: value}).fit(X, Y).predict(X)
            except KwayError:
                pass
            except Exception as error:
                wrong.append(f"{name}={value!r:.40}: {type(error).__name__}: {error!s:.80}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("weights", [{0: -1}, {0: np.nan}, {0: "a"}, {7: 1.0}, {"a": 1}])
@pytest.mark.parametrize("estimator", [kway.SoftmaxClassifier, kway.NeighborsClassifier])
def test_weights_of_classes(estimator, weights):
    if weights in ({7: 1.0}, {"a": 1}) and estimator is kway.NeighborsClassifier:
        pytest.skip("votes for a class that may still come")
    with pytest.raises(KwayError, match="class_weight"):
        estimator(class_weight=weights).fit(X, Y)
