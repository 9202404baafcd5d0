"""Support vector machines of many classes on shared CSR rows: sweeps of dual coordinate descent over all at once.

The machines are independent, but a row's entries are read once for the scores of a whole group of classes, whose
weights lie side by side (kernels/linear/one_vs_all.py). Groups are a worker's share. The bias starts at -1, where a
row of none of these classes is content: each class has few rows of its own, so most dual variables never leave zero.

    D = sum_i (a_i - bend_i a_i^2 / 2) - |W|^2 / 2    of one class; bend = width / C_i of a rounded hinge, else 0
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.kernels.linear.one_vs_all import sweep_classes
from kway.compute.threads import pmap, workers
from kway.linear.objective.objective import Objective
from kway.linear.solvers.stopping import tol_scale
from kway.linear.solvers.svm.machine import Machine, judge_all

WIDEST_GROUP = 64  # classes of a group: their dual variables are an (n, 64) array
_ROUND = 10  # sweeps between two looks at the gap
FEWEST_CLASSES = 4  # classes that are worth a group
# of the bias, over the mean square of a row: 1 takes three times as many sweeps on texts, 0.001 as many
STIFFNESS = 0.03


def shares_rows(objective: Objective) -> bool:
    """Whether this way is for these rows: sparse, several classes."""
    return sp.issparse(objective.X) and objective.n_scores >= FEWEST_CLASSES


@dataclass(frozen=True)
class Group:
    """Classes first, first + 1, ...: a (n, k) dual variables, W (d, k) their rows' sums, bias, centre and s (k,)."""

    first: int
    a: NDArray
    W: NDArray
    bias: NDArray
    centre: NDArray
    s: NDArray

    @staticmethod
    def at_zero(objective: Objective, first: int, last: int, dtype: Any = np.float32) -> Group:
        """No row has moved; without a bias it stays 0."""
        k = last - first
        start = np.full(k, -1.0 if objective.fit_intercept else 0.0, dtype)
        a, W = np.zeros((objective.n, k), dtype), np.zeros((objective.d, k), dtype)
        return Group(first, a, W, start, start.copy(), np.zeros(k, dtype))


class SharedMachines:
    """Every class against the rest, under one box for each row; `sweep` goes on from where the last one ended."""

    def __init__(self, objective: Objective, seed: int = 0, dtype: Any = np.float32) -> None:
        X, self._number = objective.X, np.dtype(dtype).type
        self._rows = (np.ascontiguousarray(X.data, dtype), X.indices, X.indptr)
        self._square = np.asarray(X.multiply(X).sum(axis=1), dtype).ravel()
        self._stiffness = self._number(STIFFNESS * max(float(self._square.mean()), 1e-30) * objective.fit_intercept)
        self._seeds = np.random.SeedSequence(seed)
        self.objective = objective
        self.groups = [Group.at_zero(objective, a, b, dtype) for a, b in _cuts(objective)]
        self.upper = self._boxes()

    def change_ridge(self, ridge: float) -> None:
        """The same rows under another penalty: what lies outside the new boxes is brought to their walls."""
        self.objective = replace(self.objective, penalty=replace(self.objective.penalty, ridge=ridge))
        old, self.upper = self.upper, self._boxes()
        if (self.upper < old).any():
            spans = [(g.first, g.first + len(g.bias)) for g in self.groups]
            self.groups = [Group.at_zero(self.objective, a, b, self._number) for a, b in spans]

    def sweep(self, count: int) -> float:
        """So many visits to every row; the largest violation in the last one, in units of y f."""
        orders = [np.random.default_rng(seed) for seed in self._seeds.spawn(len(self.groups))]
        return max(pmap(lambda item: self._sweep(*item, count), zip(self.groups, orders), self.objective.n_jobs))

    def _sweep(self, group: Group, rng: np.random.Generator, count: int) -> float:
        codes, worst = self.codes - group.first, 0.0
        for _ in range(count):
            worst = sweep_classes(
                *self._rows, codes, self._square, self.upper, self.bend, self._stiffness,
                rng.permutation(self.objective.n), group.a, group.W, group.bias, group.s,
            )  # fmt: skip
            if self._stiffness:
                group.centre[:] += self._stiffness * group.s
                group.bias[:] = group.centre + self._stiffness * group.s
        return float(worst)

    def theta(self) -> NDArray:
        """[W b], (R, d + 1), column by column in memory as sparse products read it."""
        theta = np.empty((self.objective.n_scores, self.objective.d + 1), self._number, order="F")
        for group in self.groups:
            classes = slice(group.first, group.first + len(group.bias))
            theta[classes, :-1], theta[classes, -1] = group.W.T, group.bias
        return theta

    @property
    def bend(self) -> NDArray:
        """(n,); a row of no weight stays at 0 in any case."""
        return self._number(self.objective.loss.width) / np.where(self.upper > 0, self.upper, self._number(1))

    @property
    def codes(self) -> NDArray[np.int64]:
        """The class each row speaks for; of two classes, whose one machine is the second's, 1 is none."""
        codes = self.objective.targets.codes
        return 1 - codes if self.objective.n_scores == 1 else codes

    def _boxes(self) -> NDArray:
        """C_i = w_i / (n ridge)."""
        o = self.objective
        weight = np.ones(o.n) if o.weight is None else o.weight
        return np.asarray(weight / (o.n * o.penalty.ridge), self._number)

    def classes(self) -> Iterator[tuple[int, NDArray, float]]:
        """For each class its number, its dual variables (n,) and its bias."""
        for group in self.groups:
            for k, bias in enumerate(group.bias):
                yield group.first + k, group.a[:, k], float(bias)


def sweep_together(objective: Objective, machines: list[Machine], tol: float, most: int) -> None:
    """Bring the machines near their optimum: rounds of sweeps over all of them, while the gap still halves.

    Later the few rows that still move are a machine's own affair, and its interior points end what sweeps drag out.
    """
    shared, before = SharedMachines(objective), np.inf
    for _ in range(max(1, most // _ROUND)):
        shared.sweep(_ROUND)
        for k, a, bias in shared.classes():
            machines[k].a, machines[k].centre = a.astype(np.float64), bias
            machines[k].passes += _ROUND
        pmap(lambda machine: machine.settle(), machines, objective.n_jobs)
        judge_all(objective, machines)
        gap, value = sum(m.gap for m in machines), sum(m.best.value for m in machines)
        if gap <= tol * tol_scale(value) or gap > before / 2:
            return
        before = gap


def _cuts(objective: Objective) -> Iterator[tuple[int, int]]:
    """Classes cut into groups of about equal size, a multiple of the workers."""
    R = objective.n_scores
    parts = workers(objective.n_jobs)
    parts *= -(-R // (parts * WIDEST_GROUP))
    edges = [R * i // parts for i in range(parts + 1)]
    return ((a, b) for a, b in itertools.pairwise(edges) if b > a)
