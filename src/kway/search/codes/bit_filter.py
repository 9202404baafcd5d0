"""Queries as a scan of codes reads them, and the filter that each of them asks all rows first (bit_first.py).

    2 |q_j|                over the bits j that differ: sum of |q| - <q, signs of the row>, of the groups that are asked
    unit                   what makes the limit of that sum, which a small share of a sample stays below, MOST_SUM
    w_j = 2 |q_j| / unit   rounded, five on average: the angle between w and |q| is about 2 degrees

Which groups are asked depends on whether there are many queries, so a batch may lose another row than a query alone,
where either may lose one: with the chance that was agreed to.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from kway.compute.kernels.codes.bit_tables import MOST_SUM, MOST_WEIGHT, WEIGHT_BITS, fill_tables
from kway.compute.kernels.codes.bits import sign_words
from kway.search.spaces.distances import squares
from kway.search.stores.bits import BitFrame, BitRows


class _Reads(NamedTuple):
    """What is read of all rows: words, groups of four bits among them; and the share of the rows that then pass."""

    words: int
    groups: int
    share: float


# of rows in all directions all three shares hold a cosine of 0.51 or less: 3.4 deviations of an estimate of 0.6 at 512
# bits, so that hardly a query at that cosine needs a second scan
_FEW = _Reads(3, 48, 1 / 600)  # memory is what takes time
_MANY = _Reads(4, 36, 1 / 1500)  # adding is: the 36 groups that tell most of 64
_ALL = 1 / 20_000  # of the rows pass by all bits of P words
_MANY_QUERIES = 8
_ROWS = 512  # of the sample
_LOOSE = 10  # times those that pass all may pass the groups
_CROWD = 32  # times k that must pass
_MOST_SHARE = 0.05  # beyond which it would spare too little


class BitQueries(NamedTuple):
    """Queries as the scan reads them."""

    words: NDArray[np.uint64]  # (q, W) signs
    turned: NDArray[np.float32]  # (q, D)
    totals: NDArray[np.float32]  # (q,) sums of turned
    norms: NDArray[np.float64]  # (q,) of turned
    base: NDArray[np.float64]  # (q,) ||turned||^2, or the distance of a key of 0

    @staticmethod
    def of(queries: NDArray[np.float64], frame: BitFrame) -> BitQueries:
        """Euclidean queries about the centre as the rows are; others about the origin, q.centre told apart."""
        distance, centre = frame.distance, frame.centre.astype(np.float64)
        placed = np.asarray(distance.place(queries))
        turned = frame.turned(placed - centre if distance.shifts else placed)
        words = np.empty((len(turned), frame.wide // 64), dtype=np.uint64)
        sign_words(turned, words)
        norms = np.sqrt(squares(turned))
        base = norms**2 if distance.shifts else (0.0 if distance.signed else 1.0) - placed @ centre
        return BitQueries(words, turned, turned.sum(axis=1), norms, base)

    def take(self, which: NDArray[np.int64]) -> BitQueries:
        """Some of the queries."""
        return BitQueries(
            self.words[which], self.turned[which], self.totals[which], self.norms[which], self.base[which]
        )


class FirstFilter(NamedTuple):
    """Rows that weigh at most mosts (q, 2), in the groups and in all bits of P words; -1: nobody passes."""

    width: int  # words that the groups lie in
    tables: NDArray[np.uint8]  # (q, G, 16)
    groups: NDArray[np.uint8]  # (q, G)
    planes: NDArray[np.uint64]  # (q, 2, P, .) the bits of the weights, of the groups and of all
    mosts: NDArray[np.int64]
    counts: NDArray[np.int64]  # (q, 2, .) bits of each weight
    steps: NDArray[np.float64]  # (q,) of |q_j| / ||q||, a unit of weight

    def take(self, which: NDArray[np.int64]) -> FirstFilter:
        """Those of some of the queries."""
        _, tables, groups, planes, mosts, counts, steps = self
        return FirstFilter(
            self.width, tables[which], groups[which], planes[which], mosts[which], counts[which], steps[which]
        )


def no_filter(q: int) -> FirstFilter:
    """The one that nobody passes."""
    tables, groups = np.empty((q, 0, 16), dtype=np.uint8), np.empty((q, 0), dtype=np.uint8)
    planes, counts = np.empty((q, 2, 0, WEIGHT_BITS), dtype=np.uint64), np.zeros((q, 2, 0), dtype=np.int64)
    return FirstFilter(0, tables, groups, planes, np.full((q, 2), -1), counts, np.zeros(q))


def sample_of(codes: BitRows) -> NDArray[np.float32]:
    """The leading 64 P signs of some of the rows, -1 or 1."""
    words = codes.head[:, :: max(1, len(codes) // _ROWS)].T
    bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=1, bitorder="little")
    return bits.astype(np.float32) * 2 - 1


def first_filter(asked: BitQueries, sample: NDArray[np.float32], n: int, k: int) -> FirstFilter | None:
    """The filter for the k nearest of n rows like those of the sample (s, 64 P); None where it would spare too few."""
    every = max(_ALL, _CROWD * k / n)
    if every > _MOST_SHARE:
        return None
    turned, reads = asked.turned[:, : sample.shape[1]], _MANY if len(asked.norms) >= _MANY_QUERIES else _FEW
    groups = _largest(turned[:, : 64 * reads.words], reads.groups)
    some = np.zeros_like(turned)
    np.put_along_axis(some.reshape(len(some), -1, 4), groups[:, :, None].astype(np.int64), 1.0, axis=1)
    deviations = -scipy.special.ndtri(min(_MOST_SHARE, max(reads.share, _LOOSE * every)))
    limit = _limits(some * turned, sample, deviations)
    units = np.maximum(limit, np.finfo(np.float32).tiny) / MOST_SUM
    with np.errstate(over="ignore"):
        weights = np.minimum(np.rint(2.0 * np.abs(turned) / units[:, None]), MOST_WEIGHT).astype(np.float32)
    signed = np.where(turned > 0, 0.5 * weights, -0.5 * weights)
    mosts = (
        np.minimum(_limits(some * signed, sample, deviations), MOST_SUM),
        _limits(signed, sample, -scipy.special.ndtri(every)),
    )
    tables = np.empty((*groups.shape, 16), dtype=np.uint8)
    fill_tables(weights.astype(np.uint8), asked.words, groups, tables)
    return FirstFilter(
        min(reads.words, sample.shape[1] // 64), tables, groups,
        planes=bit_planes(np.stack([some * weights, weights], axis=1)),
        mosts=np.floor(np.stack(mosts, axis=1)).astype(np.int64),
        counts=np.stack([_counts(some * weights), _counts(weights)], axis=1),
        steps=0.5 * units / np.maximum(asked.norms, np.finfo(np.float64).tiny),
    )  # fmt: skip


def _largest(turned: NDArray[np.float32], most: int) -> NDArray[np.uint8]:
    """Groups (q, G) of four coordinates, at most so many, those of largest squares, in their order."""
    squared = np.square(turned).reshape(len(turned), -1, 4).sum(axis=2)
    if most >= squared.shape[1]:
        return np.tile(np.arange(squared.shape[1], dtype=np.uint8), (len(turned), 1))
    return np.sort(np.argpartition(squared, -most, axis=1)[:, -most:], axis=1).astype(np.uint8)


def _limits(values: NDArray[np.float32], sample: NDArray[np.float32], deviations: float) -> NDArray[np.float64]:
    """What a small share of the sample stays below, so many deviations down: 2 |values| over bits that differ."""
    sums = np.abs(values).sum(axis=1) - sample @ values.T  # (s, q)
    least = 0.5 * np.sqrt(squares(values))  # half of the deviation of rows in all directions
    return sums.mean(axis=0, dtype=np.float64) - deviations * np.maximum(sums.std(axis=0, dtype=np.float64), least)


def bit_planes(weights: NDArray) -> NDArray[np.uint64]:
    """Bit b of all weights (q, 2, 64 P) as words (q, 2, P, WEIGHT_BITS)."""
    bits = (weights.astype(np.uint8)[:, :, None] >> np.arange(WEIGHT_BITS, dtype=np.uint8)[:, None]) & 1
    words = np.packbits(bits, axis=-1, bitorder="little").view(np.uint64)
    return np.ascontiguousarray(words.swapaxes(2, 3))


def _counts(weights: NDArray[np.float32]) -> NDArray[np.int64]:
    """How many bits (q, MOST_WEIGHT + 1) have each weight."""
    room = MOST_WEIGHT + 1
    named = weights.astype(np.int64) + room * np.arange(len(weights))[:, None]
    return np.bincount(named.ravel(), minlength=room * len(weights)).reshape(-1, room)
