"""One battery over every penalty: the prox is the minimiser it claims to be."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kway.errors import InputError
from kway.linear.penalties import pick_penalty

PENALTIES = ["none", "l2", "l1", "elasticnet"]


@settings(max_examples=50, deadline=None)
@given(v=st.floats(-5, 5), step=st.floats(0.01, 3), other=st.floats(-5, 5))
@pytest.mark.parametrize("name", PENALTIES)
def test_prox_minimises_distance_plus_penalty(name, v, step, other):
    penalty = pick_penalty(name, 0.3)
    cost = lambda w: (w - v) ** 2 / 2 + step * penalty.value(np.array([[w]]))  # noqa: E731
    best = float(penalty.prox(np.array([[v]]), step)[0, 0])
    assert cost(best) <= cost(other) + 1e-12


@pytest.mark.parametrize("name", ["l1", "elasticnet"])
def test_l1_gives_exact_zeros(name):
    penalty = pick_penalty(name, 0.5)
    assert (penalty.prox(np.array([0.2, -0.3, 2.0]), 1.0) == 0).tolist() == [True, True, False]


def test_values_are_the_formulas():
    W = np.array([[1.0, -2.0], [0.0, 3.0]])
    assert pick_penalty("none", 0.5).value(W) == 0
    assert pick_penalty(None, 0.5).value(W) == 0
    assert pick_penalty("l2", 0.5).value(W) == 7
    assert pick_penalty("l1", 0.5).value(W) == 6
    assert pick_penalty("elasticnet", 0.25).value(W) == pytest.approx(0.75 * 7 + 0.25 * 6)


def test_unknown_name_lists_the_known():
    with pytest.raises(InputError, match="none, l2, l1, elasticnet"):
        pick_penalty("l3", 0.5)


@pytest.mark.filterwarnings("error")
def test_weights_too_far_out_to_square_are_infinitely_dear_and_warn_of_nothing():
    assert pick_penalty("l2", 0.0).value(np.full((2, 2), 1e30, np.float32)) == np.inf
