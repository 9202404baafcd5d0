"""The pairs of L-BFGS against the matrix that they stand for, and what they become under another penalty."""

from itertools import pairwise

import numpy as np
import pytest

from kway.linear.solvers import lbfgs
from kway.linear.solvers.base import Point
from kway.linear.solvers.lbfgs import Pairs

R, D = 3, 5


def points(order, ridge=0.0, n=9, seed=0):
    """Points of a quadratic with a random Hessian, plus ridge on all but the bias (the last column)."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((R * D, R * D))
    hessian = root @ root.T / 10 + np.eye(R * D) / 10
    penalty = np.full((R, D), ridge)
    penalty[:, -1] = 0
    out = []
    for _ in range(n):
        theta = np.asarray(rng.standard_normal((R, D)), order=order)
        gradient = np.asarray((hessian @ theta.ravel()).reshape(R, D) + penalty * theta, order=order)
        out.append(Point(theta, 0.0, gradient, 0.0))
    return out


def filled(found):
    pairs = Pairs()
    for old, new in pairwise(found):
        pairs.add(old, new)
    return pairs


def bfgs(found, memory, factor):
    """H by the update formula, (R D, R D), from the last `memory` pairs."""
    steps = [(b.theta.ravel() - a.theta.ravel(), b.gradient.ravel() - a.gradient.ravel())
             for a, b in pairwise(found)][-memory:]  # fmt: skip
    s, y = steps[-1]
    H = np.diag(factor) * (s @ y) / (y @ (factor * y))
    for s, y in steps:
        V = np.eye(len(s)) - np.outer(y, s) / (s @ y)
        H = V.T @ H @ V + np.outer(s, s) / (s @ y)
    return H


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("memory", [4, 20])  # 8 pairs: more and fewer than that
def test_direction_is_the_matrix_of_the_updates_times_the_gradient(order, memory, monkeypatch):
    monkeypatch.setattr(lbfgs, "MEMORY", memory)
    found, rng = points(order), np.random.default_rng(1)
    scale = np.asarray(rng.random((R, D)) + 0.5, order=order)
    gradient = np.asarray(rng.standard_normal((R, D)), order=order)
    direction = filled(found).direction(gradient, lambda g: g * scale)
    expected = bfgs(found, memory, scale.ravel()) @ gradient.ravel()
    np.testing.assert_allclose(direction, expected.reshape(R, D), rtol=1e-9)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_change_of_the_ridge_is_exact(order):
    gradient = np.asarray(np.random.default_rng(1).standard_normal((R, D)), order=order)
    changed = filled(points(order, 0.5))
    changed.change_ridge(0.2 - 0.5)
    expected = filled(points(order, 0.2)).direction(gradient, np.copy)
    np.testing.assert_allclose(changed.direction(gradient, np.copy), expected, rtol=1e-9)


def test_a_step_without_curvature_is_not_kept():
    one, other = points("C")[:2]
    pairs = Pairs()
    pairs.add(one, Point(other.theta, 0.0, one.gradient - (other.theta - one.theta), 0.0))
    assert len(pairs) == 0
    np.testing.assert_array_equal(pairs.direction(one.gradient, lambda g: 2 * g), 2 * one.gradient)
