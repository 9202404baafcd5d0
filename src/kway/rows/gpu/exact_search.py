"""Exact search on a device: the k nearest rows (n, d) of each query by float64 distance, then by lower position.

    metric      d(q, x)                   operands q, x       key of a row           distance of a score q.x - o
    euclidean   ||q - x||                 minus the mean      o - q.x, o = |x|^2/2   sqrt(|q|^2 - 2 score)
    cosine      1 - q.x / (|q| |x|)       of length one       -q.x, o = 0            1 - score
    dot         -q.x                      as given            -q.x, o = 0            -score

1. Compute keys by float32 products in blocks of queries and rows, and keep the k + m smallest keys of each query.
2. Measure these rows again in float64.
3. If the largest key kept is above the key of the k-th distance plus a bound of the rounding error, no other row can be
   nearer, and the answer is proven. Otherwise keep more rows, and in the end measure every row in float64.

With many rows, an int8 filter goes first (int8_search.py). The thresholds are those of kway.kernels.topk.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.kernels.float32 import FLOAT32_SAFE, PRODUCT_UNDERFLOW
from kway.rows.gpu.device import MAX_NEIGHBORS, Device, Tensor, load_torch, row_blocks, rows_that_fit
from kway.threads import spans

EXTRA_KEPT = 22  # rows kept beyond k, with which nearly every query is proven (decided by the benchmark gpu_search)
MORE_KEPT = 8  # factor by which the number of kept rows grows if the proof fails (gpu_search)
BLOCK_QUERIES = 4096  # queries that are searched together (gpu_search)
GROUP = 64  # keys or scores of a group; the k smallest are in the k groups with the smallest minima (gpu_search)


@dataclass(frozen=True)
class DeviceMetric(ABC):
    """A metric whose keys are products."""

    name: ClassVar[str]
    centered: ClassVar[bool] = False

    def operand(self, rows: Tensor, center: Tensor | None = None) -> Tensor:
        """Return rows or queries (n, d) as they enter the products, in float64."""
        return rows.double() if center is None else rows - center  # the center is float64, so the difference is

    def scales(self, lengths: Tensor) -> Tensor:
        """Return the factors (n,) from products of the given rows to products of their operands."""
        return load_torch().ones_like(lengths)

    def is_safe(self, lengths: Tensor, safe: tuple[float, float]) -> bool:
        """Return whether float32 holds products of rows of these lengths."""
        return True

    def offsets(self, squares: Tensor) -> Tensor:
        """Return o (n,) of rows whose operands have these squared norms (n,)."""
        return load_torch().zeros_like(squares)

    @abstractmethod
    def threshold(self, worst: Tensor, norm: Tensor, reach: float, slack: float) -> Tensor:
        """Return the largest key (q,) of a row at distance <= worst (q,), for queries of these norms (q,), float64."""

    @abstractmethod
    def measure(self, queries: Tensor, rows: Tensor) -> Tensor:
        """Return the distances (m, c) of queries (m, d) and rows (m or 1, c, d), all float64."""


class EuclideanMetric(DeviceMetric):
    """||q - x||."""

    name = "euclidean"
    centered = True

    def offsets(self, squares: Tensor) -> Tensor:
        """Return |x|^2 / 2."""
        return 0.5 * squares

    def threshold(self, worst: Tensor, norm: Tensor, reach: float, slack: float) -> Tensor:
        """Return (d^2 - |q|^2) / 2 plus the rounding error of a key.

        The error grows with the length of a row. A row at distance <= worst is no longer than norm + worst.
        """
        longest = norm + (norm + worst).clamp(max=reach)
        return 0.5 * (worst - norm) * (worst + norm) + slack * longest * longest + PRODUCT_UNDERFLOW

    def measure(self, queries: Tensor, rows: Tensor) -> Tensor:
        """Sum squared differences, because products cancel."""
        return (rows - queries[:, None]).square_().sum(2).sqrt_()


class CosineMetric(DeviceMetric):
    """1 - q.x / (|q| |x|), 1 if either is zero."""

    name = "cosine"

    def operand(self, rows: Tensor, center: Tensor | None = None) -> Tensor:
        """Return the rows divided by their lengths; zero rows stay zero."""
        return unit_rows(rows.double())

    def scales(self, lengths: Tensor) -> Tensor:
        """Return 1 / |x|, and 0 for zero rows."""
        return (lengths > 0).double() / lengths.where(lengths > 0, 1.0)

    def is_safe(self, lengths: Tensor, safe: tuple[float, float]) -> bool:
        """Return whether no product underflows or overflows before it is scaled."""
        nonzero = lengths[lengths > 0]
        return not len(nonzero) or bool((nonzero.min() > safe[0]) & (nonzero.max() < safe[1]))

    def threshold(self, worst: Tensor, norm: Tensor, reach: float, slack: float) -> Tensor:
        """Return d - 1 plus slack."""
        return worst - 1.0 + slack

    def measure(self, queries: Tensor, rows: Tensor) -> Tensor:
        """Take the root of a product, as the CPU's kernel does, so that equal rows have distance 0."""
        q = queries[:, None]
        products, squares = (rows * q).sum(2), q.square().sum(2) * rows.square().sum(2)
        distances = (1.0 - products / squares.where(squares > 0, 1.0).sqrt_()).clamp_(0.0, 2.0)
        return distances.where(squares > 0, 1.0)


class DotMetric(DeviceMetric):
    """-q.x."""

    name = "dot"

    def threshold(self, worst: Tensor, norm: Tensor, reach: float, slack: float) -> Tensor:
        """Return d plus slack."""
        return worst + slack * reach * norm + PRODUCT_UNDERFLOW

    def measure(self, queries: Tensor, rows: Tensor) -> Tensor:
        """Sum the products."""
        return -(rows * queries[:, None]).sum(2)


METRICS: dict[str, DeviceMetric] = {kind.name: kind for kind in (EuclideanMetric(), CosineMetric(), DotMetric())}


class NearestRows(NamedTuple):
    """Positions (q, k) int64 and distances (q, k) float64 of the nearest rows, nearest first."""

    ids: Tensor
    distances: Tensor


class Answers:
    """The answers (q, k) so far, and the numbers of the queries `left`, whose answers are not proven.

    With `rounded`, distances are rounded to float32 before they are compared, so that more of them tie.
    """

    def __init__(self, device: Device, q: int, k: int, rounded: bool) -> None:
        self.device, self.left = device, device.torch.arange(q, device=device.name)
        self.k, self.rounded = k, rounded
        self.nearest = NearestRows(device.empty((q, k), "int64"), device.empty((q, k), "float64"))

    def search(self, batch: int, attempt: Callable[..., tuple[NearestRows, Tensor]]) -> None:
        """Search the queries that are left in batches.

        `attempt` receives the numbers (m,) of a batch, and returns its answers and whether (m,) they are proven.
        """
        unproven = []
        with self.device.full_precision():
            for part in self.left.split(batch):
                answer, proven = attempt(part)
                self.nearest.ids[part], self.nearest.distances[part] = answer
                unproven.append(part[~proven])
        self.left = self.device.torch.cat(unproven)

    def as_compared(self, distances: Tensor) -> Tensor:
        """Return distances (float64) as they are compared: rounded to float32, or unchanged."""
        return round_to_float32(distances) if self.rounded else distances

    def reach(self, nearest: NearestRows) -> Tensor:
        """Return a distance (q,) that no row exceeds whose distance ties with the k-th or is smaller."""
        worst = nearest.distances[:, -1]
        return worst.float().nextafter(worst.new_full((), float("inf")).float()).double() if self.rounded else worst

    def prove(
        self, n: int, smallest: NearestRows, measure: Callable[[Tensor], Tensor], limit: Callable[[Tensor], Tensor]
    ) -> tuple[NearestRows, Tensor]:
        """Return the k nearest of the rows of the smallest keys, and whether (q,) no other of the n rows is nearer.

        `measure` returns the distances (q, c) of rows (q, c), and `limit` the largest key (q,) of a row at most as far
        as a distance (q,).
        """
        ids = smallest.ids.sort(1).values
        nearest = sort_nearest(self.as_compared(measure(ids)), ids, self.k)
        if ids.shape[1] == n:
            return nearest, self.device.torch.ones_like(ids[:, 0], dtype=self.device.torch.bool)
        return nearest, smallest.distances.double().amax(1) > limit(self.reach(nearest))


@dataclass(frozen=True)
class ExactRows:
    """Rows (n, d) on a device, with one scale and one offset per row for the keys."""

    device: Device
    metric: DeviceMetric
    rows: Tensor  # (n, d) float32 or float64, as given
    scale: Tensor  # (n,) 1, or 1 / |x| if operands have length one
    offset: Tensor  # (n,) o
    center: Tensor | None  # (d,) float64
    reach: float  # the largest norm of an operand
    slack: float  # the relative rounding error of a key

    @staticmethod
    def build(device: Device, rows: Tensor, metric: DeviceMetric) -> ExactRows:
        """Return the search over rows that are on the device."""
        torch, (n, d) = device.torch, rows.shape
        center = _mean(rows) if metric.centered else None
        squares, lengths = device.empty(n, "float64"), device.empty(n, "float64")
        for part in row_blocks(n, 8 * d):
            exact = rows[part].double()
            lengths[part] = exact.square().sum(1).sqrt_()
            squares[part] = metric.operand(exact, center).square().sum(1)  # not in place: it may be the rows
        reach = float(squares.max().sqrt())
        safe = FLOAT32_SAFE[0] < reach < FLOAT32_SAFE[1] and metric.is_safe(lengths, FLOAT32_SAFE)
        dtype = torch.float32 if safe else torch.float64
        roundoff = (d + 32) * torch.finfo(dtype).eps / 2
        slack = roundoff / (1.0 - roundoff) if roundoff < 0.5 else 1.0
        scale, offset = metric.scales(lengths).to(dtype), metric.offsets(squares).to(dtype)
        return ExactRows(device, metric, rows, scale, offset, center, reach, slack)

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    def nearest(self, queries: Tensor, k: int, rounded: bool = False) -> NearestRows:
        """Return the k <= n nearest rows of queries (q, d); if `rounded`, by (distance in float32, position)."""
        answers, keep = Answers(self.device, len(queries), k, rounded), min(len(self), k + EXTRA_KEPT)
        while len(answers.left) and keep <= max(MAX_NEIGHBORS, k + EXTRA_KEPT):
            answers.search(BLOCK_QUERIES, lambda part, keep=keep: self._filter(queries[part].double(), keep, answers))
            keep = min(len(self), MORE_KEPT * keep)
        for part in answers.left.split(16) if len(answers.left) else ():
            answers.nearest.ids[part], answers.nearest.distances[part] = self.brute(queries[part].double(), k, rounded)
        return answers.nearest

    def nearest_in_float32(self, queries: Tensor, k: int) -> NearestRows:
        """Return the k <= n nearest rows of queries (q, d) by (distance in float32, position)."""
        return self.nearest(queries, k, rounded=True)

    def _filter(self, queries: Tensor, keep: int, answers: Answers) -> tuple[NearestRows, Tensor]:
        """Return the nearest of the rows of the smallest keys, and whether (q,) no other row can be nearer."""
        operands = self.metric.operand(queries, self.center)
        norms = operands.square().sum(1).sqrt_()
        dtype = self.scale.dtype
        if float(norms.max()) >= FLOAT32_SAFE[1]:
            dtype = self.device.torch.float64  # products with a very long query would overflow
        return answers.prove(
            len(self),
            self._smallest(operands.to(dtype), keep),
            lambda ids: measure_rows(self.metric, self.rows, queries, ids),
            lambda worst: self.key_limit(worst, norms),
        )

    def _smallest(self, operands: Tensor, keep: int) -> NearestRows:
        """Return positions and keys (q, keep) of the smallest keys."""
        torch, (q, d), dtype = self.device.torch, operands.shape, operands.dtype

        def keys(part: slice) -> Tensor:
            products = operands @ self.row_operands(part, dtype).T  # (q, c)
            return torch.addcmul(self.offset[part].to(dtype), products, self.scale[part].to(dtype), value=-1)

        size = rows_that_fit(max(operands.element_size() * q, 8 * d)) // GROUP * GROUP
        return smallest_of_blocks(keys, spans(len(self), max(keep, size)), keep)

    def row_operands(self, part: slice, dtype: object) -> Tensor:
        """Return a part of the rows as they enter the products, without their scale."""
        rows = self.rows[part]
        return rows.to(dtype) if self.center is None else (rows.double() - self.center).to(dtype)

    def key_limit(self, worst: Tensor, norms: Tensor) -> Tensor:
        """Return the largest key (q,) of a row at distance <= worst (q,), for queries of these norms (q,).

        1e-12 covers the rounding of a float64 distance, which is below 1e-15 times the root of the number of columns.
        """
        return self.metric.threshold(worst + 1e-12 * worst.abs(), norms, self.reach, self.slack)

    def brute(self, queries: Tensor, k: int, rounded: bool = False) -> NearestRows:
        """Measure every row for a few queries; if `rounded`, sort by the distance in float32, then by position."""
        torch, none = self.device.torch, (len(queries), 0)
        best = NearestRows(self.device.empty(none, "int64"), self.device.empty(none, "float64"))
        for part in spans(len(self), max(k, rows_that_fit(8 * len(queries) * self.rows.shape[1]))):
            distances = self.metric.measure(queries, self.rows[part].double()[None])  # (q, c)
            distances = round_to_float32(distances) if rounded else distances
            ids = torch.arange(part.start, part.stop, device=self.device.name).expand_as(distances)
            best = sort_nearest(torch.cat([best.distances, distances], 1), torch.cat([best.ids, ids], 1), k)
        return best


def all_within(queries: Tensor, limit: float) -> bool:
    """Return whether each query (q, d) is zero or has its largest absolute value between 1 / limit and limit."""
    peaks = queries.abs().amax(1)
    return bool(((peaks == 0) | ((peaks > 1 / limit) & (peaks < limit))).all())  # false for NaN and infinity


def round_to_float32(distances: Tensor) -> Tensor:
    """Round distances to float32 and return them in float64."""
    largest = float(np.finfo(np.float32).max)
    return distances.clamp(-largest, largest).float().double()


def measure_rows(metric: DeviceMetric, rows: Tensor, queries: Tensor, ids: Tensor) -> Tensor:
    """Return the distances (q, c) float64 of queries (q, d) float64 to the rows at ids (q, c)."""
    parts = row_blocks(len(queries), 8 * ids.shape[1] * rows.shape[1])
    return load_torch().cat([metric.measure(queries[part], rows[ids[part]].double()) for part in parts])


def smallest_keys(keys: Tensor, keep: int) -> NearestRows:
    """Return columns and values (q, keep) of the smallest keys (q, c), in any order; all keys if there are fewer.

    They are in the groups with the smallest minima. One pass finds these groups, and only their keys are sorted.
    """
    q, c = keys.shape
    keep = min(keep, c)
    if c % GROUP or c < 4 * GROUP * keep:
        at = keys.topk(keep, 1, largest=False, sorted=False)
        return NearestRows(at.indices, at.values)
    grouped = keys.view(q, -1, GROUP)
    groups = grouped.amin(2).topk(keep, 1, largest=False, sorted=False).indices  # (q, keep)
    candidates = grouped.gather(1, groups[:, :, None].expand(-1, -1, GROUP)).flatten(1)
    at = candidates.topk(keep, 1, largest=False, sorted=False)
    return NearestRows(groups.gather(1, at.indices // GROUP) * GROUP + at.indices % GROUP, at.values)


def smallest_of_blocks(keys: Callable[[slice], Tensor], blocks: list[slice], keep: int) -> NearestRows:
    """Return positions and keys (q, keep) of the smallest keys of all rows, from the keys (q, c) of each block."""
    torch, best = load_torch(), None
    for part in blocks:
        block = smallest_keys(keys(part), keep)
        ids, values = block.ids + part.start, block.distances
        if best is not None:
            ids, values = torch.cat([best.ids, ids], 1), torch.cat([best.distances, values], 1)
            at = values.topk(min(keep, values.shape[1]), 1, largest=False, sorted=False)
            ids, values = ids.gather(1, at.indices), at.values
        best = NearestRows(ids, values)
    assert best is not None
    return best


def sort_nearest(distances: Tensor, ids: Tensor, k: int) -> NearestRows:
    """Return the first k by (distance, position) of lists whose ids ascend among equal distances."""
    order = distances.sort(dim=1, stable=True).indices[:, :k]
    return NearestRows(ids.gather(1, order), distances.gather(1, order))


def _mean(rows: Tensor) -> Tensor:
    """Return the mean row (d,), which is subtracted because rows far from the origin lose digits in float32."""
    torch = load_torch()
    total = torch.zeros(rows.shape[1], dtype=torch.float64, device=rows.device)
    for part in row_blocks(len(rows), 8 * rows.shape[1]):
        total += rows[part].double().sum(0)
    return total / len(rows)


def unit_rows(rows: Tensor) -> Tensor:
    """Return rows (n, d) float64 divided by their lengths; zero rows stay zero."""
    norms = rows.square().sum(1, keepdim=True).sqrt_()
    return rows / norms.where(norms > 0, 1.0)


def by_distance(ids: NDArray[np.int64], distances: NDArray[np.float64]) -> NearestRows:
    """Sort lists (q, k) on the host by (distance, position)."""
    order = np.lexsort((ids, distances), axis=1)
    return NearestRows(np.take_along_axis(ids, order, axis=1), np.take_along_axis(distances, order, axis=1))
