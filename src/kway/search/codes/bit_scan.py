"""BitScan: all rows of a set of codes (stores/bits.py) against queries; the codes are read once for a batch of them.

Where full rows are kept, those that the error bars leave in doubt are measured, and what is found is exact; else the
k best by estimate are given, with the estimated distances.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy
from numpy.typing import NDArray

from kway.compute.kernels.codes.bit_first import enough, scan_first
from kway.compute.kernels.codes.bit_scan import BIT_BLOCK, scan_bits
from kway.compute.kernels.codes.bit_tables import TABLE_FEATURES
from kway.compute.kernels.jit import frozen
from kway.compute.kernels.lanes import chosen
from kway.compute.kernels.topk import EMPTY, merge
from kway.compute.threads import pmap, single_blas, spans, workers
from kway.search.codes.bit_filter import BitQueries, FirstFilter, first_filter, no_filter, sample_of
from kway.search.heaps import Heaps, empty_heaps
from kway.search.spaces.distances import Distance
from kway.search.stores.bits import BitRows
from kway.search.stores.kept import FarKept, KeptRows

_BATCH = 64  # queries that share a pass: their turned coordinates stay in the second cache


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

    @cached_property
    def _sample(self) -> NDArray[np.float32]:
        return sample_of(self.codes)

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
        asked, codes, k = BitQueries.of(exact, self.codes.frame), self.codes, heaps.ids.shape[1]
        with single_blas():
            which, left, measured = first_filter(asked, self._sample, len(codes), k), np.arange(len(exact)), 0
        if which is not None:
            measured = self._offer(exact, asked, heaps, which, True, first, n_jobs)
            done, lengths = np.empty(len(exact), dtype=bool), self.lengths
            enough(
                self.distance.shifts, self._z_of_two, heaps.distances[:, 0].copy(), asked.base, asked.norms,
                lengths[:, 0].min(), lengths[:, 1].max(), codes.frame.wide, which.mosts, which.counts, which.steps,
                done,
            )  # fmt: skip
            left = np.flatnonzero(~done)
        if len(left):
            own = Heaps(heaps.distances[left], heaps.ids[left])
            rest = (which or no_filter(len(exact))).take(left)
            measured += self._offer(frozen(exact[left]), asked.take(left), own, rest, False, first, n_jobs)
            heaps.distances[left], heaps.ids[left] = own
        return measured

    def _offer(
        self, exact: NDArray[np.float64], asked: BitQueries, heaps: Heaps, which: FirstFilter, passing: bool,
        first: int, n_jobs: int | None,
    ) -> int:  # fmt: skip
        """Rows that the filter lets pass, or the others, on all threads; none beyond the k-th so far."""
        bounds = heaps.distances[:, 0].copy()

        def work(rows: slice) -> tuple[Heaps, int]:
            own = empty_heaps(len(exact), heaps.ids.shape[1])
            return own, self._lane(exact, asked, own, rows, first, which, passing, bounds)

        done = pmap(work, self._lanes(n_jobs), n_jobs)
        for own, _ in done:
            merge(*heaps, *own)
        return sum(measured for _, measured in done)

    def _lanes(self, n_jobs: int | None) -> list[slice]:
        """One run of whole blocks a thread."""
        blocks = -(-len(self.kept) // BIT_BLOCK)
        return spans(len(self.kept), BIT_BLOCK * -(-blocks // workers(n_jobs)))

    def _lane(
        self, exact: NDArray[np.float64], asked: BitQueries, heaps: Heaps, rows: slice, first: int, which: FirstFilter,
        passing: bool, bounds: NDArray[np.float64],
    ) -> int:  # fmt: skip
        codes, full = self.codes, self.kept.full
        measured = frozen(np.empty((0, exact.shape[1]), dtype=np.float32) if full is None else full)
        bar = self.z * float(codes.widest[0]) if full is not None else 0.0
        least = -EMPTY if self.distance.signed else 0.0
        own: tuple = (*which, chosen(*TABLE_FEATURES)) if passing else (which.planes, which.mosts)
        scan, z = (scan_first, self._z_of_two) if passing else (scan_bits, self.z)
        counts = scan(
            self.distance.code, self.distance.shifts, least, codes.frame.bits, z, bar, codes.head, codes.rest,
            codes.factor, codes.frame.unit, codes.half, self.lengths, *asked, exact, measured, rows.start, rows.stop,
            first, *own, bounds, *heaps,
        )  # fmt: skip
        return int(counts[0] if full is None else counts[1])


def bit_scan(kept: KeptRows, distance: Distance, z: float) -> BitScan:
    """Kept codes ready to be scanned."""
    if not isinstance(kept, FarKept) and isinstance(kept.full, np.ndarray):
        kept = KeptRows(frozen(kept.full), kept.codes)
    return BitScan(kept, distance, z)
