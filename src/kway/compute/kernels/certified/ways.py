"""Ways to the same sums of codes, for different CPUs; each distance has its own (tile_l1, tile_l2), slowest first.

A way is known by its number in the table of its distance; way 0 runs on any CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kway.compute.kernels.lanes import chosen


class TileWay(NamedTuple):
    """How the sums of a tile, some queries x 64 rows, are made.

    sums      (asm, x, asked, stride, bias, words, queries) -> [query][vector of rows], 8 rows a vector or more: int32
              or int64, or float32 that are whole; x, asked, bias are addresses, stride is from query to query
    queries   a tile
    features  that the CPU must have
    small     whether the smaller a sum, the nearer its row; else the larger
    """

    sums: Callable[..., list[Any]]
    queries: int
    features: tuple[str, ...] = ()
    small: bool = False


def best_way(ways: Sequence[TileWay]) -> int:
    """The fastest way that this CPU has, and that KWAY_PORTABLE allows."""
    return max(number for number, way in enumerate(ways) if number == 0 or chosen(*way.features))
