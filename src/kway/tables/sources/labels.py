"""Labels from a column of a table, and the column `split` that divides rows into training and test rows.

The labels of a csv have no type, so all labels of the column decide it:

    1, 2, 10        integers
    1.0, 2.5        floats
    true, False     booleans
    007, 08, 10     text, because as numbers 7 and 007 would be one class

Blanks around the labels of a csv are removed. The labels of a frame are not changed.
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
from kway.tables.sources.frames import are_numbers, holds_text, number_type, whole_column
from kway.tables.sources.values import words_in_rows
from kway.text_tables import count

_MISSING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None")  # missing among numbers; among text only ""
_TRAIN_VALUES = ("train", "val", "valid", "validation", "dev")  # of a column `split`

_LABEL_ROWS = "label these rows, or drop them"  # advice of errors
SKIP_ROWS = "label these rows, or leave them out: skip_bad=True"


class UnlabeledError(InputError):
    """Raised if the rows have no labels at all, and not only some labels that are missing or cannot be used."""


class NoLabelError(UnlabeledError):
    """Raised if no row has a label. A piece of a large file without labels is left out."""

    def __init__(self, target: str, rows: int) -> None:
        super().__init__(f"no row has a label in {target!r}; name the column with the labels: target=")
        self.rows = rows


def column_labels(column: Any, what: str, typed: bool, advice: str = _LABEL_ROWS, from_csv: bool = False) -> NDArray:
    """Return the labels (n,) of a pyarrow column; raise InputError if some are missing.

    Parameters
    ----------
    column : pyarrow column
        The labels.
    what : str
        The name of the column in messages.
    typed : bool
        Whether the format has types, so that text stays text. Otherwise text becomes numbers if all labels are numbers.
    advice : str
        What the error for missing labels advises.
    from_csv : bool
        Whether to remove surrounding blanks.
    """
    if holds_text(column):
        text = pc.utf8_trim_whitespace(column.cast("string")) if from_csv else column.cast("string")
        kind = None if typed else number_type(_present(text))
        if kind is None:
            labels = text.to_pylist()
            _refuse_missing(sum(not label for label in labels), len(labels), what, advice)
            return np.asarray(labels)
        _refuse_missing(len(text) - len(_present(text)), len(text), what, advice)
        return np.asarray(text.cast(kind).to_numpy())
    _refuse_missing(column.null_count, len(column), what, advice)
    labels = np.asarray(whole_column(column).to_numpy(zero_copy_only=False))
    if labels.dtype.kind not in "iufb":
        raise InputError(f"{what} has type {column.type}; labels must be text, numbers or true/false")
    return labels


def refuse_words(column: Any, what: str, classes: Iterable[Any], n_rows_before: int) -> None:
    """Raise InputError if some labels of a csv are numbers, as the classes of the model are, and others words."""
    text = pc.utf8_trim_whitespace(column.cast("string"))
    is_number = are_numbers(text)
    is_word = pc.invert(pc.or_(is_number, pc.is_in(text, pa.array(_MISSING))))
    if pc.any(is_number).as_py() and pc.any(is_word).as_py():
        raise InputError(
            f"{what} has labels that are not plain numbers: {words_in_rows(text, is_word, n_rows_before)}; the classes "
            f"of the model are {listing(classes)}; correct or drop these rows"
        )


class LabeledTable(NamedTuple):
    """The rows of a table that have a label, the mask (n,) of these rows, and a note if there are others."""

    table: Any
    has_label: Any
    left_out: tuple[str, ...]


def rows_with_labels(table: Any, target: str) -> LabeledTable:
    """Return the rows whose label is present; among numbers, words such as NA count as missing."""
    column = table.column(target)
    has_label = column.is_valid()
    if holds_text(column):
        text = pc.utf8_trim_whitespace(column.cast("string"))
        missing = pa.array(_MISSING if number_type(_present(text)) else _MISSING[:1])
        has_label = pc.invert(pc.or_(pc.is_null(text), pc.is_in(text, missing)))
    left_out = len(column) - (pc.sum(has_label).as_py() or 0)
    if left_out == len(column):
        raise NoLabelError(target, left_out)
    return LabeledTable(table.filter(has_label), has_label, (unlabeled_note(left_out),) if left_out else ())


def unlabeled_note(rows: int) -> str:
    """Return the note about rows that were left out."""
    return f"{count(rows, 'row')} without a label left out (skip_bad=True)"


def _present(text: Any) -> Any:
    return text.filter(pc.invert(pc.or_(pc.is_null(text), pc.is_in(text, pa.array(_MISSING)))))


def _refuse_missing(n_missing: int, n: int, what: str, advice: str) -> None:
    if n_missing:
        error = UnlabeledError if n_missing == n else InputError
        raise error(f"{what} is empty in {n_missing:,} of {n:,} rows; {advice}")


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
        with_separator = [label for label in labels if sep in label]
        if with_separator:
            raise InputError(f"label {with_separator[0]!r:.100} contains the separator; pass another one: multilabel=")
    else:
        labels = [] if cell is None or cell != cell else [label.strip() for label in str(cell).split(sep)]
    return [label for label in labels if label]


def split_set(text: str, sep: str) -> list[str]:
    """Return the labels of a set that `label_sets` has written."""
    return text.split(sep) if text else []


def joined_sets(y: NDArray, sep: str, known: Iterable[str] = ()) -> NDArray:
    """Return sets of labels (n,) as text, with one spelling for labels that differ only in case or blanks.

    The spelling is that of `known`, or the most frequent one.
    """
    spellings = Spellings()
    for text in y.tolist():
        for label in split_set(text, sep):
            spellings.add(label)
    for label in known:
        spellings.add(label, len(y) + 1)  # more frequent than all others
    return np.asarray([sep.join(sorted({spellings.joined(label) for label in split_set(t, sep)})) for t in y.tolist()])


def joined_labels(y: NDArray, known: Iterable[Any] = (), hierarchy: str | None = None) -> NDArray:
    """Return text labels (n,), with one spelling for labels that differ only in case or blanks.

    The spelling is that of `known`, or the most frequent one. With `hierarchy`, the separator of the levels of paths,
    each level is treated separately.
    """
    if y.dtype.kind not in "UO":
        return y
    distinct, positions, counts = np.unique(y, return_inverse=True, return_counts=True)
    spellings = Spellings(hierarchy)
    for label, n_rows in zip(distinct.tolist(), counts.tolist()):
        spellings.add(label, n_rows)
    for label in known:
        if isinstance(label, str):
            spellings.add(label, len(y) + 1)  # more frequent than all others
    return np.asarray([spellings.joined(label) for label in distinct.tolist()])[positions]


class Spellings:
    """Counts of the spellings of each label; with a hierarchy, of each level of each label."""

    def __init__(self, hierarchy: str | None = None) -> None:
        self.hierarchy = hierarchy
        self._counts: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)

    def add(self, label: str, count: int = 1) -> None:
        """Count a spelling of a label."""
        for path, level in self._levels(label):
            self._counts[path][level] += count

    def joined(self, label: str) -> str:
        """Return the label in its most frequent spelling."""
        levels = [self._counts[path].most_common(1)[0][0] for path, _ in self._levels(label)]
        return (self.hierarchy or "").join(levels)

    def _levels(self, label: str) -> list[tuple[tuple[str, ...], str]]:
        """Return (path, spelling) of each level; the path to a level is the same for all spellings."""
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
    """Return a label in lower case and with single blanks."""
    return " ".join(str(label).casefold().split())


# ---- a column that splits the rows


class SplitMasks(NamedTuple):
    """Masks (n,) of the training rows and of the test rows."""

    train: NDArray[np.bool_]
    test: NDArray[np.bool_]


def split_masks(split: NDArray, name: str) -> SplitMasks:
    """Return masks from a column of "train", "val" and "test"; rows of val are training rows."""
    values = np.char.lower(np.asarray(split, dtype=str))
    train = np.isin(values, _TRAIN_VALUES)
    test = values == "test"
    if not (train | test).all():
        unknown = np.unique(values[~(train | test)])
        raise InputError(f"column split of {name} contains {listing(unknown)}; its values must be train, val or test")
    return SplitMasks(train, test)
