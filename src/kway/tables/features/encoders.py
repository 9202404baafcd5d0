"""Parts of a Features: each reads some columns of a table and makes a block (n, columns made), dense or CSR.

A category becomes columns of 0 and 1 (Levels): one for each level that is not rare, one for the others, one for missing
values; a level never seen in training counts as one of the others.

A part is a frozen dataclass of plain values, arrays and other such dataclasses, so that it goes into a model file field
by field: `part_to_facts` gives JSON facts and named arrays, `part_from_facts` the part again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.errors import InputError, ModelFileError
from kway.tables.features.columns import as_numbers, as_parts, as_vectors, as_words
from kway.tables.features.numbers import Numbers, SparseScaling
from kway.tables.features.shapes import Shapes
from kway.tables.features.text import Terms


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


# ---- parts


@dataclass(frozen=True)
class Source:
    """One number of a row: a column, or a part of a column of dates. `lenient`: odd words count as missing."""

    column: str
    part: str = ""
    lenient: bool = False

    @property
    def name(self) -> str:
        """column or column.part."""
        return f"{self.column}.{self.part}" if self.part else self.column


@dataclass(frozen=True, eq=False)
class NumbersPart:
    """Every number, true/false and date of the table, as one dense block."""

    sources: tuple[Source, ...]
    numbers: Numbers

    @property
    def made(self) -> tuple[str, ...]:
        """Names of the columns that come out."""
        return self.numbers.made

    def apply(self, table: Any) -> NDArray[np.float32]:
        """Dense (n, sources + flags)."""
        return self.numbers.apply(gather(table, self.sources))


@dataclass(frozen=True, eq=False)
class WordsPart:
    """A category or a text column."""

    column: str
    encoder: Levels | Terms

    @property
    def made(self) -> tuple[str, ...]:
        """Names of the columns that come out."""
        return self.encoder.made

    def apply(self, table: Any) -> Any:
        """CSR (n, levels or terms)."""
        return self.encoder.apply(table.column(self.column))


@dataclass(frozen=True, eq=False)
class VectorPart:
    """A column of vectors of one width; numbers is None where they are left alone."""

    column: str
    width: int
    numbers: Numbers | None

    @property
    def made(self) -> tuple[str, ...]:
        """Names of the columns that come out."""
        plain = tuple(f"{self.column}[{j}]" for j in range(self.width))
        return plain if self.numbers is None else self.numbers.made

    def apply(self, table: Any) -> NDArray[np.float32]:
        """Dense (n, width + flags)."""
        vectors = as_vectors(table.column(self.column), self.column, self.width)
        return vectors if self.numbers is None else self.numbers.apply(vectors)


@dataclass(frozen=True)
class EmbeddedPart:
    """A text column that an embedder turns into vectors; a missing text is a vector of zeros."""

    column: str
    width: int

    @property
    def made(self) -> tuple[str, ...]:
        """Names of the columns that come out."""
        return tuple(f"{self.column}[{j}]" for j in range(self.width))


def gather(table: Any, sources: Sequence[Source]) -> NDArray[np.float64]:
    """(n, sources) with NaN where missing."""
    out = np.empty((table.num_rows, len(sources)))
    dates: dict[str, dict[str, NDArray[np.float64]]] = {}
    for j, source in enumerate(sources):
        column = table.column(source.column)
        if not source.part:
            out[:, j] = as_numbers(column, source.column, source.lenient)
            continue
        if source.column not in dates:
            dates[source.column] = as_parts(column, source.column)
        out[:, j] = dates[source.column].get(source.part, np.nan)
    return out


def embed_words(column: Any, embedder: Any, width: int | None = None) -> NDArray[np.float32]:
    """(n, d) of a text column, zeros where it is missing."""
    words = as_words(column)
    there = ~words.is_null().to_numpy(zero_copy_only=False)
    vectors = embedder(words.drop_null().to_pylist()) if there.any() else np.zeros((0, width or 1), np.float32)
    if width is not None and vectors.shape[1] != width:
        raise InputError(f"embed gives vectors of {vectors.shape[1]} numbers, but {width} were seen in fit")
    out = np.zeros((len(there), vectors.shape[1]), np.float32)
    out[there] = vectors
    return out


# ---- model files

_TYPES: dict[str, type] = {
    cls.__name__: cls
    for cls in (NumbersPart, WordsPart, VectorPart, EmbeddedPart, Source, Numbers, Levels, Terms, SparseScaling, Shapes)
}


def part_to_facts(part: Any, prefix: str, arrays: dict[str, NDArray]) -> dict[str, Any]:
    """Facts of a part; its arrays go into `arrays` under the prefix."""
    facts: dict[str, Any] = {"type": type(part).__name__}
    for field in dataclasses.fields(part):
        value, place = getattr(part, field.name), f"{prefix}.{field.name}"
        if isinstance(value, np.ndarray):
            arrays[place] = value
        elif dataclasses.is_dataclass(value):
            facts[field.name] = part_to_facts(value, place, arrays)
        elif isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
            facts[field.name] = tuple(part_to_facts(v, f"{place}.{i}", arrays) for i, v in enumerate(value))
        else:
            facts[field.name] = value
    return facts


def part_from_facts(facts: Any, prefix: str, arrays: dict[str, NDArray]) -> Any:
    """Reverse of `part_to_facts`; only the types above are ever built."""
    if not isinstance(facts, dict) or facts.get("type") not in _TYPES:
        raise ModelFileError(f"the model file names a part of features that this kway does not have: {facts!r:.100}")
    cls = _TYPES[facts["type"]]
    values = {}
    for field in dataclasses.fields(cls):
        place = f"{prefix}.{field.name}"
        values[field.name] = _restored_value(facts[field.name], place, arrays) if field.name in facts else arrays[place]
    return cls(**values)


def _restored_value(value: Any, place: str, arrays: dict[str, NDArray]) -> Any:
    if isinstance(value, dict):
        return part_from_facts(value, place, arrays)
    if isinstance(value, tuple) and value and isinstance(value[0], dict):
        return tuple(part_from_facts(v, f"{place}.{i}", arrays) for i, v in enumerate(value))
    return value
