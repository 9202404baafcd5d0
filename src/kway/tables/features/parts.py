"""The parts of Features: each reads some columns of a table and makes a block (n, columns made), dense or CSR.

`learn_table` and `learn_matrix` find the kind of every column and learn the parts, with a record of each column for the
user. A category becomes columns of 0 and 1 (Levels): one per level that is not rare, one for all other levels, one for
missing values. A level that training did not have counts as one of the other levels.

A part is a frozen dataclass of plain values, arrays and other such dataclasses. `part_to_facts` turns it into facts
and named arrays for a model file, `part_from_facts` reverses it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.errors import InputError
from kway.suggest import listing
from kway.tables.features.columns import (
    ColumnKind,
    ColumnPart,
    LevelCodes,
    as_numbers,
    as_parts,
    as_vectors,
    as_words,
    kind_as_asked,
    kind_of,
    learn_codes,
    repeats_levels,
)
from kway.tables.features.numbers import (
    MANY_FEATURES,
    Numbers,
    Scaling,
    SparseScaling,
    choose_scaling,
    learn_numbers,
    missing_counts,
    narrowed,
)
from kway.tables.features.shapes import Shapes, learn_shapes
from kway.tables.features.text import Terms, learn_text
from kway.tables.read_options import USED
from kway.tables.sources.frames import is_number, is_text, text_columns, whole_column
from kway.tables.sources.images import ImageForm


@dataclass(frozen=True, eq=False)
class Levels(ColumnPart):
    """The levels of a category, and whether training rows had other levels or missing values."""

    levels: tuple[str, ...]
    has_others: bool
    has_missing: bool

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the columns of the result."""
        extra = (["(other)"] if self.has_others else []) + (["(missing)"] if self.has_missing else [])
        return tuple(f"{self.column}={level}" for level in (*self.levels, *extra))

    def encode(self, column: Any) -> sp.csr_matrix:
        """Return (n, levels) CSR of float32; a row is 0 if its level has no column."""
        codes = self.codes(column)
        rows = np.flatnonzero(codes >= 0)
        indptr = np.concatenate([[0], np.cumsum(codes >= 0)])
        ones = np.ones(len(rows), np.float32)
        return sp.csr_matrix((ones, codes[rows], indptr), shape=(len(codes), len(self.output_names)))

    def codes(self, column: Any) -> NDArray[np.int64]:
        """Return the column (n,) of each row, -1 if its level has none."""
        words = as_words(column)
        found = pc.index_in(words, value_set=pa.array(self.levels, pa.large_string())).fill_null(-1)
        codes = found.to_numpy(zero_copy_only=False).astype(np.int64)
        missing = words.is_null().to_numpy(zero_copy_only=False)
        other = len(self.levels) if self.has_others else -1
        codes[codes < 0] = other
        codes[missing] = len(self.levels) + self.has_others if self.has_missing else other
        return codes


def learn_levels(column: Any, name: str, kept: tuple[str, ...]) -> Levels:
    """Learn the encoder of a category with these levels."""
    every = Levels(name, kept, True, True).codes(column)
    return Levels(name, kept, bool((every == len(kept)).any()), bool((every == len(kept) + 1).any()))


# ---- parts


Source = tuple[str, str]  # one number of a row: a column and "", or a column of dates and a part of a date


def _source_name(source: Source) -> str:
    return ".".join(filter(None, source))


@dataclass(frozen=True, eq=False)
class NumbersPart:
    """All number, true/false and date columns of a table, as one dense block; numbers is None if they do not change."""

    sources: tuple[Source, ...]
    numbers: Numbers | None

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the columns of the result."""
        return tuple(map(_source_name, self.sources)) if self.numbers is None else self.numbers.output_names

    @property
    def columns(self) -> tuple[str, ...]:
        """The column of the table that each column of the result is made of."""
        made_of = range(len(self.sources)) if self.numbers is None else self.numbers.sources
        return tuple(self.sources[j][0] for j in made_of)

    def apply(self, table: Any) -> NDArray:
        """Return dense (n, sources + flags), float32 if they are standardized."""
        values = gather(table, self.sources)
        return values if self.numbers is None else self.numbers.apply(values)


@dataclass(frozen=True, eq=False)
class EmbeddedPart(ColumnPart):
    """A text column that an embedder turns into vectors; a missing text becomes a vector of zeros."""

    width: int

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the columns of the result."""
        return _entry_names(self.column, self.width)


@dataclass(frozen=True, eq=False)
class VectorPart(ColumnPart):
    """A column of vectors of one width; numbers is None if they are not scaled."""

    width: int
    numbers: Numbers | None

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the columns of the result."""
        return _entry_names(self.column, self.width) if self.numbers is None else self.numbers.output_names

    def encode(self, column: Any) -> NDArray[np.float32]:
        """Return dense (n, width + flags)."""
        vectors = as_vectors(column, self.column, self.width)
        return vectors if self.numbers is None else self.numbers.apply(vectors)


def _entry_names(column: str, width: int) -> tuple[str, ...]:
    return tuple(f"{column}[{j}]" for j in range(width))


def gather(table: Any, sources: Sequence[Source]) -> NDArray[np.float64]:
    """Return the numbers (n, sources), NaN for missing ones."""
    out = np.empty((table.num_rows, len(sources)))
    dates: dict[str, dict[str, NDArray[np.float64]]] = {}
    for j, (name, part) in enumerate(sources):
        if not part:
            out[:, j] = as_numbers(table.column(name), name)
            continue
        if name not in dates:
            dates[name] = as_parts(table.column(name), name)
        out[:, j] = dates[name].get(part, np.nan)
    return out


def embed_words(column: Any, embedder: Any, width: int | None = None) -> NDArray[np.float32]:
    """Return the vectors (n, d) of a text column, zeros for missing texts."""
    words = as_words(column)
    there = ~words.is_null().to_numpy(zero_copy_only=False)
    vectors = embedder(words.drop_null().to_pylist()) if there.any() else np.zeros((0, width or 1), np.float32)
    if width is not None and vectors.shape[1] != width:
        raise InputError(
            f"embed returns vectors of {vectors.shape[1]} numbers, but in fit they had {width}; use the same embedder"
        )
    out = np.zeros((len(there), vectors.shape[1]), np.float32)
    out[there] = vectors
    return out


# ---- learning


@dataclass(frozen=True)
class ColumnRecord:
    """What was done with one column: its kind, a description, the share of missing rows, the number of levels."""

    column: str
    kind: str
    done: str
    missing: float = 0.0
    levels: int | None = None
    used: bool = True

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain values."""
        return dataclasses.asdict(self)


@dataclass
class LearnedFeatures:
    """The parts, their blocks of training rows, and the records; `words` are the text columns."""

    parts: list[Any] = dataclasses.field(default_factory=list)
    blocks: list[Any] = dataclasses.field(default_factory=list)
    records: list[ColumnRecord] = dataclasses.field(default_factory=list)
    words: tuple[str, ...] = ()

    def add(self, part: Any, block: Any) -> None:
        """Add a part and its block, unless the block has no columns."""
        if block.shape[1]:
            self.parts.append(part)
            self.blocks.append(block)


def learn_matrix(rows: Any, scale: str | None, form: ImageForm | None, embedder: Any) -> LearnedFeatures:
    """Learn the part of a matrix; there is none if the matrix is not changed, as for trees (`scale` is None)."""
    scaling = Scaling(None, "not changed") if scale is None else choose_scaling(rows, (), scale)
    kind = "matrix" if form is None or scale is None else f"images, {form}"
    done = f"{rows.shape[1]:,} columns {scaling.done}"
    if embedder is not None:
        done = f"embedded by {embedder.identity}: {done}"
    gaps = 0.0 if sp.issparse(rows) else float(missing_counts(rows).sum()) / rows.size
    learned = LearnedFeatures(records=[ColumnRecord("(all)", kind, done, gaps)])
    if scaling.encoder is None:
        learned.blocks = [rows]
    else:
        learned.add(scaling.encoder, scaling.encoder.apply(rows))
    return learned


def learn_image_shapes(rows: Any, form: ImageForm) -> LearnedFeatures:
    """Learn the part of images: edges and patches."""
    part = learn_shapes(rows, form)
    block = part.apply(rows)
    n_edges = block.shape[1] - 8 * part.filters.shape[1]
    done = f"{n_edges:,} columns of edges and {block.shape[1] - n_edges:,} of patches instead of pixels, standardized"
    learned = LearnedFeatures(records=[ColumnRecord("(all)", f"images, {form}", done)])
    learned.add(part, block)
    return learned


def learn_table(table: Any, kinds: dict[str, str], scale: str | None, embedder: Any) -> LearnedFeatures:
    """Learn the parts of a table. Numbers and parts of dates make one dense block, every other column its own.

    If `scale` is None, as for trees, every column makes one column: nothing is scaled, and missing values stay NaN.
    """
    learned = LearnedFeatures(words=text_columns(table))
    found = {c: _kind_of_column(table.column(c), c, kinds.get(c)) for c in table.column_names}
    if scale is not None and _learn_as_matrix(learned, table, found, scale):
        return learned
    sources = list[Source]()
    for name, kind in found.items():
        column = table.column(name)
        missing = _missing_share(column)
        if kind.name in ("number", "true/false"):
            sources.append((name, ""))
            missing = float(np.isnan(gather(table, sources[-1:])).mean())
            record = ColumnRecord(name, kind.name, _number_words(kind, missing, scale), missing)
        elif kind.name == "date":
            record = _learn_date(column, name, missing, sources, scale)
        elif kind.name in USED:
            part, block, done = _learn_column(column, name, kind, scale, embedder)
            if block is not None:
                learned.add(part, block)
            levels = None if block is None else getattr(part, "levels", None)
            used = block is not None and block.shape[1] > 0
            record = ColumnRecord(name, kind.name, done, missing, levels and len(levels), used)
        else:
            record = ColumnRecord(name, kind.name, f"dropped: {kind.note}", missing, used=False)
        learned.records.append(record)
    if sources:
        values = gather(table, sources)
        numbers = None if scale is None else learn_numbers(values, tuple(map(_source_name, sources)))
        learned.parts.insert(0, NumbersPart(tuple(sources), numbers))
        learned.blocks.insert(0, values if numbers is None else numbers.apply(values))
    _refuse_nothing_left(learned, embedder)
    return learned


def _learn_as_matrix(learned: LearnedFeatures, table: Any, found: dict[str, ColumnKind], scale: str) -> bool:
    """Learn a table of many numeric columns as one matrix if it looks like images or embeddings; return whether.

    Standardized one by one, pixels at the border, which are nearly always blank, would count as much as the others.
    """
    names = tuple(c for c, v in found.items() if v.name in ("number", "constant"))
    ids = [c for c, v in found.items() if v.name == "id"]
    plain = all(is_number(table.schema.field(c).type) and "as asked" not in found[c].note for c in names)
    if not plain or len(names) < MANY_FEATURES or len(names) + len(ids) < len(found):
        return False
    sources = tuple((c, "") for c in names)
    values = gather(table, sources)
    scaling = choose_scaling(narrowed(values), names, scale)
    numbers = scaling.encoder or learn_numbers(values, names, 1.0)
    if not isinstance(numbers, Numbers) or numbers.mean.any():
        return False  # these columns are standardized, each with its own record
    learned.add(NumbersPart(sources, numbers), numbers.apply(values))
    done = f"one of {len(names)} columns {scaling.done}"
    learned.records += [ColumnRecord(c, "id", f"dropped: {found[c].note}", used=False) for c in ids]
    learned.records += [ColumnRecord(c, "number", done, float(m)) for c, m in zip(names, np.isnan(values).mean(axis=0))]
    return True


def _kind_of_column(column: Any, name: str, asked: str | None) -> ColumnKind:
    if asked is None:
        return kind_of(column, name)
    if asked == "drop":
        return ColumnKind("unused", "as asked")
    if asked not in USED:
        raise InputError(f"kinds is {asked!r} for column {name!r}; it must be {listing(USED)} or drop")
    if whole_column(column).null_count == len(column):
        return ColumnKind("empty", "missing in every row")
    return kind_as_asked(column, asked)


def _learn_date(column: Any, name: str, missing: float, sources: list[Source], scale: str | None) -> ColumnRecord:
    parts = as_parts(column, name)
    vary = [part for part, values in parts.items() if len(np.unique(values[~np.isnan(values)])) > 1]
    sources += [(name, part) for part in vary]
    done = f"{listing(vary)} as numbers{'' if scale is None else ', standardized'}"
    return ColumnRecord(name, "date", done if vary else "dropped: the same date in every row", missing, used=bool(vary))


class _LearnedColumn(NamedTuple):
    """The part of a column, its block of training rows (None if it is left out), and what was done."""

    part: Any
    block: Any
    done: str


def _learn_column(column: Any, name: str, kind: ColumnKind, scale: str | None, embedder: Any) -> _LearnedColumn:
    """Learn the part of a category, of text or of vectors."""
    if kind.name == "vector":
        return _learn_vectors(column, name, kind, scale)
    if kind.name == "text" and embedder is not None:
        vectors = embed_words(column, embedder)
        width = vectors.shape[1]
        return _LearnedColumn(EmbeddedPart(name, width), vectors, f"embedded by {embedder.identity}: {width} numbers")
    if scale is None:
        return _learn_codes(column, name, kind)
    if kind.name == "category":
        return _learn_category(column, name, kind)
    encoder, block = learn_text(column, name)
    words, pieces = len(encoder.word_idf), len(encoder.piece_idf)
    done = f"tf-idf of {words:,} words and pairs of words and {pieces:,} pieces of 2 to 5 letters; rows of length 1"
    return _LearnedColumn(encoder, block, _noted(done, kind))


def _learn_codes(column: Any, name: str, kind: ColumnKind) -> _LearnedColumn:
    if kind.name == "text" and not repeats_levels(column):
        return _LearnedColumn(None, None, "dropped: free text, which trees cannot use")
    codes = learn_codes(column, name)
    if not codes.levels:
        return _LearnedColumn(None, None, "dropped: no level occurs twice")
    order = "in alphabetical order" if codes.is_category else "compared by frequency, too many for sets of levels"
    done = f"{len(codes.levels):,} levels as numbers, {order}"
    return _LearnedColumn(codes, codes.encode(column), _noted(done, kind))


def _learn_category(column: Any, name: str, kind: ColumnKind) -> _LearnedColumn:
    levels = learn_levels(column, name, kind.levels)
    done = f"{len(levels.levels)} levels, one column of 0 and 1 per level"
    done += "; rare and unknown levels as (other)" if levels.has_others else ""
    done += "; missing values as (missing)" if levels.has_missing else ""
    return _LearnedColumn(levels, levels.encode(column), _noted(done, kind))


def _learn_vectors(column: Any, name: str, kind: ColumnKind, scale: str | None) -> _LearnedColumn:
    vectors = as_vectors(column, name)
    width = vectors.shape[1]
    scaling = Scaling(None, "not changed")
    if scale is not None:
        scaling = choose_scaling(vectors, _entry_names(name, width), scale)
    encoder: Any = scaling.encoder  # vectors are dense, so this is Numbers or None
    block = vectors if encoder is None else encoder.apply(vectors)
    return _LearnedColumn(VectorPart(name, width, encoder), block, _noted(f"{width} columns {scaling.done}", kind))


def _number_words(kind: ColumnKind, missing: float, scale: str | None) -> str:
    if scale is None:
        return _noted("not changed", kind)
    gaps = "missing values filled by the median and flagged; " if missing else ""
    return _noted(f"{gaps}standardized (mean 0, standard deviation 1)", kind)


def _noted(done: str, kind: ColumnKind) -> str:
    return f"{done} ({kind.note})" if kind.note else done


def _missing_share(column: Any) -> float:
    column = whole_column(column)
    return (as_words(column) if is_text(column.type) else column).null_count / len(column)


def _refuse_nothing_left(learned: LearnedFeatures, embedder: Any) -> None:
    if not learned.parts:
        why = listing([f"{r.column!r} ({r.kind})" for r in learned.records], 5)
        ids = [r.column for r in learned.records if r.kind == "id"]
        otherwise = f", or use an id as a number: types={{{ids[0]!r}: 'number'}}" if ids else ""
        raise InputError(f"no column can be used: {why}; add columns that differ between classes{otherwise}")
    if embedder is not None and not any(isinstance(part, EmbeddedPart) for part in learned.parts):
        found = listing([f"{r.column} ({r.kind})" for r in learned.records], 8)
        raise InputError(f"embed was given, but no column is text: {found}; name one: kinds={{'column': 'text'}}")


# ---- model files

_PARTS = (NumbersPart, VectorPart, EmbeddedPart, Levels, LevelCodes, Terms, Numbers, SparseScaling, Shapes)
_TYPES: dict[str, type] = {cls.__name__: cls for cls in _PARTS}


def part_to_facts(part: Any, prefix: str, arrays: dict[str, NDArray]) -> dict[str, Any]:
    """Return the facts of a part, and add its arrays to `arrays` under the prefix."""
    facts: dict[str, Any] = {"type": type(part).__name__}
    for field in dataclasses.fields(part):
        value, place = getattr(part, field.name), f"{prefix}.{field.name}"
        if isinstance(value, np.ndarray):
            arrays[place] = value
        elif dataclasses.is_dataclass(value):
            facts[field.name] = part_to_facts(value, place, arrays)
        else:
            facts[field.name] = value
    return facts


def part_from_facts(facts: Any, prefix: str, arrays: dict[str, NDArray]) -> Any:
    """Reverse `part_to_facts`; only the types above are built. The schema of the model file has checked the facts."""
    cls = _TYPES[facts["type"]]
    values = {}
    for field in dataclasses.fields(cls):
        value, place = facts.get(field.name), f"{prefix}.{field.name}"
        is_part = isinstance(value, dict)
        values[field.name] = part_from_facts(value, place, arrays) if is_part else arrays.get(place, value)
    return cls(**values)
