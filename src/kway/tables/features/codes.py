"""Codes: one number per level of a column, for trees.

    code 0 is the first level, 1 the next, ...; missing values and levels not seen in training are NaN

Up to MOST_CODES levels are categories, which boosted trees divide into sets. They are in alphabetical order, because
forests compare codes by their order, and names such as "A1", "A2", "A3" often follow an order. More levels are in order
of their frequency. Levels of a single row are then left out, because no tree can learn from one row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kway.tables.features.columns import as_words

MOST_CODES = 255  # levels of a category of HistGradientBoostingClassifier


@dataclass(frozen=True)
class Codes:
    """The levels of a column, in the order of their codes."""

    name: str
    kept: tuple[str, ...]

    @property
    def made(self) -> tuple[str, ...]:
        """Name of the one column of the result."""
        return (self.name,)

    @property
    def is_category(self) -> bool:
        """Whether trees divide the levels into sets; else they compare them by frequency."""
        return len(self.kept) <= MOST_CODES

    def apply(self, column: Any) -> NDArray[np.float64]:
        """Return codes (n, 1), NaN for missing values and unknown levels."""
        found = pc.index_in(as_words(column), value_set=pa.array(self.kept, pa.large_string()))
        return np.array(found.cast("float64").to_numpy(zero_copy_only=False), np.float64)[:, None]


def learn_codes(column: Any, name: str) -> Codes:
    """Learn the levels of a column from training rows."""
    counted = pc.value_counts(as_words(column).drop_null())
    names, counts = counted.field("values").to_pylist(), counted.field("counts").to_numpy()
    if len(names) <= MOST_CODES:
        return Codes(name, tuple(sorted(names)))
    by_frequency = sorted(range(len(names)), key=lambda i: (-counts[i], names[i]))
    return Codes(name, tuple(names[i] for i in by_frequency if counts[i] > 1))


def repeats_levels(column: Any) -> bool:
    """Return whether the words of a column are levels that occur in two rows on average, or more; else free text."""
    words = as_words(column).drop_null()
    return bool(2 * pc.count_distinct(words).as_py() <= len(words))
