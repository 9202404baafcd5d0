"""Every distance beside its formula: the space, the map into it, and the keys of a scan."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from kway.kernels import distances as kernels
from kway.search.distances import COSINE, DISTANCES, DOT, GREAT_CIRCLE, squares
from kway.search.pairwise import pairwise


def drawn(distance, n, seed):
    rng = np.random.default_rng(seed)
    if distance is GREAT_CIRCLE:
        return np.column_stack([rng.uniform(-1.5, 1.5, n), rng.uniform(-3.1, 3.1, n)])
    scale = 10.0 ** rng.uniform(-3, 3)
    return np.rint(3 * rng.normal(size=(n, 7))) * scale


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("distance", [d for d in DISTANCES if d.order], ids=str)
def test_the_gap_in_the_space_is_that_of_the_norm(distance, seed):
    q, x = drawn(distance, 30, seed), drawn(distance, 40, seed + 100)
    there = cdist(distance.place(q), distance.place(x), "minkowski", p=distance.order)
    expected = distance.gap(pairwise(q, x, distance.name))
    zero = (squares(q) == 0)[:, None] | (squares(x) == 0)
    if distance is COSINE:  # a zero row lies nearer than its distance of 1 says
        assert (there[zero] <= expected[zero]).all()
        there, expected = there[~zero], expected[~zero]
    np.testing.assert_allclose(there, expected, rtol=1e-7, atol=1e-7 * max(1, there.max()))
    assert distance.transforms_rows == (distance.place(q) is not q)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("distance", DISTANCES, ids=str)
def test_keys_grow_with_the_distance(distance, seed):
    q, x = drawn(distance, 20, seed), drawn(distance, 60, seed + 100)
    rows = distance.row_side(x)
    scale, offset = distance.key_form(0.5 * squares(rows))
    keys = scale * distance.tile(distance.query_side(q), rows) + offset
    true = pairwise(q, x, distance.name)
    order = np.argsort(true, axis=1, kind="stable")
    sorted_keys = np.take_along_axis(keys, order, axis=1)
    assert (np.diff(sorted_keys, axis=1) >= -1e-9 * (1 + np.abs(keys).max())).all()


@pytest.mark.parametrize("distance", DISTANCES, ids=str)
def test_what_a_distance_says_of_lengths_and_products_is_true(distance):
    both = drawn(distance, 80, 1)
    both = both[squares(both) > 0]
    q, x = both[:20], both[20:]
    here, longer, all_longer = (pairwise(*pair, distance.name) for pair in ((q, x), (3 * q, x), (3 * q, 2 * x)))
    ranked = np.allclose(np.take_along_axis(longer, here.argsort(1), 1), np.sort(longer, 1), rtol=1e-9, atol=1e-12)
    assert distance.by_direction == ranked
    assert distance.by_angle == np.allclose(here, all_longer, rtol=1e-9, atol=1e-12)
    tile = distance.tile(q, distance.row_side(x)) if distance.row_side(x) is x else here
    assert distance.by_products == np.allclose(tile, q @ x.T)


@pytest.mark.parametrize("distance", DISTANCES, ids=str)
def test_a_row_is_not_further_than_its_error_says(distance):
    x, q = drawn(distance, 50, 1), drawn(distance, 30, 2)
    instead = x + 1e-3 * np.random.default_rng(3).normal(size=x.shape) * np.abs(x).max()
    if distance.order == 0:
        if distance is DOT:
            gaps = np.abs(pairwise(q, x, "dot") - pairwise(q, instead, "dot"))
            limit = np.linalg.norm(q, axis=1)[:, None] * distance.errors(x, instead)
            assert (gaps <= limit * (1 + 1e-9) + 1e-9).all()
        return
    gaps = [distance.gap(pairwise(q, rows, distance.name)) for rows in (x, instead)]
    assert (gaps[1] - gaps[0] <= distance.errors(x, instead) + 1e-6 * gaps[0].max()).all()


def test_one_of_each():
    assert (
        len({type(d) for d in DISTANCES}) == len({d.name for d in DISTANCES}) == len({d.code for d in DISTANCES}) == 6
    )
    assert [d.name for d in DISTANCES if d.sparse] == ["euclidean", "cosine", "dot"]
    assert [d.name for d in DISTANCES if d.signed] == ["dot"]


@pytest.mark.parametrize("name", ["squared_gaps", "absolute_gaps"])
@pytest.mark.parametrize("kinds", [(np.float64, np.float64), (np.float64, np.float32), (np.float32, np.float64)])
def test_gaps_are_added_up_in_one_order(name, kinds):
    """Sixteen sums side by side, halves added to halves, then the columns that are left: ties depend on it."""
    added, rng = getattr(kernels, name), np.random.default_rng(0)
    for d in (1, 15, 16, 17, 31, 32, 33, 100, 785):
        q, x = (rng.normal(size=d).astype(kind) for kind in kinds)
        gaps = q.astype(np.float64) - x
        assert added(q, x) == sum_in_lanes(np.square(gaps) if name == "squared_gaps" else np.abs(gaps))


def sum_in_lanes(terms, lanes=16):
    full = len(terms) - len(terms) % lanes
    sums = terms[:full].reshape(-1, lanes).cumsum(axis=0)[-1] if full else np.zeros(lanes)
    while len(sums) > 1:
        sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
    total = float(sums[0])
    for term in terms[full:].tolist():
        total += term
    return total
