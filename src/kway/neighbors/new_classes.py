"""Classes that come with later rows: the union of known and new labels, and where each old class moved to."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.data.labels import Labels, encode_as, joined
from kway.errors import InputError


class Merged(NamedTuple):
    """Classes (K,) after more rows came, codes (m,) of those rows, and the new code of each old class."""

    classes: NDArray
    codes: NDArray[np.int64]
    moved: NDArray[np.int64]


def named_classes(classes: Any) -> NDArray:
    """The classes that a first partial_fit names, in order."""
    named = np.unique(np.asarray(classes))
    if named.ndim != 1 or not len(named):
        raise InputError(f"classes must be a list of labels, got shape {np.shape(classes)}")
    return named


def merge_classes(known: NDArray, labels: Labels, fixed: bool) -> Merged:
    """Classes known before and those of new labels; `fixed` refuses labels that are not known."""
    if fixed or (len(labels.classes) and np.isin(labels.classes, known).all()):
        return Merged(known, encode_as(labels.classes, known)[labels.codes], np.arange(len(known)))
    classes = np.unique(joined([known, labels.classes]))
    return Merged(classes, encode_as(labels.classes, classes)[labels.codes], encode_as(known, classes))
