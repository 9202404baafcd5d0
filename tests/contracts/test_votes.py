"""One battery over every vote and tie rule, against votes counted slowly in Python."""

import itertools
import math

import numpy as np
import pytest

import kway
from kway.errors import CombinationError, InputError
from kway.neighbors.votes import (
    TIES,
    VOTES,
    Custom,
    best_classes_of_votes,
    class_votes,
    count_votes,
    dense,
    pick_ties,
    pick_vote,
    shares_of,
    take_weight,
)
from kway.search.metrics import METRICS, Gaussian, Laplacian, pick_metric

K = 4
COUNTS = np.array([3.0, 9.0, 9.0, 1.0])


def slow_weight(vote, metric, row):
    """Weights of one query's voters by their definition, in exact-ish Python floats."""
    if vote == "uniform":
        return [1.0 if math.isfinite(d) else 0.0 for d in row]
    if vote == "distance":
        if 0.0 in row:
            return [1.0 if d == 0 else 0.0 for d in row]
        return [1.0 / d if math.isfinite(d) else 0.0 for d in row]
    if vote == "callable":
        return [math.exp(-d) if math.isfinite(d) else 0.0 for d in row]
    similarity = {
        "cosine": lambda d: max(0.0, 1 - d),
        "dot": lambda d: max(0.0, -d),
        "gaussian": lambda d: math.exp(-(d**2) / 4.0),
        "laplacian": lambda d: math.exp(-d / 3.0),
    }[metric.name]
    return [similarity(d) if math.isfinite(d) else 0.0 for d in row]


def slow_tally(codes, weights, ties):
    """[(class, share)] best first."""
    voters = [(c, w) for c, w in zip(codes, weights) if c >= 0]
    if voters and sum(w for _, w in voters) == 0:
        voters = [(c, 1.0) for c, _ in voters]
    total = sum(w for _, w in voters)
    share = {c: sum(w for v, w in voters if v == c) / total for c, _ in voters}
    first = {c: [v for v, _ in voters].index(c) for c in share}
    key = {"nearest": first, "smallest": {c: c for c in share}, "prior": {c: (-COUNTS[c], c) for c in share}}[ties]
    return sorted(share.items(), key=lambda item: (-round(item[1], 9), key[item[0]]))


def voters(seed, q=300, k=6):
    """Sorted distances with exact ties, zeros, and missing voters; few classes, so that votes tie often."""
    rng = np.random.default_rng(seed)
    distances = np.sort(rng.integers(0, 5, (q, k)) / 4.0, axis=1)
    codes = rng.integers(0, K, (q, k))
    missing = np.arange(k) >= rng.integers(1, k + 1, (q, 1))
    return np.where(missing, np.inf, distances), np.where(missing, -1, codes)


METRICS_WITH_SIMILARITY = [METRICS["cosine"], METRICS["dot"], Gaussian(2.0), Laplacian(3.0)]
CASES = [
    *itertools.product(["uniform", "distance", "callable"], [METRICS["euclidean"]]),
    *itertools.product(["similarity"], METRICS_WITH_SIMILARITY),
]


def test_every_vote_has_a_case():
    assert set(VOTES) <= {vote for vote, _ in CASES}


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize(("vote", "metric"), CASES, ids=lambda v: getattr(v, "name", v))
def test_votes_are_those_counted_by_hand(vote, metric, ties):
    distances, codes = voters(seed=len(vote))
    if metric.name == "dot":
        distances = np.where(np.isfinite(distances), distances - 0.5, np.inf)
    rule = Custom(lambda d: np.exp(-d)) if vote == "callable" else pick_vote(vote)
    weights = shares_of(rule.weigh(distances, metric), codes >= 0)
    got = count_votes(codes, weights, pick_ties(ties, COUNTS))
    for i, (row, theirs) in enumerate(zip(distances, codes)):
        want = slow_tally(theirs, slow_weight(vote, metric, row.tolist()), ties)
        found = got.classes[i] >= 0
        assert got.classes[i][found].tolist() == [c for c, _ in want], (i, row, theirs)
        np.testing.assert_allclose(got.shares[i][found], [s for _, s in want], rtol=1e-12)
        assert (got.classes[i][~found] == -1).all()
        assert (got.shares[i][~found] == 0).all()


@pytest.mark.parametrize("vote", VOTES)
def test_votes_of_the_smallest_and_largest_distances_stay_finite(vote):
    metric = Gaussian(1e-3) if vote == "similarity" else pick_metric("euclidean")
    distances = np.array([[1e-300, 2e-300], [1e150, 2e150], [5.0, 6.0]])
    weights = VOTES[vote].weigh(distances, metric)
    assert np.isfinite(weights).all()
    assert (weights[:, 0] > 0).all()  # exp(-25e6) is 0 in float64: only log space keeps the nearest voter


@pytest.mark.parametrize("vote", VOTES)
def test_who_is_not_there_weighs_nothing_and_changes_nothing(vote):
    metric = Gaussian(1e-3) if vote == "similarity" else pick_metric("euclidean")
    weights = VOTES[vote].weigh(np.array([[5.0, 6.0, np.inf], [np.inf, np.inf, np.inf]]), metric)
    np.testing.assert_array_equal(weights[:, 2], 0)
    np.testing.assert_array_equal(weights[:1, :2], VOTES[vote].weigh(np.array([[5.0, 6.0]]), metric))
    np.testing.assert_array_equal(weights[1], 0)
    weights = Custom(lambda d: np.exp(-d) + 1).weigh(np.array([[0.0, np.inf]]), metric)
    np.testing.assert_array_equal(weights, [[2, 0]])


def test_distance_votes_are_refused_under_dot():
    with pytest.raises(CombinationError, match="negative"):
        VOTES["distance"].weigh(np.array([[-1.0, 2.0]]), METRICS["dot"])


@pytest.mark.parametrize("name", ["manhattan", "euclidean", "hamming", "haversine"])
def test_similarity_votes_are_refused_where_there_is_no_similarity(name):
    with pytest.raises(CombinationError, match="similarity"):
        VOTES["similarity"].weigh(np.ones((1, 2)), METRICS[name])


@pytest.mark.parametrize(
    ("function", "message"),
    [(lambda d: -d, "negative"), (lambda d: d[:, :1], "shape"), (lambda d: d / 0.0, "negative or infinite")],
)
def test_bad_functions_are_named(function, message):
    with np.errstate(divide="ignore"), pytest.raises(InputError, match=message):
        Custom(function).weigh(np.ones((2, 3)), METRICS["euclidean"])


def test_unknown_names_list_the_known():
    with pytest.raises(InputError, match="'uniform', 'distance', 'similarity'"):
        pick_vote("closest")
    with pytest.raises(InputError, match="'nearest', 'smallest', 'prior'"):
        pick_ties("random", COUNTS)


def test_dense_shares_have_the_winner_as_their_argmax_in_float32_too():
    distances, codes = voters(seed=5)
    for ties in TIES:
        weights = shares_of(VOTES["uniform"].weigh(distances, METRICS["euclidean"]), codes >= 0)
        votes = count_votes(codes, weights, pick_ties(ties, COUNTS))
        for dtype in (np.float32, np.float64):
            table = dense(votes, K, dtype)
            assert table.dtype == dtype
            np.testing.assert_array_equal(table.argmax(axis=1), votes.classes[:, 0])
            np.testing.assert_allclose(table.sum(axis=1), 1, rtol=1e-6)


def test_top_k_is_completed_with_classes_that_nobody_voted_for():
    votes = count_votes(np.array([[2, 2, -1]]), np.array([[0.5, 0.5, 0.0]]), pick_ties("nearest", COUNTS))
    best = best_classes_of_votes(votes, 6, COUNTS)
    assert best.classes.tolist() == [[2, 1, 0, 3, -1, -1]]
    assert best.shares.tolist() == [[1.0, 0, 0, 0, 0, 0]]


def test_classes_are_completed_after_the_first_class_and_after_nobody():
    codes, weights = np.array([[2, 0], [-1, -1]]), np.array([[0.75, 0.25], [0.0, 0.0]])
    best = best_classes_of_votes(count_votes(codes, weights, pick_ties("nearest", COUNTS)), 3, COUNTS)
    assert best.classes.tolist() == [[2, 0, 1], [1, 2, 0]]
    assert best.shares.tolist() == [[0.75, 0.25, 0], [0, 0, 0]]
    codes, weights = np.array([[2, 0, -1]]), np.array([[0.75, 0.25, 0.0]])
    best = best_classes_of_votes(count_votes(codes, weights, pick_ties("nearest", COUNTS)), 4, np.array([2, 4, 3, 1]))
    assert best.classes.tolist() == [[2, 0, 1, 3]]
    assert best.shares.tolist() == [[0.75, 0.25, 0, 0]]


def test_shares_sum_to_one_whatever_the_weights_sum_to():
    weights, voting = np.array([[3.0, 1.0, 9.0], [0.0, 0.0, 5.0]]), np.array([[True, True, False]] * 2)
    np.testing.assert_allclose(shares_of(weights, voting), [[0.75, 0.25, 0], [0.5, 0.5, 0]])
    votes = count_votes(np.array([[0, 1, 0]]), np.array([[3.0, 1.0, 4.0]]), pick_ties("nearest", COUNTS))
    np.testing.assert_allclose(votes.shares, [[0.875, 0.125, 0]])


def test_voters_count_until_k_rows_are_full_and_the_last_in_part():
    parts = take_weight(np.array([[2.0, 0.5, 4.0, 1.0], [1.0, 1.0, 0.0, 1.0]]), 3)
    assert parts.tolist() == [[2.0, 0.5, 0.5, 0.0], [1.0, 1.0, 0.0, 1.0]]
    parts = take_weight(np.array([[0.25, 0.5], [3.0, 3.0], [1.0, 1.5]]), 3)
    assert parts.tolist() == [[0.25, 0.5], [3.0, 0.0], [1.0, 1.5]]


def test_class_weights_of_a_name_and_of_a_dict():
    labels, counts = np.array(["a", "b", "c"]), np.array([3.0, 0.0, 1.0])
    assert class_votes(None, labels, counts) is None
    np.testing.assert_allclose(class_votes("balanced", labels, counts), [4 / 9, 0, 4 / 3])
    np.testing.assert_allclose(class_votes("balanced", labels, counts / 4), [4 / 9, 0, 4 / 3])  # of weighted rows
    np.testing.assert_array_equal(class_votes({"b": 0.0, "c": 2.5}, labels, counts), [1, 0, 2.5])
    for bad in (np.inf, np.nan, -1.0):
        with pytest.raises(InputError, match="class_weight of 'a'"):
            class_votes({"a": bad}, labels, counts)


def test_what_counts_as_equal_is_in_the_size_of_the_two_compared():
    codes, weights = np.array([[0, 1, 2]]), np.array([[1e15, 1.0, 2.0]])
    assert count_votes(codes, weights, pick_ties("nearest", COUNTS)).classes.tolist() == [[0, 2, 1]]


@pytest.mark.parametrize("ties", ["nearest", "smallest", "prior"])
def test_lists_never_rise_where_balanced_votes_of_all_rows_draw(ties):
    """Every class has the same share on paper; in digits the one that won the draw may have a rounding less."""
    rng = np.random.default_rng(0)
    for n_classes in (2, 3, 7):
        y = np.r_[np.arange(n_classes), rng.integers(0, n_classes, 60)]
        X = rng.normal(size=(len(y), 3))
        model = kway.NeighborsClassifier(len(y), class_weight="balanced", ties=ties).fit(X, y)
        labels, shares = model.predict_topk(X, n_classes)
        assert (np.diff(shares, axis=1) <= 0).all()
        np.testing.assert_array_equal(labels[:, 0], model.predict(X))
