"""A fit without a ConvergenceWarning is within tol of its optimum: drawn problems against float64 bounds.

The default run is short; KWAY_PROBLEMS=2000 pytest -s -m slow tests/attack/test_optimum.py draws as many, and prints
what it found by loss, penalty and solver, and the worst times against scikit-learn.
"""

import os
from collections import Counter
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from optimum_attack.campaign import one, run, told
from optimum_attack.larger import draw_larger, judge_larger
from optimum_attack.optima import optimum
from optimum_attack.problems import Problem, draw
from optimum_attack.values import objective
from optimum_attack.verdicts import judge
from scipy.optimize import linprog
from sklearn.linear_model import LogisticRegression

from kway import LinearClassifier

SHORT = 60  # problems, about ten seconds


def report(verdicts):
    """Counts a kind of problem, and every miss."""
    tried = Counter("/".join(v.problem.kind) for v in verdicts)
    missed = Counter("/".join(v.problem.kind) for v in verdicts if v.silent_miss)
    warned = Counter("/".join(v.problem.kind) for v in verdicts if v.warned)
    lines = [f"{kind}: {tried[kind]} tried, {missed[kind]} missed, {warned[kind]} warned" for kind in sorted(tried)]
    return "\n".join([*lines, *(str(v) for v in verdicts if v.silent_miss)])


def test_no_fit_misses_its_optimum_silently():
    verdicts = [judge(draw(seed, least=True)) for seed in range(SHORT)]
    assert not [v for v in verdicts if v.silent_miss], report(verdicts)
    assert sum(v.warned for v in verdicts) <= SHORT // 6, report(verdicts)


def test_no_larger_fit_misses_silently():
    """Related columns of many scales under L1, up to 15 classes: more than the oracle can factor.

    181 by gradient descent, 21 tol above, was proved to be within by products that its diagonal alone preconditioned;
    607 by proximal steps ended 1.4 tol above, when estimates were all that it had.
    """
    verdicts = [judge_larger(draw_larger(seed)) for seed in (0, 181, 607, 714)]
    assert not [v for v in verdicts if v.silent_miss], report(verdicts)


@pytest.mark.slow
def test_no_larger_fit_misses_silently_in_the_long_run():
    found = run(partial(one, larger=True), range(300), os.cpu_count() or 1, np.inf, print)
    assert not [v["said"] for v in found if v["missed"]]


@pytest.mark.slow
def test_no_fit_misses_its_optimum_silently_in_the_long_run():
    seeds = range(int(os.environ.get("KWAY_PROBLEMS", "2000")))
    found = run(one, seeds, os.cpu_count() or 1, np.inf, print)
    told(found, len(seeds))
    assert len(found) == len(seeds)
    assert not [v["said"] for v in found if v["missed"]]


def test_a_rounding_that_is_all_tail_is_drawn_in():
    """Hinge and L1 in units of 1e11: rows far beyond their margins left no slope, and that was taken for a minimum."""
    found = judge(draw(1740))
    assert found.excess <= 1, str(found)
    assert not found.warned, str(found)


@pytest.mark.parametrize("penalty", ["l1", "elasticnet"])
def test_rows_beyond_the_kink_of_a_rounded_hinge_prove_nothing(penalty):
    """They have no curvature, so the Newton decrement called fits proved that were 4 times above the optimum."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(64, 5))
        y = (X[:, 0] + 0.3 * rng.normal(size=64) > 0).astype(int)
        options = {"loss": "rounded-hinge", "penalty": penalty, "l1_ratio": 0.3, "alpha": 1e-5}
        rough, exact = (LinearClassifier(tol=tol, **options) for tol in (1e-2, 1e-6))
        offset = sp.csr_matrix(X + 1e4 * rng.normal(size=5))
        assert rough.fit(offset, y).objective_ <= exact.fit(X, y).objective_ * 1.01, seed


# ---------------------------------------------------------------- the oracle itself


def problem(X, y, **options):
    defaults = {"loss": "softmax", "penalty": "l2", "alpha": 1e-2, "multiclass": "joint", "fit_intercept": True}
    return Problem(0, X, y, None, {**defaults, "tol": 1e-6, **options})


def rows(n=60, d=4, K=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (X[:, :K] + rng.normal(size=(n, K))).argmax(axis=1)


def test_the_oracle_agrees_with_scikit_learn():
    X, y = rows()
    peer = LogisticRegression(C=1 / (1e-2 * len(X)), tol=1e-10, max_iter=10_000).fit(X, y)
    p = problem(X, y)
    bounds = optimum(p)
    assert objective(p, peer.coef_, peer.intercept_) == pytest.approx(bounds.upper, rel=1e-6)
    assert bounds.lower == pytest.approx(bounds.upper, rel=1e-6)


@pytest.mark.parametrize("K", [2, 3])
def test_the_oracle_agrees_with_a_linear_program(K):
    X, y = rows(40, 4, K)
    p = problem(X, y, loss="hinge", penalty="l1")
    bounds = optimum(p)
    assert bounds.upper == pytest.approx(l1_hinge(p), rel=1e-5)
    assert bounds.lower <= l1_hinge(p) * (1 + 1e-9)


def l1_hinge(p):
    """min alpha sum (u + v) + mean of slacks; W = u - v, slack >= 1 - f_y + f_c (two classes: 1 - y f)."""
    X, y, K = np.column_stack([p.X, np.ones(len(p.X))]), p.y, int(p.y.max()) + 1
    n, D = X.shape
    R, pairs = (
        (1, [(i, 0) for i in range(n)]) if K == 2 else (K, [(i, c) for i in range(n) for c in range(K) if c != y[i]])
    )
    A = np.zeros((len(pairs), R, D))
    for at, (i, c) in enumerate(pairs):
        if K == 2:
            A[at, 0] = X[i] * (1 if y[i] else -1)
        else:
            A[at, y[i]] += X[i]
            A[at, c] -= X[i]
    A = A.reshape(len(pairs), R * D)
    weight = np.tile(np.append(np.full(D - 1, p.options["alpha"]), 0.0), R)
    cost = np.concatenate([weight, weight, np.full(len(pairs), 1 / n)])
    found = linprog(cost, A_ub=np.hstack([-A, A, -np.eye(len(pairs))]), b_ub=-np.ones(len(pairs)), method="highs")
    return found.fun


def test_units_and_sparse_rows_do_not_move_the_optimum_of_unpenalised_problems():
    X, y = rows(200, 3, 3)
    plain = optimum(problem(X, y, penalty="none", alpha=0.0)).upper
    scaled = sp.csr_matrix(X * [1e9, 1.0, 1e-9])
    assert optimum(problem(scaled, y, penalty="none", alpha=0.0)).upper == pytest.approx(plain, rel=1e-7)
