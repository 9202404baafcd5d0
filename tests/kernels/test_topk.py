"""Heaps of the k nearest against sorted lists, by (distance, id): pushed, merged, offered in blocks, settled."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kway.base.class_rows import best_columns, lift_winners
from kway.kernels.distances import COSINE, DOT, EUCLIDEAN, HAMMING, HAVERSINE, KEY, MANHATTAN, distance
from kway.kernels.topk import EMPTY, NO_ROW, measure, merge, offer, push, settle, threshold

pairs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30)), max_size=25, unique_by=lambda pair: pair[1])


def empty(k, q=1):
    return np.full((q, k), EMPTY), np.full((q, k), NO_ROW, np.int64)


def best(pairs, k):
    """The k least (distance, id), padded."""
    return (sorted((float(d), i) for d, i in pairs) + [(EMPTY, int(NO_ROW))] * k)[:k]


def settled(distances, ids):
    settle(distances, ids)
    return [list(zip(d.tolist(), i.tolist())) for d, i in zip(distances, ids)]


@settings(deadline=None, max_examples=80)
@given(pairs, st.integers(1, 7))
def test_pushed_pairs_are_the_least_of_all(pairs, k):
    distances, ids = empty(k)
    for at, (d, i) in enumerate(pairs):
        enters = (d, i) in best(pairs[: at + 1], k)
        assert push(distances[0], ids[0], float(d), np.int64(i)) == enters
        assert (distances[0, 0], ids[0, 0]) == best(pairs[: at + 1], k)[-1]  # the worst is on top
    assert settled(distances, ids) == [best(pairs, k)]


@settings(deadline=None, max_examples=60)
@given(pairs, pairs, st.integers(1, 6))
def test_merged_lists_are_the_least_of_both(some, others, k):
    others = [(d, i + 100) for d, i in others]
    lists = np.array([[d for d, _ in others] + [0.0, 0.0]]), np.array([[i for _, i in others] + [-1, NO_ROW]])
    distances, ids = empty(k)
    for d, i in some:
        push(distances[0], ids[0], float(d), np.int64(i))
    merge(distances, ids, *lists)  # of -1 and NO_ROW nothing is taken
    assert settled(distances, ids) == [best(some + others, k)]


def test_merge_takes_position_zero():
    distances, ids = empty(2)
    merge(distances, ids, np.array([[1.0, 2.0]]), np.array([[0, 5]]))
    assert settled(distances, ids) == [[(1.0, 0), (2.0, 5)]]


@pytest.mark.parametrize("code", [EUCLIDEAN, DOT, COSINE, MANHATTAN, HAMMING, KEY])
@pytest.mark.parametrize("c", [1, 31, 32, 33, 70])
def test_offered_blocks_leave_the_nearest(code, c):
    rng = np.random.default_rng(c)
    queries, rows = rng.integers(-3, 4, (4, 5)) + 0.5, rng.integers(-3, 4, (2 * c, 5)) + 0.5
    lengths = np.linalg.norm(rows, axis=1)
    exact = np.array([[distance(code if code != KEY else EUCLIDEAN, q, x) for x in rows] for q in queries])
    keys, scale, offset = {
        EUCLIDEAN: (queries @ rows.T, -np.ones(2 * c), lengths**2 / 2),
        DOT: (queries @ rows.T, -np.ones(2 * c), np.zeros(2 * c)),
        COSINE: (queries @ rows.T / np.linalg.norm(queries, axis=1)[:, None], -1 / lengths, np.zeros(2 * c)),
    }.get(code, (exact * (5 if code == HAMMING else 1), np.ones(2 * c), np.zeros(2 * c)))
    reach = 5.0 if code == HAMMING else lengths.max()
    which, norms = np.array([3, 1]), np.linalg.norm(queries, axis=1)
    distances, ids = empty(4, q=4)
    measured = 0
    for part in (slice(0, c), slice(c, 2 * c)):
        names = np.arange(2 * c)[part] + 7
        measured += offer(
            code, np.ascontiguousarray(keys[which][:, part]), scale[part], offset[part], queries, rows[part], names,
            which, norms, reach, 1e-12, 0.0, distances, ids,
        )  # fmt: skip
    found = settled(distances, ids)
    for w in which:
        wanted = best([(d, i + 7) for i, d in enumerate(exact[w])], 4)
        assert found[w] == wanted if code != KEY else [i for _, i in found[w]] == [i for _, i in wanted]
    assert found[0] == found[2] == best([], 4)  # these were not asked about
    assert measured == 0 if code == KEY else min(8, 4 * c) <= measured <= 4 * c
    if c == 70 and code in (EUCLIDEAN, DOT, MANHATTAN):
        assert measured < 3 * c  # most rows were left by their keys


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**31), st.integers(1, 6))
def test_keys_of_any_sign_are_offered_and_ties_go_to_the_lower_id(seed, k):
    """Keys are scale * product + offset, some equal to the k-th so far; ids come in any order."""
    rng = np.random.default_rng(seed)
    c = int(rng.integers(1, 90))
    products, scale, offset = (rng.integers(-3, 4, shape).astype(float) for shape in ((1, c), c, c))
    names = rng.permutation(c)
    distances, ids = empty(k)
    nothing = np.empty((c, 0))
    offer(
        KEY, products, scale, offset, np.empty((1, 0)), nothing, names, np.array([0]), np.zeros(1), 0.0, 0.0, 0.0,
        distances, ids,
    )  # fmt: skip
    assert settled(distances, ids) == [best(zip(scale * products[0] + offset, names.tolist()), k)]


@pytest.mark.parametrize("code", [EUCLIDEAN, DOT])
def test_what_float32_loses_below_its_range_keeps_no_row_out(code):
    """Products of values of 1e-23 vanish in float32: the key is 0, above what the true distance asks for."""
    row = np.array([1e-23, 1e-23])
    norm = np.linalg.norm(row)
    key = float(np.float32(row[0]) * np.float32(row[0]))
    assert key == 0
    assert key <= threshold(code, distance(code, row, row), norm, norm, 1e-6, 0.0)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**31), st.sampled_from([EUCLIDEAN, DOT, COSINE, MANHATTAN, HAVERSINE]), st.floats(0, 0.5))
def test_no_row_within_reach_has_a_key_above_the_threshold(seed, code, noise):
    """Keys of rows that are off by at most `noise`, in float64: the bound holds, and is no looser than its terms."""
    rng = np.random.default_rng(seed)
    d = 2 if code == HAVERSINE else 4
    q, x = rng.normal(size=d), rng.normal(size=d)
    off = rng.normal(size=d)
    blur = 0.0 if code == HAVERSINE else noise * (0.1 if code == COSINE else 1.0)
    size = np.abs(off).sum() if code == MANHATTAN else np.linalg.norm(off)
    scanned = x + blur * off / size * (np.linalg.norm(x) if code == COSINE else 1.0) * (0.5 if code == COSINE else 1.0)
    worst = distance(code, q, x)
    norm, reach = np.linalg.norm(q), max(np.linalg.norm(x), np.linalg.norm(scanned))
    key = {
        EUCLIDEAN: scanned @ scanned / 2 - q @ scanned,
        DOT: -(q @ scanned),
        COSINE: -(q @ scanned) / norm / np.linalg.norm(scanned),
        MANHATTAN: np.abs(q - scanned).sum(),
        HAVERSINE: 2 * np.sin(worst / 2) ** 2 - 1,
    }[code]
    limit = threshold(code, worst, norm, reach, 1e-12, blur)
    assert key <= limit
    if blur == 0:
        assert limit <= key + 1e-9 * (1 + abs(key))
    assert threshold(code, EMPTY, norm, reach, 1e-12, blur) == EMPTY


def test_the_slack_of_keys_is_in_the_unit_of_the_products():
    """worst, norm of the query, largest norm of a row, slack, blur."""
    assert threshold(DOT, 1.0, 2.0, 3.0, 0.1, 0.0) == pytest.approx(1 + 0.1 * 3 * 2)
    assert threshold(DOT, 1.0, 2.0, 3.0, 0.1, 0.5) == pytest.approx(1 + (0.3 + 0.5) * 2)
    assert threshold(EUCLIDEAN, 1.0, 2.0, 3.0, 0.1, 0.0) == pytest.approx((1 - 4) / 2 + 0.1 * 5**2)
    assert threshold(EUCLIDEAN, 1.0, 2.0, 9.0, 0.1, 0.0) == pytest.approx((1 - 4) / 2 + 0.1 * (2 + 3) ** 2)
    assert threshold(MANHATTAN, 2.0, 0.0, 0.0, 0.1, 0.5) == pytest.approx(2.5 * 1.1)
    assert threshold(COSINE, 0.25, 0.0, 0.0, 0.1, 0.5) == pytest.approx(-0.15)
    assert threshold(HAVERSINE, 9.0, 0.0, 0.0, 0.1, 0.0) == pytest.approx(1.1)  # half way round is the farthest


def test_hamming_thresholds_lie_between_whole_numbers():
    limit = threshold(HAMMING, 3 / 7, 0.0, 7.0, 0.0, 0.0)
    assert 3 < limit < 4


def test_measured_distances_and_nobody():
    rng = np.random.default_rng(0)
    queries, rows = rng.normal(size=(2, 3)), rng.normal(size=(4, 3))
    found, out = np.array([[0, 3, -1], [2, NO_ROW, 1]]), np.zeros((2, 3))
    measure(EUCLIDEAN, queries, rows, found, out)
    far = np.linalg.norm(queries[:, None] - rows[None], axis=2)
    np.testing.assert_allclose(out, [[far[0, 0], far[0, 3], EMPTY], [far[1, 2], EMPTY, far[1, 1]]])


# ---------------------------------------------------------------- tables of scores


WIDTHS = [
    (1, 1),
    (2, 1),
    (2, 2),
    (5, 2),
    (5, 5),
    (17, 16),
    (17, 17),
    (30, 17),
    (68, 17),
    (69, 17),
    (100, 25),
    (300, 20),
]


@pytest.mark.parametrize(("width", "k"), WIDTHS)
def test_best_columns_are_those_of_a_stable_sort(width, k):
    """Every way of finding them: one by one, by a sort, by a partition; with ties at the edge."""
    rng = np.random.default_rng(width)
    for levels in (2, 6, 10**6):
        table = rng.integers(0, levels, (40, width)).astype(np.float64)
        before = table.copy()
        found = best_columns(table, k)
        assert found.shape == (40, k)
        np.testing.assert_array_equal(found, np.argsort(-table, axis=1, kind="stable")[:, :k])
        np.testing.assert_array_equal(table, before)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_winners_are_lifted_by_one_step_and_nothing_else_moves(dtype):
    table = np.array([[0.5, 0.5, 0.0], [0.2, 0.7, 0.1], [0.4, 0.3, 0.3]], dtype)
    lifted = lift_winners(table.copy(), np.array([1, 1, 2]))
    assert lifted.argmax(axis=1).tolist() == [1, 1, 2]
    expected = table.copy()
    expected[0, 1] = np.nextafter(dtype(0.5), dtype(1))
    expected[2, 2] = np.nextafter(dtype(0.4), dtype(1))
    np.testing.assert_array_equal(lifted, expected)
