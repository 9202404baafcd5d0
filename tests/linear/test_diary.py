"""A descent over rows on a cluster, ended in the middle and begun again: it goes on behind its last step."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from kway.data.outputs import atomic
from kway.errors import InputError
from kway.linear.losses import LOSSES, Targets
from kway.linear.objective.folder_rows import FolderObjective
from kway.linear.objective.objective import Objective
from kway.linear.objective.on_cluster import ClusterObjective
from kway.linear.penalties import Penalty
from kway.linear.solvers.base import Control
from kway.linear.solvers.gradient_descent import GradientDescent
from kway.linear.solvers.lbfgs import LBFGS
from kway.linear.solvers.proximal import Proximal
from kway.linear.solvers.shards import step_files
from kway.linear.solvers.shards.step_files import kept_steps, mark_of

SMALL = Penalty(1e-6)
# solver, loss, penalty, tol: every solver that asks shards for passes over their rows
DRIVERS = {
    "lbfgs": (LBFGS(), "softmax", SMALL, 1e-7),
    "lbfgs-hinge": (LBFGS(), "hinge", Penalty(1e-2), 1e-4),
    "proximal": (Proximal(), "softmax", Penalty(1e-6, 1e-3), 1e-7),
    "proximal-hinge": (Proximal(), "hinge", Penalty(1e-3, 1e-3), 1e-3),
    "gradient": (GradientDescent(), "logistic", Penalty(1e-2), 1e-7),
}


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Where the cluster keeps its files; nothing here lasts, so nobody waits for a disk."""
    monkeypatch.setattr(atomic, "_sync", lambda path: None)
    monkeypatch.setattr(step_files, "shared_folder", lambda: tmp_path)
    return tmp_path


def problem(seed, n=2000, d=12, K=7, loss="softmax", penalty=SMALL):
    n = n if LOSSES[loss].joint.smooth else n // 4  # a hinge takes hundreds of steps
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = (X @ rng.normal(size=(d, K)) / 3 + rng.gumbel(size=(n, K))).argmax(axis=1)
    return ClusterObjective.of(Objective(X, Targets(y), K, LOSSES[loss].joint, penalty))


def solved(solver, objective, tol):
    """The solution, and the iterations that were told of: one a pass over the rows, or nearly."""
    told = []
    found = solver.solve(objective, objective.zeros(), Control(tol=tol, progress=lambda *at: told.append(at) and False))
    return found, told


def ended_at(objective, step, solver=DRIVERS["lbfgs"][0], tol=1e-7):
    """Ended when it tells of its n-th step, which is before it keeps it."""
    told = []

    def die(*at):
        told.append(at)
        if len(told) == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solver.solve(objective, objective.zeros(), Control(tol=tol, progress=die))


@pytest.mark.parametrize("name", DRIVERS)
@pytest.mark.parametrize("share", [0.3, 0.8])
def test_a_fit_that_was_ended_goes_on(folder, name, share):
    solver, loss, penalty, tol = DRIVERS[name]
    objective = problem(0, loss=loss, penalty=penalty)
    whole, steps = solved(solver, objective, tol)
    assert not list(folder.iterdir())
    end = max(3, int(share * len(steps)))
    ended_at(objective, end, solver, tol)
    assert list(folder.iterdir())
    found, told = solved(solver, objective, tol)
    assert found.converged
    assert objective.value(found.theta) == pytest.approx(objective.value(whole.theta), rel=2 * tol)
    assert told[0][0] == steps[end - 1][0] - (solver.name == "proximal" and steps[end - 1][0] > 1)
    assert told[0][1] <= steps[end - 2][1] * (1 + 1e-12)
    lost = 2.5 if name == "proximal-hinge" else 1.3  # momentum is not kept, and a narrow kink needs it most
    assert end + len(told) <= lost * len(steps) + 6
    assert not list(folder.iterdir())


def test_a_second_end_and_one_between_a_point_and_its_value(folder, monkeypatch):
    for name in ("lbfgs", "proximal", "gradient"):
        solver, loss, penalty, tol = DRIVERS[name]
        objective = problem(1, loss=loss, penalty=penalty)
        whole, _ = solved(solver, objective, tol)
        for _ in range(2):
            ended_at(objective, 4, solver, tol)
        before = len(steps_kept(folder))
        with monkeypatch.context() as torn:
            torn.setattr(step_files.StepsFile, "add", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                solved(solver, objective, tol)
        assert len(steps_kept(folder)) == before > 3
        found, told = solved(solver, objective, tol)
        assert objective.value(found.theta) == pytest.approx(objective.value(whole.theta), rel=2 * tol)
        assert told[0][0] > 3


def steps_kept(folder):
    return json.loads(next(folder.rglob("steps.json")).read_text())["history"]


def test_other_fits_do_not_go_on_from_them(folder):
    ended_at(problem(1), 4)
    _, told = solved(LBFGS(), problem(2), 1e-3)
    assert told[0][0] == 1
    _, told = solved(Proximal(), problem(1), 1e-7)  # the same rows, another solver
    assert told[0][0] == 1


def test_a_mark_tells_rows_labels_weights_and_settings_apart():
    rng = np.random.default_rng(5)
    one = problem(5, n=400)
    X, codes = one.X.copy(), one.targets.codes.copy()
    X[7, 3] += 1e-6
    codes[200] = (codes[200] + 1) % 7
    others = [
        replace(one, X=X),
        replace(one, targets=Targets(codes)),
        replace(one, weight=rng.random(400)),
        replace(one, penalty=Penalty(1e-5)),
        replace(one, fit_intercept=False),
        replace(one, loss=replace(one.loss, margin=0.5)),
        replace(one, loss=replace(one.loss, width=0.5)),
    ]
    marks = {mark_of(o, 1e-3, "lbfgs") for o in (one, *others)}
    marks |= {mark_of(one, 1e-4, "lbfgs"), mark_of(one, 1e-3, "proximal")}
    assert len(marks) == len(others) + 3
    assert mark_of(replace(one, X=one.X.copy()), 1e-3, "lbfgs") in marks


def test_a_folder_is_told_from_others_by_all_of_its_rows_however_many_hold_them():
    one = problem(6, n=600)

    def folder_of(shards, X):
        from kway.compute.cluster.crew import LocalCrew
        from kway.linear.objective.on_cluster import RowShard

        def shard(run):
            return RowShard(Objective(X[run], Targets(one.targets.codes[run]), 7, one.loss, Penalty()))

        cuts = np.array_split(np.arange(600), shards)
        crew = LocalCrew([lambda run=run: shard(run) for run in cuts])
        some = one.some(50)
        facts = (some.X, some.targets, 7, one.loss, one.penalty)
        return FolderObjective(*facts, crew=crew, n_rows=600)

    marks = [mark_of(folder_of(shards, one.X), 1e-3, "lbfgs") for shards in (1, 2, 3, 5)]
    assert len(set(marks)) == 1
    changed = one.X.copy()
    changed[599, 0] += 1e-3
    assert mark_of(folder_of(3, changed), 1e-3, "lbfgs") != marks[0]


@pytest.mark.parametrize(
    ("torn", "name"), [("steps.json", "lbfgs"), ("*step-2.npy", "lbfgs"), ("end.npz", "lbfgs-hinge")]
)
def test_a_torn_file_says_what_to_do(folder, torn, name):
    solver, loss, penalty, tol = DRIVERS[name]
    objective = problem(3, loss=loss, penalty=penalty)
    _, steps = solved(solver, objective, tol)
    ended_at(objective, 4 if loss == "softmax" else len(steps), solver, tol)
    file = next(folder.rglob(torn))
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(InputError, match="remove the folder"):
        solved(solver, objective, tol)


def test_two_runs_of_one_fit_at_once_both_end_well(folder):
    objective = problem(4)
    alone, _ = solved(LBFGS(), objective, 1e-7)
    others = []

    def meanwhile(at, value):
        if at == 3 and not others:
            others.append(LBFGS().solve(objective, objective.zeros(), Control(tol=1e-7)))  # and takes its files away
        return False

    found = LBFGS().solve(objective, objective.zeros(), Control(tol=1e-7, progress=meanwhile))
    for one in (found, *others):
        assert objective.value(one.theta) == pytest.approx(objective.value(alone.theta), rel=1e-7)
    assert not list(folder.iterdir())


def test_rows_here_keep_nothing(folder):
    objective = problem(4, n=300)
    plain = Objective(objective.X, objective.targets, 7, objective.loss, objective.penalty)
    with kept_steps(plain, Control(), "lbfgs") as kept:
        assert kept == Control(rng=kept.rng)
    ended_at(plain, 2)
    assert not list(folder.iterdir())
