"""The comparison finds the right family, stops losers, keeps within its budget and reports what separate fits give."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, make_classification
from sklearn.model_selection import cross_val_score

from kway.auto.fit_options import FAMILY_DESCRIPTIONS
from kway.auto.race.compare import compare
from kway.auto.race.families import CLASS_NUMBER, FAMILIES
from kway.auto.race.folds import fold_numbers, split_test
from kway.errors import InputError
from kway.progress import watched


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:700] / 16, y[:700]


def test_the_leaders_scores_are_those_of_scikit_learns_cross_validation(digits):
    X, y = digits
    found = compare(X, y, ["neighbors", "centroid", "softmax"], folds=4)
    folds = found.folds
    splits = [(np.flatnonzero(folds != f), np.flatnonzero(folds == f)) for f in range(4)]
    for line in found.rows:
        if line.note:
            continue
        theirs = cross_val_score(found.estimator(line), X, y, cv=splits)
        np.testing.assert_allclose(line.fold_accuracy, theirs, atol=0.012)
        assert line.accuracy == pytest.approx(np.mean(line.fold_accuracy))
    assert found.best.model == "neighbors"
    assert found.finished
    assert [r["model"] for r in found.records()] == list(found.to_pandas()["model"])


def test_clear_losers_are_stopped_after_one_fold():
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 900)
    y = rng.integers(0, 3, 900)
    X = np.stack([np.cos(angle), np.sin(angle)], 1) * (1 + y)[:, None] + rng.normal(scale=0.05, size=(900, 2))
    found = compare(X, y, ["softmax", "centroid", "neighbors"])
    assert found.best.model == "neighbors"
    assert found.best.accuracy > 0.99
    assert all("left the race after fold 1 of 5" in line.note for line in found.rows[1:])
    assert len(found.rows[1].fold_accuracy) == 1


def test_every_family_runs_on_two_and_on_three_classes():
    for classes in (2, 3):
        X, y = make_classification(150, 6, n_informative=4, n_redundant=0, n_classes=classes, random_state=0)
        dense = [name for name in FAMILIES if name != "naive-bayes"]  # which is for counts of words
        found = compare(X, y, dense, folds=3, budget=600)
        assert {line.model for line in found.rows} == set(dense)
        assert not found.skipped
        assert found.estimator().fit(X, y).score(X, y) > 0.6


def test_a_budget_cuts_the_work_but_keeps_what_was_scored(digits):
    X, y = digits
    found = compare(X, y, budget=1e-9)
    assert not found.finished
    assert len(found.rows) == 1


def test_ctrl_c_keeps_the_best_so_far(digits):
    X, y = digits

    def stop_at_softmax(news):
        if news.what.startswith("softmax"):
            assert [cells[-1] for cells in news.lines] == ["fold 1 of 5", "fold 1 of 5"]
            raise KeyboardInterrupt

    with watched(stop_at_softmax):
        found = compare(X, y, ["centroid", "neighbors", "softmax"])
    assert not found.finished
    assert {line.model for line in found.rows} == {"centroid", "neighbors"}
    assert found.problems == {"softmax": "the time was up"}


def test_every_family_is_described_in_one_line():
    assert all(0 < len(family.description) < 100 for family in FAMILIES.values())
    assert list(FAMILY_DESCRIPTIONS) == [*FAMILIES, CLASS_NUMBER.name]


def test_unknown_family_lists_the_known():
    with pytest.raises(InputError, match="models has no 'forest'; known are centroid, softmax, naive-bayes"):
        compare([[0.0], [1.0]], [0, 1], ["forest"])


def test_folds_keep_groups_together_and_time_in_order():
    rng = np.random.default_rng(0)
    codes, groups, when = rng.integers(0, 3, 300), rng.integers(0, 40, 300), rng.permutation(300)
    folds = fold_numbers(codes, 5, groups=groups)
    assert all(len(set(folds[groups == g])) == 1 for g in range(40))
    train, test = split_test(codes, groups=groups)
    assert not set(groups[train]) & set(groups[test])
    train, test = split_test(codes, order=when)
    assert when[train].max() < when[test].min()
    one = fold_numbers(codes[train], 5, order=when[train])
    assert when[train][one == 0].min() > when[train][one == -1].max()
    with pytest.raises(InputError, match="both"):
        split_test(codes, groups=groups, order=when)


def test_splits_are_stratified_seeded_and_keep_single_rows_for_training():
    codes = np.array([0] * 50 + [1] * 30 + [2] * 20 + [3])
    train, test = split_test(codes, 0.2, seed=3)
    again = split_test(codes, 0.2, seed=3)
    np.testing.assert_array_equal(test, again.held_out)
    assert sorted(np.concatenate([train, test])) == list(range(101))
    assert np.bincount(codes[test]).tolist() == [10, 6, 4]
    folds = fold_numbers(codes, 5)
    assert np.bincount(folds[codes < 3]).min() >= 19
    with pytest.raises(InputError, match="single row"):
        split_test(np.arange(4))


def test_a_family_that_cannot_weigh_classes_says_so():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 3)), np.r_[np.zeros(90, int), np.ones(30, int)]
    X[y == 1] += 1
    found = compare(X, y, models=["centroid", "softmax"], class_weight="balanced")
    notes = {line.model: line.note for line in found.rows}
    assert "class weights have no effect" in notes["centroid"]
    assert "class weights" not in notes["softmax"]
    assert not any("class weights" in line.note for line in compare(X, y, models=["centroid"]).rows)


def test_what_stands_beside_is_one_or_several_and_classifiers_all():
    from sklearn.linear_model import LinearRegression
    from sklearn.naive_bayes import GaussianNB

    X, y = load_digits(return_X_y=True)
    for also in ("sklearn.naive_bayes.GaussianNB", GaussianNB(), [GaussianNB]):
        assert len(compare(X[:200], y[:200], ["centroid"], folds=2, also=also).references) == 1
    for also in (LinearRegression(), "sklearn.linear_model.LinearRegression"):
        with pytest.raises(InputError, match="LinearRegression is none; pass one, such as"):
            compare(X[:200], y[:200], ["centroid"], folds=2, also=also)


def test_groups_of_small_classes_have_as_many_folds_as_the_largest_class_has_rows():
    codes, groups = np.repeat(np.arange(6), 3), np.arange(18) // 2
    folds = fold_numbers(codes, 5, groups=groups)
    assert np.unique(folds).tolist() == [0, 1, 2]
    assert all(len(np.unique(folds[groups == g])) == 1 for g in range(9))
    with pytest.raises(InputError, match="every class has a single row"):
        fold_numbers(np.arange(6), 5, groups=np.arange(6))


def test_no_fold_is_empty():
    """Few groups of very different sizes."""
    sizes = np.array([400, 3, 2, 2, 1, 1])
    groups = np.repeat(np.arange(6), sizes)
    codes = np.random.default_rng(0).integers(0, 3, len(groups))
    for seed in range(5):
        folds = fold_numbers(codes, 5, groups=groups, seed=seed)
        assert np.bincount(folds).min() > 0
        assert folds.max() > 0
