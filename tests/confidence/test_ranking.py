import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kway.base.class_rows import best_columns
from kway.confidence.conformal import rank_until_decided


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 40), st.integers(1, 40), st.integers(2, 30))
def test_the_best_columns_are_those_of_a_stable_sort(seed, width, k, levels):
    k = min(k, width)
    table = np.random.default_rng(seed).integers(0, levels, (6, width)).astype(np.float64)
    np.testing.assert_array_equal(best_columns(table, k), np.argsort(-table, axis=1, kind="stable")[:, :k])


@pytest.mark.parametrize("kind", ["Listed", "Stated"])
def test_lists_grow_only_for_rows_that_ask(rng, kind, request):
    X = rng.standard_normal((50, 100))
    estimator = request.getfixturevalue(kind)().fit(X)
    need = rng.integers(1, 101, 50)  # columns each row wants to see
    seen = np.zeros(50, np.int64)

    def decide(rows, lists):
        assert lists.whole == (lists.codes.shape[1] == 100)
        np.testing.assert_allclose(lists.probabilities[:, 0], estimator.predict_proba(X[rows]).max(axis=1))
        seen[rows] = lists.codes.shape[1]
        return seen[rows] >= need[rows]

    rank_until_decided(estimator, X, decide)
    if kind == "Listed":
        expected = [next(k for k in (8, 16, 32, 64, 100) if k >= v) for v in need]
        assert seen.tolist() == expected
    else:
        assert (seen == 100).all()
