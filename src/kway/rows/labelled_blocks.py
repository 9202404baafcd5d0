"""Blocks of rows with their labels, such as a generator's: checked as they come, for every `fit_blocks`.

[(X, y), ...]   X (m, d) of any kind that the gate takes, y (m,) labels of one kind in all blocks
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.errors import InputError
from kway.labels import check_width, column, joined, refuse_masked
from kway.rows.gpu.device import on_host


class LabelledBlock(NamedTuple):
    """Rows X (m, d), m > 0, and their labels (m,)."""

    X: Any
    y: NDArray


def labelled_blocks(blocks: Iterable[tuple[Any, Any]]) -> Iterator[LabelledBlock]:
    """Blocks that have rows, these as they came; an error where none came."""
    first: NDArray | None = None
    for X, y in _pairs(blocks):
        refuse_masked(X, "X of a block")
        if len(np.shape(X)) != 2:
            raise InputError(f"blocks must be (X, y): X of shape (rows, features), got shape {np.shape(X)}")
        labels, n = column(on_host(y)), np.shape(X)[0]
        if len(labels) != n:
            raise InputError(f"a block has {n:,} rows and {len(labels):,} labels; give a label a row")
        if not n:
            continue
        first = labels[:1].copy() if first is None else first
        joined([first, labels[:1]])  # refuses text beside numbers now, not after all blocks
        yield LabelledBlock(X, labels.copy())  # a generator may fill the same array again
    if first is None:
        raise InputError("there is nothing to learn from: no block of rows came")


def dense_blocks(blocks: Iterable[tuple[Any, Any]]) -> Iterator[LabelledBlock]:
    """The same with rows as arrays (m, d) of numbers, all as wide as the first."""
    width = None
    for X, y in labelled_blocks(blocks):
        rows = np.asarray(on_host(X))
        if rows.dtype.kind not in "fiub":
            got = "a sparse matrix" if sp.issparse(X) else f"{type(X).__name__} of {rows.dtype}"
            raise InputError(f"blocks must be (X, y): X dense numbers, got {got}")
        width = check_width(rows, width)
        yield LabelledBlock(rows, y)


def _pairs(blocks: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(blocks, str | bytes | dict) or not isinstance(blocks, Iterable):
        raise InputError(f"blocks must be an iterable of pairs (X, y), got {blocks!r:.60}")
    for block in blocks:
        if not isinstance(block, tuple | list) or len(block) != 2 or block[1] is None:
            raise InputError(f"blocks must be pairs (X, y), rows and a label a row; got a {type(block).__name__}")
        yield block[0], block[1]
