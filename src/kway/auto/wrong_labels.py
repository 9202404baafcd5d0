"""Find rows whose label is probably wrong, and inspect labeled rows (`kway.inspect`).

Wrong labels are found by confident learning [1]_. p_ik is the probability of class k for row i, from a model that was
not trained on row i. With the given label y_i,

    t_k = mean of p_ik over the rows with y_i = k        mean confidence in class k on its own rows
    c_i = argmax of p_ik over the classes with p_ik >= t_k

The label of row i is probably wrong if c_i exists and is not y_i. The rows with the lowest p_i,y_i come first. A row
whose class has no other row to learn from cannot be judged.

An inspection also lists near-duplicates with different labels, and rows that are also test rows. Two rows are
near-duplicates if their distance is far below the usual distance of nearest rows. The probabilities come from
cross-validation (`inspect_rows`), or from a fitted model that was not trained on the rows (`inspect_by`).

References
----------
.. [1] C. Northcutt, L. Jiang and I. Chuang (2021), Confident learning: estimating uncertainty in dataset labels. JAIR.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway import progress
from kway.auto.compare_data import DataComparison, compare_data
from kway.auto.fit_options import FitOptions
from kway.auto.larger_than_memory import read_what_fits
from kway.auto.race.clock import REPORT_SECONDS, Clock
from kway.auto.race.folds import FEW_ROWS
from kway.auto.race.pool import Pool, own_predictions, pool_of
from kway.auto.race.scoring import spread
from kway.auto.train_test import TrainTest, as_training_rows, checked_labels, read_test_rows
from kway.confidence.blend import pool_probabilities
from kway.errors import InputError
from kway.labels import Labels, encode, encode_as
from kway.neighbors import NeighborsClassifier
from kway.neighbors.agreement import without_self
from kway.pipelines import features_of
from kway.planning import costs
from kway.planning.rates import Rates
from kway.rows.blocks import count_rows, take_rows
from kway.rows.matrices import row_squares
from kway.search.results import Neighbors
from kway.tables.features.features import Features
from kway.tables.features.numbers import missing_counts
from kway.tables.read_options import ReadOptions
from kway.tables.sources.frames import is_table
from kway.tables.sources.labels import joined_labels
from kway.text_tables import Printed, Table, count

WRONG, CONFLICT, SHARED = "wrong label", "conflict", "shared"  # the kinds of problems
_NO_PAIRS = np.empty((0, 2), np.int64)
COLUMNS = ("problem", "row", "label", "suggested", "p_label", "p_suggested", "neighbors", "neighbor_labels")


class OutOfFold(NamedTuple):
    """Out-of-fold probabilities p (m, K) of `rows` (m,), and whether each row can be judged (m,)."""

    rows: NDArray[np.int64]
    p: NDArray
    judged: NDArray[np.bool_]


class Suspects(NamedTuple):
    """Rows (m,) ordered by the probability of their label, lowest first.

    `label` and `suggested` are class codes, `p_label` and `p_suggested` their probabilities, and `wrong` is whether the
    label is probably wrong.
    """

    rows: NDArray[np.int64]
    label: NDArray[np.int64]
    suggested: NDArray[np.int64]
    p_label: NDArray[np.float64]
    p_suggested: NDArray[np.float64]
    wrong: NDArray[np.bool_]

    def at(self, selected: Any) -> Suspects:
        """Return the suspects that an index, a slice or a mask selects."""
        return Suspects(*(values[selected] for values in self))


@dataclass(frozen=True, eq=False)
class WrongLabels:
    """Rows whose label is probably wrong, and their nearest rows.

    Attributes
    ----------
    suspects : Suspects
        The rows, most suspicious first.
    near : ndarray of shape (m, k)
        The nearest other rows of each, nearest first.
    distances : ndarray of shape (m, k)
        Their distances.
    judged : int
        Number of rows that were judged.
    """

    suspects: Suspects
    near: NDArray[np.int64]
    distances: NDArray[np.float64]
    judged: int


def rank_labels(p: NDArray, codes: NDArray[np.int64]) -> Suspects:
    """Return all rows in order of suspicion, from probabilities p (n, K) and the codes (n,) of the given labels.

    >>> p = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.2, 0.8], [0.95, 0.05]])
    >>> found = rank_labels(p, np.array([0, 0, 1, 1, 1]))
    >>> found.rows[found.wrong], found.suggested[found.wrong]
    (array([4]), array([0]))
    """
    p = np.asarray(p, np.float64)
    n, K = p.shape
    p_label = p[np.arange(n), codes]
    counts = np.bincount(codes, minlength=K)
    mean_p = np.divide(np.bincount(codes, p_label, K), counts, out=np.full(K, np.inf), where=counts > 0)  # t_k (K,)
    confident = np.where(p >= mean_p, p, -1.0)
    suggested_class = confident.argmax(axis=1)
    wrong = (confident.max(axis=1) >= 0) & (suggested_class != codes)
    p_others = p.copy()
    p_others[np.arange(n), codes] = -1.0
    suggested = np.where(wrong, suggested_class, p_others.argmax(axis=1))
    order = np.lexsort((-p[np.arange(n), suggested], p_label))
    suspects = Suspects(np.arange(n), codes, suggested, p_label, p[np.arange(n), suggested], wrong)
    return suspects.at(order)


# ---- probabilities of rows by models that did not learn from them


def out_of_fold(chosen: DataComparison, pool: Pool | None) -> OutOfFold | None:
    """Return the predictions of a comparison for its held-out rows; None if no family has probabilities.

    The blend predicts if there is one, else the best family.
    """
    race = chosen.comparison.race
    if pool is not None:
        rows = race.held_out_rows(int(pool.fold.max()) + 1)
        p = pool_probabilities(pool.weights.values(), [pool.held_out[name].probabilities() for name in pool.weights])
    else:
        held_out, rows = own_predictions(race, chosen.comparison.best.model, chosen.options.seed)
        if held_out is None:
            return None
        p = held_out.probabilities()
    return OutOfFold(rows, p, _learned_elsewhere(race.codes, race.folds, rows))


def _learned_elsewhere(codes: NDArray[np.int64], folds: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray:
    """Return whether the class of each of these rows has rows outside its fold."""
    inside = np.zeros((int(codes.max()) + 1, int(folds.max()) + 2), np.int64)
    np.add.at(inside, (codes, folds), 1)  # fold -1 is the last column
    return np.asarray(inside[codes[rows], folds[rows]] < inside.sum(axis=1)[codes[rows]])


# ---- the rows, and their neighbors


def find_wrong_labels(
    predictions: OutOfFold, codes: NDArray[np.int64], X: Any, max_rows: int | None = None
) -> WrongLabels:
    """Return the rows whose label is probably wrong, with the nearest rows of X (n, d), whose labels are `codes` (n,).

    With `max_rows`, return this number of rows instead, most suspicious first.
    """
    judged = predictions.rows[predictions.judged]
    ranked = rank_labels(predictions.p[predictions.judged], codes[judged])
    ranked = ranked._replace(rows=judged[ranked.rows])
    suspects = ranked.at(ranked.wrong if max_rows is None else slice(max_rows))
    distances, neighbors = nearest_rows(X, suspects.rows)
    return WrongLabels(suspects, neighbors, distances, len(judged))


def nearest_rows(X: Any, rows: NDArray[np.int64], k: int = 5) -> tuple[NDArray, NDArray]:
    """Return the distances and the numbers (m, k) of the nearest other rows of X for its rows `rows` (m,)."""
    n = count_rows(X)
    k = min(k, n - 1)
    if not len(rows) or k < 1:
        return np.empty((len(rows), max(k, 0))), np.empty((len(rows), max(k, 0)), np.int64)
    model = NeighborsClassifier(k + 1).fit(X, np.arange(n) % 2)  # the labels do not matter
    distances, ids = model.kneighbors(take_rows(X, rows), k + 1)
    neighbors = without_self(Neighbors(ids, distances), rows)
    return np.asarray(neighbors.distances, np.float64), np.asarray(neighbors.ids)


def search_seconds(X: Any, n_classes: int) -> float:
    """Return the expected seconds of finding the nearest rows of all rows."""
    size = costs.size_of(X, n_classes)
    return size.n * costs.flat(size, Rates()).predict_seconds


# ---- rows that are nearly equal


def close_pairs(X: Any, neighbors: NDArray[np.int64], distances: NDArray, share: float = 0.01) -> NDArray[np.int64]:
    """Return pairs (m, 2) of rows that are nearly equal, each pair once, from the neighbors (n, k) of all rows.

    Two rows are nearly equal if their distance is at most `share` of the median distance to the nearest other row.
    """
    i, j = np.nonzero(distances <= _radius(X, distances[:, 0], share))
    pairs = np.sort(np.stack([i, neighbors[i, j]], axis=1), axis=1)
    return np.unique(pairs, axis=0)


def _radius(X: Any, nearest: NDArray, share: float) -> float:
    """Return the distance up to which rows of X are near-duplicates, from the distances (m,) to the nearest rows.

    Distances that are zero up to rounding, relative to the median norm of centered rows, do not count in the median.
    """
    rows = take_rows(X, _sample(X))
    squares = row_squares(rows if hasattr(rows, "tocsr") else rows - np.median(rows, axis=0))
    positive = nearest[nearest > 1e-6 * float(np.median(np.sqrt(squares)))]
    return share * float(np.median(positive)) if len(positive) else 0.0


def _sample(X: Any) -> NDArray[np.int64]:
    """Return the numbers of some rows of X, evenly spaced."""
    n = count_rows(X)
    return np.arange(n)[:: max(1, n // FEW_ROWS)]


def shared_rows(X: Any, test_X: Any, share: float = 0.01) -> NDArray[np.int64]:
    """Return pairs (m, 2) of a training row and a test row that are nearly equal."""
    n = count_rows(X)
    model = NeighborsClassifier(1).fit(X, np.arange(n) % 2)
    distances, neighbors = (np.asarray(values)[:, 0] for values in model.kneighbors(test_X, 1))
    sample_distances, _ = nearest_rows(X, _sample(X), 1)
    close = np.flatnonzero(distances <= _radius(X, sample_distances[:, 0], share))
    return np.stack([neighbors[close], close], axis=1)


# ---- inspection


@dataclass(frozen=True, eq=False, repr=False)
class Inspection(Printed):
    """Problems of labeled rows. Rows are counted from 0, in the order of the data.

    `wrong`, `conflicts` and `shared` count the inspected rows and the test rows separately, without rows left out.

    Attributes
    ----------
    name : str
        Name of the data.
    model : str
        The model that judged the labels.
    labels : Labels
        Classes, and the codes (n,) of the labels.
    wrong : WrongLabels
        Rows whose label is probably wrong, most suspicious first.
    conflicts : ndarray of shape (m, 2) or None
        Pairs of nearly equal rows with different labels; None if the search would take too long.
    shared : ndarray of shape (s, 2)
        Pairs of a row and a nearly equal test row.
    test_y : ndarray or None
        Labels of the test rows.
    ids : tuple (str, ndarray) or None
        Column that names the rows, and its values.
    test_ids : ndarray or None
        Values of this column in the test rows.
    positions, test_positions : ndarray or None
        Row numbers of the inspected rows and of the test rows in the data; None if these are 0, 1, 2, ...
    notes : tuple of str
        Notes on the data.
    """

    name: str
    model: str
    labels: Labels
    wrong: WrongLabels
    conflicts: NDArray[np.int64] | None
    shared: NDArray[np.int64]
    test_y: NDArray | None = None
    ids: tuple[str, Any] | None = None
    test_ids: Any = None
    positions: NDArray[np.int64] | None = None
    test_positions: NDArray[np.int64] | None = None
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> NDArray[np.int64]:
        """Numbers of the rows whose label is probably wrong, most suspicious first."""
        return self._numbers(self.wrong.suspects.rows)

    def _numbers(self, rows: Any) -> NDArray[np.int64]:
        return np.asarray(rows) if self.positions is None else self.positions[rows]

    def records(self) -> list[dict[str, Any]]:
        """Return one record per problem: wrong labels, then conflicts, then shared rows."""
        return [*self._wrong(), *self._pairs(CONFLICT, self.conflicts), *self._pairs(SHARED, self.shared)]

    def columns(self) -> dict[str, Any]:
        """Return the records as columns, for a file."""
        import pyarrow as pa

        records = self.records()
        names = list(COLUMNS)
        if self.ids is not None:
            names.insert(2, "id")
        lists = {name: [record.get(name) for record in records] for name in names}
        for name in ("neighbors", "neighbor_labels"):
            lists[name] = ["|".join(map(str, record[name])) for record in records]
        return {name: pa.array(values) for name, values in lists.items()}

    def _wrong(self) -> Iterator[dict[str, Any]]:
        classes = self.labels.classes.tolist()
        for suspect, near in zip(zip(*self.wrong.suspects), self.wrong.near.tolist()):
            row, label, suggested, p_label, p_suggested, _ = suspect
            yield {
                "problem": WRONG,
                **_place(row, self.positions, self.ids and self.ids[1]),
                "label": classes[label],
                "suggested": classes[suggested],
                "p_label": float(p_label),
                "p_suggested": float(p_suggested),
                "neighbors": self._numbers(near).tolist(),
                "neighbor_labels": [classes[code] for code in self.labels.codes[near]],
            }

    def _pairs(self, problem: str, pairs: NDArray[np.int64] | None) -> Iterator[dict[str, Any]]:
        """Yield pairs of rows; the first of a shared pair is the training row."""
        y = self.labels.classes[self.labels.codes]
        for i, j in [] if pairs is None else pairs.tolist():
            if problem == SHARED:
                label = None if self.test_y is None else self.test_y[j : j + 1].tolist()[0]
                place, other = _place(j, self.test_positions, self.test_ids), i
            else:
                label, other = y[i : i + 1].tolist()[0], j
                place = _place(i, self.positions, self.ids and self.ids[1])
            near, labels = self._numbers([other]).tolist(), y[other : other + 1].tolist()
            yield {"problem": problem, **place, "label": label, "neighbors": near, "neighbor_labels": labels}

    def summary(self) -> dict[str, Any]:
        """Return the numbers of rows and problems."""
        return {
            "data": self.name,
            "model": self.model,
            "rows": len(self.labels.codes),
            "judged": self.wrong.judged,
            "wrong": int(self.wrong.suspects.wrong.sum()),
            "conflicts": None if self.conflicts is None else len(self.conflicts),
            "shared": len(self.shared),
            "notes": list(self.notes),
        }

    def _table(self, max_rows: int = 10) -> Table:
        records = list(self._wrong())
        lines = [suspect_line(record) for record in records[:max_rows]]
        title = f"{self.summary()['wrong']:,} of {self.wrong.judged:,} labels of {self.name} are suspicious"
        more = f"… {len(records) - max_rows:,} more rows" if len(records) > max_rows else ""
        return Table(title, SUSPECT_COLUMNS, lines, more)


def _place(row: int, positions: NDArray[np.int64] | None, ids: Any) -> dict[str, Any]:
    """Return the number of a row in the data and, if there are ids, its id."""
    place: dict[str, Any] = {"row": int(row if positions is None else positions[row])}
    if ids is not None:
        value = ids[int(row)]
        place["id"] = value.as_py() if hasattr(value, "as_py") else value
    return place


SUSPECT_COLUMNS = ("row", "label", "suggested", "p label", "p suggested", "labels of the nearest rows")


def suspect_line(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of a row whose label is probably wrong."""
    return (
        str(record.get("id", record["row"])),
        str(record["label"]),
        str(record["suggested"]),
        f"{record['p_label']:.3f}",
        f"{record['p_suggested']:.3f}",
        ", ".join(map(str, record["neighbor_labels"])),
    )


# ---- by folds


def inspect_rows(
    data: Any, reading: ReadOptions, options: FitOptions, test: Any = None, max_rows: int | None = None,
    clock: Clock | None = None,
) -> Inspection:  # fmt: skip
    """Inspect all rows of DATA by cross-validated families: each row is judged by models that were not trained on it.

    With `max_rows`, the result has this number of rows, most suspicious first, instead of all that are probably wrong.
    """
    data_rows = _read(data, reading, test)
    clock = clock or Clock(options.budget, reserve=REPORT_SECONDS)
    with progress.portion(0.02, 0.9):
        chosen = compare_data(data_rows, options, clock)
    single = chosen.comparison.rows[0].model
    with progress.portion(0.9, 0.95):
        pool = pool_of(chosen.comparison.race, single, options.seed) if chosen.blend else None
        predictions = out_of_fold(chosen, pool)
    if predictions is None:
        raise InputError(
            f"the budget of {clock.budget:.3g} s was used up before any row was judged; pass a larger budget="
        )
    with progress.portion(0.95, 1.0), progress.stage("nearest rows"):
        view = chosen.views[""]  # without missing values, unlike the view of trees
        wrong = find_wrong_labels(predictions, data_rows.labels.codes, view.X, max_rows)
        shared = _NO_PAIRS
        if data_rows.test_rows is not None:
            shared = shared_rows(view.X, view.features.transform(data_rows.test_rows))
        conflicts = find_conflicts(view.X, data_rows.labels)
    name = single if pool is None else ", ".join(f"{n} {w:.2f}" for n, w in pool.weights.items())
    ids = _ids(data_rows.kept_columns, reading.id, data_rows.name)
    return Inspection(
        name=data_rows.name,
        model=name,
        labels=data_rows.labels,
        wrong=wrong,
        conflicts=conflicts,
        shared=shared,
        test_y=data_rows.test_y,
        ids=ids,
        test_ids=None if ids is None else data_rows.test_kept_columns.get(ids[0]),
        positions=data_rows.positions,
        test_positions=data_rows.test_positions,
        notes=(*chosen.notes, *_unjudged(data_rows.n, predictions), *_too_slow(conflicts)),
    )


def _read(data: Any, reading: ReadOptions, test: Any) -> TrainTest:
    """Read all rows of DATA as training rows, with the test rows of a dataset or a file."""
    rows, _ = read_what_fits(data, reading)
    y = joined_labels(rows.required_labels()) if reading.join_labels else rows.required_labels()
    labels, notes = checked_labels(y, f"target {reading.target!r} of {rows.name}")
    if test is not None:
        other = read_test_rows(test, reading, rows)
        rows = replace(
            rows, test_rows=other.rows, test_y=other.y, test_kept_columns=other.kept_columns,
            test_positions=other.positions,
        )  # fmt: skip
    return as_training_rows(rows, reading, y, labels, notes)


def find_conflicts(X: Any, labels: Labels, seconds: float = 60.0) -> NDArray[np.int64] | None:
    """Return pairs of near-duplicates with different labels; None if the search would take longer than `seconds`."""
    n = count_rows(X)
    if n < 2 or search_seconds(X, labels.n_classes) > seconds:
        return None
    distances, near = nearest_rows(X, np.arange(n))
    pairs = close_pairs(X, near, distances)
    return pairs[labels.codes[pairs[:, 0]] != labels.codes[pairs[:, 1]]]


def _unjudged(n: int, predictions: OutOfFold) -> list[str]:
    reasons = {
        "their class has no other rows to learn from": int((~predictions.judged).sum()),
        "the comparison held them out in no fold": n - len(predictions.rows),
    }
    return [f"{m:,} of {n:,} rows were not judged, because {why}" for why, m in reasons.items() if m > 0]


def _too_slow(conflicts: NDArray | None) -> list[str]:
    return [] if conflicts is not None else ["near-duplicates were not searched, because that would take minutes"]


def _ids(kept: Mapping[str, Any], id: str | None, name: str) -> tuple[str, Any] | None:
    """Return the column `id` with the names of the rows, or the file names of images; None if there is neither."""
    if id is None:
        return ("file", kept["file"]) if "file" in kept else None
    if id not in kept:
        raise InputError(f"{name} has {id!r} for its test rows only; leave out id=")
    return id, kept[id]


# ---- by a model


def inspect_by(
    model: Any,
    X: Any,
    y: NDArray,
    name: str = "the rows",
    max_rows: int | None = None,
    kept: Mapping[str, Any] | None = None,
    positions: NDArray[np.int64] | None = None,
) -> Inspection:
    """Inspect rows X with labels y (n,) by a model that was not trained on them.

    `kept` are columns of the rows, of which the first names them, and `positions` (n,) are their row numbers.
    """
    if not hasattr(model, "predict_proba"):
        raise InputError(f"{type(model).__name__} gives no probabilities; pass a model that does, as `kway fit` writes")
    labels, known = encode(y), np.asarray(model.classes_)
    judged = np.isin(labels.classes, known)[labels.codes]
    if not judged.any():
        raise InputError(f"no label of {name} is a class of the model, such as {known[:1].tolist()[0]!r}")
    joint, unseen = encode(np.concatenate([known, y])), int((~judged).sum())
    labels = Labels(joint.classes, joint.codes[len(known) :])
    p = model.predict_proba(X)
    predictions = OutOfFold(np.arange(len(y)), spread(p, encode_as(known, labels.classes), labels.n_classes), judged)
    numbers = _numbers(model, X)
    wrong, conflicts = find_wrong_labels(predictions, labels.codes, numbers, max_rows), find_conflicts(numbers, labels)
    notes = [f"not judged: {count(unseen, 'row')} whose label is not a class of the model"] * (unseen > 0)
    ids = next(iter((kept or {}).items()), None)
    notes += _too_slow(conflicts)
    return Inspection(
        name, type(model).__name__, labels, wrong, conflicts, _NO_PAIRS, ids=ids, positions=positions,
        notes=tuple(notes),
    )  # fmt: skip


def _numbers(model: Any, X: Any) -> Any:
    """Return the rows X as numbers without missing values, by the features of the model if these give such numbers."""
    scaled = [features for features in features_of(model) if features.form != "columns"]
    if scaled:
        return scaled[0].transform(X)
    has_gaps = is_table(X) or (not hasattr(X, "tocsr") and missing_counts(X).any())
    return Features().fit_transform(X) if has_gaps else X
