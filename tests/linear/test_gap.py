"""The duality gap bounds the excess over the minimum of a rounded hinge, wherever the point is."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

from kway import SVMClassifier
from kway.linear.losses import LOSSES, Targets, centered_kink
from kway.linear.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.solvers import lbfgs
from kway.linear.solvers.base import Control, Point
from kway.linear.solvers.preconditioners import quick_moments
from kway.linear.solvers.stopping import duality_gap, has_gap


def problem(form, dtype=np.float64, weighted=False, sparse=False, bias=True, ridge=0.02, seed=0):
    rng = np.random.default_rng(seed)
    n, d, K = 120, 6, 4
    y = rng.integers(0, K, n)
    X = (rng.standard_normal((K, d))[y] + rng.standard_normal((n, d)) + 2).astype(dtype)
    weight = rng.uniform(0.3, 2, n).astype(dtype) if weighted else None
    loss = centered_kink(getattr(LOSSES["hinge"], form), 0.3)
    return Objective(sp.csr_matrix(X) if sparse else X, Targets(y), K, loss, Penalty(ridge), bias, weight)


def minimum(objective):
    """By scipy, in float64."""
    shape = objective.zeros().shape
    exact = replace(objective, rows=objective.X.astype(np.float64))

    def call(theta):
        value, gradient = exact.value_gradient(exact.rows.with_layout(theta.reshape(shape)))
        return value, gradient.ravel()

    return minimize(call, np.zeros(np.prod(shape)), jac=True, options={"gtol": 1e-10, "maxiter": 5000}).fun


@pytest.mark.parametrize("form", ["joint", "columns"])
@pytest.mark.parametrize(
    "kind", [{}, {"dtype": np.float32}, {"weighted": True}, {"sparse": True}, {"bias": False}, {"ridge": 1e-4}], ids=str
)
def test_it_bounds_the_excess(form, kind):
    objective = problem(form, **kind)
    assert has_gap(objective)
    least, rng = minimum(objective), np.random.default_rng(1)
    near, pairs, factor = (
        [Point.at(objective, objective.zeros())],
        lbfgs.Pairs(),
        quick_moments(objective, None).shared(),
    )
    for _ in range(100):
        new = lbfgs.search_along(objective, near[-1], pairs.step(near[-1], factor))
        if new is None:
            break
        pairs.add(near[-1], new)
        near.append(new)
    for point in near[::4]:
        away = rng.standard_normal(point.theta.shape) * 10 ** -rng.uniform(1, 6)
        theta = point.theta + away.astype(point.theta.dtype)
        theta[:, -1] *= objective.fit_intercept
        point = Point.at(objective, objective.rows.with_layout(theta))
        assert point.value - least <= duality_gap(objective, point) + 1e-6 * least
    assert duality_gap(objective, near[-1]) < 1e-3 * least or "ridge" in kind  # it says something


def test_which_objectives_have_one():
    objective = problem("joint")
    assert has_gap(objective)
    assert has_gap(replace(objective, penalty=Penalty(0.1, 0.1)))
    assert not has_gap(replace(objective, penalty=Penalty()))
    assert not has_gap(replace(objective, loss=LOSSES["softmax-squared"].joint))


@pytest.mark.parametrize("multiclass", ["joint", "one-vs-all"])
def test_a_fit_that_closes_it_makes_no_products(multiclass, monkeypatch):
    """Products with the Hessian took ten times as long as the fit: a rounded hinge bends only near its kinks."""

    def no_products(*given):
        raise AssertionError("a proof by products")

    monkeypatch.setattr(lbfgs.stopping, "decrement", no_products)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 6000)
    X = (rng.standard_normal((5, 120))[y] * 0.3 + rng.standard_normal((6000, 120))).astype(np.float32)
    model = SVMClassifier(multiclass=multiclass, alpha=0.01, solver="lbfgs").fit(X, y)
    better = SVMClassifier(multiclass=multiclass, alpha=0.01, solver="lbfgs", tol=1e-4, max_iter=5000)
    monkeypatch.undo()
    better.fit(X.astype(np.float64), y)
    loss = LOSSES["hinge"].joint if multiclass == "joint" else LOSSES["hinge"].columns
    objective = Objective(X.astype(np.float64), Targets(y), 5, loss, Penalty(0.01))
    values = [objective.value(np.column_stack([m.coef_, m.intercept_]).astype(float)) for m in (model, better)]
    assert values[0] <= values[1] * (1 + 1e-3)


def test_a_joint_rounded_hinge_ends_with_a_proof():
    """It has no Hessian that Newton's method knows; an estimate ended 2.5 tol above the optimum, without a word."""
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((3000, 50)) @ rng.standard_normal((50, 50)) / 7).astype(np.float32)
    y = (X @ rng.standard_normal((50, 8)) + rng.standard_normal((3000, 8))).argmax(axis=1)
    objective = Objective(X, Targets(y), 8, LOSSES["rounded-hinge"].joint, Penalty(0.01))
    found = lbfgs.solve_smooth(objective, objective.zeros(), Control(), prove=True)
    assert found.proved
    assert found.value - minimum(objective) <= 1e-3 * found.value
