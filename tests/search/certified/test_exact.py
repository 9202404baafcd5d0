"""Attacks on the bounds: whatever the data, the answer is float64 brute force's."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.helpers.neighbors import bounded

from kway.search.certified import build as building
from kway.search.certified.build import SketchChoice
from kway.search.distances import EUCLIDEAN, MANHATTAN

DISTANCES = [EUCLIDEAN, MANHATTAN]


def forced(rows, distance, seed=0):
    index = bounded(rows, distance, seed, always=True)
    assert index is not None
    return index


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_battery(case, distance, dtype, check):
    rows, queries = (np.ascontiguousarray(part, dtype) for part in case)
    check(forced(rows, distance), rows, queries, distance, ks=(1, 5, 40, 300))


@pytest.mark.parametrize("distance", DISTANCES)
def test_battery_portable(case, distance, check, monkeypatch):
    monkeypatch.setenv("KWAY_PORTABLE", "1")
    rows, queries = (np.ascontiguousarray(part, np.float32) for part in case)
    index = forced(rows, distance)
    assert index.variant == 0
    check(index, rows, queries, distance, ks=(5,))


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 1.0])
def test_any_length_of_sketch(case, share, check, monkeypatch):
    """Lengths that no sample would choose: one coordinate, a few, half of them, all."""
    rows, queries = (np.ascontiguousarray(part, np.float32) for part in case)
    size = int(np.ceil(share * rows.shape[1]))
    monkeypatch.setattr(building, "choose_axes", lambda *_: SketchChoice(size, 0.0, 0.0, 1.0))
    check(forced(rows, EUCLIDEAN), rows, queries, EUCLIDEAN, ks=(5,))


@pytest.mark.parametrize("size", [1, 4, 8])
def test_any_size_of_group(case, size, check, monkeypatch):
    rows, queries = (np.ascontiguousarray(part, np.float32) for part in case)
    monkeypatch.setattr(building, "choose_groups", lambda *_: SketchChoice(size, 0.0, 0.0, 1.0))
    check(forced(rows, MANHATTAN), rows, queries, MANHATTAN, ks=(5,))


@pytest.mark.parametrize("distance", DISTANCES)
def test_rows_as_queries(case, distance, check):
    rows = np.ascontiguousarray(case[0], np.float32)
    check(forced(rows, distance), rows, rows[::70], distance, ks=(6,))


@st.composite
def problems(draw):
    """(rows, queries) of mixed character: rank, scales, offset, rounding that makes ties, repeated rows, odd sizes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, q, d = draw(st.integers(70, 600)), draw(st.integers(1, 20)), draw(st.integers(2, 70))
    rank = draw(st.integers(1, d))
    points = rng.standard_normal((n + q, rank)) @ rng.standard_normal((rank, d))
    points *= np.geomspace(1, draw(st.sampled_from([1, 1e-2, 1e-5])), d)
    points += draw(st.sampled_from([0, 0, 3, 1e4]))
    if draw(st.booleans()):
        points = np.round(points)
    if draw(st.booleans()):
        points = points[rng.integers(0, len(points) // 4, len(points))]
    points = points.astype(draw(st.sampled_from([np.float32, np.float64])))
    return points[:n], points[n:]


@pytest.mark.parametrize("distance", DISTANCES)
@given(problem=problems(), portion=st.floats(0, 1))
@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_problem(distance, check, problem, portion):
    rows, queries = problem
    index = bounded(rows, distance, always=True)
    if index is not None:  # None: rounding has left no spread
        check(index, rows, queries, distance, ks=(1, 1 + int(portion * (len(rows) - 1))))
