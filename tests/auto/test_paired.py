"""The paired test: an equal family is hardly ever excluded, a worse one soon is."""

import numpy as np
import pytest

from kway.auto.race.paired import CLEAR, SURE, paired_difference

DRAWS = 8_000


def drawn_excluded(n, draw, threshold=0.0, seed=0):
    """Share of the tests in which the second of two classifiers is excluded."""
    rng = np.random.default_rng(seed)
    draws = 2_000 if n > 1000 else DRAWS
    return np.mean([paired_difference(*draw(rng, n)).exceeds(threshold) for _ in range(draws)]), draws


def right_or_not(accuracy, worse_by=0.0, alike=0.8):
    def draw(rng, n):
        together = rng.random(n) < alike
        shared = rng.random(n)
        first = np.where(together, shared, rng.random(n)) < accuracy
        second = np.where(together, shared, rng.random(n)) < accuracy - worse_by
        return first.astype(float), second.astype(float)

    return draw


def log_losses(rng, n):
    shared = rng.exponential(0.3, n)
    return -(shared + rng.exponential(0.2, n)), -(shared + rng.exponential(0.2, n))


@pytest.mark.parametrize("n", [30, 140, 600, 3000])
@pytest.mark.parametrize("draw", [right_or_not(0.55), right_or_not(0.95), right_or_not(0.8, alike=0.2), log_losses])
def test_an_equal_family_is_excluded_no_more_often_than_three_standard_errors_allow(n, draw):
    share, draws = drawn_excluded(n, draw)
    allowed = 0.00135
    assert share <= allowed + 3 * np.sqrt(allowed / draws)


def test_a_worse_family_is_excluded_unless_it_has_room_left():
    worse = right_or_not(0.9, worse_by=0.1)
    assert drawn_excluded(600, worse)[0] > 0.95
    assert drawn_excluded(600, worse, threshold=0.1)[0] < 0.01


def test_the_error_is_that_of_the_mean_difference():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 4000))
    gaps = first - second
    found = paired_difference(first, second)
    assert found.mean == pytest.approx(gaps.mean())
    assert found.error == pytest.approx(gaps.std() / np.sqrt(4000), rel=0.01)
    assert paired_difference(first, first) == (0.0, 0.0)
    assert not paired_difference(first, first).exceeds()
    assert CLEAR < SURE


def test_a_handful_of_rows_is_no_proof():
    first, second = np.ones(1000), np.ones(1000)
    second[:8] = 0
    assert not paired_difference(first, second).exceeds()
    second[:12] = 0
    assert paired_difference(first, second).exceeds()
