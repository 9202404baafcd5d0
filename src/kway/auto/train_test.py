"""Read DATA and split it into training rows and test rows. Test rows are used once, at the end of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.auto.larger_than_memory import LargeData, read_what_fits
from kway.auto.race.folds import HELD_OUT_SHARE, split_test, weights_to_fit
from kway.auto.trained_rows import count_known
from kway.errors import InputError, UsageError
from kway.labels import Labels
from kway.suggest import listing
from kway.tables.labeled_rows import LabeledRows
from kway.tables.read_options import ReadOptions
from kway.tables.reading import DEFAULT_OPTIONS, read_rows
from kway.tables.sources.frames import n_rows
from kway.tables.sources.labels import folded_label, joined_labels, path_levels

_MISSING = ("na", "n/a", "nan", "null", "none", "?", "-", "missing")  # labels that may mean "no label"
MAX_TEST_ROWS = 50_000  # test rows at most: they give the accuracy to within half a percentage point


@dataclass(frozen=True, eq=False)
class TrainTest(LabeledRows):
    """Training rows with their encoded labels, and test rows with theirs."""

    labels: Labels = field(kw_only=True)  # of the training rows
    test_part: str = ""  # which rows are the test rows, in words
    kinds: Mapping[str, str] = field(default_factory=dict)  # kinds of columns that the user named
    larger: LargeData | None = None  # all of DATA, if memory holds only a part
    hierarchy: str | None = None  # separator of the levels of the labels
    weight: str | None = None  # the column of the weights, or "weight" for weights in memory; None without weights

    @property
    def keeps_groups_or_order(self) -> bool:
        """Whether held-out rows must not be drawn at random."""
        return self.groups is not None or self.order is not None

    def fit_params(self) -> dict[str, NDArray]:
        """Return the weights of the training rows as the argument `sample_weight` of `fit`; {} without weights."""
        return weights_to_fit(self.weights)


def read_train_test(data: Any, reading: ReadOptions = DEFAULT_OPTIONS, test: Any = None, seed: int = 0) -> TrainTest:
    """Read DATA with its test rows: the rows of `test`, the test rows of the dataset, or a fifth of the rows."""
    if test is not None:
        refuse_same(data, test)
    rows, larger = read_what_fits(data, reading)
    rows, larger, weight = _weigh(rows, larger, reading, test)
    what = f"target {reading.target!r} of {rows.name}" if reading.target else f"the target of {rows.name}"
    what += "" if larger is None else " (in the rows that fit in memory)"

    def spelled(y: NDArray, known: Any) -> NDArray:
        """Return labels in the spelling of the known ones, with join_labels=True."""
        return joined_labels(y, known, reading.hierarchy) if reading.join_labels else y

    y = spelled(rows.required_labels(), ())
    labels, notes = checked_labels(y, what)
    if reading.hierarchy is not None:
        check_paths(labels.classes, reading.hierarchy, what)
    if reading.join_labels:
        larger = None if larger is None else replace(larger, classes=labels.classes)
    data = as_training_rows(rows, reading, y, labels, notes)
    data = replace(data, larger=larger, hierarchy=reading.hierarchy, weight=weight)
    split = with_test_rows(data, reading, test, seed, lambda y: spelled(y, labels.classes))
    if (labels.classes.dtype.kind in "UO") == (split.test_y.dtype.kind in "UO"):  # else scoring raises an error
        check_known(split.test_y, split.labels.classes, split.test_part)
    return split


def as_training_rows(
    rows: LabeledRows, reading: ReadOptions, y: NDArray, labels: Labels, notes: Iterable[str] = ()
) -> TrainTest:
    """Return all rows as training rows, with the test rows of a dataset; y (n,) are their labels before encoding."""
    columns = set(getattr(rows.rows, "column_names", ()))
    return TrainTest(
        **{**vars(rows), "y": y, "notes": (*rows.notes, *rows.left_out, *notes)},
        labels=labels,
        test_part="the test rows of the dataset",
        kinds={c: kind for c, kind in reading.kinds.items() if c in columns},
    )


def read_test_rows(test: Any, reading: ReadOptions, rows: LabeledRows) -> LabeledRows:
    """Read the rows of `test` in the form of the training rows."""
    return read_rows(test, replace(reading, group=None, order=None, id=None), rows.requirements())


def with_test_rows(
    data: TrainTest,
    reading: ReadOptions,
    test: Any,
    seed: int,
    spelled: Callable[[NDArray], NDArray],
    strata: NDArray[np.int64] | None = None,
) -> TrainTest:
    """Return the rows with test rows: those of `test`, those of the dataset, or a fifth of the rows.

    `spelled` changes labels of test rows to the spelling of the training rows. Drawn rows are stratified by class, or
    by the numbers `strata` (n,), those of the rarest label of each row.
    """
    if test is not None:
        other = read_test_rows(test, reading, data)
        other = without_zero_weights(other, f"weight {data.weight!r} of {other.name}")
        notes = (*data.notes, *other.left_out, *shared_note(data.rows, other.rows))
        return replace(
            data, test_rows=other.rows, test_y=spelled(other.required_labels()), test_weights=other.weights,
            notes=notes, test_part=f"the rows of {test}",
        )  # fmt: skip
    if data.test_rows is not None and data.test_y is not None:
        return replace(data, test_y=spelled(data.test_y))
    return _split_off_test(data, seed, strata)


def _split_off_test(data: TrainTest, seed: int, strata: NDArray[np.int64] | None) -> TrainTest:
    larger, n = data.larger, data.n
    codes = data.labels.codes if strata is None else strata
    train, test = split_test(codes, min(HELD_OUT_SHARE, MAX_TEST_ROWS / n), data.groups, data.order, seed)
    drawn = "stratified by class" if strata is None else "stratified by the rarest label"
    drawn = drawn if data.groups is None else "no group in both parts"
    part = f"{len(test) / n:.0%} of the rows, {drawn if data.order is None else 'the last in order'}"
    if larger is not None:
        larger = larger.without(test, data.groups, data.order)
        larger = replace(larger, read=larger.read[train])
    tested = data.at(test)
    return replace(
        data.at(train), labels=data.labels.at(train), test_rows=tested.rows, test_y=tested.required_labels(),
        test_weights=tested.weights, test_part=part, larger=larger,
    )  # fmt: skip


# ---- weights


def _weigh(
    rows: LabeledRows, larger: LargeData | None, reading: ReadOptions, test: Any
) -> tuple[LabeledRows, LargeData | None, str | None]:
    """Check the weights; return the rows with a note, the data that they are a part of, and the name of the weights.

    Rows of weight 0 are left out. Equal weights are dropped, because they are the same as none.
    """
    weight = reading.weight or "weight"
    what = f"weight {weight!r} of {rows.name}"
    if rows.weights is None and reading.weight is None:
        return rows, larger, None
    if rows.weights is None:
        raise InputError(f"{rows.name} has no column {weight!r} for weight; give a table with this column")
    if reading.weight is None and test is not None:
        raise UsageError(
            "weight= is an array, which has no weights for the rows of test=; name a column that both tables have"
        )
    kept = without_zero_weights(rows, what)
    larger = None if larger is None else replace(larger, read=larger.read[rows.weights > 0])
    if kept.test_rows is not None:
        tested = LabeledRows(rows.name, kept.test_rows, kept.test_y, weights=kept.test_weights)
        tested = without_zero_weights(tested, f"{what}, in the test rows,")
        kept = replace(kept, test_rows=tested.rows, test_y=tested.y, test_weights=tested.weights)
    n_zero = rows.n - kept.n
    left_out = f"; {n_zero:,} rows of weight 0 were left out" if n_zero else ""
    by = f"by column {weight}" if reading.weight is not None else "by the array weight"
    note = f"rows are weighted {by}, so all scores are weighted means{left_out}"
    values = np.concatenate([each for each in (kept.weights, kept.test_weights) if each is not None])
    if (values == values[0]).all():
        kept = replace(kept, weights=None, test_weights=None)
    return replace(kept, notes=(*kept.notes, note)), larger, weight


def without_zero_weights(rows: LabeledRows, what: str) -> LabeledRows:
    """Return the rows of positive weight; raise InputError if a weight is missing, infinite or negative."""
    if rows.weights is None:
        return rows
    weights = np.asarray(rows.weights, np.float64)
    bad = np.flatnonzero(~((weights >= 0) & (weights < np.inf)))
    if len(bad):
        raise InputError(
            f"{what} is {'missing' if np.isnan(first := weights[bad[0]]) else f'{first:g}'} in row {bad[0] + 1:,} "
            f"({len(bad):,} such rows in all); a weight must be a number of 0 or more, so correct these rows, or give "
            "them weight 0 to leave them out"
        )
    if not weights.any():
        raise InputError(f"{what} is 0 in all rows, so there is nothing to learn; give some rows a positive weight")
    return replace(rows, weights=weights).at(weights > 0)


# ---- labels


def checked_labels(y: NDArray, what: str) -> tuple[Labels, tuple[str, ...]]:
    """Encode labels (n,) and return them with notes on odd ones; raise InputError if they cannot be learned."""
    classes, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    if len(classes) < 2:
        raise InputError(f"{what} has one class only ({classes.tolist()[0]!r}); a classifier needs two or more")
    if len(classes) == len(y):
        raise InputError(
            f"{what} has a different label in each of its {len(y):,} rows, so there is nothing to learn; name the "
            "column of the classes (is this one an id or a measurement?)"
        )
    if y.dtype.kind == "f" and (y != np.floor(y)).any():
        raise InputError(
            f"{what} contains fractions such as {y[y != np.floor(y)][0]:g}, so it is a measurement; name a column of "
            "classes"
        )
    single = classes[counts == 1].tolist()
    notes = [
        f"{len(single)} classes have only one row ({listing(single, 5)}); they are in training and never in the test"
    ]
    warnings = _odd_labels(dict(zip(classes.tolist(), counts.tolist())), what)
    labels = Labels(classes, codes.astype(np.int64, copy=False))
    return labels, (*(notes if single else []), *warnings)


def check_paths(classes: NDArray, sep: str, what: str) -> None:
    """Raise InputError if a label has an empty level, or if no label has two levels."""
    depth = max(len(path_levels(label, sep)) for label in classes.tolist())
    if depth < 2:
        raise InputError(
            f"{what} has no label with {sep!r}, so there is no hierarchy; pass the separator of its levels: hierarchy="
        )


def _odd_labels(rows: dict[Any, int], what: str) -> Iterator[str]:
    """Yield notes on labels that may not be meant as classes of their own; `rows` counts the rows of each label."""
    texts = [label for label in rows if isinstance(label, str)]
    by_folded: dict[str, list[str]] = {}
    for label in texts:
        by_folded.setdefault(folded_label(label), []).append(label)
    pairs = [" and ".join(map(repr, same)) for same in by_folded.values() if len(same) > 1]
    if pairs:
        examples = listing(pairs, 3)
        yield f"{what} has labels that differ only in blanks or capitals, {examples}; to join them: join_labels=True"
    missing_words = [label for label in texts if label.casefold().strip() in _MISSING]
    if missing_words:
        examples = listing((f"{label!r} in {rows[label]:,} rows" for label in missing_words), 3)
        yield f"{what} contains {examples}, which counts as a class; drop these rows if it means a missing label"


def check_known(y: NDArray, classes: NDArray, what: str) -> None:
    """Raise InputError if a label of test rows does not occur in training."""
    unseen = sorted(set(np.unique(y).tolist()) - set(np.unique(classes).tolist()), key=str)
    if unseen:
        rows = int(np.isin(y, unseen).sum())
        raise InputError(
            f"{what} have labels that do not occur in training: {listing(map(repr, unseen), 5)} ({rows:,} rows); "
            "add training rows for them, or drop these rows"
        )


# ---- test rows that are training rows


def refuse_same(data: Any, test: Any) -> None:
    """Raise UsageError if the test rows are the data itself, also under another name."""
    train, tested = (getattr(given, "rows", given) for given in (data, test))
    names = [given for given in (train, tested) if isinstance(given, str)]
    files = [Path(name) for name in names if Path(name).exists()]
    is_same = files[0].samefile(files[1]) if len(files) == 2 else len(names) == 2 and names[0] == names[1]
    if is_same or train is tested:
        raise UsageError(
            "the test rows are the training data, so the test shows nothing about new rows; pass other rows, or leave "
            "test= out to hold out a fifth of the data"
        )


def shared_note(rows: Any, test_rows: Any) -> Iterator[str]:
    """Yield a note if test rows are training rows."""
    shared, n = count_known(test_rows, rows), n_rows(test_rows)
    if shared:
        yield f"{shared:,} of the {n:,} test rows are also training rows, so the test is easier than new rows are"
