"""BitScan: all rows of a set of codes (bits.py) against queries; the codes are read once for a batch of them.

If full rows are kept, those that the error bars leave in doubt are measured, and what is found is exact; else the k
best by estimate are returned, with the estimated distances. A first filter (kernels/codes/bit_scan.py) weighs the
bits that differ by the query's coordinates:

    2 |q_j|                over the bits j that differ: sum of |q| - <q, signs of the row>, of the groups that are read
    unit                   makes the limit of that sum, which a small share of a sample stays below, MOST_SUM
    w_j = 2 |q_j| / unit   rounded, five on average: the angle between w and |q| is about 2 degrees

Which groups are read depends on whether there are many queries, so a batch may lose another row than a query alone, if
either may lose one: with the chance that was agreed to.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
import scipy
from numpy.typing import NDArray

from kway.kernels.codes.bit_scan import (
    BIT_BLOCK,
    SAMPLED_CODES,
    CodedQueries,
    CodedRows,
    Estimator,
    FirstFilter,
    PassedFilter,
    enough,
    estimate_bits,
    scan_bits,
    scan_first,
)
from kway.kernels.codes.bit_tables import MOST_SUM, MOST_WEIGHT, TABLE_FEATURES, WEIGHT_BITS, fill_tables
from kway.kernels.codes.bits import sign_words
from kway.kernels.jit import frozen
from kway.kernels.lanes import chosen
from kway.kernels.topk import EMPTY, merge
from kway.rows.gpu.device import Device
from kway.search.block_scan import Scan, measured_rows
from kway.search.codecs.bits import BitFrame, BitRows
from kway.search.distances import squares
from kway.search.results import Heaps, Neighbors, empty_heaps
from kway.threads import pmap, shares, single_blas, spans, workers


class _Reads(NamedTuple):
    """What is read of all rows: words, groups of four bits among them; and the share of the rows that then pass."""

    words: int
    groups: int
    share: float


# of rows in all directions all three shares hold a cosine of 0.51 or less: 3.4 deviations of an estimate of 0.6 at 512
# bits, so that hardly a query at that cosine needs a second scan
_FEW = _Reads(3, 48, 1 / 600)  # memory is what takes time
_MANY = _Reads(4, 36, 1 / 1500)  # adding is: the 36 groups that tell most of 64
_ALL = 1 / 20_000  # of the rows pass by all bits of P words (C1)
_MANY_QUERIES = 8  # from which on adding takes the time, not memory (C1)
_LOOSE = 10  # times those that pass all may pass the groups (C1)
_CROWD = 32  # times k that must pass (C1)
_MOST_SHARE = 0.05  # beyond which it would spare too little (C1)


def bit_queries(queries: NDArray[np.float64], frame: BitFrame) -> CodedQueries:
    """Euclidean queries about the center as the rows are; others about the origin, with q.center apart."""
    distance, centre = frame.distance, frame.centre.astype(np.float64)
    placed = np.asarray(distance.place(queries))
    turned = frame.turned(placed - centre if distance.shifts else placed)
    words = np.empty((len(turned), frame.wide // 64), dtype=np.uint64)
    sign_words(turned, words)
    norms = np.sqrt(squares(turned))
    base = norms**2 if distance.shifts else (0.0 if distance.signed else 1.0) - placed @ centre
    return CodedQueries(words, turned, turned.sum(axis=1), norms, base, queries)


def some_of(values: CodedQueries, which: NDArray[np.int64]) -> CodedQueries:
    """Some of the queries."""
    some = CodedQueries(*(array[which] for array in values))
    return some._replace(queries=frozen(some.queries))


def some_filters(values: FirstFilter, which: NDArray[np.int64]) -> FirstFilter:
    """The filters of some of the queries."""
    return FirstFilter(values.width, *(array[which] for array in values[1:]))


def no_filter(q: int) -> FirstFilter:
    """The one that nobody passes."""
    tables, groups = np.empty((q, 0, 16), dtype=np.uint8), np.empty((q, 0), dtype=np.uint8)
    planes, counts = np.empty((q, 2, 0, WEIGHT_BITS), dtype=np.uint64), np.zeros((q, 2, 0), dtype=np.int64)
    return FirstFilter(0, tables, groups, planes, np.full((q, 2), -1), counts, np.zeros(q))


def sample_of(codes: BitRows) -> NDArray[np.float32]:
    """The leading 64 P signs of some of the rows, -1 or 1."""
    words = codes.head[:, :: max(1, len(codes) // SAMPLED_CODES)].T
    bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=1, bitorder="little")
    return bits.astype(np.float32) * 2 - 1


def first_filter(asked: CodedQueries, sample: NDArray[np.float32], n: int, k: int) -> FirstFilter | None:
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


_BATCH = 64  # queries that share a pass: their rotated coordinates stay in the second cache (C1)


@dataclass(eq=False)
class BitScan(Scan):
    """Codes, and perhaps full rows, under one distance; `z`: normal deviations that filter and bars allow for."""

    z: float = 0.0

    @property
    def codes(self) -> BitRows:
        """The codes that are scanned."""
        return cast(BitRows, self.kept.codes)

    def why(self) -> str:
        """In a few words, what is scanned."""
        measured = "full rows measured" if self.kept.has_full else "only codes kept"
        return f"flat over codes of {self.codes.frame.bits} bits a column, approximate: {measured}"

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

    def nearest(self, queries: NDArray, k: int) -> Neighbors:
        """Positions and distances (q, k) of the nearest, those of codes alone by their estimates."""
        exact, heaps = frozen(np.asarray(queries, dtype=np.float64)), empty_heaps(len(queries), k)
        batches = spans(len(exact), _BATCH * workers())
        self.touched = sum(self._batch(exact[batch], heaps.part(batch)) for batch in batches) / len(exact)
        return heaps.neighbors()

    def measure(self, queries: NDArray[np.float64], ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Distances (q, c) of queries (q, d) to the rows at ids (q, c): exact if full rows are kept, else estimates."""
        if self.kept.has_full:
            return measured_rows(self.distance, queries, *self.kept.found(ids))
        asked, distances = self.asked(queries), np.empty(ids.shape)

        def work(part: slice) -> None:
            own = CodedQueries(*(array[part] for array in asked))
            estimate_bits(self._how(self.z), self._coded, own, ids[part], distances[part])

        pmap(work, shares(len(ids), least=64))
        return distances

    def asked(self, queries: NDArray[np.float64]) -> CodedQueries:
        """Queries (q, d) as the scan reads them."""
        return bit_queries(queries, self.codes.frame)

    def on_device(self, device: Device) -> Any:
        """The same search on a device."""
        from kway.rows.gpu.flat_search import DeviceBits

        return DeviceBits.over(self, device)

    @property
    def least(self) -> float:
        """The least distance there is."""
        return -EMPTY if self.distance.signed else 0.0

    @property
    def bar(self) -> float:
        """The error bar of an estimate, in units of f ||q||; 0 if there are no full rows."""
        return self.z * float(self.codes.widest[0]) if self.kept.has_full else 0.0

    def _batch(self, exact: NDArray[np.float64], heaps: Heaps) -> int:
        """A first filter that few rows pass; where the k-th of these does not rule out the others, all others too."""
        asked, codes, k = self.asked(exact), self.codes, heaps.ids.shape[1]
        with single_blas():
            which, left, measured = first_filter(asked, self._sample, len(codes), k), np.arange(len(exact)), 0
        if which is not None:
            measured = self._offer(asked, heaps, which, True)
            done, lengths = np.empty(len(exact), dtype=bool), self.lengths
            shortest, longest = lengths[:, 0].min(), lengths[:, 1].max()
            enough(self._how(self._z_of_two), heaps.distances[:, 0].copy(), asked, shortest, longest, which, done)
            left = np.flatnonzero(~done)
        if len(left):
            own = Heaps(heaps.distances[left], heaps.ids[left])
            rest = some_filters(which or no_filter(len(exact)), left)
            measured += self._offer(some_of(asked, left), own, rest, False)
            heaps.distances[left], heaps.ids[left] = own
        return measured

    def _offer(self, asked: CodedQueries, heaps: Heaps, which: FirstFilter, passing: bool) -> int:
        """Rows that the filter lets pass, or the others, on all threads; none beyond the k-th so far."""
        bounds, q = heaps.distances[:, 0].copy(), len(asked.words)

        def work(rows: slice) -> tuple[Heaps, int]:
            own = empty_heaps(q, heaps.ids.shape[1])
            return own, self._scan_run(asked, own, rows, which, passing, bounds)

        blocks = -(-self.n // BIT_BLOCK)  # one run of whole blocks per thread
        done = pmap(work, spans(self.n, BIT_BLOCK * -(-blocks // workers())))
        for own, _ in done:
            merge(*heaps, *own)
        return sum(measured for _, measured in done)

    def _scan_run(
        self, asked: CodedQueries, heaps: Heaps, rows: slice, which: FirstFilter, passing: bool, bounds: NDArray
    ) -> int:
        """One thread's work; the number of rows measured, or estimated."""
        run = rows.start, rows.stop
        if passing:
            how, fast = self._how(self._z_of_two), chosen(*TABLE_FEATURES)
            counts = scan_first(how, self._coded, asked, self.lengths, *run, which, fast, bounds, *heaps)
        else:
            passed = PassedFilter(which.planes, which.mosts)
            counts = scan_bits(self._how(self.z), self._coded, asked, self.lengths, *run, passed, bounds, *heaps)
        return int(counts[1] if self.kept.has_full else counts[0])

    def _how(self, z: float) -> Estimator:
        shifts = self.distance.shifts
        return Estimator(self.distance.code, shifts, shifts, self.least, z, self.bar)

    @cached_property
    def _coded(self) -> CodedRows:
        codes, full = self.codes, self.kept.full
        rows = frozen(np.empty((0, self.d), dtype=np.float32) if full is None else full)
        return coded_rows(codes, rows, np.empty(0, np.int64))


def coded_rows(codes: BitRows, full: NDArray, names: NDArray[np.int64]) -> CodedRows:
    """Codes as kernels read them, full rows (n, d) or (0, d), and names (n,) or (0,)."""
    frame = codes.frame
    return CodedRows(frame.bits, codes.head, codes.rest, codes.factor, frame.unit, codes.half, full, frozen(names))
