"""The goals: the least ratio peer / kway by target, dataset and peer; None if there is no goal.

    goals("T1", "mnist", {"faiss Flat": 20})        20 times as fast as faiss Flat, on mnist or a part of it

Jobs do not know the goals. The runner writes them into the measured rows, and the page compares every record with the
current table. Limits (T8, T9, T11) and slopes (T10) replace a peer and come from their jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from .race import WITH_FIT, Row
from .records import about


class Goal(NamedTuple):
    """The ratio that rows of one target, set and peer should reach."""

    target: str
    where: str  # dataset, or the beginning of its name, such as "mnist" of "mnist 20,000 rows"
    peer: str
    least: float
    work: str = ""  # part of the name of the job


def goals(target: str, where: str, least: Mapping[str, float], work: str = "") -> list[Goal]:
    """Return one goal per peer."""
    return [Goal(target, where, peer, ratio, work) for peer, ratio in least.items()]


def softmax(target: str, where: str, lbfgs: float, intel: float, cyanure: float) -> list[Goal]:
    """Return goals for the three peers that solve the same softmax problem."""
    peers = {"LogisticRegression(lbfgs)": lbfgs, "intelex LogisticRegression": intel, "cyanure": cyanure}
    return goals(target, where, peers, "softmax")


EUCLIDEAN = f"{WITH_FIT}exact euclidean"  # fit and one predict

GOALS = (
    *goals("T1", "mnist", {"faiss Flat": 20, "scikit-learn": 60, "scikit-learn-intelex": 20}),
    *goals("T1b", "fashion_mnist", {"faiss Flat": 14}),
    *goals("T1b", "omniglot", {"faiss Flat": 6.5}),
    *goals("T1b", "clinc150", {"faiss Flat": 3.5}),
    *goals("T1b", "banking77", {"faiss Flat": 4}),
    *goals("T1b", "glove100", {"faiss Flat": 2.5}),
    *goals("T1f", "mnist", {"faiss Flat": 8}, EUCLIDEAN),
    *goals("T1f", "fashion_mnist", {"faiss Flat": 6}, EUCLIDEAN),
    *goals("T1f", "clinc150", {"faiss Flat": 1.5}, EUCLIDEAN),
    *goals("T1f", "banking77", {"faiss Flat": 1.5}, EUCLIDEAN),
    *goals("T2", "mnist", {"faiss Flat": 70, "scikit-learn": 500}),
    *goals("T2b", "clinc150", {"faiss Flat": 3, "scikit-learn": 15}),
    *goals("T2b", "banking77", {"faiss Flat": 3, "scikit-learn": 15}),
    *goals("T3", "mnist", {"hnswlib": 10}, WITH_FIT),
    *goals("T3", "mnist", {"faiss IVFFlat": 14, "hnswlib": 7}, "approximate"),
    *goals("T3", "clusters", {"faiss IVFFlat": 1}, "build"),
    *goals("T3b", "mnist", {"ScaNN": 2, "SVS": 2}, "recall"),
    *goals("T3b", "clinc150", {"ScaNN": 2, "SVS": 2}, "recall"),
    *softmax("T4", "mnist", 40, 20, 10),
    *softmax("T4b", "banking77", 10, 4, 3),
    *softmax("T4b", "clinc150", 6, 3.5, 3),
    *goals("T4b", "letter, standardized", {"cyanure": 3}),
    *softmax("T4b", "letter", 15, 2.5, 3),
    *goals("T4b", "fashion_mnist", {"cyanure": 3}),
    *goals("T4c", "mnist", {"LogisticRegression(saga)": 50}),
    *goals("T4d", "mnist", {"LinearSVC(hinge)": 5}),
    *goals("T4d", "letter", {"LinearSVC(hinge)": 5}),
    *goals("T4d", "banking77 texts", {"LinearSVC(hinge)": 1}),
    *goals("T4d", "clinc150 texts", {"LinearSVC(hinge)": 1}),
    *goals("T4e", "wide", {"LogisticRegression(lbfgs)": 1, "LinearSVC(hinge)": 1}),
    *goals("T5", "mnist", {"LogisticRegressionCV": 20}),
    *goals("T5", "banking77", {"LogisticRegressionCV": 10}),
    *goals("T6", "mnist", {"GridSearchCV(KNeighborsClassifier)": 300}),
    *goals("T7", "mnist", {"faiss IVFFlat": 2, "hnswlib": 1.2, "faiss HNSW": 1.2}),
)


PLAIN_CPU = goals("T1", "mnist", {"faiss Flat": 8})  # goal on a CPU without VNNI


def meant(goal: Goal, row: Row) -> bool:
    """Return whether a goal applies to a row; rows that include the build need a goal that says so."""
    alike = row.job.startswith(WITH_FIT) == goal.work.startswith(WITH_FIT)
    named = (goal.target, goal.peer) == (row.target, row.peer) and about(row, goal.where)
    return named and alike and goal.work in row.job


def aim(row: Row, vnni: bool = True) -> float | None:
    """Return the goal of a row, on a CPU with or without VNNI."""
    return next((goal.least for goal in ([] if vnni else PLAIN_CPU) + [*GOALS] if meant(goal, row)), None)


def aimed(rows: Iterable[Row], vnni: bool) -> list[Row]:
    """Return rows with their goals; limits and slopes stay as their jobs set them."""
    return [r if r.peer == "limit" or r.unit != "s" else replace(r, least=aim(r, vnni)) for r in rows]


def unmeasured(rows: Iterable[Row]) -> list[Goal]:
    """Return the goals without a measured row."""
    rows = list(rows)
    return [goal for goal in GOALS if not any(meant(goal, r) for r in rows)]
