"""Suspects of a leak (leaks.py), found by the values of the training rows alone.

    copies    of rows drawn at random, more have a copy than in columns that are shuffled independently. A copy is a row
              whose distance is 0, or below a tenth of the distance to the 10th nearest row
    groups    a column of many words or whole numbers, each in a few rows that have the same label more often than
              chance. A column of numbers is one only if rows with the next larger value agree with them much less
    time      dates, Unix times, or numbers that grow from row to row, if the next row in that order has the same label
              more often than chance
    column    the values of a column determine the label: each value has one label, and the column has few values, or
              each class is an interval of its numbers

Each suspect has at most MOST_ROWS rows, in which its copies, groups or times stay together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from sklearn.neighbors import NearestNeighbors

from kway.auto.race.folds import fold_numbers
from kway.auto.race.paired import SURE
from kway.auto.race.scoring import TABLE_COLUMNS
from kway.suggest import listing
from kway.tables.features.columns import as_numbers, as_words
from kway.tables.features.features import Features
from kway.tables.sources.frames import is_date, is_number, is_table, is_text, whole_column

MOST_ROWS = 4000  # rows that the probe compares: a difference of 2% is then 4 standard errors (test_leaks)
_LOOKED_AT = 50_000  # rows of which values are counted (test_leaks)
_SEEDS = 1000  # rows whose nearest rows are looked for (test_leaks)
_SEARCHED = 1e10  # products of the search for copies: a second (test_leaks)
_NEAR = 0.1  # share of the distance to the 10th nearest row below which a row is a near copy (test_leaks)
_SOME = 0.02  # least share of rows with a copy (test_leaks)
_FEW_VALUES = 30  # a column of fewer values is a category, not a group (test_leaks)
_TIME_BLOCKS = 20  # contiguous blocks of held-out rows that count as independent (test_leaks)
_UNIX_TIMES = (6e8, 2.5e9)  # seconds from 1989 to 2049


@dataclass(frozen=True, eq=False)
class Suspect:
    """What may leak, in some of the rows (m,), and which of these belong together.

    `groups` (m,) are the rows that belong together, and `scored` (m,) those that are scored.
    """

    kind: str
    columns: tuple[str, ...]
    found: str
    advice: str
    rows: NDArray[np.int64]
    groups: NDArray[np.int64]
    scored: NDArray[np.bool_]
    codes: NDArray[np.int64]
    order: NDArray | None = None

    def folds(self, seed: int, n_folds: int = 5) -> NDArray[np.int64]:
        """Return the folds (m,) of the honest split; -1 for rows that are only learned from."""
        if self.order is not None:
            return fold_numbers(self.codes, n_folds, order=self.order)
        if self.kind == "column":
            return fold_numbers(self.codes, n_folds, seed=seed)
        parts = np.random.default_rng(seed).permutation(int(self.groups.max()) + 1) % n_folds
        return parts[self.groups]


class Column(NamedTuple):
    """Values (n,) of a column as codes in order of their size, and what they are."""

    name: str
    codes: NDArray[np.int64]
    is_number: bool
    is_time: bool
    is_whole: bool = True  # words, or numbers without fractions

    @property
    def n_values(self) -> int:
        """Number of values."""
        return int(self.codes.max()) + 1


def find_suspects(data: Any, features: Features, X: Any, seed: int = 0) -> Iterator[Suspect]:
    """Yield the suspects of training rows, of which X (n, d) are the numbers; the cheap ones first."""
    rng = np.random.default_rng(seed)
    n, y = data.n, data.labels.codes
    rows = np.arange(n) if n <= _LOOKED_AT else np.sort(rng.choice(n, _LOOKED_AT, replace=False))
    columns = list(_columns(data, rows))
    unused = {record["column"] for record in features.explain() if not record["used"]}
    telling = [c.name for c in columns if c.name not in unused and _tells_label(c, y[rows])]
    if telling:
        yield _telling_columns(telling, rows, y, rng)
    if data.keeps_groups_or_order:
        return
    groups = [c for c in columns if c.name not in telling and _groups_labels(c, y[rows])]
    for column in groups[:2]:
        yield _grouped(column, rows, y, rng)
    times = [c for c in columns if c.is_time and c not in groups and _is_autocorrelated(c.codes, y[rows])]
    for column in times[:1]:
        yield _timed(column, rows, y)
    copies = _copies(X, y, rng)
    if copies is not None:
        yield copies


def _columns(data: Any, rows: NDArray[np.int64]) -> Iterator[Column]:
    """Yield the columns of a table, or of a matrix of few columns."""
    if is_table(data.rows):
        part = data.rows if len(rows) == data.n else data.rows.take(rows)
        for name in part.column_names:
            column = whole_column(part.column(name))
            if is_number(column.type) or kinds.is_boolean(column.type):
                yield _of_numbers(name, as_numbers(column, name))
            elif is_date(column.type) and not kinds.is_time(column.type):
                moments = column.cast(pa.timestamp("us"), safe=False).cast("int64")
                yield _of_numbers(name, as_numbers(moments, name))._replace(is_time=True)
            elif is_text(column.type):
                words = as_words(column).dictionary_encode()
                codes = words.indices.fill_null(len(words.dictionary)).to_numpy()
                yield Column(name, np.unique(codes, return_inverse=True)[1].astype(np.int64), False, False)
    elif not hasattr(data.rows, "tocsr") and data.rows.shape[1] <= TABLE_COLUMNS and data.rows.dtype.kind in "fiub":
        names = data.feature_names or [f"x{j}" for j in range(data.rows.shape[1])]
        for j, name in enumerate(names):
            yield _of_numbers(name, np.asarray(data.rows[rows, j], np.float64))


def _of_numbers(name: str, values: NDArray[np.float64]) -> Column:
    """Return a column of numbers; gaps are one value, the least."""
    present = values[np.isfinite(values)]
    codes = np.unique(np.where(np.isfinite(values), values, -np.inf), return_inverse=True)[1].astype(np.int64)
    whole = len(present) == len(values) > 0 and bool((present == np.floor(present)).all())
    unix = whole and any(low <= present.min() and present.max() <= high for low, high in _unix_ranges())
    grows = whole and bool((np.diff(values) > 0).all())
    return Column(name, codes, True, unix or grows, bool((present == np.floor(present)).all()))


def _unix_ranges() -> Iterator[tuple[float, float]]:
    return ((_UNIX_TIMES[0] * unit, _UNIX_TIMES[1] * unit) for unit in (1.0, 1e3, 1e6, 1e9))


# ---- columns that tell the label


def _tells_label(column: Column, y: NDArray[np.int64]) -> bool:
    """Return whether the column alone predicts the label of every row from the other rows."""
    if not _are_pure(column.codes, y):
        return False
    counts = np.bincount(column.codes)
    if column.n_values < _FEW_VALUES and counts.min() > 1:
        return True
    order = np.argsort(column.codes, kind="stable")
    intervals = 1 + int((np.diff(y[order]) != 0).sum())
    return column.is_number and intervals <= len(np.unique(y)) and np.bincount(y).min() > 1


def _are_pure(values: NDArray[np.int64], y: NDArray[np.int64]) -> bool:
    """Return whether all rows with one value have one label."""
    pairs = np.unique(values * (int(y.max()) + 1) + y)
    return len(pairs) == len(np.unique(values))


def _telling_columns(names: list[str], rows: NDArray, y: NDArray[np.int64], rng: np.random.Generator) -> Suspect:
    some = np.sort(rng.permutation(rows)[:MOST_ROWS])
    what = f"Column '{names[0]}' alone predicts"
    if len(names) > 1:
        what = f"Each of {len(names)} columns, such as '{names[0]}', alone predicts"
    return Suspect(
        "column", tuple(names), f"{what} every label",
        f"If it is not known before the label is, leave it out: drop={listing(names, len(names))!r}",
        some, np.arange(len(some)), np.ones(len(some), bool), y[some],
    )  # fmt: skip


# ---- groups


def _groups_labels(column: Column, y: NDArray[np.int64]) -> bool:
    """Return whether the rows of a value are a group with labels of its own."""
    counts, n = np.bincount(column.codes), len(y)
    if (
        column.is_time
        or not column.is_whole
        or column.n_values < _FEW_VALUES
        or 2 * column.n_values > n
        or counts.max() > n / 5
    ):
        return False
    table = coo_array((np.ones(n), (column.codes, y))).tocsr()  # rows per value and label, (values, K)
    table.sum_duplicates()
    pairs = np.square(counts, dtype=np.float64).sum() - n
    same = (table.power(2).sum() - n) / pairs  # how often two rows of one value have the same label
    gain = same - _chance(y)
    if gain <= SURE * np.sqrt(1 / (4 * pairs)) or gain < _SOME:
        return False
    next_same = table[:-1].multiply(table[1:]).sum() / (counts[:-1] * counts[1:]).sum()
    return not column.is_number or same - next_same > gain / 2


def _chance(y: NDArray[np.int64]) -> float:
    """Return how often two rows drawn at random have the same label."""
    return float(np.square(np.bincount(y) / len(y)).sum())


def _grouped(column: Column, rows: NDArray[np.int64], y: NDArray[np.int64], rng: np.random.Generator) -> Suspect:
    """Return a column of groups, with all rows of some groups."""
    counts = np.bincount(column.codes)
    order = rng.permutation(column.n_values)
    kept = order[: max(2, int(np.searchsorted(np.cumsum(counts[order]), MOST_ROWS)))]
    some = np.flatnonzero(np.isin(column.codes, kept))
    return Suspect(
        "groups", (column.name,),
        f"Rows with the same value of '{column.name}' share labels ({column.n_values:,} values)",
        f"If new rows will have other values of it, keep its rows together: group={column.name!r}",
        rows[some], np.unique(column.codes[some], return_inverse=True)[1].astype(np.int64), np.ones(len(some), bool),
        y[rows[some]],
    )  # fmt: skip


# ---- time


def _is_autocorrelated(values: NDArray[np.int64], y: NDArray[np.int64]) -> bool:
    """Return whether the next row in the order of the values has the same label more often than chance."""
    along, chance = y[np.argsort(values, kind="stable")], _chance(y)
    changes = int((along[1:] != along[:-1]).sum())
    if len(np.unique(values)) < _FEW_VALUES or changes < 3 * len(np.unique(y)):  # fewer: rows are sorted by label
        return False
    return 1 - changes / len(y) - chance > SURE * np.sqrt(chance * (1 - chance) / len(y))


def _timed(column: Column, rows: NDArray[np.int64], y: NDArray[np.int64]) -> Suspect:
    """Return a column of times, with its last rows, of which the last fifth is scored."""
    last = np.argsort(column.codes, kind="stable")[-MOST_ROWS:]
    some = rows[last]
    place = np.arange(len(some))
    scored = fold_numbers(y[some], order=place) == 0
    return Suspect(
        "time", (column.name,), f"Labels change slowly along '{column.name}'",
        f"If new rows will be later ones, test on the last rows: order={column.name!r}",
        some, place * _TIME_BLOCKS * 5 // len(some), scored, y[some], place,
    )  # fmt: skip


# ---- copies


def _copies(X: Any, y: NDArray[np.int64], rng: np.random.Generator) -> Suspect | None:
    """Return rows drawn at random with their copies, exact or near, or None if few rows have any."""
    n = X.shape[0]
    values = max(1.0, (X.nnz if hasattr(X, "tocsr") else X.size) / n)  # per row
    among = np.sort(rng.permutation(n)[: int(np.clip(_SEARCHED / (_SEEDS * values), 2 * _SEEDS, _LOOKED_AT))])
    rows = X[among]
    seeds = rng.permutation(len(among))[: int(np.clip(_SEARCHED / (len(among) * values), 1, _SEEDS))]
    near, share = _near_copies(rows, seeds)
    if share < _SOME or (not hasattr(X, "tocsr") and share < 2 * _near_copies(_shuffled(rows, rng), seeds)[1]):
        return None
    together, where = np.unique(near, return_inverse=True)
    others = np.setdiff1d(np.arange(len(among)), together)[: max(0, MOST_ROWS - len(together))]
    first, second = where.reshape(-1, 2).T
    link = coo_array((np.ones(len(near)), (first, second)), shape=(len(together),) * 2)
    groups = connected_components(link, directed=False)[1]
    if np.bincount(groups).max() > len(groups) / 5:  # a chain of near rows, not copies
        return None
    some = among[np.concatenate([together, others])]
    groups = np.concatenate([groups, groups.max() + 1 + np.arange(len(others))]).astype(np.int64)
    return Suspect(
        "copies", (), f"{share:.0%} of the rows have an exact or near copy among the others",
        "Remove the copies, or keep them together: group= takes a column that names them",
        some, groups, np.ones(len(some), bool), y[some],
    )  # fmt: skip


def _near_copies(rows: Any, seeds: NDArray[np.int64], k: int = 10) -> tuple[NDArray[np.int64], float]:
    """Return pairs (p, 2) of seeds and their copies, and the share of the seeds that have one."""
    k = min(k, rows.shape[0] - 1)
    found = NearestNeighbors(n_neighbors=k + 1, algorithm="brute").fit(rows)
    distances, ids = found.kneighbors(rows[seeds])  # (s, k + 1), the row itself among them
    close = distances <= _NEAR * distances[:, -1:]
    close &= ids != seeds[:, None]
    at, column = np.nonzero(close)
    return np.column_stack([seeds[at], ids[at, column]]), float(close.any(axis=1).mean())


def _shuffled(rows: NDArray, rng: np.random.Generator) -> NDArray:
    """Return the rows with each column shuffled on its own."""
    return rng.permuted(rows, axis=0)
