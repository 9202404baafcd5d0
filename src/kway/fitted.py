"""The whole job from Python: a frame or a path in, a fitted object out.

found = kway.fit(frame, target="species")      compares, chooses, calibrates, tests once on untouched rows
print(found)                                   the leaderboard and the test
found.predict(rows); found.report("r.html"); found.save("m.kway")
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from kway.confidence.sets import PredictionSets
from kway.data.asked_options import Reading, in_python, options_asked, said_in_python
from kway.data.given_rows import GivenRows
from kway.data.outputs.output_paths import asked_in_python, refuse_foreign, refuse_inputs
from kway.data.outputs.own_files import is_model, is_report
from kway.data.sources.frames import is_table
from kway.data.sources.text_form import TextForm
from kway.errors import InputError
from kway.featured import FeaturedClassifier
from kway.search.index import TopK
from kway.select.contest.references import checked_references
from kway.select.contest.standings import Comparison
from kway.select.evaluation import Scores
from kway.select.job import JobResult, run_job
from kway.select.reasons import SHOWN, Reasons, explain
from kway.select.saved_winner import save_model
from kway.select.train_test import read_parts
from kway.select.wishes import Wishes
from kway.store.files import model_path
from kway.tables import Printed, Table


@dataclass(frozen=True, eq=False, repr=False)
class Fitted(Printed):
    """What `kway.fit` found: the winner, fitted on all training rows, and how it was found.

    It answers rows as they come (a table with the same columns, or a matrix), with its features inside.
    """

    result: JobResult
    wishes: Wishes
    target: str | None = None
    id: str | None = None
    inputs: Mapping[str, Path] = field(default_factory=dict)  # files that were read: no output replaces them

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
        """What was found or cut on the way, in words."""
        return tuple(map(in_python, self.result.notes))

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
        """The set of labels of each row; where `sets` was asked for."""
        if not hasattr(self.model, "predict_set"):
            raise InputError("no sets were promised when this was fitted; ask for them: kway.fit(..., sets=0.9)")
        return self.model.predict_set(X)

    def explain(self) -> Reasons:
        """The features and words that speak for each class, or matter most (kway.explain)."""
        if self.result.reasons is not None:
            return self.result.reasons.strongest(SHOWN)
        return explain(self.result.model, self.result.parts.test_rows, self.result.parts.test_y)

    def score(self, X: Any, y: Any) -> float:
        """Accuracy on rows with labels y (n,)."""
        return self.model.score(X, y)

    def report(self, path: str | Path, *, force: bool = False) -> None:
        """Write the page: leaderboard, figures, mistakes, features; over a file that is none only with `force`."""
        from kway.report.page import write_page

        page = asked_in_python(path, "report", is_report)
        refuse_inputs(page, self.inputs)
        refuse_foreign(page, force)
        write_page(path, self.result, self.wishes)

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the model file, for `kway.load` and `kway predict`; over a file that is none only with `force`."""
        refuse_inputs(asked_in_python(model_path(path), "model", is_model), self.inputs)
        save_model(self.result, path, self.target, self.id, force)

    def _table(self) -> Table:
        board, test = self.leaderboard._table(), self.test
        told = (
            f"test: accuracy {test.accuracy:.4f} (95 % interval {test.low:.4f} to {test.high:.4f}) on "
            f"{test.rows:,} untouched rows"
        )
        return board._replace(more="\n  ".join(filter(None, (board.more, told))))


def fit(
    data: Any,
    target: Any = None,
    *,
    test: Any = None,
    models: str | Sequence[str] | None = None,
    metric: str = "accuracy",
    class_weight: str | None = None,
    folds: int = 5,
    repeats: int = 1,
    also: str | Iterable[Any] | None = None,
    sets: float | None = None,
    unknown: float | None = None,
    alpha: float | None = None,
    budget: float | None = None,
    group: str | None = None,
    order: str | None = None,
    drop: str | Sequence[str] = (),
    embed: Any = None,
    seed: int = 0,
    device: str = "cpu",
    **reading: Unpack[Reading],
) -> Fitted:
    """Compare classifiers on data, keep the best, calibrate it and test it once on untouched rows.

    Parameters
    ----------
    data : a table (pandas, polars, pyarrow, a dict of columns), a matrix, or what `kway fit` takes, such as a path.
    target : the column of the labels; of a matrix, or beside a table, the labels themselves (n,).
    test : rows to test on, as data is given, (X, y) where labels stand beside; else a fifth of the rows is put aside.
    models : families to compare, or one; None: all.
    metric : what the choice is made by: "accuracy", "balanced", "macro-f1" or "log-loss".
    class_weight : "balanced" lets rows of rare classes count for more.
    folds, repeats : of the cross-validation.
    also : classifiers of other libraries scored on the same folds, never chosen; None: trees, where these are quick.
    sets : promise sets of labels that hold the right one so often, such as 0.9: `predict_set`.
    unknown : allow the answer "unknown" for at most this share of known rows, such as 0.05.
    budget : seconds for the whole.
    group, order : columns whose groups are never split; of time, so that the last rows test.
    drop : columns to leave out, or one.
    alpha, embed, seed, device : as the options of `kway fit`.

    How the table is read, where it is not read as it is meant, by the names of the command's options:

    types : what columns are, such as {"zip": "category", "when": "month-first"}; a kind is one of number, category,
        text, date, day-first, month-first, true/false, vector and drop.
    id : the column that names the rows: no feature.
    decimal : the decimal mark of numbers in text, "." or ",".
    sep, encoding, header : of a text file: what is between columns, "utf-8" and the like, whether its first row names
        the columns.
    skip_bad : leave out images, and rows of a text file, that cannot be read, and rows without a label.

    >>> from sklearn.datasets import load_iris
    >>> found = fit(*load_iris(return_X_y=True), models=["centroid"], also=())
    >>> found.test.rows, found.leaderboard.best.model
    (30, 'centroid')
    """
    begun = time.perf_counter()
    column = str(target) if isinstance(target, str) or (is_table(data) and np.isscalar(target)) else None
    with said_in_python():
        how = options_asked(column, _names(drop), group=group, order=order, **reading)
        source = _source(data, None if column is not None else target, "the data")
        rows, labels = test if isinstance(test, tuple) and len(test) == 2 else (test, None)
        asked = _source(rows, labels, "the test rows")
        _refuse_form(how.form, source, asked)
        parts = read_parts(source, how, asked, seed)
        wishes = Wishes(
            None if models is None else _names(models), alpha, budget, seed, folds, embed, metric=metric,
            class_weight=class_weight, repeats=repeats, also=None if also is None else checked_references(also),
            sets=sets, unknown=unknown, device=device,
        )  # fmt: skip
        return Fitted(run_job(parts, wishes, begun), wishes, column, how.id, _files(data=source, test=asked))


def _files(**sources: Any) -> dict[str, Path]:
    """Those of the sources that are files or folders, wherever the process goes meanwhile."""
    return {name: Path(given).resolve() for name, given in sources.items() if isinstance(given, str)}


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    """One name, or several."""
    return (given,) if isinstance(given, str) else tuple(given)


def _source(data: Any, labels: Any, name: str) -> Any:
    """Data as the reader takes it: a path as text, rows in memory under a name for messages."""
    if data is None or isinstance(data, (str, Path)):
        if labels is not None:
            raise InputError(f"target must name a column of {name}, which is a file; got {type(labels).__name__}")
        return None if data is None else str(data)
    named = name if is_table(data) else f"the rows of {name.removeprefix('the ')}"
    return GivenRows(data, labels, named)


def _refuse_form(form: TextForm, *sources: Any) -> None:
    """How a text file is written cannot be said of rows in memory."""
    if any(isinstance(source, str) for source in sources):
        return
    for name in ("sep", "encoding", "header"):
        if getattr(form, name) is not None:
            raise InputError(f"{name} says how a text file is written, and the data is in memory; leave it out")
