"""Pairs of queries and cells: groups hold every pair once, and no cell with a near row is passed over."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kway
from kway.kernels.jit import frozen
from kway.search import Landmarks
from kway.search.cells import CellBounds, Projected, by_cell, single_groups
from kway.search.distances import COSINE, EUCLIDEAN, GREAT_CIRCLE


@given(st.integers(0, 2**31), st.integers(1, 9), st.integers(1, 6))
@settings(max_examples=30, deadline=None)
def test_groups_hold_every_pair_once(seed, q, n_cells):
    rng = np.random.default_rng(seed)
    cells = np.argsort(rng.random((q, n_cells)), axis=1)[:, : rng.integers(1, n_cells + 1)]
    cells = np.where(rng.random(cells.shape) < 0.3, n_cells, cells)  # left out
    starts, names, pairs = by_cell(cells, n_cells)
    grouped = {(query, names[g]) for g in range(len(names)) for query in pairs[starts[g] : starts[g + 1]]}
    assert grouped == {(i, c) for i, row in enumerate(cells) for c in row if c < n_cells}
    assert len(pairs) == (cells < n_cells).sum()


def test_one_by_one_keeps_the_order():
    starts, cells, pairs = single_groups(np.array([[4, 2], [0, 3]]))
    assert starts.tolist() == [0, 1, 2, 3, 4]
    assert cells.tolist() == [4, 2, 0, 3]
    assert pairs.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("nearest", [False, True])
@pytest.mark.parametrize("distance", [EUCLIDEAN, COSINE, GREAT_CIRCLE], ids=str)
def test_no_cell_with_a_nearer_row_is_passed_over(distance, nearest):
    rng = np.random.default_rng(0)
    rows, queries, marks = (rng.normal(size=(n, 3)).astype(np.float32) for n in (400, 50, 24))
    if distance.transforms_rows:
        rows, queries = (a / np.linalg.norm(a, axis=1, keepdims=True) for a in (rows, queries))
    to_rows, to_marks = (np.linalg.norm(queries[:, None] - a, axis=2) for a in (rows, marks))  # (q, n), (q, c)
    cells = np.linalg.norm(rows[:, None] - marks, axis=2).argmin(axis=1)
    if not nearest:  # rows anywhere: balls alone may tell
        cells = rng.permutation(cells)
    radii = np.array([np.linalg.norm(rows[cells == c] - marks[c], axis=1).max(initial=0) for c in range(24)])
    chord = np.quantile(to_rows, 0.02, axis=1).astype(np.float64)  # the worst so far of each query
    worst = {"euclidean": chord, "cosine": chord**2 / 2, "haversine": 2 * np.arcsin(chord / 2)}[distance.name]
    bounds = CellBounds(
        distance, frozen(marks), radii.astype(np.float32), float(np.linalg.norm(rows, axis=1).max()), nearest
    )
    short = np.concatenate([queries, np.zeros((50, 1), np.float32)], axis=1)
    projected = Projected(short, np.empty((50, 0), np.float32), np.linalg.norm(queries, axis=1).astype(np.float64))
    order = np.argsort(to_marks, axis=1)
    keys = np.take_along_axis(0.5 * (to_marks**2 - (queries**2).sum(axis=1, keepdims=True)), order, axis=1)
    ring = slice(2, None)
    far = bounds.skip_far(ring, order, keys, projected, worst) == 24
    near = [to_rows[:, cells == c].min(axis=1, initial=np.inf) for c in range(24)]  # (c, q)
    nearer = np.take_along_axis(np.stack(near, axis=1), order, axis=1)[:, ring]
    assert (nearer[far] > np.broadcast_to(chord[:, None], far.shape)[far]).all()
    possible = (nearer > chord[:, None]).mean()
    assert far.mean() > (0.7 * possible if nearest else 0)  # it does pass over most that it may


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "dot", "haversine"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_number_of_probes_from_one_search(metric, dtype):
    """What one search says of p probes is what a search with p probes finds; all cells find what brute force finds."""
    rng = np.random.default_rng(1)
    centers = rng.normal(size=(12, 2 if metric == "haversine" else 20)) * 4
    X = np.concatenate([c + 0.3 * rng.normal(size=(60, len(c))) for c in centers])
    X = np.concatenate([X, X[:40]])  # rows that are equal
    X, Q = X.astype(dtype), (X[::9] + 0.1 * rng.normal(size=X[::9].shape)).astype(dtype)
    if metric == "haversine":
        X, Q = X / 20, Q / 20
    index = Landmarks(n_landmarks=30).build(X, metric)
    steps = [1, 2, 5, 12, 30]
    for step, probed in zip(steps, index.nearest_by_probes(Q, 7, steps)):
        alone = index.nearest(Q, 7, probes=step)
        np.testing.assert_array_equal(probed.neighbors.ids, alone.ids)
        np.testing.assert_array_equal(probed.neighbors.distances, alone.distances)
    truth = kway.search.Flat().build(X, metric).nearest(Q, 7)
    np.testing.assert_array_equal(probed.neighbors.ids, truth.ids)


def test_cells_with_few_rows_look_further():
    X = np.concatenate([np.zeros((3, 2)), np.full((40, 2), 9.0) + np.arange(40)[:, None]])
    index = Landmarks(n_landmarks=2).build(X)
    first, _ = index.nearest_by_probes(np.zeros((4, 2)), 5, [1, 2])
    assert (first.neighbors.ids >= 0).all()
