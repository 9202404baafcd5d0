import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.metrics import roc_auc_score

from kway.confidence.impostors import ImpostorStudy, ImpostorTrial, auroc, reject_threshold, summarize, upper_bound
from kway.confidence.splits import LabeledRows
from kway.labels import Labels


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=20), st.lists(st.integers(0, 6), min_size=1, max_size=20))
def test_auroc_is_scikit_learns(known, impostors):
    truth = roc_auc_score([1] * len(known) + [0] * len(impostors), known + impostors)
    assert auroc(np.array(known), np.array(impostors)) == pytest.approx(truth)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 50), st.integers(1, 50), st.sampled_from([0.9, 0.95, 0.99]))
def test_the_bound_is_exact(count, n, confidence):
    count = min(count, n)
    interval = binomtest(count, n, alternative="less").proportion_ci(confidence, method="exact")
    assert upper_bound(count, n, confidence) == pytest.approx(interval.high)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 20), min_size=0, max_size=60), st.sampled_from([0.01, 0.05, 0.1, 0.3]))
def test_at_most_the_rate_of_exchangeable_rows_is_rejected(values, rate):
    """Each of m + 1 rows in turn plays the new one, the others are held out: the exact promise, ties included."""
    scores = np.array(values, np.float64)
    rejected = [scores[i] < reject_threshold(np.delete(scores, i), rate) for i in range(len(scores))]
    assert sum(rejected) <= rate * len(scores) + 1e-9


def test_the_threshold_uses_the_whole_rate():
    assert reject_threshold(np.arange(19.0), 0.05) == 0  # (19 + 1) 5 % = 1
    assert reject_threshold(np.arange(18.0), 0.05) == -np.inf
    assert reject_threshold(np.arange(199.0), 0.05) == 9


@pytest.mark.parametrize(
    ("n_classes", "n_groups", "sizes"),
    [(2, 5, []), (3, 5, [1, 1, 1]), (4, 1, [2, 2]), (12, 5, [3, 3, 2, 2, 2]), (9, 0, [])],
)
def test_every_class_is_left_out_once_and_two_stay(n_classes, n_groups, sizes):
    labels = Labels(np.arange(n_classes), np.arange(n_classes))
    groups = ImpostorStudy(LabeledRows(None, labels), None, None, [], 0.1, np.random.RandomState(0)).class_groups(
        n_groups
    )
    assert [len(group) for group in groups] == sizes
    if groups:
        assert sorted(np.concatenate(groups)) == list(range(n_classes))


def test_a_summary_counts_and_names_the_worst():
    trials = [
        ImpostorTrial(np.array([5.0, 6.0]), np.array([1.0, 7.0, 2.0]), np.array(["a", "b", "a"]), 2.0),
        ImpostorTrial(np.array([5.0, 6.0]), np.array([0.0, 0.0]), np.array(["c", "c"]), 2.0),
    ]
    found = summarize("energy", "classes left out", trials, 0.95)
    assert (found.accepted, found.n_impostors, found.share) == (2, 5, 0.4)
    assert (found.worst_class, found.worst_share) == ("b", 1.0)
    assert found.auroc == pytest.approx((4 / 6 + 1) / 2)
    assert found.bound == pytest.approx(upper_bound(2, 5, 0.95))
    assert str(found).startswith(
        "40.0% of 5 impostors (classes left out) were accepted; of more rows of these same impostors at most 81.1% will"
    )
    assert "nothing is guaranteed about others" in str(found)
