import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kway.confidence.conformal import METHODS, RankedClasses, pick_method
from kway.errors import InputError


def aps(p, c, u):
    """The definition, class by class."""
    if p[c] == 0:
        return 1.0
    return min(1.0, sum(v for v in p if v > p[c]) + u * sum(v for v in p if v == p[c]))


def lists(p, k):
    order = np.argsort(-p, axis=1, kind="stable")[:, :k]
    return RankedClasses(order, np.take_along_axis(p, order, axis=1), k == p.shape[1])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 9), st.booleans())
def test_lists_give_the_definition_or_say_that_they_cannot(seed, n_classes, votes):
    rng = np.random.default_rng(seed)
    p = rng.multinomial(4, np.ones(n_classes) / n_classes, 5) / 4 if votes else rng.dirichlet(np.ones(n_classes), 5)
    u = rng.uniform(size=5)
    truth = {
        "lac": 1 - p,
        "aps": np.array([[aps(row, c, v) for c in range(n_classes)] for row, v in zip(p, u)]),
    }
    for name, method in METHODS.items():
        for k in range(1, n_classes + 1):
            some = lists(p, k)
            scores, least = method(some, u)
            expected = np.take_along_axis(truth[name], some.codes, axis=1)
            known = ~np.isnan(scores)
            np.testing.assert_allclose(scores[known], expected[known], atol=1e-12)
            rest = truth[name].copy()
            np.put_along_axis(rest, some.codes, np.where(known, np.inf, expected), axis=1)
            assert (rest.min(axis=1) >= least - 1e-12).all()
            assert known.all() or k < n_classes


def test_an_unknown_method_is_refused():
    with pytest.raises(InputError, match="'lac', 'aps'"):
        pick_method("raps")


def test_no_rounded_sum_moves_a_class_of_probability_zero_or_passes_one():
    """0.7 + 0.2 + 0.1 is a little less than 1, and a class that has nothing is at 1 exactly."""
    p = np.array([[0.7, 0.2, 0.1, 0.0]])
    whole, part = RankedClasses(np.arange(4)[None], p, True), RankedClasses(np.arange(4)[None], p, False)
    assert METHODS["aps"](whole, np.array([0.5])).scores[0, -1] == 1.0
    assert METHODS["aps"](part, np.array([0.5])).least == 1.0
    more = RankedClasses(np.arange(2)[None], np.array([[0.6, 0.4000001]]), True)
    assert METHODS["aps"](more, np.array([1.0])).scores.max() == 1.0
