"""BitScan: all rows of a set of codes (stores/bits.py) against queries; the codes are read once for a batch of them.

Where full rows are kept, those that the error bars leave in doubt are measured, and what is found is exact; else the
k best by estimate are given, with the estimated distances.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from kway.compute.kernels.bit_scan import BIT_BLOCK, WIDEST_FILTER, enough, first_filter, scan_bits
from kway.compute.kernels.bits import sign_words
from kway.compute.kernels.jit import frozen
from kway.compute.kernels.topk import EMPTY, merge
from kway.compute.threads import pmap, spans, workers
from kway.search.distances import Distance, squares
from kway.search.heaps import Heaps, empty_heaps
from kway.search.stores.bits import BitFrame, BitRows
from kway.search.stores.kept import KeptRows

_SHARE = 1 / 768  # of the rows that a first filter should let pass: their estimates then cost less than the filter
_LOOSE = 10  # times that share pass its first words; much less, and a cosine of 0.6 would ask for a second scan
_CROWD = 32  # times k that it must let pass
MOST_SHARE = 0.05  # beyond which it would spare too little
_BATCH = 64  # queries that share a pass: their turned coordinates stay in the second cache


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


class _Filter(NamedTuple):
    """Rows that differ in at most mosts (q,) bits of the first widths (q,) words, alls (q,) of all P; or the others."""

    only: bool
    widths: NDArray[np.int64]
    mosts: NDArray[np.int64]
    alls: NDArray[np.int64]


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
        starts = np.arange(0, len(codes), BIT_BLOCK)
        if not len(codes.half):
            return frozen(np.ones((len(starts), 2), dtype=np.float32))
        low, high = (ufunc.reduceat(codes.half, starts) for ufunc in (np.minimum, np.maximum))
        return frozen(np.sqrt(2.0 * np.stack([low, high], axis=1)).astype(np.float32))

    @property
    def _z_of_two(self) -> float:
        """Normal deviations of half the chance: the first filter asks twice."""
        return float(-scipy.special.ndtri(0.5 * scipy.special.ndtr(-self.z)))

    def scan(self, queries: NDArray, heaps: Heaps, first: int = 0, n_jobs: int | None = None) -> int:
        """Offer every row, called first, first + 1, ..., to the heaps of the queries; rows measured, or estimated."""
        exact = frozen(np.asarray(queries, dtype=np.float64))
        measured = 0
        for batch in spans(len(exact), _BATCH * workers(n_jobs)):
            measured += self._batch(exact[batch], heaps.part(batch), first, n_jobs)
        return measured

    def _batch(self, exact: NDArray[np.float64], heaps: Heaps, first: int, n_jobs: int | None) -> int:
        """A first filter that few rows pass; where the k-th of these does not rule out the others, all others too."""
        asked, q, k = BitQueries.of(exact, self.codes.frame), len(exact), heaps.ids.shape[1]
        widths, mosts, alls = np.zeros(q, dtype=np.int64), np.full(q, -1), np.zeros(q, dtype=np.int64)
        share = max(_SHARE, _CROWD * k / len(self.kept))
        if share > MOST_SHARE:
            return self._offer(exact, asked, heaps, _Filter(False, widths, mosts, alls), first, n_jobs)
        loose = min(MOST_SHARE, _LOOSE * share)
        far = (float(-scipy.special.ndtri(chance)) for chance in (loose, share))  # in normal deviations
        first_filter(self.codes.head, asked.words, *far, widths, mosts, alls)
        found = empty_heaps(q, k)
        measured = self._offer(exact, asked, found, _Filter(True, widths, mosts, alls), first, n_jobs)
        merge(*heaps, *found)
        done, lengths = np.empty(q, dtype=bool), self.lengths
        enough(
            self.distance.shifts, self._z_of_two, heaps.distances[:, 0].copy(), asked.base, asked.norms,
            lengths[:, 0].min(), lengths[:, 1].max(), len(self.codes.head), widths, mosts, alls, done,
        )  # fmt: skip
        left = np.flatnonzero(~done)
        if len(left):
            rest = _Filter(False, widths[left], mosts[left], alls[left])
            own = Heaps(heaps.distances[left], heaps.ids[left])
            measured += self._offer(frozen(exact[left]), asked.take(left), own, rest, first, n_jobs)
            heaps.distances[left], heaps.ids[left] = own
        return measured

    def _offer(
        self, exact: NDArray[np.float64], asked: BitQueries, heaps: Heaps, which: _Filter, first: int,
        n_jobs: int | None,
    ) -> int:  # fmt: skip
        """Rows that the filter lets pass, on all threads; none beyond the k-th so far."""
        bounds = heaps.distances[:, 0].copy()

        def work(rows: slice) -> tuple[Heaps, int]:
            own = empty_heaps(len(exact), heaps.ids.shape[1])
            return own, self._lane(exact, asked, own, rows, first, which, bounds)

        done = pmap(work, self._lanes(n_jobs), n_jobs)
        for own, _ in done:
            merge(*heaps, *own)
        return sum(measured for _, measured in done)

    def _lanes(self, n_jobs: int | None) -> list[slice]:
        """One run of whole blocks a thread."""
        blocks = -(-len(self.kept) // BIT_BLOCK)
        return spans(len(self.kept), BIT_BLOCK * -(-blocks // workers(n_jobs)))

    def _lane(
        self, exact: NDArray[np.float64], asked: BitQueries, heaps: Heaps, rows: slice, first: int, which: _Filter,
        bounds: NDArray[np.float64],
    ) -> int:  # fmt: skip
        codes, full = self.codes, self.kept.full
        measured = frozen(np.empty((0, exact.shape[1]), dtype=np.float32) if full is None else full)
        bar = self.z * float(codes.widest[0]) if full is not None else 0.0
        least = -EMPTY if self.distance.signed else 0.0
        counts = scan_bits(
            self.distance.code, self.distance.shifts, least, codes.frame.bits, self.z, bar, codes.head, codes.rest,
            codes.factor, codes.frame.unit, codes.half, self.lengths, *asked, exact, measured, rows.start, rows.stop,
            first, *which, bounds, np.empty((WIDEST_FILTER, 32), dtype=np.uint64), *heaps,
        )  # fmt: skip
        return int(counts[0] if full is None else counts[1])


def bit_scan(kept: KeptRows, distance: Distance, z: float) -> BitScan:
    """Kept codes ready to be scanned."""
    if isinstance(kept.full, np.ndarray):
        kept = KeptRows(frozen(kept.full), kept.codes)
    return BitScan(kept, distance, z)
