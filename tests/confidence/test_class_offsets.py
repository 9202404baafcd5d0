"""Offsets of classes: the optimum of a penalised log loss, which brings back what was taken from a class."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from tests.helpers.rows import draw_labels

from kway.confidence.class_offsets import SPREAD, class_offsets, validated_offsets


def drawn(m, n_classes, size, seed=0):
    """Scores whose softmax, at a scale, tells how often each class is right."""
    rng = np.random.default_rng(seed)
    z = size * rng.normal(scale=2.0, size=(m, n_classes))
    return z, draw_labels(softmax(z / size, axis=1), rng)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4])
def test_what_was_taken_from_a_class_comes_back_at_any_scale(size):
    z, codes = drawn(4000, 5, size)
    taken = size * np.array([0.0, 0.0, -1.0, 0.0, 0.6])
    found = class_offsets(z + taken, codes)
    np.testing.assert_allclose(found - found.mean(), -(taken - taken.mean()), atol=0.12 * size)


def test_it_is_the_optimum_of_the_penalised_loss():
    z, codes = drawn(200, 4, 1.0)
    rows = np.arange(len(z))

    def loss(point):
        scores = point[0] * z + point[1:]
        fit = np.mean(logsumexp(scores, axis=1) - scores[rows, codes])
        return fit + point[1:] @ point[1:] / (2 * SPREAD**2 * len(z))

    best = minimize(loss, np.r_[0.5, np.zeros(4)], method="BFGS", options={"gtol": 1e-8}).x
    np.testing.assert_allclose(class_offsets(z, codes), best[1:] / best[0], atol=2e-3)


def test_classes_without_rows_and_scores_without_difference_stay():
    z, codes = drawn(50, 3, 1.0)
    far = np.column_stack([z, np.full(50, -1e3)])
    assert abs(class_offsets(far, codes)[3]) < 1e-3
    assert not class_offsets(np.zeros((5, 3)), np.zeros(5, int)).any()
    assert not class_offsets(np.zeros((0, 3)), np.zeros(0, int)).any()


def test_offsets_that_prove_nothing_are_zero():
    z, codes = drawn(300, 40, 1.0)
    assert class_offsets(z, codes).any()
    assert not validated_offsets(z, codes).any()
    taken = np.where(np.arange(40) == 7, -2.0, 0.0)
    z, codes = drawn(3000, 40, 1.0)
    np.testing.assert_array_equal(validated_offsets(z + taken, codes), class_offsets(z + taken, codes))
