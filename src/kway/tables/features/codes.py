"""LevelCodes: one number per level of a column, for trees.

Missing values and levels that no training row has are NaN. If a column has more than MAX_CATEGORIES levels, the levels
of a single row get no code, because a tree cannot learn from one row.

If at most MAX_CATEGORIES levels have a code, the codes are categories, which boosted trees divide into sets. They are
in alphabetical order, because forests compare codes by their order, and names such as "A1", "A2", "A3" often follow an
order. Otherwise the levels are in order of their frequency, and trees compare the codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kway.tables.features.columns import ColumnPart, as_words

MAX_CATEGORIES = 255  # the number of categories that HistGradientBoostingClassifier accepts


@dataclass(frozen=True, eq=False)
class LevelCodes(ColumnPart):
    """The levels of a column that have a code, in the order of their codes."""

    levels: tuple[str, ...]

    @property
    def is_category(self) -> bool:
        """Whether trees divide the levels into sets. Otherwise they compare the codes."""
        return len(self.levels) <= MAX_CATEGORIES

    @property
    def output_names(self) -> tuple[str, ...]:
        """The name of the one output column."""
        return (self.column,)

    def encode(self, column: Any) -> NDArray[np.float64]:
        """Return codes (n, 1), NaN for missing values and unknown levels."""
        codes = pc.index_in(as_words(column), value_set=pa.array(self.levels, pa.large_string()))
        return np.array(codes.cast("float64").to_numpy(zero_copy_only=False), np.float64)[:, None]


def learn_codes(column: Any, name: str) -> LevelCodes:
    """Learn the levels of a column from training rows."""
    counted = pc.value_counts(as_words(column).drop_null())
    names, counts = counted.field("values").to_pylist(), counted.field("counts").to_numpy()
    min_rows = 2 if len(names) > MAX_CATEGORIES else 1
    levels = [i for i in range(len(names)) if counts[i] >= min_rows]
    is_category = len(levels) <= MAX_CATEGORIES
    order = sorted(levels, key=lambda i: names[i] if is_category else (-counts[i], names[i]))
    return LevelCodes(name, tuple(names[i] for i in order))


def repeats_levels(column: Any) -> bool:
    """Return whether the distinct values occur twice or more on average; otherwise the column is free text."""
    words = as_words(column).drop_null()
    return bool(2 * pc.count_distinct(words).as_py() <= len(words))
