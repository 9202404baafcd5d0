"""Codes of many blocks, one after another: arrays that grow where they lie, so that they are held once.

    head (P, m)             grows plane by plane: a longer row of a matrix would move all the others
    rest, factor, ... (m,)  grow along their rows
    widest (1,)             the largest so far

A longer array is asked of `realloc`, which moves pages instead of numbers where there are many; pieces in a list are
let go of one by one, but the holes between them are not given back: a hundred million codes of 66 bytes took 15 GiB.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kway.compute.kernels.codes.reorder import reorder_rows

_SPARE = 32  # a growing array takes 1 / SPARE more than it needs: many small blocks then cost no more than a few
_PLANES, _MOST = "head", "widest"


class Grown:
    """The arrays of the blocks so far; `take` gives each away once."""

    def __init__(self) -> None:
        self._long: dict[str, list[_Long]] = {}
        self._most: NDArray | None = None

    def add(self, arrays: Mapping[str, NDArray]) -> None:
        """A block's arrays."""
        for key, array in arrays.items():
            if key == _MOST:
                self._most = array if self._most is None else np.maximum(self._most, array)
                continue
            pieces = list(array) if key == _PLANES else [array]
            if key not in self._long:
                self._long[key] = [_Long(piece) for piece in pieces]
                continue
            for long, piece in zip(self._long[key], pieces):
                long.add(piece)

    def take(self, key: str, order: NDArray[np.int64] | None = None) -> NDArray:
        """One array of all blocks, its rows in this order (n,)."""
        if key == _MOST:
            assert self._most is not None
            return self._most
        long = self._long.pop(key)
        if key == _PLANES:
            return _stacked(long, order)
        whole = long.pop().whole()
        if order is None or not len(whole):  # halves, where all lengths are 1
            return whole
        if whole.ndim == 1:
            return np.asarray(whole[order])
        reorder_rows(whole, order, np.zeros(len(whole), dtype=bool))
        return whole


class _Long:
    """An array that grows along its first axis."""

    def __init__(self, first: NDArray) -> None:
        self.array, self.n = np.array(first, order="C"), len(first)  # a copy: only an array of its own can grow

    def add(self, piece: NDArray) -> None:
        """More rows."""
        end = self.n + len(piece)
        if end > len(self.array):
            self._resize(max(end, self.n + self.n // _SPARE))
        self.array[self.n : end] = piece
        self.n = end

    def whole(self) -> NDArray:
        """All rows."""
        self._resize(self.n)
        return self.array

    def _resize(self, n: int) -> None:
        self.array.resize((n, *self.array.shape[1:]), refcheck=False)  # nobody else has seen it


def _stacked(planes: list[_Long], order: NDArray[np.int64] | None) -> NDArray:
    """Planes (n,) as one matrix (P, n), each let go of when it is copied."""
    out: NDArray | None = None
    for w in range(len(planes)):
        plane = planes.pop(0).whole()
        if out is None:
            out = np.empty((len(planes) + 1, len(plane)), dtype=plane.dtype)
        if order is None:
            out[w] = plane
        else:
            np.take(plane, order, out=out[w], mode="clip")  # "clip" writes straight into out
    assert out is not None
    return out
