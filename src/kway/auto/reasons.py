"""Explain a fitted model: which features and words are evidence for or against each class.

linear       w_cj s_j: the weight of column j for class c times the standard deviation s_j of the column. Weights are
             centered over the classes, because only differences matter. s_j comes from the rows that are passed, else
             from the training rows, if the model stores it
centroids    m_cj minus the mean over the classes, for words of text: the words that are frequent in a class
trees, kernel softmax, blends    the mean contribution of a column to the score of a class, over rows that are predicted
             as this class (base/contributions.py)
any other    permutation importance: the drop in accuracy on labeled rows if a column is shuffled
images       permutation importance of the parts of a grid of at most 5 x 5, each named by its pixels

`explain` uses the first of these that applies: the values that `kway.fit` stored in the model, if no rows are passed;
permutation importance of labeled images; weights or means; contributions; permutation importance.

Contributions and permutation importance are measured on a sample of the rows, within a time limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from shutil import get_terminal_size
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from kway import validation
from kway.auto.race.folds import FEW_ROWS
from kway.base.contributions import Contributions
from kway.base.wrappers import innermost
from kway.errors import InputError
from kway.pipelines import label_separator
from kway.rows.matrices import column_spread
from kway.tables.features.shapes import LEAST_SIDE, likely_form
from kway.tables.sources.frames import as_table, n_rows, take_rows, without_lists
from kway.tables.sources.images import ImageForm
from kway.text_tables import Printed, Table

REASONS_SECONDS = 2.0  # default time limit: a small part of a job of 20 seconds
MAX_UNNAMED_COLUMNS = 200  # a matrix of more columns is not explained by its columns x0, x1, ..., which mean nothing
_SIDE = 5  # parts of an image along each side: 25 predictions of FEW_ROWS images take about REASONS_SECONDS
MOST_PARTS = _SIDE * _SIDE
_BLOCK_ROWS = 16  # rows whose contributions are computed between two looks at the clock
_GIVEN = "rows given"  # name of the rows in the result; the model may have been trained on them
_ALL = "all classes"  # the class of columns that matter to all classes at once


@dataclass(frozen=True, eq=False, repr=False)
class Reasons(Printed):
    """The result of `kway.explain`: the strongest columns per class, or for all classes at once.

    Attributes
    ----------
    classes : tuple of str
        Labels; ("all classes",) for permutation importance.
    columns : tuple of tuple of str
        The strongest columns of each class, strongest first.
    pulls : ndarray of shape (n_classes, n_columns)
        Strength of each column as evidence for the class; negative if it is evidence against it. For permutation
        importance, the drop in accuracy.
    how : str
        What the numbers mean, in words.
    measured : bool
        Whether the numbers were measured on rows; otherwise they come from the model alone.
    """

    classes: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]
    pulls: NDArray[np.float64]
    how: str
    measured: bool = False

    def records(self) -> list[dict[str, Any]]:
        """Return one dict of plain values per class and column."""
        return [
            {"class": label, "column": column, "pull": float(pull)}
            for label, columns, pulls in zip(self.classes, self.columns, self.pulls)
            for column, pull in zip(columns, pulls)
        ]

    def strongest(self, n: int = 8) -> Reasons:
        """Return the n strongest columns of each class."""
        return replace(self, columns=tuple(columns[:n] for columns in self.columns), pulls=self.pulls[:, :n])

    def lines(self) -> list[tuple[str, str]]:
        """Return each class with a text that lists its columns."""
        return [
            (label, ", ".join(f"{column} ({pull:+.3g})" for column, pull in zip(columns, pulls)))
            for label, columns, pulls in zip(self.classes, self.columns, self.pulls)
        ]

    def __repr__(self) -> str:
        return self._table().narrowed(get_terminal_size().columns).text()

    __str__ = __repr__  # narrowed as well; only the HTML table shows every column

    def _table(self, most_classes: int = 20) -> Table:
        if self.classes == (_ALL,):
            rows = [(c, f"{p:+.4f}") for c, p in zip(self.columns[0], self.pulls[0])]
            return Table(f"Columns that matter: {self.how}", ("column", "drop in accuracy"), rows)
        lines = [
            (label, *(f"{c} {p:+.2g}" for c, p in zip(columns, pulls)))
            for label, columns, pulls in zip(self.classes, self.columns, self.pulls)
        ]
        more = f"… {len(lines) - most_classes:,} more classes" if len(lines) > most_classes else ""
        head = ("class", *(str(j + 1) for j in range(self.pulls.shape[1])))
        return Table(f"Strongest columns: {self.how}", head, lines[:most_classes], more)


def explain(model: Any, X: Any = None, y: Any = None, n_columns: int = 8, seconds: float = REASONS_SECONDS) -> Reasons:
    """Explain which columns a fitted model depends on.

    Linear models are explained by their weights. Models that divide their scores among the columns, such as trees and
    blends, are explained by their contributions, and all others by permutation importance on labeled rows.

    Parameters
    ----------
    model : estimator or Fitted
        A fitted classifier, a scikit-learn Pipeline that ends in one, or the result of `kway.fit`.
    X : array-like or table of shape (n_samples, n_features), default=None
        Rows. Without them, a linear model is explained by its training rows, and any other model by the values that
        `kway.fit` measured and stored in it.
    y : array-like of shape (n_samples,), default=None
        Labels of the rows, which permutation importance needs. Use rows on which the model was not trained.
    n_columns : int, default=8
        Number of columns per class.
    seconds : float, default=2.0
        Time limit of permutation importance and contributions.

    Returns
    -------
    Reasons
        The strongest columns. It prints as a table.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kway import SoftmaxClassifier
    >>> explain(SoftmaxClassifier().fit(*load_iris(return_X_y=True)), n_columns=1).columns[0]
    ('x2',)
    """
    model = getattr(model, "model", model)  # the result of `kway.fit`
    check_is_fitted(model)
    if label_separator(model) is not None:
        raise InputError(
            "explain does not support several labels per row; fit one of the labels alone, as a column of true/false"
        )
    X, stored = without_lists(X), getattr(model, "reasons_", None)
    if X is None and stored is not None:
        columns = tuple(map(tuple, stored["columns"]))
        reasons = Reasons(tuple(stored["classes"]), columns, np.array(stored["pulls"]), stored["how"], measured=True)
        return reasons.strongest(n_columns)
    if X is not None and n_rows(X) == 0:
        raise InputError("there are no rows to explain the model with; pass at least one row")
    labeled = X is not None and y is not None
    if labeled and len(y) != n_rows(X):
        raise InputError(f"X has {n_rows(X):,} rows and y has {len(y):,} labels; pass one label per row")
    if labeled and image_form(getattr(model, "features_", None), X) is not None:
        return permutation_importance(model, X, np.asarray(y), n_columns, seconds)
    reasons_or_none = own_reasons(model, X, n_columns)
    if reasons_or_none is None and X is not None:
        reasons_or_none = mean_contributions(model, X, n_columns, seconds)
    if reasons_or_none is not None:
        return reasons_or_none
    if not labeled:
        raise InputError(_why_no_reasons(model))
    return permutation_importance(model, X, np.asarray(y), n_columns, seconds)


def kept_facts(reasons: Reasons) -> dict[str, Any] | None:
    """Return measured reasons as plain values for the model file; None if the model alone gives them."""
    if not reasons.measured:
        return None
    columns = [list(each) for each in reasons.columns]
    return {"how": reasons.how, "classes": list(reasons.classes), "columns": columns, "pulls": reasons.pulls.tolist()}


def own_reasons(model: Any, X: Any = None, n_columns: int = 8) -> Reasons | None:
    """Return reasons from the weights or means of a model; None if it has none."""
    if hasattr(model, "named_steps"):  # a scikit-learn Pipeline
        return _reasons_of_last_step(model, X, n_columns)
    features, inner = getattr(model, "features_", None), innermost(model)
    if hasattr(inner, "_class_rows") and hasattr(inner, "coef_"):
        spreads = getattr(model, "spread_", None)
        if X is not None:
            spreads = column_spread(
                validation.rows(inner, model.numbers(X) if hasattr(model, "numbers") else X, reset=False)
            )
        return reasons_of_weights(inner, _names(model, features, inner), spreads, n_columns)
    if hasattr(inner, "centroids_") and _has_words(features):
        return reasons_of_means(inner, _names(model, features, inner), n_columns)
    return None


def _reasons_of_last_step(pipeline: Any, X: Any, n_columns: int) -> Reasons | None:
    """Return the weights of a linear last step of a Pipeline, with the column names of the steps before it."""
    transformers, last = pipeline[:-1], innermost(pipeline[-1])
    if not (hasattr(last, "_class_rows") and hasattr(last, "coef_")):
        return None
    if not len(transformers):
        return own_reasons(pipeline[-1], X, n_columns)
    try:
        names = transformers.get_feature_names_out()
    except (AttributeError, ValueError):  # a step names no columns
        names = None
    names = _names(last, None, last) if names is None else np.asarray(names)
    spreads = None if X is None else column_spread(validation.rows(last, transformers.transform(X), reset=False))
    return reasons_of_weights(last, names, spreads, n_columns)


def _has_words(features: Any) -> bool:
    """Return whether columns are words of texts, so that means show what a class is about."""
    if features is None or getattr(features, "embed_", None):
        return False
    return any(record.used and record.kind == "text" for record in features.records_)


def _why_no_reasons(model: Any) -> str:
    """Return why a model gives no reasons, and what to do."""
    reason = f"{type(innermost(model)).__name__} has no weights to read"
    features = getattr(model, "features_", None)
    nameless = features is not None and not features.is_table_ and model.n_features_in_ > MAX_UNNAMED_COLUMNS
    advice = "pass labeled rows X and y for permutation importance"
    return f"{reason}; {_pixels(model.n_features_in_) if nameless else advice}"


def _pixels(n_columns: int) -> str:
    return (
        f"its {n_columns:,} columns have no names and are too many for permutation importance (at most "
        f"{MAX_UNNAMED_COLUMNS}); the report of `kway fit` shows its worst mistakes, and for a linear model "
        "(models='softmax') the weights of each class"
    )


def _strongest(
    classes: NDArray,
    names: Any,
    pulls: Iterable[NDArray],
    n_columns: int,
    how: str,
    strength: Callable[[NDArray], NDArray] = np.abs,
    measured: bool = False,
) -> Reasons:
    """Return the strongest columns of each class, from pulls (d,) that come one class after another."""
    kept, columns = list[NDArray](), list[tuple[str, ...]]()
    for row in pulls:  # a class at a time: texts have many columns
        best = np.argsort(-strength(row), kind="stable")[:n_columns]
        kept.append(row[best])
        columns.append(tuple(str(names[j]) for j in best))
    return Reasons(tuple(map(str, classes.tolist())), tuple(columns), np.array(kept, np.float64), how, measured)


def reasons_of_weights(linear: Any, names: NDArray, spreads: NDArray | None, n_columns: int) -> Reasons:
    """Return reasons from the weights of a linear model and the spreads (d,) of its columns, if these are known."""
    W = np.asarray(linear._class_rows().W, np.float64)
    mean, scale = W.mean(axis=0), 1.0 if spreads is None else spreads
    how = "weight x spread of the column" if spreads is not None else "weights alone (pass rows to include the spread)"
    pulls = ((weights - mean) * scale for weights in W)
    return _strongest(linear.classes_, names, pulls, n_columns, f"{how} (negative: against the class)")


def reasons_of_means(means: Any, names: NDArray, n_columns: int) -> Reasons:
    """Return the columns in which the mean of a class is furthest above the mean of all classes."""
    M = np.asarray(means.centroids_)
    overall_mean, how = M.mean(axis=0), "mean of the class minus the mean of all classes"
    return _strongest(means.classes_, names, (mean - overall_mean for mean in M), n_columns, how, np.positive)


def mean_contributions(
    model: Any, X: Any, n_columns: int = 8, seconds: float = REASONS_SECONDS, whose: str = _GIVEN
) -> Reasons | None:
    """Return the mean contributions of columns to the score of each class; None if the model has no contributions.

    The mean of a class is over the rows that are predicted as this class; classes without such rows are left out.
    """
    if not hasattr(model, "explain"):
        return None
    deadline = time.perf_counter() + seconds
    sample = np.random.default_rng(0).permutation(n_rows(X))[:FEW_ROWS]
    parts = list[Contributions]()
    n_done = 0
    while n_done < len(sample) and (not parts or time.perf_counter() < deadline):
        part = model.explain(take_rows(X, np.sort(sample[n_done : n_done + _BLOCK_ROWS])))
        if not isinstance(part, Contributions) or (part.names is None and part.values.shape[1] > MAX_UNNAMED_COLUMNS):
            return None
        parts.append(part)
        n_done += _BLOCK_ROWS
    labels = np.concatenate([part.labels for part in parts])
    values = np.concatenate([part.values for part in parts])
    classes, codes = np.unique(labels, return_inverse=True)
    pulls = (values[codes == code].mean(axis=0) for code in range(len(classes)))
    names = parts[0].names or [f"x{j}" for j in range(values.shape[1])]
    how = f"mean contribution to the score of the class on {len(labels):,} {whose} (negative: against it)"
    return _strongest(classes, names, pulls, n_columns, how, measured=True)


def permutation_importance(
    model: Any, X: Any, y: NDArray, n_columns: int = 8, seconds: float = REASONS_SECONDS, whose: str = _GIVEN
) -> Reasons:
    """Return the permutation importance of columns, or of parts of images; `whose` names the rows in the result."""
    deadline = time.perf_counter() + seconds
    rng = np.random.default_rng(0)
    form = image_form(getattr(model, "features_", None), X)
    sample = np.sort(rng.permutation(n_rows(X))[:FEW_ROWS])
    rows, y = take_rows(X, sample), y[sample]
    columns = _columns(model, rows) if form is None else image_parts(form)
    correct = model.predict(rows) == y
    orders = [rng.permutation(len(y)) for _ in range(1 if form is None else max(1, min(4, FEW_ROWS // len(y))))]
    drops: dict[str, float] = {}
    changed: list[int] = []  # predictions that became correct or wrong, per column
    for name, columns_of in columns.items():
        if drops and time.perf_counter() > deadline:
            break
        after = np.array([model.predict(_with_shuffled(rows, columns_of, order)) == y for order in orders])
        drops[name] = float(correct.mean() - after.mean())
        changed.append(int((after != correct).sum()))
    largest = sorted(drops, key=lambda name: -drops[name])[:n_columns]
    what, done = ("parts", "a part comes from another image") if form else ("columns", "a column is shuffled")
    unmeasured = (
        f", {len(columns) - len(drops):,} {what} not measured within the time limit"
        if len(drops) < len(columns)
        else ""
    )
    # two standard errors of the drop, for the column with the median number of changed predictions
    noise = 2 * float(np.median(changed)) ** 0.5 / (len(orders) * len(y))
    how = (
        f"drop of the accuracy ({correct.mean():.3f} on {len(y):,} {whose}) if {done} (noise ±{noise:.3f}){unmeasured}"
    )
    return Reasons((_ALL,), (tuple(largest),), np.array([[drops[name] for name in largest]]), how, measured=True)


def _columns(model: Any, rows: Any) -> dict[str, Any]:
    features = getattr(model, "features_", None)
    if hasattr(rows, "column_names"):
        used = None if features is None else {r.column for r in features.records_ if r.used}
        return {c: c for c in rows.column_names if used is None or c in used}
    if hasattr(rows, "tocsr"):
        raise InputError("permutation importance needs dense rows or a table, got a sparse matrix")
    if rows.shape[1] > MAX_UNNAMED_COLUMNS:
        raise InputError(f"{type(innermost(model)).__name__} has no weights to read; {_pixels(rows.shape[1])}")
    return {f"x{j}": [j] for j in range(rows.shape[1])}


def _with_shuffled(rows: Any, column: Any, order: NDArray) -> Any:
    """Return rows whose values of one column of a table, or of several columns of a matrix, come from other rows."""
    if hasattr(rows, "column_names"):
        table = as_table(rows)
        return table.set_column(table.column_names.index(column), column, table.column(column).take(order))
    changed = rows.copy()
    changed[:, column] = rows[order][:, column]
    return changed


def _names(model: Any, features: Any, inner: Any) -> NDArray:
    if features is not None:
        return np.asarray(features.get_feature_names_out())
    known = None if hasattr(model, "numbers") else getattr(model, "feature_names_in_", None)
    return np.array([f"x{j}" for j in range(inner.n_features_in_)], object) if known is None else np.asarray(known)


# ---- parts of images


def image_form(features: Any, rows: Any) -> ImageForm | None:
    """Return the form of rows that are images, from their features or guessed; None if they are not images."""
    if features is None or features.is_table_:
        return None
    if features.image is not None:
        return ImageForm(*features.image)
    form = likely_form(rows)
    return None if form is None or form.height < LEAST_SIDE else form


def image_parts(form: ImageForm) -> dict[str, NDArray[np.int64]]:
    """Return the columns of each part by name, from the middle outwards, so that a time limit leaves out the edges."""
    columns = np.arange(form.height * form.width * form.channels).reshape(form)
    cells = [(y, x) for y in _cuts(form.height) for x in _cuts(form.width)]
    distances = [abs(y.mean() / form.height - 0.5) + abs(x.mean() / form.width - 0.5) for y, x in cells]
    middle_first = [cells[i] for i in np.argsort(np.round(distances, 3), kind="stable")]
    return {_part(y, x): columns[y[0] : y[-1] + 1, x[0] : x[-1] + 1].ravel() for y, x in middle_first}


def _part(down: NDArray, across: NDArray) -> str:
    return f"pixels {_range(down)} down, {_range(across)} across"


def as_grid(form: ImageForm, drops: dict[str, float]) -> NDArray[np.float64]:
    """Return the drops in accuracy as an array (parts down, parts across), with NaN for parts not measured."""
    return np.array([[drops.get(_part(y, x), np.nan) for x in _cuts(form.width)] for y in _cuts(form.height)])


def _cuts(side: int) -> list[NDArray]:
    return np.array_split(np.arange(side), min(_SIDE, side))


def _range(pixels: NDArray) -> str:
    return f"{pixels[0]}-{pixels[-1]}" if len(pixels) > 1 else f"{pixels[0]}"
