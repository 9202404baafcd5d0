"""Parts of a Features: each reads some columns of a table and makes a block (n, columns made), dense or CSR.

A part is a frozen dataclass of plain values, arrays and other such dataclasses, so that it goes into a model file
field by field: `part_to_facts` gives JSON facts and named arrays, `part_from_facts` the part again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.data.features import columns as col
from kway.data.features.hashed_text import HashedText
from kway.data.features.numbers import Numbers
from kway.data.features.one_hot import Levels
from kway.data.features.scaling import Divided
from kway.data.features.shapes import Shapes
from kway.data.features.text import Terms
from kway.errors import InputError, ModelFileError


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
    encoder: Levels | Terms | HashedText

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
        vectors = col.as_vectors(table.column(self.column), self.column, self.width)
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
            out[:, j] = col.as_numbers(column, source.column, source.lenient)
            continue
        if source.column not in dates:
            dates[source.column] = col.as_parts(column, source.column)
        out[:, j] = dates[source.column].get(source.part, np.nan)
    return out


def embed_words(column: Any, embedder: Any, width: int | None = None) -> NDArray[np.float32]:
    """(n, d) of a text column, zeros where it is missing."""
    words = col.as_words(column)
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
    for cls in (NumbersPart, WordsPart, VectorPart, EmbeddedPart, Source, Numbers, Levels, Terms, Divided, Shapes)
} | {"Text": HashedText}  # as 0.1 called it
_NAMES = {cls: name for name, cls in _TYPES.items()}


def part_to_facts(part: Any, prefix: str, arrays: dict[str, NDArray]) -> dict[str, Any]:
    """Facts of a part; its arrays go into `arrays` under the prefix."""
    facts: dict[str, Any] = {"type": _NAMES[type(part)]}
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
