"""Distances that are products, on a device: euclidean, cosine, dot. What is scanned, and what it proves.

    name        d(q, x)                   sides               key of a row           distance of a score q.x - o
    euclidean   ||q - x||                 about a centre      o - q.x, o = |x|^2/2   sqrt(|q|^2 - 2 score)
    cosine      1 - q.x / (|q| |x|)       of length one       -q.x, o = 0            1 - score
    dot         -q.x                      as they are         -q.x, o = 0            -score

Keys grow with the distance. Those of a scan are rounded (`slack`: relative to the norms); `threshold` is the largest
key that a row at a distance can have, so that a row above the threshold of the k-th distance is proven too far. The
arithmetic is that of kway.compute.kernels.topk, for tensors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from kway.compute.gpu.device import Tensor, load_torch
from kway.compute.kernels.float32 import PRODUCT_UNDERFLOW


@dataclass(frozen=True)
class Product(ABC):
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


class EuclideanProduct(Product):
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


class CosineProduct(Product):
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


class DotProduct(Product):
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


PRODUCTS: dict[str, Product] = {kind.name: kind for kind in (EuclideanProduct(), CosineProduct(), DotProduct())}
