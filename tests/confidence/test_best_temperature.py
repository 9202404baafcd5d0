"""The one-dimensional solve, against a bounded scalar minimiser and finite differences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from kway.confidence.temperature import _slope, best_temperature


def mean_log_loss(z, codes, temperature):
    return -log_softmax(z / temperature, axis=1)[np.arange(len(z)), codes].mean()


def problem(seed, n=80, n_classes=4):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, n_classes)) * rng.uniform(0.2, 5)
    codes = np.where(rng.uniform(size=n) < 0.7, z.argmax(axis=1), rng.integers(0, n_classes, n))
    return z, codes


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31))
def test_is_the_minimum_and_proves_it(seed):
    z, codes = problem(seed)
    fit = best_temperature(z, codes)
    assert fit.certified
    assert fit.high - fit.low <= 1e-8 * fit.high
    oracle = minimize_scalar(lambda u: mean_log_loss(z, codes, np.exp(u)), bounds=(-6, 8), method="bounded")
    assert mean_log_loss(z, codes, fit.temperature) <= oracle.fun + 1e-12
    assert np.log(fit.temperature) == pytest.approx(oracle.x, abs=1e-4)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.floats(1e-6, 1e6), st.floats(-1e3, 1e3))
def test_scales_with_the_scores_and_ignores_a_shift(seed, scale, shift):
    z, codes = problem(seed)
    plain = best_temperature(z, codes).temperature
    assert best_temperature(z * scale, codes).temperature == pytest.approx(plain * scale, rel=1e-6)
    assert best_temperature(z + shift, codes).temperature == pytest.approx(plain, rel=1e-5)


def test_slopes_are_derivatives():
    z, codes = problem(3)
    own, b, h = z[np.arange(len(z)), codes], 0.7, 1e-5
    low, high = (mean_log_loss(z, codes, 1 / v) for v in (b - h, b + h))
    slope = _slope(z, own, b)
    assert slope == pytest.approx((high - low) / (2 * h), rel=1e-5)


def test_all_right_imagines_one_miss_to_the_runner_up():
    z = np.zeros((30, 3))
    z[:, 1:] = [1.0, -50.0]  # two classes in play
    z[np.arange(30), np.arange(30) % 2] = 2.0
    codes = np.arange(30) % 2
    z[codes == 0, 1], z[codes == 1, 0] = 0.0, 0.0
    fit = best_temperature(z, codes)
    assert fit.assumed_error
    assert fit.certified
    assert 1 / (1 + np.exp(-2 / fit.temperature)) == pytest.approx(1 - 1 / 32, abs=1e-6)


def test_all_right_never_lowers_stated_confidence():
    z = 100.0 * np.eye(3)[np.arange(30) % 3]
    fit = best_temperature(z, np.arange(30) % 3, max_if_correct=1.0)
    assert fit.temperature == 1.0
    assert fit.certified
    assert best_temperature(z, np.arange(30) % 3).temperature > 10
    assert best_temperature(z / 1000, np.arange(30) % 3, max_if_correct=1.0).temperature < 1


def test_no_better_than_chance_grows_the_temperature():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((200, 3))
    fit = best_temperature(z, z.argmin(axis=1))
    assert not fit.certified
    assert fit.temperature > 1e6
    assert mean_log_loss(z, z.argmin(axis=1), fit.temperature) == pytest.approx(np.log(3), abs=1e-4)


def test_nothing_to_learn_from():
    assert best_temperature(np.empty((0, 3)), np.empty(0, np.int64)).temperature == 1.0
    assert best_temperature(np.ones((5, 3)), np.zeros(5, np.int64)).temperature == 1.0


def test_huge_scores_do_not_overflow():
    z, codes = problem(5)
    fit = best_temperature(z * 1e30, codes)
    assert np.isfinite(fit.temperature)
    assert fit.certified


def test_whole_weights_are_repeated_rows():
    z, codes = problem(5)
    w = np.random.default_rng(5).integers(1, 4, len(z))
    weighted = best_temperature(z, codes, weights=w.astype(float))
    repeated = best_temperature(np.repeat(z, w, axis=0), np.repeat(codes, w))
    assert weighted.temperature == pytest.approx(repeated.temperature, rel=1e-6)
    assert weighted.temperature != pytest.approx(best_temperature(z, codes).temperature, rel=1e-6)
    assert weighted.certified


def test_rows_of_weight_0_change_nothing():
    z = np.eye(3)[np.arange(30) % 3] * 2.0
    codes = np.arange(30) % 3
    fit = best_temperature(z, codes, max_if_correct=1.0)
    weights = np.repeat([1.0, 0.0], [30, 3])
    wrong = best_temperature(np.vstack([z, z[:3]]), np.append(codes, [1, 2, 0]), max_if_correct=1.0, weights=weights)
    assert wrong == fit
    assert best_temperature(z, codes, weights=np.zeros(30)).temperature == 1.0
