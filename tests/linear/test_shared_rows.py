"""Many machines on shared sparse rows: the same optimum as one machine at a time."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from kway.linear.losses import LOSSES, Targets
from kway.linear.objective.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.solvers.base import Control
from kway.linear.solvers.lbfgs import LBFGS
from kway.linear.solvers.registry import auto
from kway.linear.solvers.solver_at_work import Work
from kway.linear.solvers.svm.dual import Dual
from kway.linear.solvers.svm.shared_rows import SharedMachines, shares_rows
from kway.linear.solvers.svm.sweeps import Sweeps


def problem(seed, n=300, d=80, K=7, C=1.0, intercept=True, weighted=False):
    rng = np.random.default_rng(seed)
    codes = rng.integers(K, size=n)
    codes[:K] = np.arange(K)
    likely = rng.random((K, d)) < 0.15
    X = sp.csr_matrix((rng.random((n, d)) < np.where(likely[codes], 0.5, 0.05)) * rng.lognormal(size=(n, d)))
    X = X.astype(np.float32)
    weight = rng.random(n).astype(np.float32) + 0.5 if weighted else None
    if weight is not None:
        weight /= weight.mean()
    form = LOSSES["hinge"].columns
    penalty = Penalty(ridge=1 / (n * C))
    return Objective(X, Targets(codes), K, form, penalty, intercept, weight, n_jobs=2)  # groups as on two cores


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("intercept", [True, False])
def test_same_optimum_as_one_at_a_time(seed, intercept):
    objective = problem(seed, K=4 + 5 * seed, C=10.0 ** (seed - 2), intercept=intercept, weighted=seed % 2 == 1)
    assert shares_rows(objective)
    machines = SharedMachines(objective)
    machines.sweep(400)
    best = Dual().solve(objective, objective.zeros(), Control(tol=1e-6, max_iter=100_000))
    value, least = objective.value(machines.theta()), objective.value(best.theta)
    assert least * (1 - 1e-5) <= value <= least * (1 + 2e-3)
    if intercept:
        assert max(float(np.abs(group.s).max() / (group.a.sum() + 1e-9)) for group in machines.groups) < 1e-3
    else:
        assert not machines.theta()[:, -1].any()


def test_goes_on_under_another_penalty():
    objective = problem(9, C=0.1)
    machines = SharedMachines(objective)
    machines.sweep(50)
    machines.change_ridge(objective.penalty.ridge / 30)
    machines.sweep(300)
    fresh = SharedMachines(machines.objective)
    fresh.sweep(300)
    assert machines.objective.value(machines.theta()) == pytest.approx(fresh.objective.value(fresh.theta()), rel=2e-3)
    machines.change_ridge(objective.penalty.ridge)  # back to smaller boxes
    machines.sweep(100)
    assert all((group.a <= machines.upper[:, None]).all() for group in machines.groups)


def test_groups_do_not_change_the_answer(monkeypatch):
    from kway.linear.solvers.svm import shared_rows

    objective = problem(3, K=11)
    whole = SharedMachines(objective)
    whole.sweep(200)
    monkeypatch.setattr(shared_rows, "WIDEST_GROUP", 2)
    cut = SharedMachines(objective)
    assert len(cut.groups) > len(whole.groups)
    cut.sweep(200)
    np.testing.assert_allclose(cut.theta(), whole.theta(), atol=0.02 * np.abs(whole.theta()).max())


@pytest.mark.parametrize("K", [1, 5, 12])
@pytest.mark.parametrize("intercept", [True, False])
def test_sweeps_of_a_rounded_hinge_prove_how_near_the_optimum_of_lbfgs_they_are(K, intercept):
    """K = 1: two classes, whose one machine is the second's."""
    sharp = problem(K, K=max(2, K), C=10.0 ** (K % 3 - 1), intercept=intercept, weighted=K == 5)
    exact = replace(sharp, X=sharp.X.astype(np.float64), n_scores=K)
    objective = exact.with_loss(LOSSES["rounded-hinge"].columns)
    least = LBFGS().solve(objective, objective.zeros(), Control(tol=1e-10, max_iter=5000))
    optimum = objective.value(least.theta)
    for tol in (1e-1, 1e-6):
        found = Sweeps().solve(objective, objective.zeros(), Control(tol=tol, max_iter=20_000))
        value = objective.value(found.theta)
        assert found.converged
        assert found.proved
        assert optimum * (1 - 1e-9) <= value <= optimum * (1 + tol)
        assert value * (1 - found.miss) <= optimum * (1 + 1e-9)  # what is proved of the optimum is true


def test_sweeps_that_are_too_few_say_so():
    objective = problem(2, C=100.0).with_loss(LOSSES["rounded-hinge"].columns)
    found = Sweeps().solve(objective, objective.zeros(), Control(tol=1e-6, max_iter=5))
    assert not found.converged
    assert "max_iter" in found.advice


def test_auto_sweeps_rows_that_are_sparse_and_wide():
    wide = problem(0, n=2000, d=3000).with_loss(LOSSES["rounded-hinge"].columns)
    assert auto(wide).name == "sweeps"
    assert auto(replace(wide, X=wide.X[:, :400])).name == "lbfgs"
    assert auto(replace(wide, X=wide.X.toarray())).name == "lbfgs"
    assert auto(replace(wide, penalty=Penalty())).name == "lbfgs"
    assert auto(replace(wide, n_scores=1 << 18)).name == "lbfgs"  # two gigabytes of dual variables


def test_sparse_rows_that_are_swept_stay_sparse():
    """Fewer of them than columns: in the columns of their span they would be dense, and fits a hundred times dearer."""
    few = problem(0, n=600, d=3000).with_loss(LOSSES["rounded-hinge"].columns)
    work = Work.on(few, "auto")
    assert work.solver.name == "sweeps"
    assert work.objective is few
