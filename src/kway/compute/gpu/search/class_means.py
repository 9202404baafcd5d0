"""Class means on a device: those of a batch of rows, and rows answered by the nearest of K means.

    batch     mu_c = sum of w x / sum of w,  spread = sum of w |x - mu_c|^2     float64, a block of rows at a time
    scores    z_c = scale (x . m_c + o_c), the largest of each row set to 0     (n, K)
    best      the k largest, equals by the lower class, and their shares exp(z_c) / sum; never (n, K)

Rows are moved as the classifier moves them: shifted by the centre of the means, or of length one (cosine).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.gpu.device import Device, Tensor
from kway.compute.gpu.search.cells import of_length_one
from kway.compute.gpu.search.exact import VALUES, parts_of

_WIDE = 2**14  # classes of a block, where there are more
_SCORES = 2**26  # scores of a block of rows


class BatchMeans(NamedTuple):
    """Weights (c,), means (c, d) and the weighted sum of squared deviations of a batch of rows, float64."""

    weights: NDArray[np.float64]
    means: NDArray[np.float64]
    spread: float


def batch_means(device: Device, rows: Callable[[slice], Tensor], place: NDArray, w: NDArray, d: int) -> BatchMeans:
    """Of rows whose classes are place (n,) 0..c - 1; rows(part) gives a part of them (m, d) on the device."""
    torch, n, c = device.torch, len(place), int(place.max()) + 1
    step = max(1, VALUES // (8 * d))
    with device.room(f"the means of {c:,} classes x {d} columns", 16 * c * d + 24 * n):
        codes, weight = device.put(place), device.put(w, torch.float64)
        weights = device.zeros(c, "float64").index_add_(0, codes, weight)
        means = device.zeros((c, d), "float64")
        for part in parts_of(n, step):
            means.index_add_(0, codes[part], rows(part).double() * weight[part][:, None])
        means /= weights.clamp(min=1e-300)[:, None]
        spread = device.zeros(1, "float64")
        for part in parts_of(n, step):
            spread += weight[part] @ (rows(part).double() - means[codes[part]]).square().sum(1)
        return BatchMeans(device.fetch(weights), device.fetch(means), float(spread))


class BestMeans(NamedTuple):
    """Codes (n, k) of the nearest means, nearest first, and their scores or shares (n, k)."""

    codes: Tensor
    scores: Tensor


@dataclass(frozen=True)
class MeansThere:
    """Rows m (K, d) and offsets o (K,) of the scores, and what rows are moved by: (d,) float64, None: to length one."""

    device: Device
    rows: Tensor
    offset: Tensor
    centre: Tensor | None
    scale: float

    def best(self, X: Tensor, k: int, stated: bool) -> BestMeans:
        """The k nearest of rows (n, d), scores of any size or, if `stated`, shares."""
        with self.device.room(f"the nearest means of {len(X):,} rows"), self.device.full_precision():
            parts = [self._best(self._moved(X[rows]), k, stated) for rows in self._blocks(len(X))]
        return BestMeans(*(self.device.torch.cat(values) for values in zip(*parts)))

    def scores(self, X: Tensor) -> Tensor:
        """z (n, K), the largest of each row set to 0."""
        n, wide = len(X), len(self.offset)
        with self.device.room(f"the scores of {n:,} rows x {wide:,} classes", n * wide * self.rows.element_size()):
            out = self.device.torch.empty((n, wide), dtype=self.rows.dtype, device=self.device.name)
            with self.device.full_precision():
                for rows in self._blocks(n):
                    f = self.device.torch.addmm(self.offset, self._moved(X[rows]), self.rows.T)
                    out[rows] = self._z(f - f.amax(1, keepdim=True))
        return out

    def probabilities(self, X: Tensor) -> Tensor:
        """(n, K), whose argmax is the class of the largest score, also where they are equal in their digits."""
        from kway.compute.gpu.linear.class_answers import lifted

        z = self.scores(X)
        return lifted(z.softmax(1), z.argmax(1))

    def _blocks(self, n: int) -> Iterator[slice]:
        return parts_of(n, _SCORES // min(_WIDE, len(self.offset)))

    def _moved(self, X: Tensor) -> Tensor:
        exact = X.double()
        return (of_length_one(exact) if self.centre is None else exact - self.centre).to(self.rows.dtype)

    def _z(self, f: Tensor) -> Tensor:
        most = self.device.torch.finfo(f.dtype).max / 4
        return (f.double() * self.scale).clamp(-most, most).to(f.dtype)

    def _best(self, moved: Tensor, k: int, stated: bool) -> BestMeans:
        torch, m = self.device.torch, len(moved)
        codes, scores = moved.new_empty((m, 0), dtype=torch.int64), moved.new_empty((m, 0))
        peak, total = moved.new_full((m, 1), -float("inf")), moved.new_zeros((m, 1))
        for some in parts_of(len(self.offset), _WIDE):
            f = torch.addmm(self.offset[some], moved, self.rows[some].T)  # (m, c)
            at = f.argmax(1, keepdim=True) if k == 1 else f.sort(dim=1, descending=True, stable=True).indices[:, :k]
            scores, codes = torch.cat([scores, f.gather(1, at)], 1), torch.cat([codes, at + some.start], 1)
            order = scores.sort(dim=1, descending=True, stable=True).indices[:, :k]  # equals keep the order of codes
            scores, codes = scores.gather(1, order), codes.gather(1, order)
            if stated:
                z, before = self._z(f), peak
                peak = torch.maximum(peak, z.amax(1, keepdim=True))
                total = total * (before - peak).exp() + (z - peak).exp().sum(1, keepdim=True)
        return BestMeans(codes, (self._z(scores) - peak).exp() / total if stated else scores)
