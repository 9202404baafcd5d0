"""Drift: do new rows look like the training rows? The model file keeps a summary of a few kB, and no row.

    numbers, dates     counts in ten bins of equal frequency, and in a bin of its own for each more frequent value
    categories         counts of the 20 most frequent levels; rare levels share a bin with unseen ones
    text               counts of the length, in ten bins
    any column         count of missing values

Of a wide matrix, the 40 columns of highest variance are kept; of a wide table, the first 40. Counts of the predicted
labels, of the confidence and of "unknown" come from the test rows, because a model is overconfident on its training
rows.

Each column is tested with the chi-squared test of homogeneity. Neighboring bins are merged until 5 rows are expected in
each bin. The p-values are adjusted by Holm's method [1]_. Without drift, the probability of any false alarm is then
about the level.

References
----------
.. [1] S. Holm (1979), A simple sequentially rejective multiple test procedure. Scandinavian Journal of Statistics 6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.special import chdtrc

from kway import modelfile
from kway.auto.evaluation import probabilities_or_none
from kway.base.wrappers import layers
from kway.errors import InputError
from kway.tables.features.columns import as_numbers, as_words, rare_below
from kway.tables.sources.frames import as_table, is_date, is_number, is_table, is_vector, n_rows
from kway.text_tables import Printed, Table

NOTE = "summary"  # the note of a model file that contains the summary
CONFIDENCE, LABEL, UNKNOWN = "(confidence)", "(predicted label)", "(unknown)"
_SUMMARIES = ("number", "length", "category")
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class ColumnSummary:
    """Counts of a column in bins between `edges`, or per level of `levels`, then other levels, then missing values."""

    name: str
    kind: str
    edges: tuple[float, ...] = ()
    levels: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()

    def count(self, values: Any) -> NDArray[np.int64]:
        """Return the counts of new values in the same bins."""
        if self.kind == "category":
            words = _words(values)
            bin_of = {level: i for i, level in enumerate(self.levels)}
            bins = np.array([-1 if w is None else bin_of.get(w, len(self.levels)) for w in words], np.int64)
        else:
            numbers = _numbers(values, self.kind)
            bins = np.where(np.isnan(numbers), -1, np.searchsorted(self.edges, numbers, side="right"))
        n_bins = (len(self.levels) if self.kind == "category" else len(self.edges)) + 1
        return np.bincount(np.where(bins < 0, n_bins, bins), minlength=n_bins + 1)

    def names(self) -> list[str]:
        """Return the names of the bins."""
        if self.kind == "category":
            return [*self.levels, "others", "missing"]
        edges = [round(edge, 300) for edge in self.edges]  # the float after 0 reads as 0
        texts = [f"{edge:,.0f}" if 1e4 <= abs(edge) < 1e9 else f"{edge:.4g}" for edge in edges]
        if not texts:
            return ["any", "missing"]
        one_value = [np.nextafter(low, np.inf) == high for low, high in pairwise(self.edges)]
        between = [low if one else f"{low} to {high}" for (low, high), one in zip(pairwise(texts), one_value)]
        last = f"above {texts[-1]}" if one_value[-1:] == [True] else f"from {texts[-1]}"
        return [f"below {texts[0]}", *between, last, "missing"]


@dataclass(frozen=True)
class ColumnDrift:
    """How one column changed.

    Attributes
    ----------
    name : str
        Name of the column; in parentheses if it is an output of the model.
    bins : list of str
        Names of the bins.
    before, after : list of float
        Shares of the rows in each bin.
    moved : float
        Total variation distance: the share of the rows that would have to move to another bin.
    p_value : float
        p-value of the chi-squared test.
    adjusted : float
        p-value adjusted for the number of columns, by Holm's method.
    """

    name: str
    bins: list[str]
    before: list[float]
    after: list[float]
    moved: float
    p_value: float
    adjusted: float = 1.0


@dataclass(frozen=True, eq=False, repr=False)
class Drift(Printed):
    """A comparison of new rows with the summary of the training rows.

    Attributes
    ----------
    columns : list of ColumnDrift
        All columns, the lowest p-value first.
    rows : int
        Number of new rows.
    level : float
        Probability of any false alarm, if there is no drift.
    """

    columns: list[ColumnDrift]
    rows: int
    level: float = 0.05

    @property
    def drifted(self) -> list[ColumnDrift]:
        """Columns that changed more than chance explains, the lowest p-value first."""
        return [column for column in self.columns if column.adjusted < self.level]

    def headline(self) -> str:
        """Return a sentence on how many columns drifted."""
        return (
            f"{len(self.drifted):,} of {len(self.columns):,} columns drifted on {self.rows:,} rows; without drift, any "
            f"column is named with a probability of about {self.level:.0%}"
        )

    def record(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "drifted": [column.name for column in self.drifted],
            "rows": self.rows,
            "level": self.level,
            "columns": [asdict(column) for column in self.columns],
        }

    def lines(self) -> list[tuple[str, ...]]:
        """Return the cells of each column: name, share that moved, adjusted p-value, bars before and after, change."""
        return [
            (c.name, f"{c.moved:.3f}", f"{c.adjusted:.2g}", bars(c.before), bars(c.after), largest_change(c))
            for c in self.columns
        ]

    def _table(self, max_rows: int = 10) -> Table:
        more = f"… {len(self.columns) - max_rows:,} more columns" if len(self.columns) > max_rows else ""
        return Table(self.headline(), DRIFT_COLUMNS, self.lines()[:max_rows], more)


DRIFT_COLUMNS = ("column", "moved", "p", "training", "new", "largest change")


def bars(shares: Sequence[float]) -> str:
    """Return one bar per share, the highest at full height.

    >>> bars([0.0, 0.5, 1.0])
    '▁▅█'
    """
    top = max(shares, default=0.0) or 1.0
    return "".join(_BARS[round((len(_BARS) - 1) * share / top)] for share in shares)


def largest_change(column: ColumnDrift) -> str:
    """Return the bin whose share changed most, with both shares."""
    largest = int(np.abs(np.subtract(column.after, column.before)).argmax())
    return f"{column.bins[largest]}: {column.before[largest]:.1%} to {column.after[largest]:.1%}"


# ---- the summary


def summarize(rows: Any, records: Sequence[Any] = (), max_columns: int = 40) -> list[ColumnSummary]:
    """Return the summaries of the columns of a table or a matrix; `records` says which columns of a table are used."""
    kinds = {record.column: record.kind for record in records if record.used}
    summaries = []
    for name in _columns(rows, list(kinds) or None, max_columns):
        values = _column(rows, name)
        kind = _summary_kind(values, kinds.get(name, "number"))
        if kind:
            summaries.append(_summary(name, kind, values))
    return summaries


def summarize_predictions(predicted: NDArray, confidence: NDArray | None, unknown: Any = None) -> list[ColumnSummary]:
    """Return the summaries of predicted labels and confidence of rows that the model did not learn from."""
    answers = _prediction_columns(predicted, confidence, unknown)
    kinds = {CONFIDENCE: "number", LABEL: "category", UNKNOWN: "category"}
    return [_summary(name, kinds[name], values, 1 if name == UNKNOWN else None) for name, values in answers.items()]


def as_note(summaries: Sequence[ColumnSummary]) -> list[dict[str, Any]]:
    """Return summaries as plain values for a model file."""
    return [asdict(column) for column in summaries]


def _summary(
    name: str, kind: str, values: Any, min_count: int | None = None, n_bins: int = 10, max_levels: int = 20
) -> ColumnSummary:
    if kind == "category":
        words = [word for word in _words(values) if word is not None]
        levels, counts = np.unique(np.array(words, dtype=object).astype(str), return_counts=True)
        least, order = min_count or rare_below(len(words)), np.argsort(-counts, kind="stable")[:max_levels]
        bins = ColumnSummary(name, kind, levels=tuple(str(levels[i]) for i in order if counts[i] >= least))
    else:
        numbers = _numbers(values, kind)
        present = numbers[~np.isnan(numbers)]
        bins = ColumnSummary(name, kind, edges=_edges(present, n_bins) if len(present) else ())
    return replace(bins, counts=tuple(map(int, bins.count(values))))


def _edges(present: NDArray[np.float64], n_bins: int) -> tuple[float, ...]:
    """Return edges between bins of equal frequency; a value as frequent as a bin gets a bin of its own.

    Such a value repeats a quantile or is a quantile and the minimum. Its bin ends at the next float.
    """
    edges, repeats = np.unique(np.quantile(present, np.linspace(0, 1, n_bins + 1)[1:-1]), return_counts=True)
    frequent = edges[(repeats > 1) | (edges == present.min())]
    return tuple(map(float, np.union1d(edges, np.nextafter(frequent, np.inf))))


def _prediction_columns(predicted: NDArray, confidence: NDArray | None, unknown: Any) -> dict[str, Any]:
    """Return the predictions as columns; rows that are predicted as unknown have no label."""
    rejected = np.zeros(len(predicted), bool) if unknown is None else np.asarray(predicted) == unknown
    columns: dict[str, Any] = {} if confidence is None else {CONFIDENCE: np.asarray(confidence, np.float64)}
    columns[LABEL] = np.asarray(predicted)[~rejected].astype(str)
    if unknown is not None:
        columns[UNKNOWN] = np.where(rejected, "unknown", "known")
    return columns


def unknown_label(model: Any) -> Any:
    """Return the label that the model gives to unknown rows; None if it has none."""
    return next((layer.unknown_ for layer in layers(model) if hasattr(layer, "unknown_")), None)


def _columns(rows: Any, used: list[str] | None, max_columns: int) -> list[str]:
    """Return the columns to summarize; those of a matrix are called x0, x1, ..."""
    if is_table(rows):
        return (used or list(as_table(rows).column_names))[:max_columns]
    d = rows.shape[1]
    if d <= max_columns:
        return [f"x{j}" for j in range(d)]
    sample = rows[:: max(1, rows.shape[0] // 1000)]
    dense = sample.toarray() if hasattr(sample, "toarray") else np.asarray(sample, np.float64)
    return [f"x{j}" for j in np.sort(np.argsort(-np.nanvar(dense, axis=0), kind="stable")[:max_columns])]


def _column(rows: Any, name: str) -> Any:
    if is_table(rows):
        return as_table(rows).column(name)
    column = rows[:, int(name[1:])]
    return np.asarray(column.toarray() if hasattr(column, "toarray") else column, np.float64).ravel()


def _summary_kind(values: Any, kind: str) -> str:
    """Return how a column is summarized; "" if it is not."""
    if not hasattr(values, "type"):
        return "number"
    if is_vector(values.type):
        return ""
    if kind == "text":
        return "length"
    as_number = kind != "category" and (is_number(values.type) or is_date(values.type))
    return "number" if as_number else "category"


def _numbers(values: Any, kind: str) -> NDArray[np.float64]:
    """Return values, dates and times in seconds, or lengths of texts as numbers (n,); NaN if missing."""
    if not hasattr(values, "type"):
        return np.where(np.isfinite(values), values, np.nan)
    if kind == "length":
        values = pc.utf8_length(as_words(values))
    elif is_date(values.type):
        unit = pa.time64("us") if pa.types.is_time(values.type) else pa.timestamp("us")
        return as_numbers(values.cast(unit, safe=False).cast("int64"), "") / 1e6
    return as_numbers(values, "")


def _words(values: Any) -> list[str | None]:
    return as_words(values).to_pylist() if hasattr(values, "type") else np.asarray(values).tolist()


# ---- the comparison


@dataclass
class DriftCounts:
    """Counts of new rows in the bins of a summary, block by block."""

    summaries: list[ColumnSummary]
    unknown: Any = None
    rows: int = 0
    counts: dict[str, NDArray[np.int64]] = field(default_factory=dict)

    def add(self, rows: Any, predicted: NDArray | None = None, confidence: NDArray | None = None) -> None:
        """Count a block of rows, with the predictions of the model if they are given."""
        answers = {} if predicted is None else _prediction_columns(predicted, confidence, self.unknown)
        self.rows += n_rows(rows)
        for column in self.summaries:
            is_answer = column.name in (CONFIDENCE, LABEL, UNKNOWN)
            if is_answer and column.name not in answers:
                continue
            values = answers[column.name] if is_answer else _column(rows, column.name)
            self.counts[column.name] = self.counts.get(column.name, np.int64(0)) + column.count(values)

    def drift(self, level: float = 0.05) -> Drift:
        """Test each column that was counted."""
        counted = [column for column in self.summaries if column.name in self.counts]
        columns = [_compared(column, self.counts[column.name]) for column in counted]
        adjusted = holm(np.array([column.p_value for column in columns]))
        columns = [replace(column, adjusted=float(p)) for column, p in zip(columns, adjusted)]
        return Drift(sorted(columns, key=lambda column: (column.p_value, -column.moved)), self.rows, level)


def _compared(column: ColumnSummary, after: NDArray[np.int64]) -> ColumnDrift:
    before = np.array(column.counts, np.int64)
    p_value = chi_squared(before, after)
    shares = [counts / max(1, counts.sum()) for counts in (before, after)]
    names, kept = column.names(), (before + after) > 0
    parts = [share[kept].tolist() for share in shares]
    moved = float(np.abs(shares[0] - shares[1]).sum() / 2)
    return ColumnDrift(column.name, [n for n, k in zip(names, kept) if k], parts[0], parts[1], moved, p_value)


def chi_squared(before: NDArray[np.int64], after: NDArray[np.int64], min_expected: float = 5.0) -> float:
    """Return the p-value of the test that both rows of counts come from the same shares.

    Neighboring bins are merged until at least `min_expected` rows are expected in each, before and after. This
    depends only on the sums of both, on which the test is conditioned, so it does not favor a result. A level that is
    new, or missing values that are, have a bin of their own if there are enough of them.

    >>> chi_squared(np.array([50, 50]), np.array([50, 50]))
    1.0
    """
    if not before.sum() or not after.sum():
        return 1.0
    share = min(before.sum(), after.sum()) / (before.sum() + after.sum())
    merged, open_bin = list[NDArray](), np.zeros(2)
    for pair in np.stack([before, after], axis=1):
        open_bin = open_bin + pair
        if open_bin.sum() * share >= min_expected:
            merged.append(open_bin)
            open_bin = np.zeros(2)
    if not merged:
        return 1.0
    merged[-1] = merged[-1] + open_bin
    totals = np.array(merged).T  # (2, bins)
    if totals.shape[1] < 2:
        return 1.0
    expected = np.outer(totals.sum(axis=1), totals.sum(axis=0)) / totals.sum()
    statistic = float((np.square(totals - expected) / expected).sum())
    return float(chdtrc(totals.shape[1] - 1, statistic))


def holm(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return adjusted p-values (m,) that bound the probability of any false alarm.

    >>> holm(np.array([0.01, 0.04, 0.03])).tolist()
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    steps = p_values[order] * np.arange(len(p_values), 0, -1)
    out = np.empty(len(p_values))
    out[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return out


def stored_summary(notes: Mapping[str, Any], name: str) -> list[ColumnSummary]:
    """Return the summary in the notes of a model file; raise InputError if it has none."""
    note = notes.get(NOTE)
    try:
        if not note:
            raise KeyError(NOTE)
        summaries = [
            ColumnSummary(
                str(each["name"]), str(each["kind"]), tuple(map(float, each["edges"])), tuple(map(str, each["levels"])),
                tuple(map(int, each["counts"])),
            )
            for each in note
        ]  # fmt: skip
        if not all(s.kind in _SUMMARIES and len(s.counts) == len(s.edges) + len(s.levels) + 2 for s in summaries):
            raise ValueError("counts do not fit the bins")
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{name} has no summary of its training rows; fit it again with `kway fit` or `kway.fit`"
        ) from error
    return summaries


def drift(model: Any, X: Any, *, level: float = 0.05) -> Drift:
    """Compare new rows with the training rows of a model: which columns changed?

    Parameters
    ----------
    model : str, Path or Fitted
        A model file written by `kway fit` or `Fitted.save`, or the result of `kway.fit`.
    X : table or array-like of shape (n_samples, n_features)
        New rows, in the form that the model takes.
    level : float, default=0.05
        Probability of any false alarm, if there is no drift.

    Returns
    -------
    Drift
        The test of each column. It prints as a table.

    References
    ----------
    Holm (1979), "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6.

    Examples
    --------
    >>> import kway
    >>> iris = kway.datasets.load("iris")
    >>> found = kway.fit(iris.x_train, iris.y_train, models=["softmax"], alpha=1e-2)
    >>> [column.name for column in drift(found, iris.x_train + [[3.0, 0.0, 0.0, 0.0]]).drifted][:1]
    ['x0']
    """
    result = getattr(model, "result", None)
    if result is None and not isinstance(model, str | Path):
        raise InputError(f"model must be a model file or a result of kway.fit, got {type(model).__name__}")
    notes = result.file_notes(None) if result is not None else modelfile.info(model).notes
    fitted = result.model if result is not None else modelfile.load(model)
    rows = X if is_table(X) or hasattr(X, "tocsr") else np.asarray(X)
    p = probabilities_or_none(fitted, rows)
    counts = DriftCounts(stored_summary(notes, str(model)[:60]), unknown_label(fitted))
    counts.add(rows, np.asarray(fitted.predict(rows)), None if p is None else p.max(axis=1))
    return counts.drift(level)
