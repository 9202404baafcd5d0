"""Blocks of rows with their labels, such as a generator's: checked as they come, for every `fit_blocks`.

[(X, y), ...]   X (m, d) of any kind that the gate takes, y (m,) labels of one kind in all blocks
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.data.messages import refuse_masked
from kway.errors import InputError


class LabelledBlock(NamedTuple):
    """Rows X (m, d) and their labels (m,)."""

    X: Any
    y: NDArray


def labelled_blocks(blocks: Iterable[tuple[Any, Any]]) -> Iterator[LabelledBlock]:
    """Blocks that have rows; the rows as they came."""
    kind = ""
    for X, y in _pairs(blocks):
        refuse_masked(X, "X of a block")
        refuse_masked(y, "y of a block")
        labels, n = np.asarray(y), np.shape(X)[0] if np.ndim(X) or sp.issparse(X) else 0
        if labels.ndim != 1 or len(labels) != n:
            raise InputError(f"a block has {n:,} rows and labels of shape {labels.shape}; give a label a row")
        if not n:
            continue
        own = _KINDS.get(labels.dtype.kind, "")
        if own and kind and own != kind:  # numpy would write the numbers out as words
            raise InputError(f"labels of a block are {own}, those of blocks before {kind}; give labels of one kind")
        kind = own or kind
        yield LabelledBlock(X, labels)


def dense_blocks(blocks: Iterable[tuple[Any, Any]]) -> Iterator[LabelledBlock]:
    """The same with rows as arrays (m, d) of numbers."""
    for X, y in labelled_blocks(blocks):
        rows = np.asarray(X)
        if sp.issparse(X) or rows.ndim != 2 or rows.dtype.kind not in "fiub":
            got = "a sparse matrix" if sp.issparse(X) else f"{rows.dtype} of shape {rows.shape}"
            raise InputError(
                f"blocks must be (X, y): numbers of shape (rows, features) and a label a row, got {got} and labels of "
                f"shape {y.shape}"
            )
        yield LabelledBlock(rows, y)


_KINDS = {"U": "words", "S": "words", "T": "words", "b": "numbers", "i": "numbers", "u": "numbers", "f": "numbers"}


def _pairs(blocks: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(blocks, str | bytes | dict) or not isinstance(blocks, Iterable):
        raise InputError(f"blocks must be an iterable of pairs (X, y), got {blocks!r:.60}")
    for block in blocks:
        if not isinstance(block, tuple | list) or len(block) != 2 or block[1] is None:
            raise InputError(f"blocks must be pairs (X, y), rows and a label a row; got a {type(block).__name__}")
        yield block[0], block[1]
