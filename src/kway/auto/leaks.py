"""Leaks: rows or columns that reveal the label in DATA, but not in new rows.

With a leak, the test rows of a random split resemble the training rows more than new rows will. Four kinds are
searched, and each suspect is tested by one cheap probe, extremely randomized trees or the nearest neighbor:

    copies    rows that occur several times, exactly or nearly       honest: all copies of a row on one side
    groups    a column such as a patient, with several rows each     honest: all rows of a value on one side
    time      a date or counter along which labels change slowly     honest: train on earlier rows, test on later ones
    column    a column that alone predicts every label               honest: without this column

The probe predicts the same held-out rows under a random split and under the honest one. d_i is 1 if row i is predicted
correctly only under the random split, -1 if only under the honest one, and else 0. Rows of one group g are not
independent, so the standard error of the mean comes from sums over groups. The second term is the largest sum of one
group, so that a single group cannot make a difference significant:

    m = sum_i d_i / n      se^2 = (sum_g (sum_{i in g} (d_i - m))^2 + max_g (sum_{i in g} d_i)^2) / n^2

kway warns of a suspect if m > 2 se, or if a column determines every label. Names of columns are not used.

Suspects are found by the values of the training rows alone:

    copies    the share of rows with a copy is at least twice that in a table whose columns were shuffled independently
              (sparse rows are not compared with shuffled ones). A copy is a row at distance 0, or below a tenth of the
              distance to the 10th nearest row
    groups    a column with many distinct words or whole numbers, whose rows share a label more often than chance. If
              the column is numeric, rows with neighboring values must share labels much less often; otherwise it is an
              ordinary feature
    time      dates, Unix times, or numbers that grow from row to row, if the next row in that order has the same label
              more often than chance
    column    a column determines the label: each value has one label, and the column has few values, or each class is
              an interval of its numbers

Each suspect has about MAX_PROBE_ROWS rows. Copies and groups are not cut to this number, so a suspect has more rows if
two groups or all copies found need them. At most 50,000 rows drawn at random are examined, and at most 10 copies of a
row, so groups and copies of larger data are incomplete.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.types as pa_types
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from sklearn.base import clone
from sklearn.neighbors import NearestNeighbors

from kway.auto.race.folds import fold_numbers
from kway.auto.race.paired import CLEAR, SURE
from kway.auto.race.scoring import TABLE_COLUMNS
from kway.errors import KwayError
from kway.neighbors import NeighborsClassifier
from kway.tables.features.columns import as_numbers, as_words
from kway.tables.features.features import Features
from kway.tables.sources.frames import is_date, is_number, is_table, is_text, take_rows, whole_column
from kway.trees import TreesClassifier

_MAX_FOREST_CLASSES = 100  # classes up to which the probe is a forest, whose leaves store a number per class
_PROBE_TREES = 40  # trees of the probe: ten fits on 4,000 rows of 20 columns take 2 s
_SHARE_OF_BUDGET = 0.1  # share of the budget that the search for leaks may take
MAX_PROBE_ROWS = 4000  # rows that the probe compares: a difference of 2% is then 4 standard errors
_MAX_COUNTED_ROWS = 50_000  # rows of which values are counted; decided by tests/auto/test_leaks.py
_MAX_QUERIES = 1000  # rows whose nearest rows are searched; decided by tests/auto/test_leaks.py
_MAX_PRODUCTS = 1e10  # products of the search for copies: about a second
_COPY_DISTANCE = 0.1  # a near copy is nearer than this share of the distance to the 10th nearest row
_MIN_SHARE = 0.02  # share of rows with a copy, and gain of agreement in groups, below which there is no suspect
_MIN_GROUPS = 30  # a column of fewer values is a category, not a group
_TIME_BLOCKS = 20  # number of contiguous blocks of held-out rows that are treated as independent
_UNIX_TIMES = (6e8, 2.5e9)  # seconds from 1989 to 2049


@dataclass(frozen=True)
class Leak:
    """A possible leak, with the accuracy of the probe under a random split and under the honest one.

    Attributes
    ----------
    kind : {"copies", "groups", "time", "column"}
        Kind of the leak.
    columns : tuple of str
        Columns in which it was found; empty for copies.
    found : str
        What was found, in words.
    random, honest : float
        Accuracy of the probe on the same rows.
    error : float
        Standard error of the difference.
    rows : int
        Number of rows that were compared.
    advice : str
        What to do.
    """

    kind: str
    columns: tuple[str, ...]
    found: str
    random: float
    honest: float
    error: float
    rows: int
    advice: str

    @property
    def warns(self) -> bool:
        """Whether the honest score is lower by more than 2 standard errors, or a column predicts every label."""
        return self.kind == "column" or self.random - self.honest > CLEAR * self.error

    def __str__(self) -> str:
        how = {
            "copies": "with all copies on one side of the split",
            "groups": f"with all rows of a value of {self._named()} on one side",
            "time": "if it is trained on earlier rows and tested on later ones",
            "column": f"without {self._named()}",
        }[self.kind]
        scores = f"A quick probe scores {self.random:.3f} on a random split, and {self.honest:.3f} {how}"
        return f"{self.found}. {scores}. {self.advice}"

    def _named(self) -> str:
        return ", ".join(f"'{name}'" for name in self.columns)

    def record(self) -> dict[str, Any]:
        """Return the leak as a dict of plain values."""
        return {**vars(self), "columns": list(self.columns), "warns": self.warns}


@dataclass(frozen=True, eq=False)
class Suspect:
    """A possible leak, and the rows by which the probe tests it.

    Attributes
    ----------
    kind : {"copies", "groups", "time", "column"}
        Kind of the suspect.
    columns : tuple of str
        Columns in which it was found; empty for copies.
    found : str
        What was found, in words.
    advice : str
        What to do.
    rows : ndarray of shape (m,)
        Numbers of the training rows that the probe uses.
        Those of a suspect of kind "time" are in order of time.
    groups : ndarray of shape (m,)
        Group of each row; the honest split keeps groups together.
    """

    kind: str
    columns: tuple[str, ...]
    found: str
    advice: str
    rows: NDArray[np.int64]
    groups: NDArray[np.int64]

    def folds(self, codes: NDArray[np.int64], seed: int, n_folds: int = 5) -> NDArray[np.int64]:
        """Return the folds (m,) of the honest split of rows with these class codes; -1 for rows that are not scored."""
        if self.kind == "time":
            return fold_numbers(codes, n_folds, order=np.arange(len(codes)))
        if self.kind == "column":
            return fold_numbers(codes, n_folds, seed=seed)
        parts = np.random.default_rng(seed).permutation(int(self.groups.max()) + 1) % n_folds
        return parts[self.groups]


def find_leaks(data: Any, features: Features, X: Any, budget: float, seed: int = 0) -> tuple[Leak, ...]:
    """Search for leaks in the training rows with features X (n, d), in at most a tenth of the budget in seconds.

    If the user named groups or an order, every split keeps them, so only columns are searched.
    """
    deadline = time.perf_counter() + _SHARE_OF_BUDGET * budget
    probe = _Probe(data, features, X, seed, deadline)
    leaks = []
    for suspect in find_suspects(data, features, X, seed):
        try:
            leak = probe.leak(suspect)
        except (KwayError, MemoryError):  # its rows have a single class, for example
            continue
        if leak is None:
            break
        leaks.append(leak)
    return tuple(sorted(leaks, key=lambda leak: leak.honest - leak.random))


class _Probe:
    """Scores rows under two splits, until a deadline."""

    def __init__(self, data: Any, features: Features, X: Any, seed: int, deadline: float) -> None:
        self.data, self.features, self.X, self.seed, self.deadline = data, features, X, seed, deadline
        few_classes = data.labels.n_classes <= _MAX_FOREST_CLASSES
        self.trees = few_classes and (features.is_table_ or X.shape[1] <= TABLE_COLUMNS)

    def leak(self, suspect: Suspect) -> Leak | None:
        """Return the suspect with its scores; None if the deadline has passed."""
        rows = suspect.rows
        codes = self.data.labels.codes[rows]
        X, folds = self._numbers(rows, suspect), suspect.folds(codes, self.seed)
        scored = folds >= 0
        random = self._correct(X, codes, fold_numbers(codes, seed=self.seed), scored)
        honest = self._correct(self._numbers(rows, suspect, False), codes, folds, scored)
        if random is None or honest is None:
            return None
        gaps, groups = (random - honest)[scored], suspect.groups[scored]
        sums = np.bincount(groups, gaps - gaps.mean())
        spread = np.square(sums).sum() + np.square(np.bincount(groups, gaps)).max()
        return Leak(
            suspect.kind, suspect.columns, suspect.found, float(random[scored].mean()),
            float(honest[scored].mean()), float(np.sqrt(spread)) / len(gaps), len(gaps), suspect.advice,
        )  # fmt: skip

    def _numbers(self, rows: NDArray[np.int64], suspect: Suspect, keep_columns: bool = True) -> Any:
        """Return the features of rows for the probe; without `keep_columns`, the suspected columns are left out.

        A forest gets one number per column of a table, and the values of a group as codes, even if they are names.
        """
        left_out = [] if keep_columns or suspect.kind != "column" else list(suspect.columns)
        if not self.trees or not is_table(self.data.rows):
            X = self.X[rows]
            names = self.data.feature_names or [f"x{j}" for j in range(X.shape[1])]
            return X[:, [j for j in range(X.shape[1]) if names[j] not in left_out]] if left_out else X
        table = take_rows(self.data.rows, rows).drop_columns(left_out)
        converter = clone(self.features).set_params(
            form="columns", written={c: how for c, how in self.features.written_.items() if c not in left_out},
            kinds={c: kind for c, kind in (self.features.kinds or {}).items() if c not in left_out} or None, embed=None,
        )  # fmt: skip
        try:
            X = converter.fit_transform(table) if table.num_columns else np.zeros((len(rows), 0))
        except KwayError:  # no column becomes numbers, such as texts alone
            X = np.zeros((len(rows), 0))
        codes = suspect.groups[:, None] if suspect.kind == "groups" else np.zeros((len(rows), 1))
        return np.hstack([X, codes])

    def _correct(
        self, X: Any, codes: NDArray[np.int64], folds: NDArray[np.int64], scored: NDArray[np.bool_]
    ) -> NDArray[np.float64] | None:
        """Return 1 for each scored row that the probe predicts correctly, else 0; None if the deadline has passed."""
        correct = np.zeros(len(codes))
        for fold in range(int(folds.max()) + 1):
            if time.perf_counter() > self.deadline:
                return None
            train, held_out = np.flatnonzero(folds != fold), np.flatnonzero((folds == fold) & scored)
            if len(held_out):
                model = self._model(X).fit(X[train], codes[train])
                correct[held_out] = model.predict(X[held_out]) == codes[held_out]
        return correct

    def _model(self, X: Any) -> Any:
        if self.trees:
            return TreesClassifier("extra", n_trees=_PROBE_TREES, random_state=self.seed)
        return NeighborsClassifier(n_neighbors=1, metric="cosine" if hasattr(X, "tocsr") else "euclidean")


# ---- suspects


class Column(NamedTuple):
    """A column of values as codes (n,). Codes of numbers and dates have the order of the values.

    `is_time` marks dates, Unix times and growing numbers, and `is_whole` words and numbers without fractions.
    """

    name: str
    codes: NDArray[np.int64]
    is_number: bool
    is_time: bool
    is_whole: bool = True

    @property
    def n_values(self) -> int:
        """Number of different values."""
        return int(self.codes.max()) + 1


def find_suspects(data: Any, features: Features, X: Any, seed: int = 0) -> Iterator[Suspect]:
    """Yield the suspects of training rows, whose features are X (n, d); those that are cheap to find come first.

    If the split keeps groups or order already, only columns that determine the label are suspects.
    """
    rng = np.random.default_rng(seed)
    n, y = data.n, data.labels.codes
    rows = np.arange(n) if n <= _MAX_COUNTED_ROWS else np.sort(rng.choice(n, _MAX_COUNTED_ROWS, replace=False))
    columns = list(_columns(data, rows))
    unused = {record["column"] for record in features.explain() if not record["used"]}
    predictive = [c.name for c in columns if c.name not in unused and _determines_label(c, y[rows])]
    if predictive:
        yield _predictive_columns(predictive, rows, rng)
    if data.keeps_groups_or_order:
        return
    groups = [c for c in columns if c.name not in predictive and _groups_labels(c, y[rows])]
    for column in groups[:2]:
        yield _group_suspect(column, rows, rng)
    times = [c for c in columns if c.is_time and _is_autocorrelated(c.codes, y[rows])]
    for column in times[:1]:
        yield _time_suspect(column, rows)
    copies = _copy_suspect(X, rng)
    if copies is not None:
        yield copies


def _columns(data: Any, rows: NDArray[np.int64]) -> Iterator[Column]:
    """Yield the columns of a table, or of a matrix of few columns."""
    if is_table(data.rows):
        sample = data.rows if len(rows) == data.n else data.rows.take(rows)
        for name in sample.column_names:
            column = whole_column(sample.column(name))
            if is_number(column.type) or pa_types.is_boolean(column.type):
                yield _numeric_column(name, as_numbers(column, name))
            elif is_date(column.type) and not pa_types.is_time(column.type):
                moments = column.cast(pa.timestamp("us"), safe=False).cast("int64")
                yield _numeric_column(name, as_numbers(moments, name))._replace(is_time=True)
            elif is_text(column.type):
                levels = as_words(column).dictionary_encode()
                codes = levels.indices.fill_null(len(levels.dictionary)).to_numpy()
                yield Column(name, np.unique(codes, return_inverse=True)[1].astype(np.int64), False, False)
    elif not hasattr(data.rows, "tocsr") and data.rows.shape[1] <= TABLE_COLUMNS and data.rows.dtype.kind in "fiub":
        names = data.feature_names or [f"x{j}" for j in range(data.rows.shape[1])]
        for j, name in enumerate(names):
            yield _numeric_column(name, np.asarray(data.rows[rows, j], np.float64))


def _numeric_column(name: str, values: NDArray[np.float64]) -> Column:
    """Return a column of numbers; missing values count as one value, the smallest."""
    present = values[np.isfinite(values)]
    codes = np.unique(np.where(np.isfinite(values), values, -np.inf), return_inverse=True)[1].astype(np.int64)
    is_whole = bool((present == np.floor(present)).all())
    may_be_time = is_whole and len(present) == len(values) > 0
    is_time = may_be_time and (_are_unix_times(values) or bool((np.diff(values) > 0).all()))
    return Column(name, codes, True, is_time, is_whole)


def _are_unix_times(values: NDArray[np.float64]) -> bool:
    low, high = _UNIX_TIMES
    units = (1.0, 1e3, 1e6, 1e9)  # seconds, milliseconds, microseconds or nanoseconds
    return any(low * unit <= values.min() and values.max() <= high * unit for unit in units)


# ---- columns that determine the label


def _determines_label(column: Column, y: NDArray[np.int64]) -> bool:
    """Return whether the column alone predicts the label of every row from the other rows."""
    n_pairs = len(np.unique(column.codes * (int(y.max()) + 1) + y))  # of a value and a label
    if n_pairs > column.n_values:
        return False
    counts = np.bincount(column.codes)
    if column.n_values < _MIN_GROUPS and counts.min() > 1:
        return True
    order = np.argsort(column.codes, kind="stable")
    intervals = 1 + int((np.diff(y[order]) != 0).sum())
    return column.is_number and intervals <= len(np.unique(y)) and np.bincount(y).min() > 1


def _predictive_columns(names: list[str], rows: NDArray, rng: np.random.Generator) -> Suspect:
    selected = np.sort(rng.permutation(rows)[:MAX_PROBE_ROWS])
    drop = names[0] if len(names) == 1 else names
    found = f"Column '{names[0]}' alone predicts"
    if len(names) > 1:
        found = f"Each of {len(names)} columns, such as '{names[0]}', alone predicts"
    return Suspect(
        kind="column",
        columns=tuple(names),
        found=f"{found} every label",
        advice=f"If it is not known before the label is, leave it out: drop={drop!r}",
        rows=selected,
        groups=np.arange(len(selected)),
    )


# ---- groups


def _groups_labels(column: Column, y: NDArray[np.int64]) -> bool:
    """Return whether rows with the same value share a label more often than chance.

    If the values are numbers, rows with the next larger value must lose more than half of that gain. Columns with less
    than two rows per value, or with a value in more than a fifth of the rows, are no groups.
    """
    counts, n = np.bincount(column.codes), len(y)
    if (
        column.is_time
        or not column.is_whole
        or column.n_values < _MIN_GROUPS
        or 2 * column.n_values > n
        or counts.max() > n / 5
    ):
        return False
    table = coo_array((np.ones(n), (column.codes, y))).tocsr()  # rows per value and label, (values, K)
    table.sum_duplicates()
    pairs = np.square(counts, dtype=np.float64).sum() - n
    same_label = (table.power(2).sum() - n) / pairs  # probability that two rows with one value share a label
    gain = same_label - _chance(y)
    if gain <= SURE * np.sqrt(1 / (4 * pairs)) or gain < _MIN_SHARE:
        return False
    next_same = table[:-1].multiply(table[1:]).sum() / (counts[:-1] * counts[1:]).sum()
    return not column.is_number or same_label - next_same > gain / 2


def _chance(y: NDArray[np.int64]) -> float:
    """Return the probability that two rows drawn at random have the same label."""
    return float(np.square(np.bincount(y) / len(y)).sum())


def _group_suspect(column: Column, rows: NDArray[np.int64], rng: np.random.Generator) -> Suspect:
    """Return a column of groups with all examined rows of at least two groups, about MAX_PROBE_ROWS rows."""
    counts = np.bincount(column.codes)
    order = rng.permutation(column.n_values)
    selected_groups = order[: max(2, int(np.searchsorted(np.cumsum(counts[order]), MAX_PROBE_ROWS)))]
    selected = np.flatnonzero(np.isin(column.codes, selected_groups))
    return Suspect(
        kind="groups",
        columns=(column.name,),
        found=f"Rows with the same value of '{column.name}' share labels ({column.n_values:,} values)",
        advice=f"If new rows will have other values of it, keep its rows together: group={column.name!r}",
        rows=rows[selected],
        groups=np.unique(column.codes[selected], return_inverse=True)[1].astype(np.int64),
    )


# ---- time


def _is_autocorrelated(values: NDArray[np.int64], y: NDArray[np.int64]) -> bool:
    """Return whether the next row in the order of the values has the same label more often than chance."""
    ordered, chance = y[np.argsort(values, kind="stable")], _chance(y)
    changes = int((ordered[1:] != ordered[:-1]).sum())
    if len(np.unique(values)) < _MIN_GROUPS or changes < 3 * len(np.unique(y)):  # fewer: rows are sorted by label
        return False
    return 1 - changes / len(y) - chance > SURE * np.sqrt(chance * (1 - chance) / len(y))


def _time_suspect(column: Column, rows: NDArray[np.int64]) -> Suspect:
    """Return a column of times with its last MAX_PROBE_ROWS rows, of which the last fifth is scored."""
    latest = np.argsort(column.codes, kind="stable")[-MAX_PROBE_ROWS:]
    return Suspect(
        kind="time",
        columns=(column.name,),
        found=f"Labels change slowly along '{column.name}'",
        advice=f"If new rows will be later ones, test on the last rows: order={column.name!r}",
        rows=rows[latest],
        groups=np.arange(len(latest)) * _TIME_BLOCKS * 5 // len(latest),
    )


# ---- copies


def _copy_suspect(X: Any, rng: np.random.Generator) -> Suspect | None:
    """Return rows drawn at random with their exact or near copies; None if few rows have a copy."""
    n, n_values = X.shape[0], X.nnz if hasattr(X, "tocsr") else X.size
    max_pairs = _MAX_PRODUCTS / max(1.0, n_values / n)  # pairs of rows that can be compared
    n_searched = int(np.clip(max_pairs / _MAX_QUERIES, 2 * _MAX_QUERIES, _MAX_COUNTED_ROWS))
    searched = np.sort(rng.permutation(n)[:n_searched])
    n_queries = int(np.clip(max_pairs / len(searched), 1, _MAX_QUERIES))
    queries = rng.permutation(len(searched))[:n_queries]
    rows = X[searched]
    pairs, share = _near_copies(rows, queries)
    if share < _MIN_SHARE:
        return None
    if not hasattr(X, "tocsr"):
        _, share_if_shuffled = _near_copies(rng.permuted(rows, axis=0), queries)  # each column on its own
        if share < 2 * share_if_shuffled:
            return None
    copied, position = np.unique(pairs, return_inverse=True)
    others = np.setdiff1d(np.arange(len(searched)), copied)[: max(0, MAX_PROBE_ROWS - len(copied))]
    first, second = position.reshape(-1, 2).T
    graph = coo_array((np.ones(len(pairs)), (first, second)), shape=(len(copied),) * 2)
    groups = connected_components(graph, directed=False)[1]
    if np.bincount(groups).max() > len(groups) / 5:  # a chain of near rows, not copies
        return None
    groups = np.concatenate([groups, groups.max() + 1 + np.arange(len(others))]).astype(np.int64)
    return Suspect(
        kind="copies",
        columns=(),
        found=f"{share:.0%} of the rows have an exact or near copy among the others",
        advice="Remove the copies, or keep them together: group= takes a column that names them",
        rows=searched[np.concatenate([copied, others])],
        groups=groups,
    )


def _near_copies(rows: Any, queries: NDArray[np.int64], k: int = 10) -> tuple[NDArray[np.int64], float]:
    """Return pairs (query, copy) as (p, 2), and the share of queries that have a copy."""
    k = min(k, rows.shape[0] - 1)
    search = NearestNeighbors(n_neighbors=k + 1, algorithm="brute").fit(rows)
    distances, ids = search.kneighbors(rows[queries])  # (q, k + 1), which include the query itself
    is_copy = distances <= _COPY_DISTANCE * distances[:, -1:]
    is_copy &= ids != queries[:, None]
    query, column = np.nonzero(is_copy)
    return np.column_stack([queries[query], ids[query, column]]), float(is_copy.any(axis=1).mean())
