"""How Features are learned: the kind of every column, then a part for alike ones, with its block of training rows."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from kway.errors import InputError
from kway.suggest import listing
from kway.tables.features.columns import ColumnKind, as_parts, as_vectors, as_words, kind_as_asked, kind_of
from kway.tables.features.encoders import (
    EmbeddedPart,
    NumbersPart,
    Source,
    VectorPart,
    WordsPart,
    embed_words,
    gather,
    learn_levels,
)
from kway.tables.features.numbers import MANY_FEATURES, Numbers, choose_scaling, learn_numbers, narrowed, unscaled
from kway.tables.features.shapes import learn_shapes
from kway.tables.features.text import learn_text
from kway.tables.options import USED
from kway.tables.sources.frames import is_number, is_text, text_columns, whole_column
from kway.tables.sources.images import ImageForm


@dataclass(frozen=True)
class ColumnRecord:
    """What became of one column; missing is a share of the training rows, levels the count of a category's."""

    column: str
    kind: str
    done: str
    missing: float = 0.0
    levels: int | None = None
    used: bool = True

    def as_dict(self) -> dict[str, Any]:
        """The record as plain values."""
        return dataclasses.asdict(self)


@dataclass
class LearnedFeatures:
    """Parts, what they made of the training rows, and the records; `words` are the columns that were text."""

    parts: list[Any] = field(default_factory=list)
    blocks: list[Any] = field(default_factory=list)
    records: list[ColumnRecord] = field(default_factory=list)
    words: tuple[str, ...] = ()

    def add(self, part: Any, block: Any) -> None:
        """One part and its block; one that makes nothing is left out."""
        if block.shape[1]:
            self.parts.append(part)
            self.blocks.append(block)


def learn_matrix(rows: Any, scale: str, form: ImageForm | None, embedder: Any) -> LearnedFeatures:
    """Parts of a matrix: one, or none where it is left alone."""
    scaling = choose_scaling(rows, (), scale)
    gaps = 0.0
    if not sp.issparse(rows) and rows.dtype.kind == "f":
        gaps = float(np.isnan(rows).mean()) if np.isnan(np.sum(rows, dtype=np.float64)) else 0.0
    kind = "matrix" if form is None else f"images, {form}"
    done = f"{rows.shape[1]:,} columns {scaling.done}"
    if embedder is not None:
        done = f"embedded by {embedder.identity}: {done}"
    learned = LearnedFeatures(records=[ColumnRecord("(all)", kind, done, gaps)])
    if scaling.encoder is None:
        learned.blocks = [rows]
    else:
        learned.add(scaling.encoder, scaling.encoder.apply(rows))
    return learned


def learn_image_shapes(rows: Any, form: ImageForm) -> LearnedFeatures:
    """The one part of images: edges and patches."""
    part = learn_shapes(rows, form)
    block = part.apply(rows)
    n_edges = block.shape[1] - 8 * part.filters.shape[1]
    done = f"{n_edges:,} columns of edges and {block.shape[1] - n_edges:,} of patches instead of pixels, standardized"
    learned = LearnedFeatures(records=[ColumnRecord("(all)", f"images, {form}", done)])
    learned.add(part, block)
    return learned


def learn_table(table: Any, kinds: dict[str, str], scale: str, embedder: Any) -> LearnedFeatures:
    """Parts of a table. Numbers and parts of dates make one dense block, every other column its own."""
    learned = LearnedFeatures(words=text_columns(table))
    found = {c: _kind_of_column(table.column(c), c, kinds.get(c)) for c in table.column_names}
    if _learn_as_matrix(learned, table, found, scale):
        return learned
    sources: list[Source] = []
    for name, kind in found.items():
        column = table.column(name)
        missing = _missing_share(column)
        if kind.name in ("number", "true/false"):
            source = Source(name, lenient=kind.note.startswith("mixed"))
            sources.append(source)
            missing = float(np.isnan(gather(table, [source])).mean())
            record = ColumnRecord(name, kind.name, _number_words(kind, missing), missing)
        elif kind.name == "date":
            record = _learn_date(column, name, missing, sources)
        elif kind.name in USED:
            record = _LEARN[kind.name](learned, column, name, missing, kind, scale, embedder)
        else:
            record = ColumnRecord(name, kind.name, f"dropped: {kind.note}", missing, used=False)
        learned.records.append(record)
    if sources:
        values = gather(table, sources)
        part = NumbersPart(tuple(sources), learn_numbers(values, tuple(s.name for s in sources)))
        learned.parts.insert(0, part)
        learned.blocks.insert(0, part.numbers.apply(values))
    _refuse_nothing_left(learned, embedder)
    return learned


def _learn_as_matrix(learned: LearnedFeatures, table: Any, found: dict[str, ColumnKind], scale: str) -> bool:
    """Many columns of numbers and nothing else: pictures or embeddings written as a table, where they look so.

    Standardized one by one, the pixels at the edge, nearly always blank, would count as much as those in the middle.
    """
    names = tuple(c for c, v in found.items() if v.name in ("number", "constant"))
    ids = [c for c, v in found.items() if v.name == "id"]
    plain = all(is_number(table.schema.field(c).type) and "as asked" not in found[c].note for c in names)
    if not plain or len(names) < MANY_FEATURES or len(names) + len(ids) < len(found):
        return False
    sources = tuple(Source(c) for c in names)
    values = gather(table, sources)
    scaling = choose_scaling(narrowed(values), names, scale)
    numbers = scaling.encoder or unscaled(values, names)
    if not isinstance(numbers, Numbers) or numbers.mean.any():
        return False  # to be standardized: each column on its own, with its own record
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
        raise InputError(f"kinds says {asked!r} for column {name!r}; it may say {listing(USED)} or drop")
    if whole_column(column).null_count == len(column):
        return ColumnKind("empty", "missing in every row")
    return kind_as_asked(column, asked)


def _learn_date(column: Any, name: str, missing: float, sources: list[Source]) -> ColumnRecord:
    parts = as_parts(column, name)
    vary = [part for part, values in parts.items() if len(np.unique(values[~np.isnan(values)])) > 1]
    sources += [Source(name, part) for part in vary]
    done = f"{listing(vary)} as numbers, standardized" if vary else "dropped: the same day and hour in every row"
    return ColumnRecord(name, "date", done, missing, used=bool(vary))


def _learn_category(
    learned: LearnedFeatures, column: Any, name: str, missing: float, kind: ColumnKind, scale: str, embedder: Any
) -> ColumnRecord:
    levels = learn_levels(column, name, kind.levels)
    learned.add(WordsPart(name, levels), levels.apply(column))
    done = f"{len(levels.kept)} levels, a column of 0 and 1 each"
    if levels.has_others:
        done += "; rare levels together as (other), and any that training did not have"
    if levels.has_missing:
        done += "; missing as a level of its own"
    return ColumnRecord(name, "category", _noted(done, kind), missing, levels=len(levels.kept))


def _learn_words(
    learned: LearnedFeatures, column: Any, name: str, missing: float, kind: ColumnKind, scale: str, embedder: Any
) -> ColumnRecord:
    if embedder is not None:
        vectors = embed_words(column, embedder)
        learned.add(EmbeddedPart(name, vectors.shape[1]), vectors)
        return ColumnRecord(name, "text", f"embedded by {embedder.identity}: {vectors.shape[1]} numbers", missing)
    encoder, block = learn_text(column, name)
    learned.add(WordsPart(name, encoder), block)
    words, pieces = len(encoder.word_idf), len(encoder.piece_idf)
    done = f"tf-idf of {words:,} words and pairs of words and {pieces:,} pieces of 2 to 5 letters; rows of length 1"
    return ColumnRecord(name, "text", _noted(done, kind), missing, used=bool(words + pieces))


def _learn_vectors(
    learned: LearnedFeatures, column: Any, name: str, missing: float, kind: ColumnKind, scale: str, embedder: Any
) -> ColumnRecord:
    vectors = as_vectors(column, name)
    width = vectors.shape[1]
    scaling = choose_scaling(vectors, tuple(f"{name}[{j}]" for j in range(width)), scale)
    encoder: Any = scaling.encoder  # dense rows are never SparseScaling
    part = VectorPart(name, width, encoder)
    learned.add(part, vectors if encoder is None else encoder.apply(vectors))
    return ColumnRecord(name, "vector", _noted(f"{width} columns {scaling.done}", kind), missing)


_LEARN = {"category": _learn_category, "text": _learn_words, "vector": _learn_vectors}


def _number_words(kind: ColumnKind, missing: float) -> str:
    gaps = "gaps filled by the median and flagged; " if missing else ""
    return _noted(f"{gaps}standardized (mean 0, standard deviation 1)", kind)


def _noted(done: str, kind: ColumnKind) -> str:
    return f"{done} ({kind.note})" if kind.note else done


def _missing_share(column: Any) -> float:
    column = whole_column(column)
    if is_text(column.type):
        return as_words(column).null_count / len(column)
    return column.null_count / len(column)


def _refuse_nothing_left(learned: LearnedFeatures, embedder: Any) -> None:
    if not learned.parts:
        why = listing([f"{r.column!r} ({r.kind})" for r in learned.records], 5)
        ids = [r.column for r in learned.records if r.kind == "id"]
        otherwise = f", or say that one is no id: types={{{ids[0]!r}: 'number'}}" if ids else ""
        raise InputError(f"no column is left to learn from: {why}; add columns that differ between classes{otherwise}")
    if embedder is not None and not any(isinstance(part, EmbeddedPart) for part in learned.parts):
        found = listing([f"{r.column} ({r.kind})" for r in learned.records], 8)
        raise InputError(f"embed was given, but no column is text: {found}; say which is: kinds={{'column': 'text'}}")
