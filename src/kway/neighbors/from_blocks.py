"""Neighbours among rows that come in blocks and are let go of: codes of them are kept, and their labels.

    blocks (X, y) -> index.build_blocks -> codes (n, ...)          labels (n,) are gathered on the way

Nothing is promised of the votes: the rows that a promise would be held against are gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kway.base.own_threads import on_own_threads
from kway.data.blocks.labelled_blocks import dense_blocks
from kway.data.labels import encode, joined
from kway.errors import CombinationError
from kway.neighbors.training_rows import TrainingRows
from kway.search.auto import pick_index
from kway.search.flat import Flat
from kway.search.spaces.metrics import pick_metric
from kway.search.stores.int8 import Int8

if TYPE_CHECKING:
    from kway.neighbors.classifier import NeighborsClassifier


@on_own_threads
def code_training_blocks(model: NeighborsClassifier, blocks: Iterable[tuple[Any, Any]]) -> None:
    """NeighborsClassifier.fit_blocks."""
    model._check_parameters()
    if model.device == "cuda":
        raise CombinationError("rows that come in blocks are coded on the CPU; use device='cpu' or 'auto'")
    asked = Flat(store=Int8(rerank=False)) if model.index == "auto" else model.index
    recipe = pick_index(asked, 0, 0, pick_metric(model.metric)).recipe
    store = getattr(recipe, "store", None)
    if store is None or store.rerank:
        raise CombinationError(
            f"rows that come in blocks are kept as codes alone, got {recipe}; use index='auto', or Flat or Landmarks "
            "with store=Bits(rerank=False)"
        )
    model._forget()
    labels: list[NDArray] = []
    index = recipe.build_blocks(_rows(blocks, labels), model.metric)
    found = encode(joined(labels))
    model.classes_, model.n_features_in_, model.index_ = found.classes, index.n_features, index
    model.promise_ = None
    model._training = TrainingRows(None, found.codes, None, np.bincount(found.codes).astype(np.float64))
    model._weigh_classes()


def _rows(blocks: Iterable[tuple[Any, Any]], labels: list[NDArray]) -> Iterator[NDArray]:
    """The rows of blocks; their labels are added to a list."""
    for X, y in dense_blocks(blocks):
        labels.append(y)
        yield X
