"""DATA read and cut once: rows to learn from, and rows that nothing looks at until the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.data.labels import encode
from kway.data.reading import AS_IT_IS, LabelledRows, ReadOptions, read_rows
from kway.data.sources.frames import n_rows, take_rows
from kway.data.sources.images import ImageForm
from kway.data.sources.text_form import OPEN, TextForm
from kway.data.sources.written_values import Written
from kway.data.suggest import listing
from kway.errors import InputError
from kway.select.contest.folds import split_test
from kway.select.larger_than_memory import Larger, read_fitting
from kway.select.shared_rows import refuse_same, shared_note

_GAPS = ("na", "n/a", "nan", "null", "none", "?", "-", "missing")  # labels that may stand for none
_TEST_SHARE = 0.2
_NEARLY = 0.05  # by which a share may be off and still be called a fifth
MOST_TESTED = 50_000  # rows put aside at most: they tell an accuracy to within half a point, the others teach more


@dataclass(frozen=True, eq=False)
class Parts:
    """Training rows with labels y, groups and order (n,), and test rows with theirs."""

    name: str
    rows: Any
    y: NDArray
    test_rows: Any
    test_y: NDArray
    groups: NDArray | None
    order: NDArray | None
    image: ImageForm | None
    notes: tuple[str, ...]
    how: str  # where the test rows come from
    form: TextForm = OPEN  # of the file, where it is text
    written: tuple[Written, ...] = ()  # columns of numbers and dates that were written in words
    words: Mapping[str, str] = field(default_factory=dict)  # of the file, one a column as it is written there
    kinds: Mapping[str, str] = field(default_factory=dict)  # what columns are, where a person has said it
    larger: Larger | None = None  # DATA, where memory holds a part of it

    @property
    def n(self) -> int:
        """Training rows."""
        return n_rows(self.rows)


def read_parts(data: Any, how: ReadOptions = AS_IT_IS, test: Any = None, seed: int = 0) -> Parts:
    """DATA with its test part: the file `test`, the set's own, or a fifth of the rows put aside."""
    if test is not None:
        refuse_same(data, test)
    found, larger = read_fitting(data, how)
    y = found.required_labels()
    of = f"target {how.target!r} of {found.name}" if how.target else f"the target of {found.name}"
    of += "" if larger is None else ", as far as memory holds it,"
    found = replace(found, notes=(*found.notes, *check_labels(y, of)))
    if test is not None:
        other = read_rows(test, replace(how, group=None, order=None, id=None), found.requirements())
        found = replace(found, notes=(*found.notes, *shared_note(found.rows, other.rows)))
        parts = _parts(found, y, other.rows, other.required_labels(), f"the rows of {test}", larger)
    elif found.test_rows is not None and found.test_y is not None:
        parts = _parts(found, y, found.test_rows, found.test_y, "the set's own test rows", larger)
    else:
        parts = _put_aside(found, y, seed, larger)
    columns = set(getattr(found.rows, "column_names", ()))
    return replace(parts, kinds={c: kind for c, kind in how.kinds.items() if c in columns})


def check_labels(y: NDArray, what: str) -> tuple[str, ...]:
    """Notes on labels that can be learned; an error for those that cannot."""
    classes, counts = np.unique(y, return_counts=True)
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
    told = [f"{len(single)} classes have one row only ({listing(single, 5)}): learned from, but never tested"]
    return (*(told if single else []), *_odd_labels(dict(zip(classes.tolist(), counts.tolist())), what))


def _odd_labels(rows: dict[Any, int], what: str) -> Iterator[str]:
    """Notes on labels that a person would not take for classes of their own; `rows` counts those of each."""
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
    """Labels of test rows must have been seen in training."""
    unseen = sorted(set(np.unique(y).tolist()) - set(np.unique(classes).tolist()), key=str)
    if unseen:
        rows = int(np.isin(y, unseen).sum())
        raise InputError(
            f"{what} has labels that training never saw: {listing(map(repr, unseen), 5)} ({rows:,} rows); "
            "add training rows for them, or drop these rows"
        )


def _parts(found: LabelledRows, y: NDArray, test_rows: Any, test_y: NDArray, how: str, larger: Larger | None) -> Parts:
    if (y.dtype.kind in "UO") == (test_y.dtype.kind in "UO"):  # else the scores say what is wrong
        check_known(test_y, y, how)
    return Parts(
        found.name, found.rows, y, test_rows, test_y, found.groups, found.order, found.image, found.notes, how,
        found.form, found.written, found.words, larger=larger,
    )  # fmt: skip


def _put_aside(found: LabelledRows, y: NDArray, seed: int, larger: Larger | None) -> Parts:
    share = min(_TEST_SHARE, MOST_TESTED / len(y))
    train, test = split_test(encode(y).codes, share, found.groups, found.order, seed)
    about = abs(len(test) / len(y) - _TEST_SHARE) < _NEARLY  # of many small classes one row each is more
    part = "a fifth of the rows" if about else f"{len(test):,} of {len(y):,} rows"
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
    return _parts(cut, y[train], take_rows(found.rows, test), y[test], how, larger)
