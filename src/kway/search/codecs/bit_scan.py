"""BitScan: a search of all rows by their codes (bits.py).

A batch of queries reads the codes once (kernels/codes/bit_scan.py). If full rows are stored, the rows that the error
bars cannot rule out are measured, and their distances are exact. Otherwise the k best by estimate are returned, with
estimated distances.

If there are so many rows that few of them can be near, a first filter (kernels/codes/first_filter.py) goes first. It
passes the rows whose bits differ from the query's signs in small coordinates only:

    2 |q_j|                summed over the differing bits j: sum of |q| - <q, signs of the row>
    unit                   scales the limit of that sum, below which a small share of a sample lies, to MAX_SUM
    w_j = 2 |q_j| / unit   rounded, five on average: the angle between w and |q| is about 2 degrees

If the k-th distance of a query shows that a nearer row may not have passed, a looser filter passes more rows. All rows
are scanned only for the queries for which this is not enough either. A batch filters by other groups of bits than a
single query. Therefore the two may miss different rows, each with a probability of at most `miss`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
import scipy
from numpy.typing import NDArray

from kway.kernels.codes.bit_cells import QUERY_BATCH
from kway.kernels.codes.bit_scan import CodedQueries, CodedRows, Estimator, estimate_bits, scan_bits
from kway.kernels.codes.first_filter import (
    BLOCK_ROWS,
    MAX_SUM,
    MAX_WEIGHT,
    WEIGHT_BITS,
    FirstFilter,
    enough,
    fill_tables,
    scan_first,
)
from kway.kernels.codes.row_tiles import TABLE_FEATURES
from kway.kernels.jit import frozen
from kway.kernels.lanes import chosen
from kway.kernels.topk import EMPTY, merge, merge_distinct
from kway.rows.gpu.device import Device
from kway.search.block_scan import Scan, measured_rows
from kway.search.codecs.bits import BitFrame, BitRows
from kway.search.distances import squares
from kway.search.results import Heaps, Neighbors, empty_heaps
from kway.threads import pmap, shares, single_blas, spans, workers


class FilterReads(NamedTuple):
    """What the first filter reads of all rows."""

    n_words: int  # words of a row
    n_groups: int  # groups of four bits in these words
    share: float  # share of the rows that should pass


# The constants of the filter are decided by the benchmark of code scans (C1). For rows in random directions, the two
# shares of FilterReads and the first of _SHARES correspond to a cosine of at most 0.51. That is 3.4 deviations below an
# estimate of 0.6 at 512 bits, so few queries at that cosine need the looser filter or a scan of all rows.
_ONE_QUERY = FilterReads(3, 48, 1 / 600)  # all groups of three words, because memory limits the speed
_BATCH_READS = FilterReads(4, 36, 1 / 1500)  # the largest groups of four words, because additions limit the speed
_SHARES = (1 / 20_000, 1 / 2000)  # share of the rows that should pass, of the first filter and of the looser one
_LOOSE = 10  # the groups pass at least this multiple of the rows that pass by all bits
_MIN_PASSING = 32  # at least this multiple of k rows should pass, so that the k-th distance is small
_LARGEST_SHARE = 0.05  # no filter is used if a larger share of the rows should pass
_SAMPLED_ROWS = 512  # rows from which the limits of the filter are estimated


def bit_queries(queries: NDArray[np.float64], frame: BitFrame) -> CodedQueries:
    """Return rotated queries: about the center of the rows for Euclidean distances, about the origin for others."""
    distance, center = frame.distance, frame.center.astype(np.float64)
    placed = np.asarray(distance.place(queries))
    rotated = frame.rotate(placed - center if distance.shifts else placed)
    norms = np.sqrt(squares(rotated))
    base = norms**2 if distance.shifts else (0.0 if distance.signed else 1.0) - placed @ center
    return CodedQueries(sign_words(rotated), rotated, rotated.sum(axis=1), norms, base, queries)


def sign_words(rotated: NDArray[np.float32]) -> NDArray[np.uint64]:
    """Return the signs of rotated queries (q, D) as words (q, W), with 1 for values >= 0 as in the codes of rows."""
    return np.packbits(rotated >= 0, axis=1, bitorder="little").view(np.uint64)


def _select_queries(queries: CodedQueries, which: Any) -> CodedQueries:
    selected = CodedQueries(*(array[which] for array in queries))
    return selected._replace(exact=frozen(selected.exact))


def sample_signs(codes: BitRows) -> NDArray[np.float32]:
    """Return the leading 64 P signs (s, 64 P), -1 or 1, of a sample of the rows."""
    words = codes.head[:, :: max(1, len(codes) // _SAMPLED_ROWS)].T
    bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=1, bitorder="little")
    return bits.astype(np.float32) * 2 - 1


def make_filter(
    queries: CodedQueries, sample: NDArray[np.float32], n: int, k: int, share: float = _SHARES[0]
) -> FirstFilter | None:  # fmt: skip
    """Return the filter for the k nearest of n rows like the sample (s, 64 P); None if it would save too little.

    About this share of the rows passes, or more if k is large.
    """
    share = max(share, _MIN_PASSING * k / n)
    if share > _LARGEST_SHARE:
        return None
    rotated = queries.rotated[:, : sample.shape[1]]
    reads = _BATCH_READS if len(queries.norms) > 1 else _ONE_QUERY
    groups = _largest_groups(rotated[:, : 64 * reads.n_words], reads.n_groups)
    in_groups = np.zeros_like(rotated)  # 1 for the coordinates of the groups
    np.put_along_axis(in_groups.reshape(len(rotated), -1, 4), groups[:, :, None].astype(np.int64), 1.0, axis=1)
    deviations = -scipy.special.ndtri(min(_LARGEST_SHARE, max(reads.share, _LOOSE * share)))
    units = np.maximum(_limits(in_groups * rotated, sample, deviations), np.finfo(np.float32).tiny) / MAX_SUM
    with np.errstate(over="ignore"):
        weights = np.minimum(np.rint(2.0 * np.abs(rotated) / units[:, None]), MAX_WEIGHT).astype(np.float32)
    signed = np.where(rotated >= 0, 0.5 * weights, -0.5 * weights)
    group_limits = np.minimum(_limits(in_groups * signed, sample, deviations), MAX_SUM)
    limits = [group_limits, _limits(signed, sample, -scipy.special.ndtri(share))]
    tables = np.empty((*groups.shape, 16), dtype=np.uint8)
    fill_tables(weights.astype(np.uint8), queries.words, groups, tables)
    return FirstFilter(
        n_words=min(reads.n_words, sample.shape[1] // 64),
        tables=tables,
        groups=groups,
        planes=bit_planes(np.stack([in_groups * weights, weights], axis=1)),
        limits=np.floor(np.stack(limits, axis=1)).astype(np.int64),
        counts=np.stack([_count_weights(in_groups * weights), _count_weights(weights)], axis=1),
        steps=0.5 * units / np.maximum(queries.norms, np.finfo(np.float64).tiny),
    )


def _largest_groups(rotated: NDArray[np.float32], n_groups: int) -> NDArray[np.uint8]:
    """Return the groups (q, at most n_groups) of four coordinates with the largest squares, in ascending order."""
    squared = np.square(rotated).reshape(len(rotated), -1, 4).sum(axis=2)
    if n_groups >= squared.shape[1]:
        return np.tile(np.arange(squared.shape[1], dtype=np.uint8), (len(rotated), 1))
    return np.sort(np.argpartition(squared, -n_groups, axis=1)[:, -n_groups:], axis=1).astype(np.uint8)


def _limits(values: NDArray[np.float32], sample: NDArray[np.float32], deviations: float) -> NDArray[np.float64]:
    """Return limits (q,) below which a small share of the sample lies: the mean minus `deviations` deviations.

    The sums are those of 2 |values| over differing bits.
    """
    sums = np.abs(values).sum(axis=1) - sample @ values.T  # (s, q)
    min_deviation = 0.5 * np.sqrt(squares(values))  # half of that of rows in random directions
    deviation = np.maximum(sums.std(axis=0, dtype=np.float64), min_deviation)
    return sums.mean(axis=0, dtype=np.float64) - deviations * deviation


def bit_planes(weights: NDArray) -> NDArray[np.uint64]:
    """Return bit b of all weights (q, 2, 64 P) as words (q, 2, P, WEIGHT_BITS)."""
    bits = (weights.astype(np.uint8)[:, :, None] >> np.arange(WEIGHT_BITS, dtype=np.uint8)[:, None]) & 1
    words = np.packbits(bits, axis=-1, bitorder="little").view(np.uint64)
    return np.ascontiguousarray(words.swapaxes(2, 3))


def _count_weights(weights: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the number of bits (q, MAX_WEIGHT + 1) of each weight."""
    n_weights = MAX_WEIGHT + 1
    numbered = weights.astype(np.int64) + n_weights * np.arange(len(weights))[:, None]
    return np.bincount(numbered.ravel(), minlength=n_weights * len(weights)).reshape(-1, n_weights)


def _merge_selected(heaps: Heaps, selected: NDArray[np.int64], scanned: Heaps) -> None:
    """Merge heaps of another scan into the heaps of the selected queries; a row that both contain is kept once."""
    merge_distinct(*scanned, heaps.distances[selected], heaps.ids[selected])
    heaps.distances[selected], heaps.ids[selected] = scanned


@dataclass(eq=False)
class BitScan(Scan):
    """Codes, and perhaps full rows, under one distance; `z`: normal deviations of the filter and the error bars."""

    z: float = 0.0

    @property
    def codes(self) -> BitRows:
        """The codes that are scanned, in the memory of the host."""
        assert self.kept.codes is not None
        return cast(BitRows, self.kept.codes.host)

    @property
    def frame(self) -> BitFrame:
        """What encoded the rows; codes on a GPU are not copied."""
        return cast(BitRows, self.kept.codes).frame

    def why(self) -> str:
        """Describe the scan in a few words."""
        measured = "full rows measured" if self.kept.has_full else "only codes stored"
        return f"flat over codes of {self.frame.bits} bits per column, approximate: {measured}"

    @cached_property
    def _lengths(self) -> tuple[np.float32, np.float32]:
        """The smallest and the largest length of a row."""
        half = self.codes.half
        if not len(half):
            return np.float32(1), np.float32(1)
        return np.sqrt(2 * half.min()), np.sqrt(2 * half.max())

    @cached_property
    def _sample(self) -> NDArray[np.float32]:
        return sample_signs(self.codes)

    def nearest(self, queries: NDArray, k: int) -> Neighbors:
        """Return positions and distances (q, k) of the nearest rows; distances are estimates without full rows."""
        exact, heaps = frozen(np.asarray(queries, dtype=np.float64)), empty_heaps(len(queries), k)
        batches = spans(len(exact), QUERY_BATCH * workers())
        self.touched = sum(self._search(exact[batch], heaps.part(batch)) for batch in batches) / len(exact)
        return heaps.neighbors()

    def measure(self, queries: NDArray[np.float64], ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return distances (q, c) of queries (q, d) to the rows at ids (q, c), exact if full rows are stored."""
        if self.kept.has_full:
            return measured_rows(self.distance, queries, *self.kept.select_rows(ids))
        encoded, distances = self.encode(queries), np.empty(ids.shape)

        def work(part: slice) -> None:
            queries_of_part = _select_queries(encoded, part)
            estimate_bits(self._estimator(self.z), self._coded, queries_of_part, ids[part], distances[part])

        pmap(work, shares(len(ids), least=64))
        return distances

    def encode(self, queries: NDArray[np.float64]) -> CodedQueries:
        """Return queries (q, d) as the scan reads them."""
        return bit_queries(queries, self.frame)

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
        return self.z * float(cast(BitRows, self.kept.codes).widest[0]) if self.kept.has_full else 0.0

    def _search(self, exact: NDArray[np.float64], heaps: Heaps) -> int:
        """Add the nearest rows of queries (q, d) to empty heaps; return the number of rows measured or estimated."""
        queries, k = self.encode(exact), heaps.ids.shape[1]
        rest, measured = np.arange(len(exact)), 0
        for share in _SHARES:
            remaining, scanned = _select_queries(queries, rest), empty_heaps(len(rest), k)
            with single_blas():
                filters = make_filter(remaining, self._sample, self.n, k, share)
            if filters is None:
                break
            measured += self._scan_filtered(remaining, scanned, filters)
            done = self._filter_passed_all(remaining, scanned, filters)
            _merge_selected(heaps, rest, scanned)
            rest = rest[~done]
            if not len(rest):
                return measured
        scanned, bounds = empty_heaps(len(rest), k), heaps.distances[rest, 0]
        measured += self._scan_all(_select_queries(queries, rest), scanned, bounds)
        _merge_selected(heaps, rest, scanned)
        return measured

    @property
    def _filter_z(self) -> float:
        """Normal deviations of one comparison: each of the filters compares twice and may miss a row."""
        n_comparisons = 2 * len(_SHARES)
        return float(-scipy.special.ndtri(scipy.special.ndtr(-self.z) / n_comparisons))

    def _scan_filtered(self, queries: CodedQueries, heaps: Heaps, filters: FirstFilter) -> int:
        """Add the nearest of the rows that pass to empty heaps; return the number of rows measured or estimated."""
        estimator, fast = self._estimator(self._filter_z), chosen(*TABLE_FEATURES)
        return self._scan_parts(
            heaps,
            lambda start, stop, part: scan_first(
                estimator, self._coded, queries, *self._lengths, start, stop, filters, fast, *part
            ),
        )

    def _filter_passed_all(self, queries: CodedQueries, heaps: Heaps, filters: FirstFilter) -> NDArray[np.bool_]:
        """Return for each query (q,) whether every row nearer than its k-th distance has passed the filter."""
        done = np.empty(len(queries.norms), dtype=bool)
        estimator = self._estimator(self._filter_z)
        enough(estimator, heaps.distances[:, 0].copy(), queries, *self._lengths, filters, done)
        return done

    def _scan_all(self, queries: CodedQueries, heaps: Heaps, bounds: NDArray[np.float64]) -> int:
        """Add the nearest rows to empty heaps; rows beyond the distances bounds (q,) are not needed."""
        estimator, fast, longest = self._estimator(self.z), chosen(*TABLE_FEATURES), self._lengths[1]
        return self._scan_parts(
            heaps,
            lambda start, stop, part: scan_bits(
                estimator, self._coded, queries, longest, start, stop, fast, bounds, *part
            ),
        )

    def _scan_parts(self, heaps: Heaps, scan: Callable[[int, int, Heaps], NDArray[np.int64]]) -> int:
        """Scan one run of rows per thread, and merge the heaps; return the number of rows measured, or estimated."""

        def work(rows: slice) -> tuple[Heaps, int]:
            part = empty_heaps(*heaps.ids.shape)
            counts = scan(rows.start, rows.stop, part)
            return part, int(counts[int(self.kept.has_full)])

        n_blocks = -(-self.n // BLOCK_ROWS)
        results = pmap(work, spans(self.n, BLOCK_ROWS * -(-n_blocks // workers())))
        for part, _ in results:
            merge(*heaps, *part)
        return sum(measured for _, measured in results)

    def _estimator(self, z: float) -> Estimator:
        shifts = self.distance.shifts
        return Estimator(self.distance.code, shifts, shifts, self.least, z, self.bar)

    @cached_property
    def _coded(self) -> CodedRows:
        full = self.kept.full
        rows = np.empty((0, self.d), dtype=np.float32) if full is None else full
        return coded_rows(self.codes, frozen(rows), np.empty(0, np.int64))


def coded_rows(codes: BitRows, full: NDArray, ids: NDArray[np.int64]) -> CodedRows:
    """Return codes as kernels read them, with full rows (n, d) or (0, d), and ids (n,), or (0,) for row numbers."""
    frame = codes.frame
    return CodedRows(frame.bits, codes.head, codes.rest, codes.factor, frame.unit, codes.half, full, frozen(ids))
