"""A short run of the drawn indexes (exact_search.py); `python exact_search.py 3000` is a long one."""

import exact_search
import pytest


@pytest.mark.parametrize("first", range(0, 80, 8))
def test_drawn_indexes_answer_as_brute_force_does(first):
    ends = [exact_search.attempt(seed) for seed in range(first, first + 8)]
    assert {*ends} <= {"ok", "refused"}, "\n".join(ends)
