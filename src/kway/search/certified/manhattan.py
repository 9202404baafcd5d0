"""Manhattan bounds: signed sums over groups of correlated features.

    sum_g |sum_{i in g} s_i (q_i - x_i)| <= sum_i |q_i - x_i|         for any groups and signs s = +-1

Features are paired greedily by the |correlation| of their differences, level by level, so pairs form groups of four,
eight and sixteen. In such groups |sum of signed differences| is close to the sum of |differences|. The coarse sketch
sums groups of `size` features, and the fine sketch groups of a quarter of it. If that is one feature, there is no fine
sketch, and rows are measured. Sums are float64, so only values and sums are rounded to float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.kernels.certified.sketch import code_l1, pair_up, signed_sums
from kway.kernels.certified.tiles import L1_QUERIES
from kway.kernels.jit import frozen
from kway.search.certified.pipeline import CellOrder
from kway.search.certified.sketches import (
    ROUNDING,
    UNDERFLOW,
    BoundSketch,
    Frame,
    QueryCodes,
    SketchCodes,
    packed_words,
    whole_blocks,
)
from kway.threads import pmap, spans


class FeatureGroups(NamedTuple):
    """columns (d,): an order of the features; signs (d,) +-1 float32, in that order."""

    columns: NDArray[np.int64]
    signs: NDArray[np.float32]


def correlated_groups(differences: NDArray[np.float32], levels: int) -> FeatureGroups:
    """Return groups from differences (s, d) of random pairs of rows."""
    d = differences.shape[1]
    members = [np.array([i]) for i in range(d)]
    signs, sums = np.ones(d, np.float32), differences
    for _ in range(levels):
        mate, turned = _mates(sums)
        joined, columns = [], []
        for i, j in enumerate(mate):
            if j < 0:
                joined.append(members[i])
                columns.append(sums[:, i])
            elif i < j:
                flip = np.float32(-1 if turned[i] else 1)
                signs[members[j]] *= flip
                joined.append(np.concatenate([members[i], members[j]]))
                columns.append(sums[:, i] + flip * sums[:, j])
        members, sums = joined, np.stack(columns, axis=1)
    columns_order = np.concatenate(members)
    return FeatureGroups(columns_order, signs[columns_order])


def _mates(sums: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the partner of each column (-1: none), and whether their correlation is negative."""
    n = sums.shape[1]
    spread = np.sqrt(np.einsum("ij,ij->j", sums, sums)) + 1e-30
    alike = (sums / spread).T @ (sums / spread)
    left, right = np.triu_indices(n, 1)
    strength = alike[left, right]
    mate = pair_up(np.argsort(-np.abs(strength), kind="stable"), left, right, n)
    return mate, alike[np.arange(n), mate] < 0


_TAIL = 0.001  # share of a column's values on either side that may be out of the range of the codes (T2)


@dataclass(frozen=True)
class ManhattanSpace:
    """Computes sketches: sums over runs of `size` of the ordered columns."""

    frame: Frame
    groups: FeatureGroups
    size: int

    @property
    def widths(self) -> tuple[int, int]:
        """Number of columns of coarse and of fine (in whole cache lines)."""
        d, finer = len(self.groups.columns), self.size // 4
        return -(-d // self.size), -(-d // (16 * finer)) * 16 if finer > 1 else 0

    @property
    def fine_type(self) -> type[np.float32]:
        """Type of fine."""
        return np.float32

    def sketch(self, block: NDArray, into: BoundSketch) -> None:
        """Write the sketch of block (b, d) into arrays of b rows."""
        placed = self.frame.place(block)
        signed_sums(placed.values, *self.groups, self.size, into.coarse)
        if self.widths[1]:
            signed_sums(placed.values, *self.groups, self.size // 4, into.fine)
        into.slack[:] = 2.1 * ROUNDING * placed.sizes + UNDERFLOW
        into.coarse_slack[:] = into.slack

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.groups.columns.nbytes + self.groups.signs.nbytes + self.frame.center.nbytes


class ManhattanCodes(SketchCodes):
    """Rows as unsigned bytes; their limits are the smallest value of each column."""

    @classmethod
    def encode(
        cls, coarse: NDArray[np.float32], cells: CellOrder, space: ManhattanSpace, variant: int
    ) -> ManhattanCodes:
        """Encode coarse (n, w)."""
        n, width = coarse.shape
        low, step = _range(coarse)
        codes, errors = whole_blocks(n, width, np.uint8, 8), np.empty(n)
        coarse = frozen(coarse)

        def work(part: slice) -> None:
            code_l1(coarse, cells.ids[part], low, step, codes[part], errors[part])

        pmap(work, spans(n, 8192))
        packed = packed_words(codes, np.int64)
        margin = 1 + (space.widths[1] + 16) * 4 * ROUNDING
        return cls(frozen(packed), low, step, float(errors.max()), margin, variant)

    def encode_queries(self, coarse: NDArray[np.float32], members: NDArray[np.int32]) -> QueryCodes:
        """Encode queries coarse[members], padded to whole tiles."""
        m = len(members)
        codes, errors = np.zeros((-(-m // L1_QUERIES) * L1_QUERIES, 8 * self.packed.shape[1]), np.uint8), np.empty(m)
        code_l1(coarse, members, self.limits, self.step, codes, errors)
        return QueryCodes(codes.view(np.int64), None, errors)


def _range(coarse: NDArray[np.float32]) -> tuple[NDArray[np.float64], float]:
    """Return low (w,) and one step for all columns: 255 steps contain nearly all values of the widest column."""
    sample = coarse[:: max(1, len(coarse) // 8192)]
    low, high = np.quantile(sample, [_TAIL, 1 - _TAIL], axis=0)
    if not (high > low).any():  # nearly constant columns
        low, high = sample.min(axis=0).astype(np.float64), sample.max(axis=0).astype(np.float64)
    return frozen(low), float((high - low).max() or 1.0) / 255
