"""CentredBits: rows as bits about the landmark of their cell, which they are nearer to than to any common centre.

r = R (x - m_c)     c the cell of the row, m_c its landmark: the error of an estimate is in proportion to ||x - m_c||

half is ||r||^2 / 2, and that of a zero row under cosine such that ||q - m||^2 / 2 + half - q.r is its distance, 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.compute.kernels.jit import frozen
from kway.compute.threads import pmap, spans
from kway.search.spaces.distances import DOT, Distance, squares
from kway.search.stores.base import Codes
from kway.search.stores.bits import BitFrame, BitRows, Bits, joined_codes


def residual_frame(store: Bits, n_features: int) -> BitFrame:
    """What x - m_c is coded by: a turn about the origin."""
    blank = np.zeros((1, n_features), dtype=np.float32)
    return store.frame(blank, DOT)


@dataclass(frozen=True)
class CentredBits(Codes):
    """Codes of x - m_c (n, d), the landmarks m (c, d) and the cells (n,)."""

    codes: BitRows
    centres: NDArray[np.float32]
    cells: NDArray[np.int64]

    @staticmethod
    def of(
        rows: NDArray, frame: BitFrame, centres: NDArray[np.float32], cells: NDArray[np.int64], distance: Distance
    ) -> CentredBits:
        """Rows (n, d) of these cells (n,)."""

        def work(part: slice) -> BitRows:
            placed = distance.place(rows[part])
            codes = frame.encode(placed - centres[cells[part]])
            blank = np.flatnonzero(squares(placed) == 0) if distance.by_angle else ()
            if not len(blank):
                return codes
            half = codes.half.copy()
            half[blank] += 0.5
            return replace(codes, half=frozen(half))

        parts = spans(len(rows), max(64, 2**18 // rows.shape[1]))  # float64 in the second cache
        return CentredBits(joined_codes(pmap(work, parts)), centres, cells)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.codes.shape

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.codes.nbytes + self.centres.nbytes + self.cells.nbytes

    def __getitem__(self, where: Any) -> NDArray[np.float32]:
        return self.codes[where] + self.centres[self.cells[where]]

    def like(self, rows: NDArray) -> CentredBits:
        """Nobody asks: whoever adds rows knows their cells (`of`)."""
        raise NotImplementedError

    def join(self, more: CentredBits) -> CentredBits:
        """These and more codes about the same landmarks."""
        return CentredBits(
            joined_codes([self.codes, more.codes]), self.centres, np.concatenate([self.cells, more.cells])
        )

    def take(self, positions: NDArray[np.int64]) -> CentredBits:
        """The codes at positions."""
        return CentredBits(self.codes.take(positions), self.centres, self.cells[positions])

    def arrays(self) -> dict[str, NDArray]:
        """Arrays of a model file, but for the landmarks, which are the index's."""
        kept = self.codes.arrays()
        del kept["codes.centre"]
        return kept
