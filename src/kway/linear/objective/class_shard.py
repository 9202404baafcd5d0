"""Softmax with its classes apart: every shard holds some rows of theta, and all rows of X.

    log Z_i = log sum_s sum_{c in shard s} exp(f_ic)      the largest score, then the sum: 2 n numbers a shard
    gradient_c = mean_i w_i (exp(f_ic - log Z_i) - [y_i = c]) x_i + ridge W_c      stays where its class is

So a step moves 24 n bytes to and from each shard (float32), whatever K and d are, where rows apart move 8 K (d + 1).
The solver runs on every shard at once on its own part of all vectors (shards/class_shards.py); `total` and `centred`
are what it needs to know of the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.cluster.rounds import Talk
from kway.compute.threads import pmap, spans, workers
from kway.linear.objective.bends import transposed_product
from kway.linear.objective.objective import Objective
from kway.linear.objective.sparse_rows import add_scores
from kway.linear.penalties import Penalty

HELD_BYTES = 1 << 30  # of scores (n, classes here) that are kept between the two halves of a pass, else made again
_CLASSES = 8192  # of a block: a block of rows is read once for as many
_VALUES = 1 << 21  # of a block of scores
_FEWEST = -1e30  # below any score: the largest of no score


@dataclass(frozen=True)
class ClassesApart(Objective):
    """A joint softmax whose solver is to split its classes over a cluster; its rows, and all else, are here."""

    classes_apart: ClassVar[bool] = True


class Normalisers(NamedTuple):
    """Of each row (n,): the largest score, the sum of exp(score - largest), and its own class's score (0: not here)."""

    largest: NDArray
    sums: NDArray
    own: NDArray


@dataclass(frozen=True)
class ClassShard(Objective):
    """Some classes of a joint softmax; codes count from the first of them, others' rows have codes outside."""

    talk: Talk | None = field(default=None, compare=False, repr=False)
    n_classes: int = 0  # of all shards

    @property
    def all_scores(self) -> int:
        """Of all shards."""
        return self.n_classes

    def total(self, part: NDArray) -> NDArray:
        """Everybody's sums, added."""
        assert self.talk is not None
        return self.talk.total(part)

    def centred(self, theta: NDArray) -> NDArray:
        """theta less its mean over all classes."""
        return theta - (self.total(theta.sum(axis=0, dtype=np.float64)) / self.n_classes).astype(theta.dtype)

    def value(self, theta: NDArray) -> float:
        """F(theta), of all classes."""
        found = self._normalisers(theta, {})
        return self._whole(theta, self._loss(found, self._log_z(found)))

    def value_gradient(self, theta: NDArray) -> tuple[float, NDArray]:
        """F(theta) of all classes, and the gradient of those here."""
        theta = self.laid_out(theta)
        held: dict[tuple[int, int], NDArray] = {}
        found = self._normalisers(theta, held)
        log_z = self._log_z(found)
        gradient = self._products(theta, log_z, held)
        gradient /= gradient.dtype.type(self.n)
        gradient[:, :-1] += gradient.dtype.type(self.penalty.ridge) * theta[:, :-1]
        if not self.fit_intercept:
            gradient[:, -1] = 0
        return self._whole(theta, self._loss(found, log_z)), gradient

    def curvatures(self, theta: NDArray) -> NDArray:
        """p (1 - p) of the classes here, weighted, (classes, n)."""
        theta = self.laid_out(theta)
        log_z = self._log_z(self._normalisers(theta, {})).astype(theta.dtype)
        out = np.empty((self.n_scores, self.n), theta.dtype)

        def one(classes: slice) -> None:
            weights, bias = self._weights(theta, classes), theta[classes, -1]
            for rows in self._row_blocks(classes):
                p = np.exp(self._block(weights, bias, rows) - log_z[rows, None])
                p *= 1 - p
                out[classes, rows] = (p if self.weight is None else p * self.weight[rows, None]).T

        pmap(one, self._class_blocks(), self.n_jobs)
        return out

    def _whole(self, theta: NDArray, loss: float) -> float:
        """Loss here and penalty here, added over the shards."""
        return float(self.total(np.array([loss / self.n + Penalty(self.penalty.ridge).value(theta[:, :-1])]))[0])

    def _log_z(self, found: Normalisers) -> NDArray:
        """log Z of each row, over all classes."""
        assert self.talk is not None
        largest = self.talk.most(found.largest)
        sums = self.talk.total(found.sums * np.exp(found.largest.astype(np.float64) - largest))
        return np.asarray(largest + np.log(sums))

    def _loss(self, found: Normalisers, log_z: NDArray) -> float:
        """Of the rows whose class is here."""
        here = self._here
        loss = np.maximum(log_z[here] - found.own[here], 0)
        return self.weighted_sum(loss, here)

    @property
    def _here(self) -> NDArray[np.int64]:
        codes = self.targets.codes
        return np.flatnonzero((codes >= 0) & (codes < self.n_scores))

    def _class_blocks(self) -> list[slice]:
        return spans(self.n_scores, max(1, min(_CLASSES, -(-self.n_scores // workers(self.n_jobs)))))

    def _row_blocks(self, classes: slice) -> list[slice]:
        return spans(self.n, max(64, min(4096, _VALUES // (classes.stop - classes.start))))

    def _block(self, weights: NDArray, bias: NDArray, rows: slice) -> NDArray:
        """Scores of some rows (m, c); weights (d, c)."""
        if not sp.issparse(self.X):
            return self.X[rows] @ weights + bias
        scores = np.empty((rows.stop - rows.start, len(bias)), bias.dtype)
        scores[:] = bias
        add_scores(self.X, rows, weights, scores)
        return scores

    def _weights(self, theta: NDArray, classes: slice) -> NDArray:
        """(d, c), as the products of these rows want them."""
        turned = theta[classes, :-1].T
        return np.ascontiguousarray(turned) if sp.issparse(self.X) else turned

    def _normalisers(self, theta: NDArray, held: dict[tuple[int, int], NDArray]) -> Normalisers:
        """Of the classes here; scores are left in `held` where they are few enough."""
        keep = self.n * self.n_scores * theta.dtype.itemsize <= HELD_BYTES
        parts = pmap(
            lambda c: self._class_normalisers(theta, c, held if keep else None), self._class_blocks(), self.n_jobs
        )
        largest = np.max([part.largest for part in parts], axis=0)
        sums = np.sum([p.sums * np.exp(p.largest.astype(np.float64) - largest) for p in parts], axis=0)
        return Normalisers(largest, sums, np.sum([part.own for part in parts], axis=0))

    def _class_normalisers(
        self, theta: NDArray, classes: slice, held: dict[tuple[int, int], NDArray] | None
    ) -> Normalisers:
        found = Normalisers(np.full(self.n, _FEWEST, theta.dtype), np.zeros(self.n), np.zeros(self.n))
        weights, bias, codes = self._weights(theta, classes), theta[classes, -1], self.targets.codes - classes.start
        for rows in self._row_blocks(classes):
            scores = self._block(weights, bias, rows)  # (m, c)
            own = np.flatnonzero((codes[rows] >= 0) & (codes[rows] < len(bias)))
            found.largest[rows] = scores.max(axis=1)
            found.own[rows][own] = scores[own, codes[rows][own]]
            if held is not None:
                held[classes.start, rows.start] = scores
                scores = scores - found.largest[rows, None]
            else:
                scores -= found.largest[rows, None]
            found.sums[rows] = np.exp(scores, out=scores).sum(axis=1, dtype=np.float64)
        return found

    def _products(self, theta: NDArray, log_z: NDArray, held: dict[tuple[int, int], NDArray]) -> NDArray:
        """sum_i w_i (p_ic - [y_i = c]) [x_i 1] of the classes here, (classes, d + 1)."""
        gradient = np.zeros_like(theta)

        def one(classes: slice) -> None:
            weights, bias, codes = self._weights(theta, classes), theta[classes, -1], self.targets.codes - classes.start
            for rows in self._row_blocks(classes):
                slopes = held.pop((classes.start, rows.start), None)
                slopes = self._block(weights, bias, rows) if slopes is None else slopes
                slopes -= log_z[rows, None].astype(slopes.dtype)
                np.exp(slopes, out=slopes)
                own = np.flatnonzero((codes[rows] >= 0) & (codes[rows] < len(bias)))
                slopes[own, codes[rows][own]] -= 1
                if self.weight is not None:
                    slopes *= self.weight[rows, None]
                gradient[classes, :-1] += transposed_product(slopes, self.X[rows])
                gradient[classes, -1] += slopes.sum(axis=0)

        pmap(one, self._class_blocks(), self.n_jobs)
        return gradient
