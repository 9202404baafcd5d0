"""Blocks (X, y) of labelled rows, such as a generator's, each looked at as it comes and then let go of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.gpu.device import on_host
from kway.data.labels import column
from kway.errors import InputError


class LabelledBlock(NamedTuple):
    """Rows (m, d) of numbers, m > 0, and their labels (m,)."""

    X: NDArray
    y: NDArray


def labelled_blocks(blocks: Iterable[tuple[Any, Any]]) -> Iterator[LabelledBlock]:
    """Blocks that have rows, all as wide as the first; an error where none came."""
    width = None
    for X, y in blocks:
        rows, labels = np.asarray(on_host(X)), column(on_host(y))
        if rows.ndim != 2 or rows.dtype.kind not in "fiub":
            raise InputError(
                "blocks must be (X, y): X dense numbers of shape (rows, features), got "
                f"{type(X).__name__} of {rows.dtype} and shape {np.shape(X)}"
            )
        if len(labels) != len(rows):
            raise InputError(f"a block has {len(labels):,} labels for {len(rows):,} rows; give a label a row")
        if not len(rows):
            continue
        width = rows.shape[1] if width is None else width
        if rows.shape[1] != width:
            raise InputError(f"a block has {rows.shape[1]} columns, the first had {width}; give all the same")
        yield LabelledBlock(rows, labels.copy())  # a generator may fill the same array again
    if width is None:
        raise InputError("there is nothing to learn from: no block of rows came")
