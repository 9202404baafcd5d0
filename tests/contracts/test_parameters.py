"""Every parameter of every estimator, given what it cannot be: a sentence, never an error of Python's own."""

import dataclasses

import numpy as np
import pytest
from tests.helpers.models import ESTIMATORS, small

import kway
from kway import search
from kway.errors import KwayError
from kway.linear import solvers

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
                small(estimator).set_params(**{name: value}).fit(X, Y).predict(X)
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


NO_NUMBER = [float("nan"), float("inf"), float("-inf"), 1e400, np.float32("inf"), 10**400, -1, True, "x", (), None]
PARTS = [
    *(search.Landmarks, search.LSH, search.KDTree, search.Sharded, search.Bits, search.Int8),
    *(solvers.SGD, solvers.Sampled, solvers.Constant, solvers.Decay, solvers.Cosine),
    *(kway.Gaussian, kway.Laplacian),
]


def numeric(defaults: dict) -> list[str]:
    """Names of the parameters that are numbers, or may be one."""
    optional = {"max_distance", "learning_rate", "n_landmarks", "probes", "n_tables", "n_bits", "eta", "sigma"}
    return [
        name
        for name, default in defaults.items()
        if name in optional or (isinstance(default, int | float) and not isinstance(default, bool))
    ]


def refused(make, name: str) -> list[str]:
    """Which of NO_NUMBER were taken, but for None that is the default, a limit of infinity, and 1 for True."""
    taken = []
    for value in NO_NUMBER:
        if (name, value) in {("max_distance", None), ("max_distance", np.inf), ("eta", None), ("verbose", True)}:
            continue
        try:
            make(**{name: value})
        except KwayError:
            continue
        taken.append(f"{name}={value!r:.20}")
    return taken


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: e.__name__)
def test_a_number_is_a_finite_one(estimator):
    wrong = [
        case
        for name in numeric(estimator().get_params(deep=False))
        for case in refused(lambda **given: small(estimator, **given).fit(X, Y), name)
    ]
    assert not wrong


@pytest.mark.parametrize("part", PARTS, ids=lambda p: p.__name__)
def test_so_are_those_of_parts(part):
    defaults = {field.name: field.default for field in dataclasses.fields(part)}
    assert not [case for name in numeric(defaults) for case in refused(part, name)]


@pytest.mark.parametrize("kind", ESTIMATORS, ids=lambda e: e.__name__)
def test_infinity_is_said_to_be_none(kind):
    if "alpha" in kind().get_params():
        with pytest.raises(KwayError, match=r"alpha must be a number .*, got inf, which is not finite"):
            kind(alpha=np.inf).fit(X, Y)
