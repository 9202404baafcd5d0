"""How Features are learned: judge every column, gather alike ones into parts, keep the training blocks on the way."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from kway.data.features import columns as col
from kway.data.features.column_types import USED, Verdict, judge, judge_as
from kway.data.features.encoders import EmbeddedPart, NumbersPart, Source, VectorPart, WordsPart, embed_words, gather
from kway.data.features.numbers import Numbers, learn_numbers, unscaled
from kway.data.features.one_hot import learn_levels
from kway.data.features.scaling import MANY, choose, narrowed
from kway.data.features.text import learn_text
from kway.data.sources.images import Form
from kway.data.sources.requirements import words_of
from kway.data.suggest import listing
from kway.errors import InputError


@dataclass(frozen=True)
class Record:
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
class Learned:
    """Parts, what they made of the training rows, and the records; `words` are the columns that were text."""

    parts: list[Any] = field(default_factory=list)
    blocks: list[Any] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    words: tuple[str, ...] = ()

    def add(self, part: Any, block: Any) -> None:
        """One part and its block; one that makes nothing is left out."""
        if block.shape[1]:
            self.parts.append(part)
            self.blocks.append(block)


def learn_matrix(rows: Any, scale: str, form: Form | None, embedder: Any) -> Learned:
    """Parts of a matrix: one, or none where it is left alone."""
    scaling = choose(rows, (), scale)
    gaps = 0.0
    if not sp.issparse(rows) and rows.dtype.kind == "f":
        gaps = float(np.isnan(rows).mean()) if np.isnan(np.sum(rows, dtype=np.float64)) else 0.0
    kind = "matrix" if form is None else f"images, {form}"
    done = f"{rows.shape[1]:,} columns {scaling.done}"
    if embedder is not None:
        done = f"embedded by {embedder.identity}: {done}"
    learned = Learned(records=[Record("(all)", kind, done, gaps)])
    if scaling.encoder is None:
        learned.blocks = [rows]
    else:
        learned.add(scaling.encoder, scaling.encoder.apply(rows))
    return learned


def learn_table(table: Any, kinds: dict[str, str], scale: str, embedder: Any) -> Learned:
    """Parts of a table. Numbers and parts of dates make one dense block, every other column its own."""
    learned = Learned(words=words_of(table))
    verdicts = {c: _verdict(table.column(c), c, kinds.get(c)) for c in table.column_names}
    if _learn_as_matrix(learned, table, verdicts, scale):
        return learned
    sources: list[Source] = []
    for name, verdict in verdicts.items():
        column = table.column(name)
        missing = _missing_share(column)
        if verdict.kind in ("number", "true/false"):
            source = Source(name, lenient=verdict.note.startswith("mixed"))
            sources.append(source)
            missing = float(np.isnan(gather(table, [source])).mean())
            record = Record(name, verdict.kind, _number_words(verdict, missing), missing)
        elif verdict.kind == "date":
            record = _learn_date(column, name, missing, sources)
        elif verdict.kind in USED:
            record = _LEARN[verdict.kind](learned, column, name, missing, verdict, scale, embedder)
        else:
            record = Record(name, verdict.kind, f"dropped: {verdict.note}", missing, used=False)
        learned.records.append(record)
    if sources:
        values = gather(table, sources)
        part = NumbersPart(tuple(sources), learn_numbers(values, tuple(s.name for s in sources)))
        learned.parts.insert(0, part)
        learned.blocks.insert(0, part.numbers.apply(values))
    _refuse_nothing_left(learned, embedder)
    return learned


def _learn_as_matrix(learned: Learned, table: Any, verdicts: dict[str, Verdict], scale: str) -> bool:
    """Many columns of numbers and nothing else: pictures or embeddings written as a table, where they look so.

    Standardised one by one, the pixels at the edge, nearly always blank, would count as much as those in the middle.
    """
    names = tuple(c for c, v in verdicts.items() if v.kind in ("number", "constant"))
    ids = [c for c, v in verdicts.items() if v.kind == "id"]
    plain = all(col.is_number(table.schema.field(c).type) and "as asked" not in verdicts[c].note for c in names)
    if not plain or len(names) < MANY or len(names) + len(ids) < len(verdicts):
        return False
    sources = tuple(Source(c) for c in names)
    values = gather(table, sources)
    scaling = choose(narrowed(values), names, scale)
    numbers = scaling.encoder or unscaled(values, names)
    if not isinstance(numbers, Numbers) or numbers.mean.any():
        return False  # to be standardised: each column on its own, with its own record
    learned.add(NumbersPart(sources, numbers), numbers.apply(values))
    done = f"one of {len(names)} columns {scaling.done}"
    learned.records += [Record(c, "id", f"dropped: {verdicts[c].note}", used=False) for c in ids]
    learned.records += [Record(c, "number", done, float(m)) for c, m in zip(names, np.isnan(values).mean(axis=0))]
    return True


def _verdict(column: Any, name: str, asked: str | None) -> Verdict:
    if asked is None:
        return judge(column)
    if asked == "drop":
        return Verdict("unused", "as asked")
    if asked not in USED:
        raise InputError(f"kinds says {asked!r} for column {name!r}; it may say {listing(USED)} or drop")
    if col.whole(column).null_count == len(column):
        return Verdict("empty", "missing in every row")
    return judge_as(column, asked)


def _learn_date(column: Any, name: str, missing: float, sources: list[Source]) -> Record:
    parts = col.as_parts(column, name)
    vary = [part for part, values in parts.items() if len(np.unique(values[~np.isnan(values)])) > 1]
    sources += [Source(name, part) for part in vary]
    done = f"{listing(vary)} as numbers, standardised" if vary else "dropped: the same day and hour in every row"
    return Record(name, "date", done, missing, used=bool(vary))


def _learn_category(
    learned: Learned, column: Any, name: str, missing: float, verdict: Verdict, scale: str, embedder: Any
) -> Record:
    levels = learn_levels(column, name, verdict.levels)
    learned.add(WordsPart(name, levels), levels.apply(column))
    done = f"{len(levels.kept)} levels, a column of 0 and 1 each"
    if levels.has_others:
        done += "; rare levels together as (other), and any that training did not have"
    if levels.has_missing:
        done += "; missing as a level of its own"
    return Record(name, "category", _noted(done, verdict), missing, levels=len(levels.kept))


def _learn_words(
    learned: Learned, column: Any, name: str, missing: float, verdict: Verdict, scale: str, embedder: Any
) -> Record:
    if embedder is not None:
        vectors = embed_words(column, embedder)
        learned.add(EmbeddedPart(name, vectors.shape[1]), vectors)
        return Record(name, "text", f"embedded by {embedder.identity}: {vectors.shape[1]} numbers", missing)
    encoder, block = learn_text(column, name)
    learned.add(WordsPart(name, encoder), block)
    words, pieces = len(encoder.words), len(encoder.pieces)
    done = f"tf-idf of {words:,} words and pairs of words and {pieces:,} pieces of 2 to 5 letters; rows of length 1"
    return Record(name, "text", _noted(done, verdict), missing, used=bool(words + pieces))


def _learn_vectors(
    learned: Learned, column: Any, name: str, missing: float, verdict: Verdict, scale: str, embedder: Any
) -> Record:
    vectors = col.as_vectors(column, name)
    width = vectors.shape[1]
    scaling = choose(vectors, tuple(f"{name}[{j}]" for j in range(width)), scale)
    encoder: Any = scaling.encoder  # dense rows are never Divided
    part = VectorPart(name, width, encoder)
    learned.add(part, vectors if encoder is None else encoder.apply(vectors))
    return Record(name, "vector", _noted(f"{width} columns {scaling.done}", verdict), missing)


_LEARN = {"category": _learn_category, "text": _learn_words, "vector": _learn_vectors}


def _number_words(verdict: Verdict, missing: float) -> str:
    gaps = "gaps filled by the median and flagged; " if missing else ""
    return _noted(f"{gaps}standardised (mean 0, standard deviation 1)", verdict)


def _noted(done: str, verdict: Verdict) -> str:
    return f"{done} ({verdict.note})" if verdict.note else done


def _missing_share(column: Any) -> float:
    column = col.whole(column)
    if col.is_text(column.type):
        return col.as_words(column).null_count / len(column)
    return column.null_count / len(column)


def _refuse_nothing_left(learned: Learned, embedder: Any) -> None:
    if not learned.parts:
        why = listing([f"{r.column!r} ({r.kind})" for r in learned.records], 5)
        raise InputError(f"no column is left to learn from: {why}; add columns that differ between classes")
    if embedder is not None and not any(isinstance(part, EmbeddedPart) for part in learned.parts):
        found = listing([f"{r.column} ({r.kind})" for r in learned.records], 8)
        raise InputError(f"embed was given, but no column is text: {found}; say which is: kinds={{'column': 'text'}}")
