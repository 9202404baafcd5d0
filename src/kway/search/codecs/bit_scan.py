"""BitScan: a search of all rows by their codes (bits.py); a batch of queries reads the codes once.

If full rows are stored, the rows that the error bars cannot rule out are measured, and their distances are exact.
Otherwise the k best by estimate are returned, with estimated distances. A first filter (kernels/codes/bit_scan.py)
weighs the bits that differ by the query's coordinates:

    2 |q_j|                over the bits j that differ: sum of |q| - <q, signs of the row>, of the groups that are read
    unit                   scales the limit of that sum, which a small share of a sample stays below, to MAX_SUM
    w_j = 2 |q_j| / unit   rounded, five on average: the angle between w and |q| is about 2 degrees

A batch reads other groups than a single query, so it may miss another row; `miss` limits the probability for both.
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
from kway.kernels.codes.bit_tables import MAX_SUM, MAX_WEIGHT, TABLE_FEATURES, WEIGHT_BITS, fill_tables
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


class FilterReads(NamedTuple):
    """What the first filter reads of all rows: words, groups of four bits among them, the share of rows that pass."""

    words: int
    groups: int
    share: float


# For rows in all directions all three shares correspond to a cosine of at most 0.51. That is 3.4 deviations below an
# estimate of 0.6 at 512 bits, so few queries at that cosine need a second scan.
_ONE_QUERY = FilterReads(3, 48, 1 / 600)  # reading memory takes the time
_BATCH_READS = FilterReads(4, 36, 1 / 1500)  # additions take the time: the 36 most informative groups of 64
_SHARE_OF_ALL = 1 / 20_000  # share of the rows that pass by all bits of P words (C1)
_LOOSE = 10  # times as many rows as pass by all bits may pass by the groups (C1)
_MIN_PASSING = 32  # times k rows have to pass (C1)
_LARGEST_SHARE = 0.05  # share of passing rows above which the filter saves too little (C1)


def bit_queries(queries: NDArray[np.float64], frame: BitFrame) -> CodedQueries:
    """Return rotated queries, Euclidean ones about the center of the rows, others about the origin."""
    distance, center = frame.distance, frame.center.astype(np.float64)
    placed = np.asarray(distance.place(queries))
    rotated = frame.rotate(placed - center if distance.shifts else placed)
    words = np.empty((len(rotated), frame.wide // 64), dtype=np.uint64)
    sign_words(rotated, words)
    norms = np.sqrt(squares(rotated))
    base = norms**2 if distance.shifts else (0.0 if distance.signed else 1.0) - placed @ center
    return CodedQueries(words, rotated, rotated.sum(axis=1), norms, base, queries)


def select_queries(values: CodedQueries, which: Any) -> CodedQueries:
    """Return some of the queries."""
    some = CodedQueries(*(array[which] for array in values))
    return some._replace(queries=frozen(some.queries))


def select_filters(values: FirstFilter, which: NDArray[np.int64]) -> FirstFilter:
    """Return the filters of some of the queries."""
    return FirstFilter(values.width, *(array[which] for array in values[1:]))


def empty_filter(q: int) -> FirstFilter:
    """Return a filter that no row passes."""
    tables, groups = np.empty((q, 0, 16), dtype=np.uint8), np.empty((q, 0), dtype=np.uint8)
    planes, counts = np.empty((q, 2, 0, WEIGHT_BITS), dtype=np.uint64), np.zeros((q, 2, 0), dtype=np.int64)
    return FirstFilter(0, tables, groups, planes, np.full((q, 2), -1), counts, np.zeros(q))


def sample_signs(codes: BitRows) -> NDArray[np.float32]:
    """Return the leading 64 P signs of some of the rows, -1 or 1."""
    words = codes.head[:, :: max(1, len(codes) // SAMPLED_CODES)].T
    bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=1, bitorder="little")
    return bits.astype(np.float32) * 2 - 1


def make_filter(queries: CodedQueries, sample: NDArray[np.float32], n: int, k: int) -> FirstFilter | None:
    """Return the filter for the k nearest of n rows like the sample (s, 64 P); None if it would save too little."""
    every = max(_SHARE_OF_ALL, _MIN_PASSING * k / n)
    if every > _LARGEST_SHARE:
        return None
    rotated, reads = queries.rotated[:, : sample.shape[1]], _BATCH_READS if len(queries.norms) > 1 else _ONE_QUERY
    groups = _largest_groups(rotated[:, : 64 * reads.words], reads.groups)
    some = np.zeros_like(rotated)
    np.put_along_axis(some.reshape(len(some), -1, 4), groups[:, :, None].astype(np.int64), 1.0, axis=1)
    deviations = -scipy.special.ndtri(min(_LARGEST_SHARE, max(reads.share, _LOOSE * every)))
    limit = _limits(some * rotated, sample, deviations)
    units = np.maximum(limit, np.finfo(np.float32).tiny) / MAX_SUM
    with np.errstate(over="ignore"):
        weights = np.minimum(np.rint(2.0 * np.abs(rotated) / units[:, None]), MAX_WEIGHT).astype(np.float32)
    signed = np.where(rotated > 0, 0.5 * weights, -0.5 * weights)
    mosts = (
        np.minimum(_limits(some * signed, sample, deviations), MAX_SUM),
        _limits(signed, sample, -scipy.special.ndtri(every)),
    )
    tables = np.empty((*groups.shape, 16), dtype=np.uint8)
    fill_tables(weights.astype(np.uint8), queries.words, groups, tables)
    return FirstFilter(
        min(reads.words, sample.shape[1] // 64), tables, groups,
        planes=bit_planes(np.stack([some * weights, weights], axis=1)),
        mosts=np.floor(np.stack(mosts, axis=1)).astype(np.int64),
        counts=np.stack([_counts(some * weights), _counts(weights)], axis=1),
        steps=0.5 * units / np.maximum(queries.norms, np.finfo(np.float64).tiny),
    )  # fmt: skip


def _largest_groups(rotated: NDArray[np.float32], most: int) -> NDArray[np.uint8]:
    """Return at most so many groups (q, G) of four coordinates with the largest squares, in their order."""
    squared = np.square(rotated).reshape(len(rotated), -1, 4).sum(axis=2)
    if most >= squared.shape[1]:
        return np.tile(np.arange(squared.shape[1], dtype=np.uint8), (len(rotated), 1))
    return np.sort(np.argpartition(squared, -most, axis=1)[:, -most:], axis=1).astype(np.uint8)


def _limits(values: NDArray[np.float32], sample: NDArray[np.float32], deviations: float) -> NDArray[np.float64]:
    """Return what a small share of the sample stays below: 2 |values| over bits that differ, mean less deviations."""
    sums = np.abs(values).sum(axis=1) - sample @ values.T  # (s, q)
    least = 0.5 * np.sqrt(squares(values))  # half of the deviation of rows in all directions
    return sums.mean(axis=0, dtype=np.float64) - deviations * np.maximum(sums.std(axis=0, dtype=np.float64), least)


def bit_planes(weights: NDArray) -> NDArray[np.uint64]:
    """Return bit b of all weights (q, 2, 64 P) as words (q, 2, P, WEIGHT_BITS)."""
    bits = (weights.astype(np.uint8)[:, :, None] >> np.arange(WEIGHT_BITS, dtype=np.uint8)[:, None]) & 1
    words = np.packbits(bits, axis=-1, bitorder="little").view(np.uint64)
    return np.ascontiguousarray(words.swapaxes(2, 3))


def _counts(weights: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return how many bits (q, MAX_WEIGHT + 1) have each weight."""
    room = MAX_WEIGHT + 1
    named = weights.astype(np.int64) + room * np.arange(len(weights))[:, None]
    return np.bincount(named.ravel(), minlength=room * len(weights)).reshape(-1, room)


_BATCH = 64  # queries that share a pass: their rotated coordinates stay in the L2 cache (C1)


@dataclass(eq=False)
class BitScan(Scan):
    """Codes, and perhaps full rows, under one distance; `z`: normal deviations of the filter and the error bars."""

    z: float = 0.0

    @property
    def codes(self) -> BitRows:
        """The codes that are scanned."""
        return cast(BitRows, self.kept.codes)

    def why(self) -> str:
        """Describe the scan in a few words."""
        measured = "full rows measured" if self.kept.has_full else "only codes stored"
        return f"flat over codes of {self.codes.frame.bits} bits per column, approximate: {measured}"

    @cached_property
    def lengths(self) -> tuple[np.float32, np.float32]:
        """The smallest and the largest length of a row."""
        half = self.codes.half
        if not len(half):
            return np.float32(1), np.float32(1)
        return np.sqrt(2 * half.min()), np.sqrt(2 * half.max())

    @cached_property
    def _sample(self) -> NDArray[np.float32]:
        return sample_signs(self.codes)

    @property
    def _z_of_two(self) -> float:
        """Normal deviations of half the probability: the first filter compares twice."""
        return float(-scipy.special.ndtri(0.5 * scipy.special.ndtr(-self.z)))

    def nearest(self, queries: NDArray, k: int) -> Neighbors:
        """Return positions and distances (q, k) of the nearest rows; distances are estimates without full rows."""
        exact, heaps = frozen(np.asarray(queries, dtype=np.float64)), empty_heaps(len(queries), k)
        batches = spans(len(exact), _BATCH * workers())
        self.touched = sum(self._batch(exact[batch], heaps.part(batch)) for batch in batches) / len(exact)
        return heaps.neighbors()

    def measure(self, queries: NDArray[np.float64], ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return distances (q, c) of queries (q, d) to the rows at ids (q, c), exact if full rows are stored."""
        if self.kept.has_full:
            return measured_rows(self.distance, queries, *self.kept.found(ids))
        coded, distances = self.encode(queries), np.empty(ids.shape)

        def work(part: slice) -> None:
            estimate_bits(self._how(self.z), self._coded, select_queries(coded, part), ids[part], distances[part])

        pmap(work, shares(len(ids), least=64))
        return distances

    def encode(self, queries: NDArray[np.float64]) -> CodedQueries:
        """Return queries (q, d) as the scan reads them."""
        return bit_queries(queries, self.codes.frame)

    def on_device(self, device: Device) -> Any:
        """Return the same search on a device."""
        from kway.rows.gpu.flat_search import DeviceBits

        return DeviceBits.over(self, device)

    @property
    def least(self) -> float:
        """The smallest possible distance."""
        return -EMPTY if self.distance.signed else 0.0

    @property
    def bar(self) -> float:
        """The error bar of an estimate, in units of f ||q||; 0 if there are no full rows."""
        return self.z * float(self.codes.widest[0]) if self.kept.has_full else 0.0

    def _batch(self, exact: NDArray[np.float64], heaps: Heaps) -> int:
        """Search the rows that pass the first filter; then all others, unless the k-th distance rules them out."""
        queries, codes, k = self.encode(exact), self.codes, heaps.ids.shape[1]
        with single_blas():
            filters, left, measured = make_filter(queries, self._sample, len(codes), k), np.arange(len(exact)), 0
        if filters is not None:
            measured = self._offer(queries, heaps, filters, True)
            done = np.empty(len(exact), dtype=bool)
            enough(self._how(self._z_of_two), heaps.distances[:, 0].copy(), queries, *self.lengths, filters, done)
            left = np.flatnonzero(~done)
        if len(left):
            own = Heaps(heaps.distances[left], heaps.ids[left])
            rest = select_filters(filters or empty_filter(len(exact)), left)
            measured += self._offer(select_queries(queries, left), own, rest, False)
            heaps.distances[left], heaps.ids[left] = own
        return measured

    def _offer(self, queries: CodedQueries, heaps: Heaps, filters: FirstFilter, passing: bool) -> int:
        """Offer the rows that pass the filter, or the others, to the heaps; return how many were measured."""
        bounds, q = heaps.distances[:, 0].copy(), len(queries.words)

        def work(rows: slice) -> tuple[Heaps, int]:
            own = empty_heaps(q, heaps.ids.shape[1])
            return own, self._scan_run(queries, own, rows, filters, passing, bounds)

        blocks = -(-self.n // BIT_BLOCK)  # one run of whole blocks per thread
        done = pmap(work, spans(self.n, BIT_BLOCK * -(-blocks // workers())))
        for own, _ in done:
            merge(*heaps, *own)
        return sum(measured for _, measured in done)

    def _scan_run(
        self, queries: CodedQueries, heaps: Heaps, rows: slice, filters: FirstFilter, passing: bool, bounds: NDArray
    ) -> int:
        """Do the work of one thread; return the number of rows measured, or estimated."""
        run, fast = (rows.start, rows.stop), chosen(*TABLE_FEATURES)
        if passing:
            how = self._how(self._z_of_two)
            counts = scan_first(how, self._coded, queries, *self.lengths, *run, filters, fast, bounds, *heaps)
        else:
            passed = PassedFilter(filters.planes, filters.mosts)
            longest = self.lengths[1]
            counts = scan_bits(self._how(self.z), self._coded, queries, longest, *run, passed, fast, bounds, *heaps)
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
    """Return codes as kernels read them, with full rows (n, d) or (0, d) and names (n,) or (0,)."""
    frame = codes.frame
    return CodedRows(frame.bits, codes.head, codes.rest, codes.factor, frame.unit, codes.half, full, frozen(names))
