"""A category as columns of 0 and 1: one for each level that is not rare, one for the others, one for missing.

A level never seen in training counts as one of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.data.features.columns import as_words


@dataclass(frozen=True)
class Levels:
    """The levels kept, and whether training rows had others or gaps (only then is there a column to learn for)."""

    name: str
    kept: tuple[str, ...]
    has_others: bool
    has_missing: bool

    @property
    def made(self) -> tuple[str, ...]:
        """Names of the columns that come out."""
        extra = (["(other)"] if self.has_others else []) + (["(missing)"] if self.has_missing else [])
        return tuple(f"{self.name}={level}" for level in (*self.kept, *extra))

    def apply(self, column: Any) -> sp.csr_matrix:
        """(n, levels) CSR of float32; a row is all 0 where its level has no column."""
        codes = self.codes(column)
        rows = np.flatnonzero(codes >= 0)
        indptr = np.concatenate([[0], np.cumsum(codes >= 0)])
        ones = np.ones(len(rows), np.float32)
        return sp.csr_matrix((ones, codes[rows], indptr), shape=(len(codes), len(self.made)))

    def codes(self, column: Any) -> NDArray[np.int64]:
        """The column (n,) of each row, -1 where there is none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        words = as_words(column)
        found = pc.index_in(words, value_set=pa.array(self.kept, pa.large_string())).fill_null(-1)
        codes = found.to_numpy(zero_copy_only=False).astype(np.int64)
        missing = words.is_null().to_numpy(zero_copy_only=False)
        other = len(self.kept) if self.has_others else -1
        codes[codes < 0] = other
        codes[missing] = len(self.kept) + self.has_others if self.has_missing else other
        return codes


def learn_levels(column: Any, name: str, kept: tuple[str, ...]) -> Levels:
    """The encoder for a category whose levels have been chosen."""
    every = Levels(name, kept, True, True).codes(column)
    return Levels(name, kept, bool((every == len(kept)).any()), bool((every == len(kept) + 1).any()))
