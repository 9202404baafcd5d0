"""Labels from a column of a table, and the column `split` that divides rows into training and test rows.

" ham", "ham"   one label in a csv, where surrounding blanks are removed; labels of a frame are not changed
1, 2, 10        whole numbers         1.0, 2.5   floats        true, False   bools
007, 08, 10     text; as numbers, 7 and 007 would be one class
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kway.errors import InputError
from kway.suggest import listing
from kway.text_tables import count

_GAPS = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None")  # missing values among numbers; among words only ""
_INTEGER = r"^-?(0|[1-9][0-9]{0,17})$"
_FLOAT = r"^-?((0|[1-9][0-9]{0,14})(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,2})?$"
_BOOL = r"^(?i:true|false)$"
_TRAIN_WORDS = ("train", "val", "valid", "validation", "dev")
_TEST_WORDS = ("test",)

_LABEL_ROWS = "label these rows, or drop them"
SKIP_ROWS = "label these rows, or leave them out: skip_bad=True"


class NoLabelError(InputError):
    """Raised if no row has a label. A piece of a large file without labels is left out."""

    def __init__(self, target: str, rows: int) -> None:
        super().__init__(f"no row has a label in {target!r}; name the column with the labels: target=")
        self.rows = rows


def column_labels(column: Any, what: str, typed: bool, advice: str = _LABEL_ROWS, written: bool = False) -> NDArray:
    """Return the labels (n,) of a pyarrow column; raise InputError, which calls it `what`, if some are missing.

    `typed`: the format has types, so text stays text; else text becomes numbers if all words are numbers.
    `written`: the words come from a csv, and surrounding blanks are removed.
    """
    if _is_words(column):
        words = pc.utf8_trim_whitespace(column.cast("string")) if written else column.cast("string")
        kind = None if typed else _number_kind(words)
        if kind is None:
            labels = words.to_pylist()
            _refuse_gaps(sum(not word for word in labels), len(labels), what, advice)
            return np.asarray(labels)
        _refuse_gaps(len(words) - len(_without_gaps(words)), len(words), what, advice)
        return np.asarray(words.cast(kind).to_numpy())
    _refuse_gaps(column.null_count, len(column), what, advice)
    labels = np.asarray(column.to_numpy())
    if labels.dtype.kind not in "iufb":
        raise InputError(f"{what} has type {column.type}; labels must be text, numbers or true/false")
    return labels


class LabeledTable(NamedTuple):
    """The rows of a table that have a label, the mask (n,) of these rows, and a note if there are others."""

    table: Any
    there: Any
    left_out: tuple[str, ...]


def rows_with_labels(table: Any, target: str) -> LabeledTable:
    """Return the rows whose label is present; among numbers, words such as NA count as missing."""
    column = table.column(target)
    there = column.is_valid()
    if _is_words(column):
        words = pc.utf8_trim_whitespace(column.cast("string"))
        gaps = pa.array(_GAPS if _number_kind(words) else _GAPS[:1])
        there = pc.invert(pc.or_(pc.is_null(words), pc.is_in(words, gaps)))
    left_out = len(column) - (pc.sum(there).as_py() or 0)
    if left_out == len(column):
        raise NoLabelError(target, left_out)
    return LabeledTable(table.filter(there), there, (unlabeled_note(left_out),) if left_out else ())


def unlabeled_note(rows: int) -> str:
    """Return the note about rows that were left out."""
    return f"{count(rows, 'row')} without a label left out (skip_bad=True)"


def _is_words(column: Any) -> bool:
    return "string" in str(column.type) or "dictionary" in str(column.type)


def _number_kind(words: Any) -> str | None:
    """Return the type of all words that are present; None if they are neither numbers nor bools."""
    real = _without_gaps(words)
    for pattern, dtype in ((_INTEGER, "int64"), (_BOOL, "bool"), (_FLOAT, "float64")):
        if len(real) and pc.all(pc.match_substring_regex(real, pattern)).as_py():
            return dtype
    return None


def _without_gaps(words: Any) -> Any:
    return words.filter(pc.invert(pc.or_(pc.is_null(words), pc.is_in(words, pa.array(_GAPS)))))


def _refuse_gaps(gaps: int, n: int, what: str, advice: str) -> None:
    if gaps:
        raise InputError(f"{what} is empty in {gaps:,} of {n:,} rows; {advice}")


def label_sets(cells: Iterable[Any], sep: str) -> NDArray:
    """Return sets of labels (n,) as text: sorted labels with `sep` between them.

    A cell is text with `sep` between its labels, or a list. An empty cell is the empty set.

    >>> label_sets(["b; a", None, ["a"]], ";").tolist()
    ['a;b', '', 'a']
    """
    return np.asarray([sep.join(sorted(set(_cell_labels(cell, sep)))) for cell in cells])


def _cell_labels(cell: Any, sep: str) -> list[str]:
    """Return the labels of a cell; raise InputError if a label in a list contains the separator."""
    if isinstance(cell, list | tuple | set | np.ndarray):
        labels = [str(label).strip() for label in cell if label is not None]
        inside = [label for label in labels if sep in label]
        if inside:
            raise InputError(f"label {inside[0]!r:.100} contains the separator; pass another one: multilabel=")
    else:
        labels = [] if cell is None or cell != cell else [label.strip() for label in str(cell).split(sep)]
    return [label for label in labels if label]


def split_set(text: str, sep: str) -> list[str]:
    """Return the labels of a set that `label_sets` has written."""
    return text.split(sep) if text else []


def joined_sets(y: NDArray, sep: str, known: Iterable[str] = ()) -> NDArray:
    """Return sets of labels (n,) in which labels that differ only in case or blanks are one."""
    spellings = Spellings()
    for text in y.tolist():
        for label in split_set(text, sep):
            spellings.add(label)
    for label in known:
        spellings.add(label, len(y) + 1)  # more frequent than all others
    return np.asarray([sep.join(sorted({spellings.joined(label) for label in split_set(t, sep)})) for t in y.tolist()])


def joined_labels(y: NDArray, known: Iterable[Any] = (), hierarchy: str | None = None) -> NDArray:
    """Return text labels (n,) in which labels that differ only in case or blanks are one.

    Their spelling is that of `known`, else the most frequent one. In a hierarchy this is done level by level.
    """
    if y.dtype.kind not in "UO":
        return y
    words, places, counts = np.unique(y, return_inverse=True, return_counts=True)
    spellings = Spellings(hierarchy)
    for word, times in zip(words.tolist(), counts.tolist()):
        spellings.add(word, times)
    for label in known:
        if isinstance(label, str):
            spellings.add(label, len(y) + 1)  # more frequent than all others
    return np.asarray([spellings.joined(word) for word in words.tolist()])[places]


class Spellings:
    """How often each spelling of a label was seen; of a hierarchy, each level of a label by itself."""

    def __init__(self, hierarchy: str | None = None) -> None:
        self.hierarchy = hierarchy
        self._seen: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)

    def add(self, label: str, count: int = 1) -> None:
        """Count a spelling of a label."""
        for place, level in self._levels(label):
            self._seen[place][level] += count

    def joined(self, label: str) -> str:
        """Return the label in its most frequent spelling."""
        found = [self._seen[place].most_common(1)[0][0] for place, _ in self._levels(label)]
        return (self.hierarchy or "").join(found)

    def _levels(self, label: str) -> list[tuple[tuple[str, ...], str]]:
        """Return each level as it is written, with the path to it, which is the same for all spellings."""
        if self.hierarchy is None:
            return [((folded_label(label),), label)]
        levels = [level.strip() for level in str(label).split(self.hierarchy)]
        folded = [folded_label(level) for level in levels]
        return [(tuple(folded[: i + 1]), level) for i, level in enumerate(levels)]


def path_levels(label: Any, sep: str) -> list[str]:
    """Return the levels of a label that is a path; raise InputError if one is empty.

    >>> path_levels("animal/dog/beagle", "/")
    ['animal', 'dog', 'beagle']
    """
    levels = str(label).split(sep)
    if not all(level.strip() for level in levels):
        raise InputError(
            f"label {label!r:.100} has an empty level between {sep!r}; write paths such as {sep.join(('a', 'b'))!r}"
        )
    return levels


def folded_label(label: str) -> str:
    """Return a label in small letters and with single blanks."""
    return " ".join(str(label).casefold().split())


# ---- a column that splits the rows


class SplitMasks(NamedTuple):
    """Masks (n,) of the training rows and of the test rows."""

    train: NDArray[np.bool_]
    test: NDArray[np.bool_]


def split_masks(split: NDArray, name: str) -> SplitMasks:
    """Return masks by a column of "train", "val" and "test"; rows of val are training rows."""
    words = np.char.lower(np.asarray(split, dtype=str))
    train, test = np.isin(words, _TRAIN_WORDS), np.isin(words, _TEST_WORDS)
    if not (train | test).all():
        strange = np.unique(words[~(train | test)])
        raise InputError(f"column split of {name} contains {listing(strange)}; its values must be train, val or test")
    return SplitMasks(train, test)
