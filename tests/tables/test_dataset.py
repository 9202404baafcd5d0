"""Splits keep every class on both sides where they can, and are the same for the same seed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kway.errors import InputError
from kway.tables.datasets.arrays import Dataset, stratified


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=8).filter(lambda c: max(c) > 1), st.integers(0, 99))
def test_stratified(counts, seed):
    y = np.repeat(np.arange(len(counts)), counts)
    kept, held = stratified(y, 0.2, seed)
    assert sorted([*kept, *held]) == list(range(len(y)))
    assert set(y[kept]) == set(y)  # no class is only ever tested
    np.testing.assert_array_equal(stratified(y, 0.2, seed)[1], held)


def test_the_share_is_a_fifth_of_each_class():
    y = np.repeat([0, 1, 2], [50, 100, 250])
    _, held = stratified(y, 0.2, 0)
    assert np.bincount(y[held]).tolist() == [10, 20, 50]


def test_seeds_differ():
    y = np.repeat([0, 1], 50)
    assert stratified(y, 0.2, 0)[1].tolist() != stratified(y, 0.2, 1)[1].tolist()


def test_nothing_to_split():
    with pytest.raises(InputError, match="every class has a single row"):
        stratified(np.arange(5), 0.2, 0)


def test_a_set_with_a_test_part_stays_as_it_is():
    data = Dataset("d", np.eye(4), np.array([0, 0, 1, 1]), np.eye(4), np.array([0, 0, 1, 1]))
    assert data.split() is data
