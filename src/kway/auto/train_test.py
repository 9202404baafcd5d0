"""DATA of a job, read and split once: rows to learn from, and test rows that are used once, at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.auto.larger_than_memory import LargeData, read_what_fits
from kway.auto.race.folds import split_test
from kway.errors import InputError, UsageError
from kway.labels import Labels
from kway.suggest import listing
from kway.tables.labeled_rows import LabeledRows
from kway.tables.options import UNKNOWN_FORM, ReadOptions, TextForm
from kway.tables.reading import DEFAULT_OPTIONS, read_rows
from kway.tables.sources.frames import is_table, n_rows, take_rows, whole_column
from kway.tables.sources.images import ImageForm
from kway.tables.sources.values import ColumnFormat

_GAPS = ("na", "n/a", "nan", "null", "none", "?", "-", "missing")  # labels that may mean "no label"
_TEST_SHARE = 0.2  # of the rows
_ABOUT_A_FIFTH = 0.05  # difference to that share up to which the text says "a fifth"
MOST_TESTED = 50_000  # test rows at most: they give the accuracy to within half a point, the others teach more (T11)
_FEW_SHARED = 0.05  # share of the test rows that may equal training rows by chance, as in short questionnaires


@dataclass(frozen=True, eq=False)
class TrainTest:
    """Training rows with encoded labels, groups and order (n,), and test rows with their labels."""

    name: str
    rows: Any
    labels: Labels  # of the training rows
    test_rows: Any
    test_y: NDArray
    groups: NDArray | None = None
    order: NDArray | None = None
    image: ImageForm | None = None
    notes: tuple[str, ...] = ()
    test_part: str = ""  # where the test rows come from, in words
    form: TextForm = UNKNOWN_FORM  # of a text file
    written: tuple[ColumnFormat, ...] = ()  # columns of numbers and dates that were written as text
    words: Mapping[str, str] = field(default_factory=dict)  # one value per column as the file has it
    kinds: Mapping[str, str] = field(default_factory=dict)  # kinds of columns that the user has given
    larger: LargeData | None = None  # all of DATA, if memory holds a part of it

    @property
    def n(self) -> int:
        """Training rows."""
        return n_rows(self.rows)

    @cached_property
    def y(self) -> NDArray:
        """Labels of the training rows (n,)."""
        return self.labels.classes[self.labels.codes]

    @property
    def keeps_groups_or_order(self) -> bool:
        """Whether held-out rows must not be drawn at random."""
        return self.groups is not None or self.order is not None


def read_train_test(data: Any, how: ReadOptions = DEFAULT_OPTIONS, test: Any = None, seed: int = 0) -> TrainTest:
    """DATA with its test rows: those of `test`, those that the dataset has, or a fifth of the rows."""
    if test is not None:
        refuse_same(data, test)
    found, larger = read_what_fits(data, how)
    what = f"target {how.target!r} of {found.name}" if how.target else f"the target of {found.name}"
    what += "" if larger is None else ", as far as memory holds it,"
    labels, notes = checked_labels(found.required_labels(), what)
    found = replace(found, notes=(*found.notes, *notes))
    columns = set(getattr(found.rows, "column_names", ()))
    kinds = {c: kind for c, kind in how.kinds.items() if c in columns}
    if test is not None:
        other = read_rows(test, replace(how, group=None, order=None, id=None), found.requirements())
        found = replace(found, notes=(*found.notes, *shared_note(found.rows, other.rows)))
        split = _Split(found, labels, other.rows, other.required_labels(), f"the rows of {test}", larger)
    elif found.test_rows is not None and found.test_y is not None:
        split = _Split(found, labels, found.test_rows, found.test_y, "the set's own test rows", larger)
    else:
        split = _split_off_test(found, labels, seed, larger)
    return _train_test(split, kinds)


class _Split(NamedTuple):
    """Training rows with their labels, test rows with theirs, and where these come from."""

    found: LabeledRows
    labels: Labels
    test_rows: Any
    test_y: NDArray
    test_part: str
    larger: LargeData | None


def _train_test(split: _Split, kinds: Mapping[str, str]) -> TrainTest:
    found, classes, test_y = split.found, split.labels.classes, split.test_y
    if (classes.dtype.kind in "UO") == (test_y.dtype.kind in "UO"):  # else scoring them says what is wrong
        check_known(test_y, classes, split.test_part)
    return TrainTest(
        name=found.name,
        rows=found.rows,
        labels=split.labels,
        test_rows=split.test_rows,
        test_y=test_y,
        groups=found.groups,
        order=found.order,
        image=found.image,
        notes=found.notes,
        test_part=split.test_part,
        form=found.form,
        written=found.written,
        words=found.words,
        kinds=kinds,
        larger=split.larger,
    )


def _split_off_test(found: LabeledRows, labels: Labels, seed: int, larger: LargeData | None) -> _Split:
    n = len(labels.codes)
    share = min(_TEST_SHARE, MOST_TESTED / n)
    train, test = split_test(labels.codes, share, found.groups, found.order, seed)
    about = abs(len(test) / n - _TEST_SHARE) < _ABOUT_A_FIFTH  # many small classes give one row each, which is more
    part = "a fifth of the rows" if about else f"{len(test):,} of {n:,} rows"
    how = f"{part}, by class"
    if found.groups is not None:
        how = f"{'about ' if about else ''}{part}, no group in both parts"
    if found.order is not None:
        how = f"the last {part.removeprefix('a ')} in order"
    cut = replace(
        found,
        rows=take_rows(found.rows, train),
        groups=None if found.groups is None else found.groups[train],
        order=None if found.order is None else found.order[train],
    )
    if larger is not None:
        larger = larger.without(test, found.groups, found.order)
        larger = replace(larger, read=larger.read[train])
    test_y = labels.classes[labels.codes[test]]
    return _Split(cut, labels_at(labels, train), take_rows(found.rows, test), test_y, how, larger)


# ---- labels


class CheckedLabels(NamedTuple):
    """Encoded labels, and notes for the user."""

    labels: Labels
    notes: tuple[str, ...]


def checked_labels(y: NDArray, what: str) -> CheckedLabels:
    """Encode labels (n,) that can be learned, with notes on odd ones; raise InputError if they cannot be learned."""
    classes, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    if len(classes) < 2:
        raise InputError(f"{what} has one class only ({classes.tolist()[0]!r}); a classifier needs two or more")
    if len(classes) == len(y):
        raise InputError(
            f"{what} has another label in each of its {len(y):,} rows, so nothing can be learned; "
            "name the column of the classes (is this one an id, or a measure?)"
        )
    if y.dtype.kind == "f" and (y != np.floor(y)).any():
        raise InputError(
            f"{what} holds fractions such as {y[y != np.floor(y)][0]:g}, a measure; a target names classes"
        )
    single = classes[counts == 1].tolist()
    notes = [f"{len(single)} classes have one row only ({listing(single, 5)}): learned from, but never tested"]
    odd = _odd_labels(dict(zip(classes.tolist(), counts.tolist())), what)
    labels = Labels(classes, codes.astype(np.int64, copy=False))
    return CheckedLabels(labels, (*(notes if single else []), *odd))


def labels_at(labels: Labels, rows: NDArray[np.int64] | None) -> Labels:
    """The labels of some rows (None: all), with the classes that occur among them."""
    if rows is None:
        return labels
    present, codes = np.unique(labels.codes[rows], return_inverse=True)
    return Labels(labels.classes[present], codes.astype(np.int64, copy=False))


def _odd_labels(rows: dict[Any, int], what: str) -> Iterator[str]:
    """Notes on labels that a person would not take for classes of their own; `rows` counts the rows of each."""
    words = [label for label in rows if isinstance(label, str)]
    alike: dict[str, list[str]] = {}
    for label in words:
        alike.setdefault(" ".join(label.casefold().split()), []).append(label)
    pairs = [" and ".join(map(repr, same)) for same in alike.values() if len(same) > 1]
    if pairs:
        yield f"{what} has labels that differ in blanks or capitals alone, {listing(pairs, 3)}: taken as classes apart"
    gaps = [label for label in words if label.casefold().strip() in _GAPS]
    if gaps:
        said = listing((f"{label!r} in {rows[label]:,} rows" for label in gaps), 3)
        yield f"{what} says {said}: taken as a class; where it stands for a missing label, drop these rows"


def check_known(y: NDArray, classes: NDArray, what: str) -> None:
    """Raise if a label of test rows does not occur in training."""
    unseen = sorted(set(np.unique(y).tolist()) - set(np.unique(classes).tolist()), key=str)
    if unseen:
        rows = int(np.isin(y, unseen).sum())
        raise InputError(
            f"{what} has labels that training never saw: {listing(map(repr, unseen), 5)} ({rows:,} rows); "
            "add training rows for them, or drop these rows"
        )


# ---- test rows that are training rows


def refuse_same(data: Any, test: Any) -> None:
    """Raise if the test rows are the data itself, under whatever name."""
    ours, theirs = (getattr(given, "rows", given) for given in (data, test))
    named = [given for given in (ours, theirs) if isinstance(given, str)]
    files = [Path(name) for name in named if Path(name).exists()]
    same = files[0].samefile(files[1]) if len(files) == 2 else len(named) == 2 and named[0] == named[1]
    if same or ours is theirs:
        raise UsageError(
            "the rows to test on are the data itself, which tells nothing of new rows; name others, or none: a fifth "
            "of the rows is then put aside"
        )


def shared_note(rows: Any, test_rows: Any) -> Iterator[str]:
    """A note if many of the test rows are training rows."""
    shared, n = n_shared(rows, test_rows), n_rows(test_rows)
    if shared > _FEW_SHARED * n:
        yield f"{shared:,} of the {n:,} test rows are training rows, too, so that the test is easier than new rows are"


def n_shared(rows: Any, test_rows: Any) -> int:
    """Test rows that equal a training row in every column; 0 if rows cannot be compared."""
    if is_table(rows):
        return _n_shared_in_tables(rows, test_rows)
    if hasattr(rows, "tocsr") or rows.dtype != test_rows.dtype:
        return 0
    known = {row.tobytes() for row in np.ascontiguousarray(rows)}
    return sum(row.tobytes() in known for row in np.ascontiguousarray(test_rows))


def _n_shared_in_tables(rows: Any, test_rows: Any) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc

    def lines(table: Any) -> Any:
        cells = [whole_column(table.column(c)).cast(pa.large_string()).fill_null("") for c in rows.column_names]
        return pc.binary_join_element_wise(*cells, pa.scalar("\x1f", pa.large_string()))

    try:
        return int(pc.sum(pc.is_in(lines(test_rows), value_set=lines(rows))).as_py() or 0)
    except (pa.ArrowException, KeyError):  # columns of vectors, for example
        return 0
