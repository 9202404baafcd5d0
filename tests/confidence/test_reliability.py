import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kway.confidence import expected_calibration_error, reliability
from kway.confidence.reliability import reliability_of
from kway.errors import InputError


def loops(codes, proba, bins):
    """The definition, row by row."""
    total = 0.0
    for b in range(bins):
        rows = [i for i, p in enumerate(proba) if b / bins < max(p) <= (b + 1) / bins]
        if rows:
            confidence = np.mean([max(proba[i]) for i in rows])
            accuracy = np.mean([np.argmax(proba[i]) == codes[i] for i in rows])
            total += len(rows) / len(proba) * abs(confidence - accuracy)
    return total


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 40), st.integers(2, 5), st.integers(1, 20))
def test_is_the_definition(seed, n, n_classes, bins):
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet(np.ones(n_classes), n)
    codes = rng.integers(0, n_classes, n)
    assert expected_calibration_error(codes, proba, bins) == pytest.approx(loops(codes, proba, bins), abs=1e-12)
    shape = reliability(codes, proba, bins)
    assert shape.rows.sum() == n
    assert np.isnan(shape.accuracy[shape.rows == 0]).all()


def test_labels_of_any_kind():
    proba = np.array([[0.7, 0.3], [0.2, 0.8]])
    expected = expected_calibration_error([0, 1], proba)
    assert expected_calibration_error(["no", "yes"], proba) == expected
    assert expected_calibration_error(["yes", "yes"], proba, classes=["no", "yes"]) != expected
    with pytest.raises(InputError, match="pass classes="):
        expected_calibration_error(["yes", "yes"], proba)
    with pytest.raises(InputError, match="not among"):
        expected_calibration_error(["maybe", "yes"], proba, classes=["no", "yes"])
    with pytest.raises(InputError, match="shape"):
        reliability([0], [0.3])
    with pytest.raises(InputError, match="bins"):
        reliability([0, 1], proba, bins=0)


def test_honest_probabilities_have_no_error():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.5, 1, 200_000)
    y = (rng.uniform(size=p.size) > p).astype(int)  # class 0 with chance p
    proba = np.stack([p, 1 - p], axis=1)
    assert expected_calibration_error(y, proba) < 0.005
    assert expected_calibration_error(y, np.stack([p**0.25, 1 - p**0.25], axis=1)) > 0.05


def test_the_ends_belong_to_bins():
    assert reliability_of(np.array([0.0, 1.0]), np.array([False, True]), bins=4).rows.tolist() == [1, 0, 0, 1]
