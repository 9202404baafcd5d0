"""Softmax with its classes apart, the shards in this process: the points of one machine, whoever forgets meanwhile."""

from __future__ import annotations

import gc
import time

import numpy as np
import pytest
import scipy.sparse as sp

from kway.compute import threads
from kway.compute.cluster.crew import LocalCrew
from kway.errors import ClusterError
from kway.linear.losses import LOSSES, Targets
from kway.linear.objective.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.solvers.base import Control
from kway.linear.solvers.lbfgs import LBFGS
from kway.linear.solvers.shards import class_shards
from kway.linear.solvers.shards.class_shards import ClassSharded


@pytest.fixture(autouse=True)
def nobody_waits():
    """Whatever becomes of a fit, its members' threads end, and BLAS is let go."""
    yield
    gc.collect()  # errors that a test caught hold the members
    end = time.monotonic() + 20
    while threads._open and time.monotonic() < end:
        time.sleep(0.01)
    assert not threads._open


@pytest.fixture
def three(monkeypatch):
    """Three shards, here."""
    monkeypatch.setattr(class_shards, "n_nodes", lambda: 3)


def problem(seed, n=700, d=12, K=11, dtype=np.float64, sparse=False, weighted=True, bias=True, ridge=1e-4):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * rng.uniform(0.1, 10, size=d) * (rng.random((n, d)) < 0.3 if sparse else 1)
    y = (X @ rng.normal(size=(d, K)) / 5 + rng.gumbel(size=(n, K))).argmax(axis=1)
    X = sp.csr_matrix(X.astype(dtype)) if sparse else X.astype(dtype)
    weight = rng.random(n) + 0.1
    weight = (weight / weight.mean()).astype(dtype) if weighted else None
    return Objective(X, Targets(y.astype(np.int64)), K, LOSSES["softmax"].joint, Penalty(ridge), bias, weight)


CASES = [
    {},
    {"sparse": True},
    {"dtype": np.float32, "weighted": False},
    {"bias": False, "ridge": 1e-2},
    {"n": 5000, "d": 3, "K": 40, "sparse": True},  # a start on a sample
    {"n": 200, "d": 30, "K": 4},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_optimum_of_one_machine(three, case):
    objective = problem(0, **case)
    tol = 1e-6 if objective.X.dtype == np.float32 else 1e-9
    here = LBFGS().solve(objective, objective.zeros(), Control(tol=tol))
    apart = ClassSharded().solve(objective, objective.zeros(), Control(tol=tol))
    assert apart.converged
    assert objective.value(apart.theta) == pytest.approx(objective.value(here.theta), rel=2 * tol)
    assert apart.value == pytest.approx(objective.value(apart.theta), rel=tol)
    assert np.abs(apart.theta - here.theta).max() < 300 * tol**0.5


def test_a_warm_start_is_an_end(three):
    objective = problem(1)
    found = ClassSharded().solve(objective, objective.zeros(), Control(tol=1e-4))
    again = ClassSharded().solve(objective, found.theta, Control(tol=1e-4))
    assert again.n_iter <= found.n_iter
    assert again.value <= found.value * (1 + 1e-9)


class Forgetful(LocalCrew):
    """A member is made again now and then, as Ray does after a death: it has forgotten where it was."""

    often = 130

    def __init__(self, makers):
        super().__init__(makers)
        self.makers, self.asked, self.forgot = makers, 0, 0

    def ask(self, method, *arguments):
        self.asked += 1
        if method == "go_on" and self.asked % self.often == 0:
            self.members[self.forgot % 3] = self.makers[self.forgot % 3]()
            self.forgot += 1
        return super().ask(method, *arguments)


@pytest.mark.parametrize("folder", [False, True], ids=["held by the driver", "in files"])
def test_a_lost_shard_costs_the_current_step(three, monkeypatch, tmp_path, folder):
    monkeypatch.setattr(class_shards, "shared_folder", lambda: tmp_path if folder else None)
    objective = problem(2, n=5000, d=20)
    here = ClassSharded().solve(objective, objective.zeros(), Control(tol=1e-6))
    crews, values = [], []
    monkeypatch.setattr(class_shards, "make_crew", lambda makers: crews.append(Forgetful(makers)) or crews[-1])
    watched = Control(tol=1e-6, progress=lambda i, value: values.append((i, value)) and False)
    there = ClassSharded().solve(objective, objective.zeros(), watched)
    assert crews[0].forgot >= 2
    assert there.value == pytest.approx(here.value, rel=1e-6)
    steps = [i for i, _ in values]
    assert steps == sorted(set(steps))  # no step that was kept is taken twice
    assert there.n_iter <= (1.2 if folder else 4) * here.n_iter + 5  # files keep the pairs of L-BFGS, too
    assert not list(tmp_path.iterdir())  # what was kept goes when the fit is done


def test_a_lost_driver_goes_on_where_it_was(three, monkeypatch, tmp_path):
    monkeypatch.setattr(class_shards, "shared_folder", lambda: tmp_path)
    objective = problem(3, n=5000, d=20)
    whole = ClassSharded().solve(objective, objective.zeros(), Control(tol=1e-6))

    def die(iteration, value):
        if iteration == whole.n_iter // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ClassSharded().solve(objective, objective.zeros(), Control(tol=1e-6, progress=die))
    told = []
    control = Control(tol=1e-6, progress=lambda i, value: told.append(i) and False)
    found = ClassSharded().solve(objective, objective.zeros(), control)
    assert told[0] == whole.n_iter // 2 + 1
    assert found.value == pytest.approx(whole.value, rel=1e-6)
    assert found.history[: told[0]] == pytest.approx(whole.history[: told[0]], rel=1e-9)


def test_files_of_another_fit_are_left_alone(three, monkeypatch, tmp_path):
    monkeypatch.setattr(class_shards, "shared_folder", lambda: tmp_path)
    one, other = problem(4, ridge=1e-2), problem(5, ridge=1e-2)

    def die(iteration, value):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ClassSharded().solve(one, one.zeros(), Control(tol=1e-3, progress=die))
    left = {path.name for path in tmp_path.rglob("*")}
    monkeypatch.setattr(class_shards, "shared_folder", lambda: tmp_path)
    ClassSharded().solve(other, other.zeros(), Control(tol=1e-3))
    assert {path.name for path in tmp_path.rglob("*")} == left


def test_a_program_that_fails_says_so(three):
    objective = problem(6)
    broken = Objective(objective.X[:10], objective.targets, 11, objective.loss, objective.penalty)
    with pytest.raises((ValueError, IndexError, ClusterError)):
        ClassSharded().solve(broken, broken.zeros(), Control())
