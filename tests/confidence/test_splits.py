import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import KFold, PredefinedSplit
from sklearn.utils import check_random_state

from kway.confidence import splits
from kway.errors import InputError

CODES = st.lists(st.integers(0, 5), min_size=1, max_size=60).map(lambda v: np.unique(v, return_inverse=True)[1])


@settings(max_examples=60, deadline=None)
@given(CODES, st.floats(0.05, 0.95), st.integers(0, 99))
def test_a_share_is_held_out_and_no_class_is_lost(codes, share, seed):
    learn, held = splits.hold_out(codes, share, check_random_state(seed))
    assert sorted([*learn, *held]) == list(range(len(codes)))
    assert set(codes[learn]) == set(codes)
    moved = round(share * len(codes)) - len(held)
    assert 0 <= moved <= len(set(codes))


@settings(max_examples=60, deadline=None)
@given(CODES, st.integers(2, 7), st.integers(0, 99))
def test_folds_hold_every_row_out_once(codes, n_folds, seed):
    parts = splits.make_splits(n_folds, None, codes, check_random_state(seed))
    held = np.sort(np.concatenate([codes[:0], *(part.held_out for part in parts)]))
    single = np.bincount(codes)[codes] == 1
    np.testing.assert_array_equal(held, np.flatnonzero(~single))
    for part in parts:
        assert set(codes[part.train]) == set(codes)
        assert not set(part.train) & set(part.held_out)


def test_which_rows_are_held_out_is_chance():
    """Every row equally often: a stratified or ordered choice would bias the promises."""
    codes = np.array([0] * 15 + [1] * 5)
    rng = check_random_state(0)
    counts = np.zeros(20)
    for _ in range(4000):
        counts[splits.hold_out(codes, 0.25, rng).held_out] += 1
    assert np.abs(counts / 4000 - 0.25).max() < 0.03  # four standard errors


def test_splitters_pairs_and_masks():
    codes, rng = np.zeros(6, np.int64), check_random_state(0)
    assert len(splits.make_splits(KFold(3), np.zeros((6, 1)), codes, rng)) == 3
    mask = np.array([True, True, True, True, False, False])
    split = splits.make_one_split([(mask, ~mask)], None, codes, rng)
    assert split.held_out.tolist() == [4, 5]
    predefined = splits.make_one_split(PredefinedSplit([-1, -1, -1, -1, 0, 0]), np.zeros((6, 1)), codes, rng)
    np.testing.assert_array_equal(predefined.held_out, split.held_out)


def test_bad_splits_are_refused():
    rng, codes = check_random_state(0), np.array([0, 0, 1])
    for cv in (0, 1, 1.0, 0.0, -0.2, True, "five", None):
        with pytest.raises(InputError, match="cv must be"):
            splits.check_cv(cv, folds=True)
    with pytest.raises(InputError, match="cv must be"):
        splits.check_cv(5, folds=False)
    with pytest.raises(InputError, match="3 splits"):
        splits.make_one_split(KFold(3), np.zeros((3, 1)), codes, rng)
    with pytest.raises(InputError, match=r"outside 0\.\.2"):
        splits.make_one_split([([0], [7])], None, codes, rng)
    for rows in ([True, False], [0.5, 1.7], [[0], [1]]):
        with pytest.raises(InputError, match=r"by integers or by a mask of shape \(3,\)"):
            splits.make_one_split([([0, 1], rows)], None, codes, rng)
    with pytest.raises(InputError, match="such as 'b'"):
        splits.check_classes_in_training(codes, splits.Split(np.array([0]), np.array([2])), np.array(["a", "b"]))


def test_blocks_are_the_rows_in_order(monkeypatch):
    monkeypatch.setattr(splits, "BLOCK_BYTES", 80)
    X = np.arange(14).reshape(7, 2)
    parts = list(splits.cut_blocks(X, 7, 5))
    assert [len(part) for part in parts] == [2, 2, 2, 1]
    np.testing.assert_array_equal(np.concatenate(parts), X)
