"""BitScan: all rows of a set of codes (stores/bits.py) against queries; the codes are read once for a batch of them.

Where full rows are kept, those that the error bars leave in doubt are measured, and what is found is exact; else the
k best by estimate are given, with the estimated distances.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.kernels.bit_scan import BLOCK, WIDEST, scan_bits
from kway.compute.kernels.bits import sign_words
from kway.compute.kernels.jit import frozen
from kway.compute.kernels.topk import EMPTY, merge
from kway.compute.threads import pmap, spans, workers
from kway.search.distances import Distance, squares
from kway.search.heaps import Heaps, empty_heaps
from kway.search.stores.bits import BitFrame, BitRows
from kway.search.stores.kept import KeptRows

BATCH = 64  # queries that share a pass: their turned coordinates stay in the second cache


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


@dataclass(frozen=True)
class BitScan:
    """Codes, and perhaps full rows, under one distance; `z`: normal deviations that filter and bars allow for."""

    kept: KeptRows
    distance: Distance
    z: float

    @property
    def codes(self) -> BitRows:
        """The codes that are scanned."""
        assert isinstance(self.kept.codes, BitRows)
        return self.kept.codes

    @property
    def nbytes(self) -> int:
        """Bytes held, rows included."""
        return self.kept.nbytes

    @cached_property
    def lengths(self) -> NDArray[np.float32]:
        """The least and the largest length (blocks, 2) of each BLOCK rows."""
        codes = self.codes
        starts = np.arange(0, len(codes), BLOCK)
        if not len(codes.half):
            return frozen(np.ones((len(starts), 2), dtype=np.float32))
        low, high = (ufunc.reduceat(codes.half, starts) for ufunc in (np.minimum, np.maximum))
        return frozen(np.sqrt(2.0 * np.stack([low, high], axis=1)).astype(np.float32))

    def scan(self, queries: NDArray, heaps: Heaps, first: int = 0, n_jobs: int | None = None) -> int:
        """Offer every row, called first, first + 1, ..., to the heaps of the queries; rows measured, or estimated."""
        exact = frozen(np.asarray(queries, dtype=np.float64))
        measured = 0
        for batch in spans(len(exact), BATCH * workers(n_jobs)):
            measured += self._batch(exact[batch], heaps.part(batch), first, n_jobs)
        return measured

    def _batch(self, exact: NDArray[np.float64], heaps: Heaps, first: int, n_jobs: int | None) -> int:
        asked, lanes = BitQueries.of(exact, self.codes.frame), self._lanes(n_jobs)

        def work(rows: slice) -> tuple[Heaps, int]:
            own = empty_heaps(len(exact), heaps.ids.shape[1])
            return own, self._lane(exact, asked, own, rows, first)

        done = pmap(work, lanes, n_jobs)
        for own, _ in done:
            merge(*heaps, *own)
        return sum(measured for _, measured in done)

    def _lanes(self, n_jobs: int | None) -> list[slice]:
        """One run of whole blocks a thread."""
        blocks = -(-len(self.kept) // BLOCK)
        return spans(len(self.kept), BLOCK * -(-blocks // workers(n_jobs)))

    def _lane(self, exact: NDArray[np.float64], asked: BitQueries, heaps: Heaps, rows: slice, first: int) -> int:
        codes, full = self.codes, self.kept.full
        measured = frozen(np.empty((0, exact.shape[1]), dtype=np.float32) if full is None else full)
        bar = self.z * float(codes.widest[0]) if full is not None else 0.0
        least = -EMPTY if self.distance.signed else 0.0
        counts = scan_bits(
            self.distance.code, self.distance.shifts, least, codes.frame.bits, self.z, bar, codes.head, codes.rest,
            codes.factor, codes.frame.unit, codes.half, self.lengths, *asked, exact, measured, rows.start, rows.stop,
            first, np.empty((WIDEST, 32), dtype=np.uint64), *heaps,
        )  # fmt: skip
        return int(counts[0] if full is None else counts[1])


def bit_scan(kept: KeptRows, distance: Distance, z: float) -> BitScan:
    """Kept codes ready to be scanned."""
    if isinstance(kept.full, np.ndarray):
        kept = KeptRows(frozen(kept.full), kept.codes)
    return BitScan(kept, distance, z)
