"""The comparison finds the right family, stops losers, keeps within its budget and reports what separate fits give."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits, make_classification
from sklearn.model_selection import cross_val_score

from kway.auto.fit_options import FAMILY_DESCRIPTIONS
from kway.auto.race.clock import Clock
from kway.auto.race.compare import compare
from kway.auto.race.families import CLASS_NUMBER, FAMILIES, LinearFamily
from kway.auto.race.folds import fold_numbers, split_test
from kway.auto.race.scoring import ACCURACY, FoldedRows, FoldScores, LeaderboardRow, Scan, in_order
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
    assert all("stopped after fold 1" in line.note for line in found.rows[1:])
    assert len(found.rows[1].fold_accuracy) == 1


def test_every_family_runs_on_two_and_on_three_classes():
    for classes in (2, 3):
        X, y = make_classification(150, 6, n_informative=4, n_redundant=0, n_classes=classes, random_state=0)
        dense = set(FAMILIES) - {"naive-bayes"}  # which is for counts of words
        found = compare(X, y, dense, folds=3)
        assert {line.model for line in found.rows} == dense
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
            assert [cells[-1] for cells in news.lines] == ["1 fold", "1 fold"]
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
    np.testing.assert_array_equal(test, again.test)
    assert sorted(np.concatenate([train, test])) == list(range(101))
    assert np.bincount(codes[test]).tolist() == [10, 6, 4]
    folds = fold_numbers(codes, 5)
    assert np.bincount(folds[codes < 3]).min() >= 19
    with pytest.raises(InputError, match="single row"):
        split_test(np.arange(4))


def test_no_fold_learns_from_the_rows_it_is_scored_on():
    """With hardly a penalty a start from another fold's weights, which have seen these rows, shows in the score."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 240)), rng.integers(0, 4, 120)
    family = LinearFamily("softmax", "SoftmaxClassifier", "softmax", alphas=(1e-7,))
    data = FoldedRows(X, y, np.arange(120) % 3, {})
    together = family.scan(data, [0, 1, 2], Clock()).accuracy
    alone = [family.scan(data._replace(cache={}), [fold], Clock()).accuracy[0] for fold in range(3)]
    np.testing.assert_array_equal(together, alone)


def test_a_family_that_cannot_weigh_classes_says_so():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 3)), np.r_[np.zeros(90, int), np.ones(30, int)]
    X[y == 1] += 1
    found = compare(X, y, models=["centroid", "softmax"], class_weight="balanced")
    notes = {line.model: line.note for line in found.rows}
    assert "class weights have no effect" in notes["centroid"]
    assert "class weights" not in notes["softmax"]
    assert not any("class weights" in line.note for line in compare(X, y, models=["centroid"]).rows)


def test_within_the_slack_the_lower_log_loss_decides():
    accuracy = np.array([[0.90, 0.899, 0.80], [0.92, 0.919, 0.80]])
    loss = np.array([[0.5, 0.3, 0.1]] * 2)
    settings = [{"n_neighbors": k} for k in (1, 5, 9)]
    assert Scan(settings, accuracy, loss, 0.0).best == 0
    assert Scan(settings, accuracy, loss, 0.0, slack=0.5).best == 1  # 0.001 below, of a standard error of 0.01
    assert Scan(settings, accuracy[:1], loss[:1], 0.0, slack=0.5).best == 0  # one fold has no error
    assert Scan(settings, accuracy, loss, 0.0, slack=0.5).joined(Scan(settings, accuracy, loss, 0.0)).slack == 0.5


def test_a_penalty_stronger_than_the_usual_one_has_to_be_better():
    settings, none = [{"alpha": a} for a in (3.0, 2.0, 1.0)], np.full((2, 3), np.nan)
    best = lambda accuracy: Scan(settings, np.array(accuracy), none, 0.0, slack=0.5, usual=1).best  # noqa: E731
    assert best([[0.90, 0.899, 0.80], [0.92, 0.919, 0.80]]) == 1  # 0.001 below, of a standard error of 0.01
    assert best([[0.90, 0.88, 0.80], [0.92, 0.90, 0.80]]) == 0
    assert best([[0.90, 0.899, 0.903], [0.92, 0.919, 0.92]]) == 2  # a weaker one need not
    one = Scan(settings, np.ones((2, 3)), none, 0.0, slack=0.5, usual=1)
    assert one.joined(one).usual == 1


def test_a_budget_looks_at_alphas_from_the_middle():
    data = FoldedRows(np.eye(20), np.arange(20) % 2, np.arange(20) % 5, {})
    scores = FoldScores(*np.full((4, 1, 11), np.nan))
    softmax = FAMILIES["softmax"]
    assert next(softmax._pieces(data, scores, False)) == list(range(11))
    pieces = softmax._pieces(data, scores, True)
    assert next(pieces) == [5]  # strong ones first would leave the weak ones out
    scores.accuracy[0, 5] = 0.6
    assert next(pieces) == [4, 6]
    scores.accuracy[0, [4, 6]] = [0.5, 0.7]
    assert next(pieces) == [7]
    scores.accuracy[0, 7] = 0.65
    assert next(pieces, None) is None


def test_which_trees_stand_beside_follows_from_the_size():
    from kway.auto.race.references import _trees

    def data(n, d, n_classes):
        return FoldedRows(np.zeros((n, d)), np.arange(n) % n_classes, np.arange(n) % 5, {})

    assert _trees(data(200, 10, 2), 0.5, 0).name == "HistGradientBoosting"
    forest = _trees(data(16_000, 16, 26), 0.3, 0)
    assert (forest.name, forest.folds, forest.setting) == ("ExtraTrees", 1, {"trees": 30, "rows": 10_000})
    assert "boosting would take" in forest.note
    assert _trees(data(700, 13, 11), 0.3, 0).folds == 4
    larger = _trees(data(60_000, 20, 5), 9.0, 0)  # a longer comparison has room for boosting, on some of the rows
    assert (larger.name, larger.setting, larger.rows) == ("HistGradientBoosting", {"rows": 10_000}, 10_000)
    assert len(larger._outside(data(60_000, 20, 5), 1)) == 10_000
    assert _trees(data(100, 300, 2), 0.5, 0) is None


def test_on_sparse_rows_svms_run_instead_of_similar_families():
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(12), 15)
    counts = rng.poisson(0.05, (len(codes), 120))
    counts[np.arange(len(codes)), 10 * codes + rng.integers(0, 3, len(codes))] += 4
    found = compare(sp.csr_matrix(counts.astype(np.float64)), codes)
    notes = {line.model: line.note for line in found.rows}
    first = {name: np.nanmax(scan.accuracy[0]) for name, scan in found.scans.items()}
    assert notes["svm-smooth"] == ""
    assert first["softmax"] <= first["svm-smooth"]  # easy rows: no one is better
    assert "stopped after fold 1" in notes["softmax"]
    assert f"no better than svm-smooth, a similar family, with {first['svm-smooth']:.3f}" in notes["softmax"]
    tried = np.isfinite(found.scans["softmax"].accuracy[0]).sum()
    assert (f"with {tried} of 11 settings" in notes["softmax"]) == (tried < 11)
    assert {"logistic", "least-squares", "perceptron", "svm"} <= set(found.skipped)
    assert all(
        "svm-smooth, as good on sparse rows and much faster" in found.skipped[name]
        for name in ("logistic", "perceptron")
    )
    states = compare(sp.csr_matrix(counts.astype(np.float64)), codes, metric="log-loss")
    assert {"logistic", "softmax"} <= {line.model for line in states.rows}  # SVMs give no probabilities


def test_a_lucky_fold_of_a_family_that_was_stopped_ranks_below_whole_scores():
    line = lambda model, folds, note="": LeaderboardRow(model, {}, np.mean(folds), 0.0, tuple(folds), None, 0.0, note)  # noqa: E731
    whole, less, lucky = line("a", [0.9, 0.8]), line("b", [0.8, 0.8]), line("c", [0.95], "stopped after fold 1 of 2")
    assert [s.model for s in in_order([lucky, less, whole], ACCURACY)] == ["a", "b", "c"]


def test_what_stands_beside_is_one_or_several_and_classifiers_all():
    from sklearn.linear_model import LinearRegression
    from sklearn.naive_bayes import GaussianNB

    X, y = load_digits(return_X_y=True)
    for also in ("trees", "sklearn.naive_bayes.GaussianNB", GaussianNB(), [GaussianNB]):
        assert len(compare(X[:200], y[:200], ["centroid"], folds=2, also=also).references) == 1
    for also in (LinearRegression(), "sklearn.linear_model.LinearRegression"):
        with pytest.raises(InputError, match="LinearRegression is none; pass one, such as"):
            compare(X[:200], y[:200], ["centroid"], folds=2, also=also)
