"""Sketches never overstate a distance: the inequality itself, in float64, with the slack they claim."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kway.search.certified.bounded_scan import make_cells
from kway.search.certified.sketches import (
    ManhattanSpace,
    correlated_groups,
    empty_sketch,
    euclidean_space,
    measure_frame,
    orthogonality_error,
)
from kway.search.principal_axes import leading_axes

SEEDS = st.integers(0, 2**32 - 1)


def _points(seed, offset, spread, dtype):
    """Rows with structure, an outlier and a pair that differs in one last digit."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(8, 150))
    points = np.cumsum(rng.standard_normal((200, d)), axis=1) * spread + offset
    points[rng.integers(200)] *= 1000
    points = points.astype(dtype)
    points[3] = points[4]
    points[3, 0] = np.nextafter(points[4, 0], dtype(np.inf))
    return points, rng


def _norms(gaps, distance):
    return np.sqrt((gaps**2).sum(-1)) if distance == "euclidean" else np.abs(gaps).sum(-1)


def _space(points, rng, distance):
    frame = measure_frame(points)
    d = points.shape[1]
    if distance == "manhattan":
        values = frame.place(points).values
        return ManhattanSpace(frame, correlated_groups(values[:100] - values[100:], 3), 8)
    axes = leading_axes(frame.place(points).values, d, rng)
    return euclidean_space(frame, np.ascontiguousarray(axes[:, : int(rng.integers(1, d + 1))]), points, rng)


@pytest.mark.parametrize("distance", ["euclidean", "manhattan"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(seed=SEEDS, offset=st.sampled_from([0.0, 1.0, 1e6]), spread=st.sampled_from([1.0, 1e-3, 1e10]))
@settings(deadline=None, max_examples=8)
def test_bounds(distance, dtype, seed, offset, spread):
    points, rng = _points(seed, offset, spread, dtype)
    space = _space(points, rng, distance)
    sketch = empty_sketch(len(points), space)
    space.sketch(points, sketch)
    wide = points.astype(np.float64)
    codes = space.encode(sketch.coarse, make_cells(sketch.coarse, rng).ids, 1)
    for i in range(0, 200, 9):
        true = _norms((wide - wide[i]) * space.frame.unit, distance)
        coarse = _norms(sketch.coarse.astype(np.float64) - sketch.coarse[i], distance)
        assert (coarse <= true + sketch.coarse_slack + sketch.coarse_slack[i]).all()
        if not space.widths[1]:
            continue
        slack = sketch.slack + sketch.slack[i]
        fine = sketch.fine.astype(np.float64) * (space.step if distance == "euclidean" else 1.0)
        assert (_norms(fine - fine[i], distance) <= true + slack).all()
    assert codes.error >= 0


def test_bounds_are_tight():
    points, rng = _points(5, 0.0, 1.0, np.float32)
    space = _space(np.delete(points, np.abs(points).max(1).argmax(), axis=0), rng, "euclidean")
    sketch = empty_sketch(len(points), space)
    space.sketch(points, sketch)
    size = np.sqrt((space.frame.place(points).values.astype(np.float64) ** 2).sum(1))
    assert (sketch.coarse_slack < 0.02 * size + 1e-9).all()  # a slack that swallows the distances would prune nothing
    assert (sketch.slack < 0.02 * size.max()).all()  # of bytes, which all have one step


def test_frame_clips_and_centers():
    rng = np.random.default_rng(0)
    points = rng.standard_normal((2000, 10)) + 1e6
    points[17] = 1e300
    frame = measure_frame(np.delete(points, 17, axis=0))
    placed = frame.place(points)
    assert np.abs(placed.values).max() <= frame.limit <= 1
    np.testing.assert_allclose(placed.values[:17], (points[:17] - frame.center) * frame.unit, rtol=1e-6)
    np.testing.assert_allclose(placed.squares, (placed.values.astype(float) ** 2).sum(1))
    np.testing.assert_allclose(placed.sizes, np.abs(placed.values.astype(float)).sum(1))


@pytest.mark.parametrize("value", [0.0, 3.5, 1e200])
def test_no_spread_no_frame(value):
    points = np.full((50, 9), value)
    points[0, 0] *= 1 if value < 1e100 else -1
    assert measure_frame(points) is None


def test_axes_are_orthonormal_beyond_the_full_decomposition():
    rng = np.random.default_rng(0)
    values = (rng.standard_normal((600, 40)) @ rng.standard_normal((40, 1500))).astype(np.float32)
    axes = leading_axes(values, 512, rng)
    assert axes.shape == (1500, 512)
    assert orthogonality_error(axes) < 1e-4
    kept = np.linalg.norm(values @ axes[:, :40]) / np.linalg.norm(values)
    assert kept > 0.999


def test_groups_find_features_that_move_together():
    rng = np.random.default_rng(0)
    base = rng.standard_normal((500, 4))
    signs = rng.choice([-1, 1], 16)
    mixed = (np.repeat(base, 4, axis=1) + 0.01 * rng.standard_normal((500, 16))) * signs
    groups = correlated_groups(mixed.astype(np.float32), 2)
    assert sorted(groups.columns) == list(range(16))
    for run in groups.columns.reshape(4, 4):
        assert len(set(run // 4)) == 1
    relative = groups.signs.reshape(4, 4) * signs[groups.columns].reshape(4, 4)
    assert (relative == relative[:, :1]).all()
