"""scikit-learn's own checks, around other estimators than the default (tests/contracts runs every default)."""

import pytest
from sklearn.naive_bayes import GaussianNB
from sklearn.utils.estimator_checks import check_estimator

import kway
from kway.confidence import ConformalClassifier, OpenSetClassifier, TemperatureScaledClassifier

MODELS = [
    TemperatureScaledClassifier(kway.NeighborsClassifier(), cv=0.3),
    TemperatureScaledClassifier(GaussianNB()),
    ConformalClassifier(kway.CentroidClassifier(), method="aps", per_class=True),
    OpenSetClassifier(kway.NeighborsClassifier(), score_by="distance"),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize("model", MODELS, ids=lambda model: str(model).replace("\n", "")[:70])
def test_scikit_learns_checks_pass(model):
    results = check_estimator(model, on_fail=None, on_skip=None)
    failed = [f"{r['check_name']}: {r['exception']!r}"[:300] for r in results if r["status"] == "failed"]
    assert not failed
    assert len(results) > 40
