"""ClusterObjective: the objective whose passes over all rows run on a cluster, a run of rows on each node.

    F(theta) = 1/n sum_s sum_{i in shard s} w_i loss_i(theta) + penalty(W)

A shard gives the sums over its rows, of losses and of gradients; they are added in order, and the solver, which stays
here, knows no difference. A worker that dies is made again and asked again: it costs the current pass at most.
Problems on other rows that a solver derives from this one (samples, spans) are small, and run here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.cluster.crew import Crew
from kway.compute.cluster.row_source import Carried, FilePlace, row_source
from kway.compute.cluster.session import make_crew, n_nodes
from kway.linear.losses import Loss, Targets
from kway.linear.objective.bends import Bends
from kway.linear.objective.distinct_rows import key_sums
from kway.linear.objective.objective import Objective
from kway.linear.penalties import Penalty


class Sums(NamedTuple):
    """Over the rows of a shard: of the losses, and of the gradients (R, d + 1)."""

    loss: float
    gradient: NDArray


@dataclass
class RowShard:
    """Some rows of a problem, without its penalty."""

    objective: Objective
    bends: _BendsAt | None = None

    def value(self, loss: Loss, theta: NDArray) -> float:
        """The sum of the losses."""
        return self.objective.with_loss(loss).value(theta) * self.objective.n

    def sums(self, loss: Loss, theta: NDArray) -> Sums:
        """Of losses and gradients."""
        here = self.objective.with_loss(loss)
        return Sums(*(here._sparse_gradient(theta) if sp.issparse(here.X) else here._dense_gradient(theta)))

    def gram(self, dtype: np.dtype) -> NDArray:
        """n times the second moments of the rows."""
        return self.objective.gram(dtype) * dtype.type(self.objective.n)

    def squares(self) -> NDArray:
        """The sum of the rows' squares (1, d)."""
        return self.objective.mean_squares() * self.objective.X.dtype.type(self.objective.n)

    def bend(self, loss: Loss, theta: NDArray, V: NDArray) -> NDArray:
        """What a change V of theta does to the sum of gradients."""
        if self.bends is None or not np.array_equal(self.bends.theta, theta):
            self.bends = _BendsAt(np.array(theta), self.objective.with_loss(loss).bends(theta))
        return self.bends.bends.product(V) * V.dtype.type(self.objective.n)

    def reach(self, V: NDArray) -> float:
        """The most that V adds to a score."""
        here = self.objective
        return max(float(np.abs(here.scores(V, rows)).max()) for rows in here._blocks())

    def key_sums(self) -> NDArray[np.float64]:
        """What tells these rows from others."""
        return key_sums(self.objective)

    def sample(self, share: float) -> tuple[NDArray, NDArray]:
        """Some rows and their codes, the same at every call."""
        n = self.objective.n
        some = np.sort(np.random.default_rng(n).choice(n, math.ceil(share * n), replace=False))
        return self.objective.X[some], self.objective.targets.codes[some]


class _BendsAt(NamedTuple):
    """Products with the Hessian at a theta."""

    theta: NDArray
    bends: Bends


def open_row_shard(source: FilePlace | Carried, blank: Objective) -> RowShard:
    """The shard on its node: `blank` is the problem without its rows."""
    return RowShard(replace(blank, X=source.rows(), turned=[]))


@dataclass(frozen=True)
class ClusterObjective(Objective):
    """An Objective with its rows on the nodes of a cluster as well."""

    rows_apart: ClassVar[bool] = True
    crew: Crew | None = field(default=None, compare=False, repr=False)
    sources: tuple[Any, ...] = field(default=(), compare=False, repr=False)  # the arrays that the shards were cut from

    @staticmethod
    def of(objective: Objective) -> ClusterObjective:
        """The same problem, its rows sent to the nodes."""
        facts = {f.name: getattr(objective, f.name) for f in fields(Objective)}
        return ClusterObjective(**facts, crew=make_crew(_makers(objective)), sources=objective.held_arrays)

    def value(self, theta: NDArray) -> float:
        """F(theta), every part of the penalty included."""
        crew = self._there()
        if crew is None:
            return super().value(theta)
        return sum(crew.ask("value", self.loss, theta)) / self.n + self.penalty.value(theta[:, :-1])

    def _dense_gradient(self, theta: NDArray) -> tuple[float, NDArray]:
        crew = self._there()
        return super()._dense_gradient(theta) if crew is None else _added(crew.ask("sums", self.loss, theta))

    def _sparse_gradient(self, theta: NDArray) -> tuple[float, NDArray]:
        crew = self._there()
        return super()._sparse_gradient(theta) if crew is None else _added(crew.ask("sums", self.loss, theta))

    def _there(self) -> Crew | None:
        """The shards, unless this problem is on other rows than theirs."""
        return self.crew if all(a is b for a, b in zip(self.sources, self.held_arrays)) else None


def _makers(objective: Objective) -> list[Callable[[], RowShard]]:
    """How each node makes its shard."""
    n, targets, weight = objective.n, objective.targets, objective.weight
    nodes = max(1, min(n_nodes(), n))
    edges = [n * s // nodes for s in range(nodes + 1)]
    plain = Objective(**{f.name: getattr(objective, f.name) for f in fields(Objective)})
    found: list[Callable[[], RowShard]] = []
    for run in itertools.starmap(slice, itertools.pairwise(edges)):
        some = Targets(targets.codes[run], None if targets.soft is None else targets.soft[run])
        own = None if weight is None else weight[run]
        blank = replace(plain, X=plain.X[:0], targets=some, weight=own, penalty=Penalty(), turned=[])
        found.append(partial(open_row_shard, row_source(objective.X, run), blank))
    return found


def _added(parts: list[Sums]) -> tuple[float, NDArray]:
    gradient = np.array(parts[0].gradient, order="K")  # what came from elsewhere is read-only
    for part in parts[1:]:
        gradient += part.gradient
    return sum(part.loss for part in parts), gradient
