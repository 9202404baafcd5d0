"""Exact search on a device: the k nearest rows (n, d) of each query, by (float64 distance, then lower position).

    name        d(q, x)                   sides               key of a row           distance of a score q.x - o
    euclidean   ||q - x||                 about a center      o - q.x, o = |x|^2/2   sqrt(|q|^2 - 2 score)
    cosine      1 - q.x / (|q| |x|)       of length one       -q.x, o = 0            1 - score
    dot         -q.x                      as they are         -q.x, o = 0            -score

keys        products of float32 in blocks of queries and rows, the k + m smallest of each query kept
measured    these k + m again in float64
proof       the largest key kept lies above the threshold of the k-th distance, rounding included: no other is nearer
else        again with more kept, in the end every row in float64

If there are enough rows, they are filtered by bytes first (int8_search.py); what that cannot settle comes here. The
arithmetic of thresholds is that of kway.kernels.topk, for tensors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.kernels.float32 import FLOAT32_SAFE, PRODUCT_UNDERFLOW
from kway.rows.gpu.device import Device, Tensor, load_torch


@dataclass(frozen=True)
class DeviceMetric(ABC):
    """One distance; instances are all alike."""

    name: ClassVar[str]
    centred: ClassVar[bool] = False

    def side(self, rows: Tensor, centre: Tensor | None) -> Tensor:
        """Rows or queries (n, d) float64 as they enter the products."""
        return rows if centre is None else rows - centre

    def scales(self, lengths: Tensor) -> Tensor:
        """What brings products of the rows themselves, of these lengths (n,), to those of their sides."""
        return load_torch().ones_like(lengths)

    def holds(self, lengths: Tensor, safe: tuple[float, float]) -> bool:
        """Whether products of rows of these lengths are safe in float32."""
        return True

    def offsets(self, squares: Tensor) -> Tensor:
        """o (n,) of rows whose sides have these squared norms (n,)."""
        return load_torch().zeros_like(squares)

    @abstractmethod
    def threshold(self, worst: Tensor, norm: Tensor, reach: float, slack: float) -> Tensor:
        """The largest key (q,) of a row at distance <= worst (q,), for queries of these norms (q,), float64."""

    @abstractmethod
    def score(self, worst: Tensor, norm: Tensor) -> Tensor:
        """The score q.x - o (q,) of a row at this distance (q,), float64."""

    @abstractmethod
    def measure(self, queries: Tensor, rows: Tensor) -> Tensor:
        """d (m, c) float64 of queries (m, d) and rows (m or 1, c, d), both float64."""


class EuclideanMetric(DeviceMetric):
    """||q - x||."""

    name = "euclidean"
    centred = True

    def offsets(self, squares: Tensor) -> Tensor:
        """|x|^2 / 2."""
        return 0.5 * squares

    def threshold(self, worst: Tensor, norm: Tensor, reach: float, slack: float) -> Tensor:
        """(d^2 - |q|^2) / 2; a row longer than norm + worst is too far anyway, so the slack need not cover it."""
        longest = norm + (norm + worst).clamp(max=reach)
        return 0.5 * (worst - norm) * (worst + norm) + slack * longest * longest + PRODUCT_UNDERFLOW

    def score(self, worst: Tensor, norm: Tensor) -> Tensor:
        """(|q|^2 - d^2) / 2."""
        return 0.5 * (norm - worst) * (norm + worst)

    def measure(self, queries: Tensor, rows: Tensor) -> Tensor:
        """By differences: products cancel."""
        return (rows - queries[:, None]).square_().sum(2).sqrt_()


class CosineMetric(DeviceMetric):
    """1 - q.x / (|q| |x|), 1 where either is zero."""

    name = "cosine"

    def side(self, rows: Tensor, centre: Tensor | None) -> Tensor:
        """Of length one; zero rows stay zero."""
        norms = rows.square().sum(1, keepdim=True).sqrt_()
        return rows / norms.where(norms > 0, 1.0)

    def scales(self, lengths: Tensor) -> Tensor:
        """1 / |x|, 0 of zero rows."""
        return (lengths > 0).double() / lengths.where(lengths > 0, 1.0)

    def holds(self, lengths: Tensor, safe: tuple[float, float]) -> bool:
        """A scale would make a lost product large again."""
        held = lengths[lengths > 0]
        return not len(held) or bool((held.min() > safe[0]) & (held.max() < safe[1]))

    def threshold(self, worst: Tensor, norm: Tensor, reach: float, slack: float) -> Tensor:
        """d - 1."""
        return worst - 1.0 + slack

    def score(self, worst: Tensor, norm: Tensor) -> Tensor:
        """1 - d."""
        return 1.0 - worst

    def measure(self, queries: Tensor, rows: Tensor) -> Tensor:
        """As the CPU's kernel: the root of a product, so that identical rows are exactly 0 apart."""
        q = queries[:, None]
        products, both = (rows * q).sum(2), q.square().sum(2) * rows.square().sum(2)
        apart = (1.0 - products / both.where(both > 0, 1.0).sqrt_()).clamp_(0.0, 2.0)
        return apart.where(both > 0, 1.0)


class DotMetric(DeviceMetric):
    """-q.x."""

    name = "dot"

    def threshold(self, worst: Tensor, norm: Tensor, reach: float, slack: float) -> Tensor:
        """d."""
        return worst + slack * reach * norm + PRODUCT_UNDERFLOW

    def score(self, worst: Tensor, norm: Tensor) -> Tensor:
        """-d."""
        return -worst

    def measure(self, queries: Tensor, rows: Tensor) -> Tensor:
        """One sum of products."""
        return -(rows * queries[:, None]).sum(2)


METRICS: dict[str, DeviceMetric] = {kind.name: kind for kind in (EuclideanMetric(), CosineMetric(), DotMetric())}


KEPT_BEYOND = 22  # kept beyond k for the proof (G1)
LISTED = 2**26  # rows kept of all queries, or of all pairs of a query and a cell (G3)
MORE = 8  # times as many are kept if the proof failed
_MOST = 2048  # kept at most; beyond, every row is measured
BLOCK_QUERIES = 4096  # that are searched together (G1)
BLOCK_BYTES = 2**29  # bytes of keys, or of rows in float64, that are worked on together (G1, G3)
_GROUP = 32  # keys whose smallest is looked at first (G1)
_ROWS = 2**16  # of a block: its best few are picked from so many keys (G1)


class NearestRows(NamedTuple):
    """Positions (q, k) int64 and distances (q, k) float64 of the nearest, nearest first."""

    ids: Tensor
    distances: Tensor


SearchFunction = Callable[[Tensor, int], NearestRows]  # (queries, k) -> by (float64 distance, position)


@dataclass(frozen=True)
class ExactRows:
    """Rows (n, d) on a device, with what the keys need of each."""

    device: Device
    product: DeviceMetric
    rows: Tensor  # (n, d) float32 or float64, as given
    scale: Tensor  # (n,) 1, or 1 / |x| where sides have length one
    offset: Tensor  # (n,) o
    centre: Tensor | None  # (d,) float64
    reach: float  # the largest norm of a side
    slack: float

    @staticmethod
    def of(device: Device, rows: Tensor, product: DeviceMetric) -> ExactRows:
        """Rows that are on the device already."""
        torch, (n, d) = device.torch, rows.shape
        centre = _mean(rows) if product.centred else None
        squares = device.empty(n, "float64")
        lengths = device.empty(n, "float64")
        for part in parts_of(n, BLOCK_BYTES // (8 * d)):
            exact = rows[part].double()
            lengths[part] = exact.square().sum(1).sqrt_()
            squares[part] = product.side(exact, centre).square().sum(1)  # not in place: it may be the rows
        reach = float(squares.max().sqrt())
        safe = FLOAT32_SAFE[0] < reach < FLOAT32_SAFE[1] and product.holds(lengths, FLOAT32_SAFE)
        kind = torch.float32 if safe else torch.float64
        roundoff = (d + 32) * (2.0**-24 if kind == torch.float32 else 2.0**-53)
        slack = roundoff / (1.0 - roundoff) if roundoff < 0.5 else 1.0
        return ExactRows(
            device,
            product,
            rows,
            product.scales(lengths).to(kind),
            product.offsets(squares).to(kind),
            centre,
            reach,
            slack,
        )

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    @property
    def nbytes(self) -> int:
        """Int8Queries on the device."""
        held = (self.rows, self.scale, self.offset)
        return sum(int(t.numel() * t.element_size()) for t in held)

    def nearest(self, queries: Tensor, k: int) -> NearestRows:
        """The k <= n nearest of queries (q, d)."""
        ids, distances = self.device.empty((len(queries), k), "int64"), self.device.empty((len(queries), k), "float64")
        left = self.device.torch.arange(len(queries), device=self.device.name)
        keep = min(len(self), k + KEPT_BEYOND)
        with self.device.full_precision():
            while len(left) and keep <= max(_MOST, k + KEPT_BEYOND):
                undecided = []
                for some in left.split(BLOCK_QUERIES):
                    found, proven = self._filtered(queries[some].double(), k, keep)
                    ids[some], distances[some] = found
                    undecided.append(some[~proven])
                left, keep = self.device.torch.cat(undecided), min(len(self), MORE * keep)
        for one in left.split(16) if len(left) else ():
            ids[one], distances[one] = self.brute(queries[one].double(), k)
        return NearestRows(ids, distances)

    def _filtered(self, queries: Tensor, k: int, keep: int) -> tuple[NearestRows, Tensor]:
        """The k nearest among those of the smallest keys, and whether (q,) that is proven to be all."""
        sides = self.asked(queries)
        norms = sides.square().sum(1).sqrt_()
        kind = self.scale.dtype
        if float(norms.max()) >= FLOAT32_SAFE[1]:
            kind = self.device.torch.float64  # a query far out would overflow
        ids, keys = self._least(sides.to(kind), keep)
        ids = ids.sort(1).values
        found = sort_nearest(self.measured(queries, ids), ids, k)
        if keep == len(self):
            return found, self.device.torch.ones_like(norms, dtype=self.device.torch.bool)
        return found, keys.double().amax(1) > self.limit(found.distances[:, -1], norms)

    def _least(self, sides: Tensor, keep: int) -> NearestRows:
        """Positions and keys (q, keep) of the smallest keys."""
        torch, q = self.device.torch, len(sides)
        best: NearestRows | None = None
        step = max(keep, min(_ROWS, BLOCK_BYTES // (q * sides.element_size())))
        for part in parts_of(len(self), step):
            products = sides @ self.sides(part, sides.dtype).T  # (q, c)
            keys = torch.addcmul(
                self.offset[part].to(sides.dtype), products, self.scale[part].to(sides.dtype), value=-1
            )
            best = merge_smallest(best, smallest_keys(keys, keep), part.start, keep)
        assert best is not None
        return best

    def asked(self, queries: Tensor) -> Tensor:
        """Queries (q, d) float64 as they enter the products."""
        return self.product.side(queries, self.centre)

    def sides(self, at: Tensor | slice, kind: object) -> Tensor:
        """Rows of a part, or at places of any shape, as they enter the products, but for their scale."""
        rows = self.rows[at]
        return rows.to(kind) if self.centre is None else (rows.double() - self.centre).to(kind)

    def limit(self, worst: Tensor, norms: Tensor) -> Tensor:
        """The largest key (q,) of a row at distance <= worst (q,), for queries of these norms (q,)."""
        return self.product.threshold(worst * (1 + 1e-12), norms, self.reach, self.slack)

    def measured(self, queries: Tensor, ids: Tensor) -> Tensor:
        """Distances (q, c) float64 of queries (q, d) float64 to the rows at ids (q, c)."""
        return measured(self.product, self.rows, queries, ids)

    def brute(self, queries: Tensor, k: int, rounded: bool = False) -> NearestRows:
        """The k nearest of a few queries, every row measured; `rounded`: by the distance in float32, then position."""
        torch = self.device.torch
        best = NearestRows(
            self.device.empty((len(queries), 0), "int64"), self.device.empty((len(queries), 0), "float64")
        )
        step = max(k, BLOCK_BYTES // (8 * len(queries) * self.rows.shape[1]))
        for part in parts_of(len(self), step):
            away = self.product.measure(queries, self.rows[part].double()[None])  # (q, c)
            away = in_float32(away) if rounded else away
            here = torch.arange(part.start, part.stop, device=self.device.name).expand_as(away)
            best = sort_nearest(torch.cat([best.distances, away], 1), torch.cat([best.ids, here], 1), k)
        return best


class ListSearch(NamedTuple):
    """How a search over n rows is asked: for `spare` more than k; `brute`, where it has one, when ties go on."""

    n: int
    nearest: SearchFunction
    brute: SearchFunction | None = None
    spare: int = 1


def resolve_ties(asking: ListSearch, queries: Tensor, k: int) -> NearestRows:
    """The k nearest by (distance in float32, position), of a search by float64 distances; k + spare <= n.

    Where a tie crosses the end of the list, rows of lower position may lie beyond it: more are asked for, in the end
    every row is measured. A list without a spare one crosses wherever it holds a tie. Queries of float64 are answered
    in it, and nothing is rounded.
    """
    if queries.dtype == load_torch().float64:
        return asking.nearest(queries, k)
    ask, most = k + asking.spare, asking.n if asking.brute is None else min(_MOST, asking.n)
    found = _rounded(asking.nearest(queries, ask))
    ids, distances = found.ids[:, :k].clone(), found.distances[:, :k].clone()
    tied = (found.distances[:, 1:] == found.distances[:, :-1]).any(1)
    left = (tied & (found.distances[:, -1] == found.distances[:, k - 1])).nonzero()[:, 0]
    while len(left) and ask < most:
        ask = min(2 * ask + 8, asking.n)
        more = _rounded(asking.nearest(queries[left], ask))
        ids[left], distances[left] = more.ids[:, :k], more.distances[:, :k]
        left = left[more.distances[:, -1] == more.distances[:, k - 1]]
    if asking.brute is not None and len(left) and ask < asking.n:
        for some in left.split(16):
            ids[some], distances[some] = asking.brute(queries[some], k)
    return NearestRows(ids, distances)


def _rounded(found: NearestRows) -> NearestRows:
    """All of a list by (distance in float32, position)."""
    order = found.ids.argsort(1)
    return sort_nearest(in_float32(found.distances.gather(1, order)), found.ids.gather(1, order), found.ids.shape[1])


def in_float32(distances: Tensor) -> Tensor:
    """Distances as float32 gives them, in float64."""
    most = 3.4028234663852886e38
    return distances.clamp(-most, most).float().double()


def measured(product: DeviceMetric, rows: Tensor, queries: Tensor, ids: Tensor) -> Tensor:
    """Distances (q, c) float64 of queries (q, d) float64 to the rows at ids (q, c)."""
    step = max(1, BLOCK_BYTES // (8 * ids.shape[1] * rows.shape[1]))
    found = [product.measure(queries[part], rows[ids[part]].double()) for part in parts_of(len(queries), step)]
    return load_torch().cat(found)


def smallest_keys(keys: Tensor, keep: int) -> NearestRows:
    """Columns and values (q, keep), in any order, of the smallest of keys (q, c); all where there are fewer.

    They lie in the groups of the smallest minima: one pass finds these, and few are left to pick from.
    """
    q, c = keys.shape
    keep = min(keep, c)
    if c % _GROUP or c < 4 * _GROUP * keep:
        at = keys.topk(keep, 1, largest=False, sorted=False)
        return NearestRows(at.indices, at.values)
    grouped = keys.view(q, -1, _GROUP)
    groups = grouped.amin(2).topk(keep, 1, largest=False, sorted=False).indices  # (q, keep)
    some = grouped.gather(1, groups[:, :, None].expand(-1, -1, _GROUP)).flatten(1)
    at = some.topk(keep, 1, largest=False, sorted=False)
    return NearestRows(groups.gather(1, at.indices // _GROUP) * _GROUP + at.indices % _GROUP, at.values)


def merge_smallest(best: NearestRows | None, more: NearestRows, first: int, keep: int) -> NearestRows:
    """The smallest so far and those of a block whose columns are called first, first + 1, ..."""
    if best is None:
        return NearestRows(more.ids + first, more.distances)
    torch = load_torch()
    ids, values = torch.cat([best.ids, more.ids + first], 1), torch.cat([best.distances, more.distances], 1)
    at = values.topk(min(keep, values.shape[1]), 1, largest=False, sorted=False)
    return NearestRows(ids.gather(1, at.indices), at.values)


def sort_nearest(distances: Tensor, ids: Tensor, k: int) -> NearestRows:
    """The first k by (distance, position) of lists whose equal distances stand in the order of positions."""
    order = distances.sort(dim=1, stable=True).indices[:, :k]
    return NearestRows(ids.gather(1, order), distances.gather(1, order))


def _mean(rows: Tensor) -> Tensor:
    """The mean (d,): rows far from the origin and close together would lose float32's digits."""
    torch = load_torch()
    total = torch.zeros(rows.shape[1], dtype=torch.float64, device=rows.device)
    for part in parts_of(len(rows), BLOCK_BYTES // (8 * rows.shape[1])):
        total += rows[part].double().sum(0)
    return total / len(rows)


def parts_of(n: int, step: int) -> Iterator[slice]:
    """0..n in parts of so many, at least one."""
    step = max(1, int(step))
    return (slice(a, min(n, a + step)) for a in range(0, n, step))


def unit_rows(rows: Tensor) -> Tensor:
    """Rows (n, d) float64 of length one; zero rows stay zero."""
    norms = rows.square().sum(1, keepdim=True).sqrt()
    return rows / norms.where(norms > 0, 1.0)


def place_rows(rows: Tensor, by_angle: bool) -> Tensor:
    """Rows (m, d) float64 in the space of a distance: of length one if it is by angle."""
    return unit_rows(rows.double()) if by_angle else rows.double()


def by_distance(ids: NDArray[np.int64], distances: NDArray[np.float64]) -> NearestRows:
    """Lists (q, k) by (distance, position)."""
    order = np.lexsort((ids, distances), axis=1)
    return NearestRows(np.take_along_axis(ids, order, axis=1), np.take_along_axis(distances, order, axis=1))
