"""The Python entry points `kway.fit`, which returns a `Fitted` model, and `kway.inspect`, which finds wrong labels.

model = kway.fit(frame, target="species")    compares families, chooses, calibrates, and tests once on held-out rows
print(model)                                 the leaderboard and the test scores
model.predict(rows)                          labels of new rows
model.report("r.html")                       the report
model.save("m.kway")                         a model file for `kway.load` and `kway predict`
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway import progress
from kway.auto.evaluation import Scores, measured, verdict
from kway.auto.fit_options import FitOptions
from kway.auto.hierarchy import LevelScores, job_levels
from kway.auto.job import JobResult, run_job
from kway.auto.leaks import Leak
from kway.auto.multilabel import (
    LabelSetScores,
    MultilabelResult,
    SettingComparison,
    read_label_sets,
    run_multilabel,
)
from kway.auto.race.clock import REPORT_SECONDS, Clock
from kway.auto.race.compare import Comparison
from kway.auto.reasons import Reasons, explain
from kway.auto.train_test import read_train_test
from kway.auto.wrong_labels import Inspection, inspect_by, inspect_rows
from kway.confidence.conformal import PredictionSets
from kway.declared_options import options_of, refuse_unknown
from kway.errors import InputError
from kway.modelfile.container import model_path
from kway.parameters import whole
from kway.search.results import TopK
from kway.suggest import nearest
from kway.tables.outputs import is_model, is_report, python_output, refuse_foreign, refuse_inputs
from kway.tables.read_options import ReadOptions
from kway.tables.reading import RowsInMemory
from kway.tables.sources.frames import as_table, is_table, without_lists
from kway.text_tables import Printed, Table


@dataclass(frozen=True, eq=False, repr=False)
class Fitted(Printed):
    """The result of `kway.fit`: the best model, fitted on all training rows, and how it was chosen.

    It predicts rows in the form of the training data: a table with the same columns, or a matrix.

    Attributes
    ----------
    result : JobResult or MultilabelResult
        All results of the job.
    target : str or None
        Column of the labels.
    id : str or None
        Column that identifies each row.
    inputs : mapping of str to Path
        Files that were read, which no output may replace.
    model : FeaturedClassifier or BlendClassifier
        The classifier with its features inside, as `save` writes it.
    classes_ : ndarray of shape (n_classes,)
        Labels.
    leaderboard : Comparison or SettingComparison
        The best setting of every family by cross-validation, best first.
    test : Scores or LabelSetScores
        Scores on the test rows, which no choice depends on.
    notes : tuple of str
        Notes on the data and on what was left out.
    levels : LevelScores or None
        Accuracy per level of the hierarchy on the test rows; None without `hierarchy`.
    leaks : tuple of Leak
        Possible leaks in the training rows, with the scores of a random and of an honest split.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> found = fit(*load_iris(return_X_y=True), models=["centroid"], also=())
    >>> found.predict([[5.0, 3.4, 1.5, 0.2]])
    array([0])
    """

    result: JobResult | MultilabelResult
    target: str | None = None
    id: str | None = None
    inputs: Mapping[str, Path] = field(default_factory=dict)

    @property
    def model(self) -> Any:
        """The classifier with its features inside, as `save` writes it."""
        return self.result.model

    @property
    def classes_(self) -> NDArray:
        """Labels of shape (n_classes,)."""
        return self.model.classes_

    @property
    def leaderboard(self) -> Comparison | SettingComparison:
        """The best setting of every family, best first; `to_pandas()` returns it as a DataFrame."""
        return self.result.comparison

    @property
    def test(self) -> Scores | LabelSetScores:
        """Scores on the test rows, on which no choice depends."""
        return self.result.scores if isinstance(self.result, MultilabelResult) else self.result.evaluation.scores

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the data and on what was left out."""
        return self.result.notes

    @property
    def levels(self) -> LevelScores | None:
        """Accuracy per level of the hierarchy on the test rows; None without `hierarchy`."""
        return job_levels(self.result) if isinstance(self.result, JobResult) else None

    @property
    def leaks(self) -> tuple[Leak, ...]:
        """Possible leaks in the training rows, with the score of the honest split; see `Leak.warns`."""
        return self.result.leaks

    def predict(self, X: Any) -> NDArray:
        """Return the predicted labels (n,); with several labels per row, a list of labels for each row."""
        return self.model.predict(X)

    def predict_proba(self, X: Any) -> NDArray:
        """Return probabilities (n, K)."""
        return self.model.predict_proba(X)

    def predict_topk(self, X: Any, k: int = 5) -> TopK:
        """Return the k best labels of each row and their scores."""
        return self.model.predict_topk(X, k)

    def predict_set(self, X: Any) -> PredictionSets:
        """Return the predicted set of labels of each row, if the model was fitted with `sets`."""
        if not hasattr(self.model, "predict_set"):
            raise InputError("this model predicts no sets; fit it with sets=, for example kway.fit(..., sets=0.9)")
        return self.model.predict_set(X)

    def predict_node(self, X: Any) -> NDArray:
        """Return the predicted node of each row, if the model was fitted with `hierarchy` and `sets`."""
        if not hasattr(self.model, "predict_node"):
            raise InputError(
                "this model predicts no nodes; fit it with hierarchy= and sets=, for example "
                'kway.fit(..., hierarchy="/", sets=0.9)'
            )
        return self.model.predict_node(X)

    def explain(self) -> Reasons:
        """Return the features and words that are evidence for each class, as `kway.explain` does.

        `model.explain(rows)` explains the predictions of single rows.
        """
        if self.result.reasons is not None:
            return self.result.reasons.strongest()
        return explain(self.result.model, self.result.data.test_rows, self.result.data.test_y)

    def score(self, X: Any, y: Any) -> float:
        """Return the accuracy on rows with labels y (n,)."""
        return self.model.score(X, y)

    def report(self, path: str | Path, *, force: bool = False) -> None:
        """Write the report as one HTML page.

        Parameters
        ----------
        path : str or Path
            File to write.
        force : bool, default=False
            Overwrite a file that is not a report.
        """
        from kway.report.page import write_page

        page = python_output(path, "report", is_report)
        refuse_inputs(page, self.inputs)
        refuse_foreign(page, force)
        write_page(path, self.result)

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the model file, for `kway.load` and `kway predict`.

        Parameters
        ----------
        path : str or Path
            File to write.
        force : bool, default=False
            Overwrite a file that is not a model.
        """
        refuse_inputs(python_output(model_path(path), "model", is_model), self.inputs)
        self.result.save(path, self.target, self.id, force)

    def _table(self) -> Table:
        board, test = self.leaderboard._table(), self.test
        scores = str(test) if isinstance(test, LabelSetScores) else _accuracy(test)
        line = f"test: {scores} on {test.rows:,} untouched rows"
        if isinstance(self.result, JobResult) and not isinstance(test, LabelSetScores):
            measure = self.result.comparison.measure
            if measure.by_class:
                line = f"test: {measure.words} {measured(test, measure.name):.4f}, {line.removeprefix('test: ')}"
            worse = verdict(test, self.result.baselines["majority class"])
            line += f"\n  {worse}" if worse else ""
            line += f"\n  costs: {self.result.costs}" if self.result.costs else ""
        leaks = [f"possible leak: {leak}" for leak in self.leaks if leak.warns]
        title = "\n".join([*leaks, board.title])
        return board._replace(title=title, more="\n  ".join(filter(None, (board.more, line))))


def _accuracy(test: Scores) -> str:
    return f"accuracy {test.accuracy:.4f} (95% interval {test.low:.4f} to {test.high:.4f})"


def fit(data: Any, target: Any = None, *, test: Any = None, **options: Any) -> Fitted:
    """Compare classifiers, choose the best, calibrate it, and test it once on held-out rows.

    Parameters
    ----------
    data : table, array-like, str or Path
        A table (pandas, polars, pyarrow or a dict of columns), a matrix, a file, a folder or the name of a dataset.
    target : str or array-like of shape (n_samples,), default=None
        Column of the labels, or the labels themselves.
    test : table, array-like, str, Path or tuple (X, y), default=None
        Test rows; None uses the test rows of a dataset, or holds out a fifth of the rows.
    models : str, list of str, or None, default=None
        Families to compare, such as ["softmax", "neighbors"]; None compares all that suit the data.
    alpha : float, default=None
        Regularization of linear families; None chooses it by cross-validation.
    budget : float or str, default=None
        Time limit for the whole job, in seconds or as "60s", "2m" or "1h". With None, the limit grows with the table
        (60 seconds for 10,000 rows of 50 columns) and applies to estimated rather than measured time, so that every
        machine chooses the same model.
    embed : str, default=None
        Name or folder of a sentence-transformers model that turns text or images into vectors.
    metric : {"accuracy", "balanced", "macro-f1", "log-loss"}, default="accuracy"
        Metric that ranks the families. With "accuracy", the lowest log loss decides among families that are equally
        good, and the log loss decides whether the blend is kept.
    class_weight : "balanced" or None, default=None
        "balanced" gives every class the same total weight. With None, every row has the same weight.
    folds : int, default=5
        Number of folds of the cross-validation.
    repeats : int, default=1
        Number of times to repeat the cross-validation, each time with new folds.
    also : classifier, str, or list of these, default=None
        Classifiers of other libraries to score on the same folds for comparison, such as "sklearn.svm.SVC". None
        scores no other classifier.
    single : bool, default=False
        Keep the best single family instead of a blend of several.
    sets : float, default=None
        Predict sets of labels that contain the correct one with this probability, such as 0.9.
    unknown : float, default=None
        Predict "unknown" for rows unlike the training rows. This is the largest share of rows of known classes that
        may be rejected, such as 0.05.
    costs : str, Path or array-like of shape (n_classes, n_classes), default=None
        Cost of predicting each label (column) for each true label (row), as a csv file or in the order of the sorted
        labels. The model then predicts the label of lowest expected cost.
    seed : int, default=0
        Seed of all random numbers.
    device : {"cpu", "cuda", "cuda:N", "auto"}, default="cpu"
        Device that computes.
    group : str, default=None
        Column that groups the rows, such as a patient ID. Groups are never split between training, folds and test.
    order : str, default=None
        Time column; the last rows are the test set.
    weight : str or array-like of shape (n_samples,), default=None
        Column with the weights of the rows, or the weights themselves: numbers of 0 or more. Models learn with the
        weights, and all scores are weighted means.
    drop : str or list of str, default=()
        Columns to leave out.
    skip_bad : bool, default=False
        Leave out lines and images that cannot be read, and rows without a label.
    types : dict of str to str, default=None
        Kinds of columns, such as {"zip": "category"}: number, category, text, date, day-first, month-first,
        true/false, vector or drop.
    id : str, default=None
        Column that identifies each row. It is not used as a feature.
    sep, decimal, encoding : str, default=None
        How a text file is written; detected if omitted.
    header : bool, default=None
        Whether the first line of a text file names the columns; detected if omitted.
    skip_rows : int, default=None
        Number of lines above the table to skip.
    table : str, default=None
        Sheet of a workbook, or table of a database.
    join_labels : bool, default=False
        Treat labels that differ only in case or whitespace as the same label.
    hierarchy : str, default=None
        Separator of labels that are paths, such as "/" for "animal/dog". The accuracy is measured per level, and with
        `sets` the set of a row is a node of the tree.
    multilabel : str, default=None
        Separator of several labels per row, such as ";" for "a;b". Labels in memory can also be lists.

    Returns
    -------
    Fitted
        The best model with the leaderboard, its test scores, `predict`, `report` and `save`.

    Raises
    ------
    kway.errors.InputError
        If the data cannot be read or learned from.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> found = fit(*load_iris(return_X_y=True), models=["centroid"], also=())
    >>> found.test.rows, found.leaderboard.best.model
    (30, 'centroid')
    """
    begun = time.perf_counter()
    weights = None if isinstance(options.get("weight"), str) else options.pop("weight", None)
    fit_names, read_names = options_of(FitOptions, "fit"), options_of(ReadOptions, "fit")
    refuse_unknown(options, [*fit_names, *read_names])
    column = str(target) if isinstance(target, str) or (is_table(data) and np.isscalar(target)) else None
    reading = ReadOptions(target=column, **{name: value for name, value in options.items() if name in read_names})
    fit_options = FitOptions(**{name: value for name, value in options.items() if name in fit_names})
    source = _source(data, None if column is not None else target, "the data", weights)
    rows, labels = test if isinstance(test, tuple) and len(test) == 2 else (test, None)
    test_source = _source(rows, labels, "the test rows")
    _refuse_text_options(reading, source, test_source)
    with progress.shown_in_notebook():
        result = _run(source, reading, test_source, fit_options, begun)
    return Fitted(result, column, reading.id, _files(data=source, test=test_source))


def _run(
    source: Any, reading: ReadOptions, test: Any, options: FitOptions, begun: float
) -> JobResult | MultilabelResult:
    """Read the rows and run the job for one label, or for several labels, per row."""
    if reading.multilabel is not None:
        return run_multilabel(read_label_sets(source, reading, options, test), reading, options, begun)
    return run_job(read_train_test(source, reading, test, options.seed), options, begun)


def inspect(
    data: Any, target: Any = None, *, by: Any = None, test: Any = None, rows: int | None = None, **options: Any
) -> Inspection:
    """Find rows whose label is probably wrong, by confident learning [1]_.

    Parameters
    ----------
    data : table, array-like, str or Path
        A table, a matrix, a file, a folder or the name of a dataset.
    target : str or array-like of shape (n_samples,), default=None
        Column of the labels, or the labels themselves.
    by : classifier, default=None
        Fitted classifier that judges the labels. It must not have been trained on these rows, and `data` must be a
        table or a matrix. None cross-validates the families instead, so that each row is judged by models that were
        not trained on it.
    test : table, array-like, str, Path or tuple (X, y), default=None
        Test rows; test rows that are near-duplicates of a row of the data are listed.
    rows : int, default=None
        Number of rows to return, most suspicious first; None returns all rows whose label is probably wrong.
    **options : object
        Options of `kway.compare` and of reading, as for `kway.fit`.

    Returns
    -------
    Inspection
        Rows with their suggested labels and nearest rows. It prints as a table.

    References
    ----------
    .. [1] C. Northcutt, L. Jiang and I. Chuang (2021), Confident learning: estimating uncertainty in dataset labels.
       JAIR.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> y[0] = 2  # a wrong label
    >>> found = inspect(X, y, models=["softmax"], alpha=1e-2)
    >>> found.rows[0]
    np.int64(0)
    """
    begun = time.perf_counter()
    fit_names, read_names = options_of(FitOptions, "inspect"), options_of(ReadOptions, "inspect")
    refuse_unknown(options, [*fit_names, *read_names])
    if rows is not None and not whole(0).allows(rows):
        raise InputError(whole(0).message("rows", rows))
    column = str(target) if isinstance(target, str) or (is_table(data) and np.isscalar(target)) else None
    if by is not None:
        if isinstance(data, str | Path) or test is not None or options:
            raise InputError("with by, give a table or a matrix as data, and neither test rows nor options")
        if target is None:
            raise InputError("target is missing; pass the labels, or the name of their column")
        table = as_table(data) if is_table(data) else without_lists(data)
        if column is not None and column not in table.column_names:
            raise InputError(f"the data has no column {column!r}{nearest(column, table.column_names)}")
        y = target if column is None else table.column(column).to_numpy(zero_copy_only=False)
        return inspect_by(by, table if column is None else table.drop_columns([column]), np.asarray(y), max_rows=rows)
    reading = ReadOptions(target=column, **{name: value for name, value in options.items() if name in read_names})
    fit_options = FitOptions(**{name: value for name, value in options.items() if name in fit_names})
    source = _source(data, None if column is not None else target, "the data")
    test_rows, test_y = test if isinstance(test, tuple) and len(test) == 2 else (test, None)
    other = _source(test_rows, test_y, "the test rows")
    clock = Clock(fit_options.budget, begun, REPORT_SECONDS)
    return inspect_rows(source, reading, fit_options, other, rows, clock)


def _files(**sources: Any) -> dict[str, Path]:
    """Return the sources given as text, which are files, folders or names of datasets, as absolute paths."""
    return {name: Path(given).resolve() for name, given in sources.items() if isinstance(given, str)}


def _source(data: Any, labels: Any, name: str, weights: Any = None) -> Any:
    """Return data in the form that the reader expects: a path as text, or rows in memory with a name for messages."""
    if data is None or isinstance(data, (str, Path)):
        if labels is not None:
            raise InputError(f"target must name a column of {name}, which is a file; got {type(labels).__name__}")
        if weights is not None:
            raise InputError(f"weight must name a column of {name}, which is a file; got {type(weights).__name__}")
        return None if data is None else str(data)
    named = name if is_table(data) else f"the rows of {name.removeprefix('the ')}"
    return RowsInMemory(data, labels, named, weights)


def _refuse_text_options(reading: ReadOptions, *sources: Any) -> None:
    """Raise InputError if an option of reading files was given and no source is a file."""
    if any(isinstance(source, str) for source in sources):
        return
    for name in ("sep", "encoding", "header", "skip_rows", "table"):
        if getattr(reading, name) is not None:
            raise InputError(f"{name} is for files, but the data is in memory; leave it out")
