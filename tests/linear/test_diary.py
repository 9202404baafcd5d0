"""A descent over rows on a cluster, ended in the middle and begun again: it goes on behind its last step."""

from __future__ import annotations

import numpy as np
import pytest

from kway.errors import InputError
from kway.linear.losses import LOSSES, Targets
from kway.linear.objective.objective import Objective
from kway.linear.objective.on_cluster import ClusterObjective
from kway.linear.penalties import Penalty
from kway.linear.solvers import diary
from kway.linear.solvers.base import Control
from kway.linear.solvers.lbfgs import LBFGS


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Where the cluster keeps its files."""
    monkeypatch.setattr(diary, "shared_folder", lambda: tmp_path)
    return tmp_path


def problem(seed, n=5000, d=20, K=11):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = (X @ rng.normal(size=(d, K)) / 3 + rng.gumbel(size=(n, K))).argmax(axis=1)
    return ClusterObjective.of(Objective(X, Targets(y), K, LOSSES["softmax"].joint, Penalty(1e-6)))


def ended_at(objective, iteration):
    def die(at, value):
        if at == iteration:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LBFGS().solve(objective, objective.zeros(), Control(tol=1e-7, progress=die))


def test_a_fit_that_was_ended_goes_on(folder):
    objective = problem(0)
    whole = LBFGS().solve(objective, objective.zeros(), Control(tol=1e-7))
    assert not list(folder.iterdir())
    half = whole.n_iter // 2
    assert half > 2
    ended_at(objective, half + 1)  # told of a step before it is kept
    told = []
    control = Control(tol=1e-7, progress=lambda at, value: told.append(at) and False)
    found = LBFGS().solve(objective, objective.zeros(), control)
    assert told[0] == half + 1
    assert found.history[: half + 1] == pytest.approx(whole.history[: half + 1], rel=1e-9)
    assert objective.value(found.theta) == pytest.approx(objective.value(whole.theta), rel=1e-7)
    assert found.n_iter <= 1.3 * whole.n_iter + 3
    assert not list(folder.iterdir())


def test_other_rows_do_not_go_on_from_them(folder):
    ended_at(problem(1), 4)
    other = problem(2)
    told = []
    LBFGS().solve(other, other.zeros(), Control(tol=1e-3, progress=lambda at, value: told.append(at) and False))
    assert told[0] == 1


def test_a_torn_file_says_what_to_do(folder):
    objective = problem(3)
    ended_at(objective, 4)
    for file in folder.rglob("steps.json"):
        file.write_text("{")
    with pytest.raises(InputError, match="remove the folder"):
        LBFGS().solve(objective, objective.zeros(), Control(tol=1e-7))


def test_rows_here_keep_nothing(folder):
    objective = problem(4, n=300)
    plain = Objective(objective.X, objective.targets, 11, objective.loss, objective.penalty)
    ended_at(plain, 2)
    assert not list(folder.iterdir())
