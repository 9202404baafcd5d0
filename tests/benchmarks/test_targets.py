"""Aims are found by target, set, job and peer."""

import pytest

from benchmarks import run, targets
from benchmarks.race import WITH_FIT, Row


def row(target, job, data, peer, unit="s"):
    return Row(target, job, data, peer, 1.0, 3.0, None, "same", unit=unit)


@pytest.mark.parametrize(
    ("target", "job", "data", "peer", "least"),
    [
        ("T1", "exact euclidean k=5", "mnist", "faiss Flat", 20),
        ("T1", "exact euclidean k=5", "mnist", "somebody", None),
        ("T1f", f"{WITH_FIT}exact euclidean k=5", "mnist", "faiss Flat", 8),
        ("T1f", f"{WITH_FIT}exact manhattan k=5", "mnist", "faiss Flat", None),
        ("T1f", f"{WITH_FIT}exact euclidean k=5", "banking77", "faiss Flat", 1.5),
        ("T3", "approximate, votes agree with exact", "mnist", "hnswlib", 7),
        ("T3", f"{WITH_FIT}approximate, votes agree with exact", "mnist", "hnswlib", 10),
        ("T3", f"{WITH_FIT}approximate, votes agree with exact", "mnist", "faiss IVFFlat", None),
        ("T3", "build", "clusters 1,000,000 x 64", "faiss IVFFlat", 1),
        ("T3b", "recall@5 >= 0.99", "clinc150", "SVS", 2),
        ("T3b", f"{WITH_FIT}recall@5 >= 0.99", "clinc150", "SVS", None),
        ("T4b", "softmax, alpha 0.0001", "letter", "intelex LogisticRegression", 2.5),
        ("T4b", "softmax, alpha 0.0001", "letter, standardized", "cyanure", 3),
        ("T4b", "softmax, alpha 0.0001", "letter, standardized", "intelex LogisticRegression", None),
        ("T4c", "softmax L1, alpha 0.001", "mnist 20,000 rows", "LogisticRegression(saga)", 50),
        ("T4e", "softmax, alpha 1e-06", "wide 60 x 10,000", "LogisticRegression(lbfgs)", 1),
    ],
)
def test_the_aim_of_a_row(target, job, data, peer, least):
    assert targets.aim(row(target, job, data, peer)) == least


def test_without_vnni_less_is_aimed_at():
    exact = row("T1", "exact euclidean k=5, 10,000 queries", "mnist", "faiss Flat")
    assert [targets.aim(exact, vnni) for vnni in (True, False)] == [20, 8]


def test_limits_and_slopes_keep_their_own():
    limit, slope = row("T11", "kway fit", "letter", "limit"), row("T10", "job", "n", "theory, at most", "slope")
    limit.least = 1
    assert [r.least for r in targets.aimed([limit, slope], vnni=True)] == [1, None]


def test_goals_are_those_of_jobs():
    assert {goal.target for goal in targets.GOALS} <= set(run.JOBS)


def test_a_goal_is_unmeasured_until_a_row_speaks_of_it():
    goals = targets.unmeasured([])
    assert len(goals) == len(targets.GOALS)
    assert len(targets.unmeasured([row("T6", "k", "mnist 20,000 rows", goals_peer("T6"))])) == len(goals) - 1


def goals_peer(target):
    return next(goal.peer for goal in targets.GOALS if goal.target == target)
