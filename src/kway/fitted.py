"""kway.fit: the main job from Python, from a frame or a path to a fitted object.

found = kway.fit(frame, target="species")      compares, chooses, calibrates, tests once on untouched rows
print(found)                                   the leaderboard and the test
found.predict(rows); found.report("r.html"); found.save("m.kway")
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.auto.evaluation import Scores
from kway.auto.job import JobResult, run_job
from kway.auto.options import FitOptions
from kway.auto.race.compare import Comparison
from kway.auto.reasons import SHOWN, Reasons, explain
from kway.auto.train_test import read_train_test
from kway.confidence.conformal import PredictionSets
from kway.errors import InputError
from kway.modelfile.container import model_path
from kway.options import describe_options, options_of, refuse_unknown
from kway.pipelines import FeaturedClassifier
from kway.search.results import TopK
from kway.tables.options import ReadOptions
from kway.tables.outputs import is_model, is_report, python_output, refuse_foreign, refuse_inputs
from kway.tables.reading import RowsInMemory
from kway.tables.sources.frames import is_table
from kway.text_tables import Printed, Table


@dataclass(frozen=True, eq=False, repr=False)
class Fitted(Printed):
    """The result of `kway.fit`: the winner, fitted on all training rows, and how it was chosen.

    It predicts rows as they come (a table with the same columns, or a matrix), with its features inside.
    """

    result: JobResult
    target: str | None = None
    id: str | None = None
    inputs: Mapping[str, Path] = field(default_factory=dict)  # files that were read, which no output may replace

    @property
    def model(self) -> FeaturedClassifier:
        """The classifier with its features inside, as `save` writes it."""
        return self.result.model

    @property
    def classes_(self) -> NDArray:
        """Labels (K,)."""
        return self.model.classes_

    @property
    def leaderboard(self) -> Comparison:
        """Every family's best setting by cross-validation, best first; `to_pandas()` gives it as a frame."""
        return self.result.comparison

    @property
    def test(self) -> Scores:
        """Figures on rows that nothing was chosen by."""
        return self.result.evaluation.scores

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the data and on what was left out."""
        return self.result.notes

    def predict(self, X: Any) -> NDArray:
        """Labels (n,)."""
        return self.model.predict(X)

    def predict_proba(self, X: Any) -> NDArray:
        """Probabilities (n, K)."""
        return self.model.predict_proba(X)

    def predict_topk(self, X: Any, k: int = 5) -> TopK:
        """The k best labels of each row and their scores."""
        return self.model.predict_topk(X, k)

    def predict_set(self, X: Any) -> PredictionSets:
        """The set of labels of each row, if the model was fitted with `sets`."""
        if not hasattr(self.model, "predict_set"):
            raise InputError("this model predicts no sets; fit it with sets=, for example kway.fit(..., sets=0.9)")
        return self.model.predict_set(X)

    def explain(self) -> Reasons:
        """The features and words that speak for each class, or matter most (kway.explain)."""
        if self.result.reasons is not None:
            return self.result.reasons.strongest(SHOWN)
        return explain(self.result.model, self.result.data.test_rows, self.result.data.test_y)

    def score(self, X: Any, y: Any) -> float:
        """Accuracy on rows with labels y (n,)."""
        return self.model.score(X, y)

    def report(self, path: str | Path, *, force: bool = False) -> None:
        """Write the page: leaderboard, figures, mistakes, features; overwrite another file only with `force`."""
        from kway.report.page import write_page

        page = python_output(path, "report", is_report)
        refuse_inputs(page, self.inputs)
        refuse_foreign(page, force)
        write_page(path, self.result)

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the model file, for `kway.load` and `kway predict`; overwrite another file only with `force`."""
        refuse_inputs(python_output(model_path(path), "model", is_model), self.inputs)
        self.result.save(path, self.target, self.id, force)

    def _table(self) -> Table:
        board, test = self.leaderboard._table(), self.test
        told = (
            f"test: accuracy {test.accuracy:.4f} (95 % interval {test.low:.4f} to {test.high:.4f}) on "
            f"{test.rows:,} untouched rows"
        )
        return board._replace(more="\n  ".join(filter(None, (board.more, told))))


def fit(data: Any, target: Any = None, *, test: Any = None, **options: Any) -> Fitted:
    """Compare classifiers on data, keep the best, calibrate it and test it once on untouched rows.

        The options have the names and defaults of `kway.auto.options.FitOptions` and `kway.tables.options.ReadOptions`.

        Parameters
        ----------
        data : table, array-like, str or Path
            A table (pandas, polars, pyarrow, a dict of columns), a matrix, or a path that `kway fit` takes.
        target : str or array-like of shape (n_samples,), default=None
            The column of the labels, or the labels themselves.
        test : object, default=None
            Rows to test on, in the form of `data`, or (X, y); None tests on a fifth of the rows.
    {options}

        Returns
        -------
        Fitted
            The best model, fitted on all training rows, with the leaderboard and the test result.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> found = fit(*load_iris(return_X_y=True), models=["centroid"], also=())
        >>> found.test.rows, found.leaderboard.best.model
        (30, 'centroid')
    """
    begun = time.perf_counter()
    of_job, of_reading = options_of(FitOptions, "fit"), options_of(ReadOptions, "fit")
    refuse_unknown(options, [*of_job, *of_reading])
    column = str(target) if isinstance(target, str) or (is_table(data) and np.isscalar(target)) else None
    reading = ReadOptions(target=column, **{name: value for name, value in options.items() if name in of_reading})
    asked = FitOptions(**{name: value for name, value in options.items() if name in of_job})
    source = _source(data, None if column is not None else target, "the data")
    rows, labels = test if isinstance(test, tuple) and len(test) == 2 else (test, None)
    test_source = _source(rows, labels, "the test rows")
    _refuse_text_options(reading, source, test_source)
    train_test = read_train_test(source, reading, test_source, asked.seed)
    return Fitted(run_job(train_test, asked, begun), column, reading.id, _files(data=source, test=test_source))


fit.__doc__ = str(fit.__doc__).format(
    options=describe_options(FitOptions, "fit") + "\n" + describe_options(ReadOptions, "fit", leave_out=("target",))
)


def _files(**sources: Any) -> dict[str, Path]:
    """The sources that are files or folders, as absolute paths."""
    return {name: Path(given).resolve() for name, given in sources.items() if isinstance(given, str)}


def _source(data: Any, labels: Any, name: str) -> Any:
    """Data as the reader takes it: a path as text, rows in memory with a name for messages."""
    if data is None or isinstance(data, (str, Path)):
        if labels is not None:
            raise InputError(f"target must name a column of {name}, which is a file; got {type(labels).__name__}")
        return None if data is None else str(data)
    named = name if is_table(data) else f"the rows of {name.removeprefix('the ')}"
    return RowsInMemory(data, labels, named)


def _refuse_text_options(reading: ReadOptions, *sources: Any) -> None:
    """Raise if an option says how a text file is written, and no source is a file."""
    if any(isinstance(source, str) for source in sources):
        return
    for name in ("sep", "encoding", "header"):
        if getattr(reading, name) is not None:
            raise InputError(f"{name} says how a text file is written, and the data is in memory; leave it out")
