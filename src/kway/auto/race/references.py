"""References: classifiers of other libraries, scored on the same folds, so that the user sees whether they do better.

    also = ["sklearn.ensemble.RandomForestClassifier", SVC()]    by name, or as objects
    trees   by default: scikit-learn's gradient boosting if it is fast enough, else extremely randomized trees

The size of the data decides which trees run, on how many rows and folds. The row of the leaderboard shows it.
References are never chosen and never saved. Each ends between folds when its time is up.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier

from kway import progress
from kway.auto.race.clock import COMPARISON_SECONDS, Clock
from kway.auto.race.folds import SAMPLE_ROWS
from kway.auto.race.scoring import (
    SMALLEST_LAG,
    TABLE_COLUMNS,
    FoldedRows,
    FoldScores,
    LeaderboardRow,
    Scan,
    leaderboard_row,
    scores_of,
)
from kway.errors import InputError
from kway.memory import CACHE_BYTES
from kway.suggest import listing

TREES = "trees"  # the name of the default reference
_TREE_SECONDS = 2e-3, 2e-8  # seconds of growing a tree: fixed, and per value of its rows (T11)
_FOREST = 30  # trees of a forest: as accurate on letter as boosting, in a tenth of the time (T11)


@dataclass(frozen=True)
class Reference:
    """An unfitted classifier of another library."""

    name: str
    estimator: Any
    setting: dict[str, Any] = field(default_factory=dict)  # shown on the leaderboard
    folds: int | None = None  # number of folds to run; None: all
    rows: int | None = None  # number of rows to learn from; None: all
    note: str = ""

    def scan(self, data: FoldedRows, which: list[int], clock: Clock) -> Scan:
        """Score one fit per fold until the time is up."""
        begun = time.perf_counter()
        scores = FoldScores.empty(len(which), 1)
        stop = clock.pace(len(which))
        for row, fold in enumerate(which):
            if stop():
                break
            learn = self._outside(data, fold)
            with _few_threads(data.size().rows_bytes):
                model = clone(self.estimator).fit(data.X[learn], data.codes[learn])
            inside = data.folds == fold
            for values, value in zip(scores, scores_of(model, data.X[inside], data.codes[inside])):
                values[row, 0] = value
        seconds = time.perf_counter() - begun
        return Scan([self.setting], **scores._asdict(), seconds=seconds, measure=data.measure)

    def _outside(self, data: FoldedRows, fold: int) -> NDArray[np.int64]:
        """Return the rows outside a fold, or a random sample of them if they are too many."""
        learn = np.flatnonzero(data.folds != fold)
        if self.rows is None or len(learn) <= self.rows:
            return learn
        return np.sort(np.random.default_rng(fold).choice(learn, self.rows, replace=False))


@contextmanager
def _few_threads(n_bytes: float) -> Iterator[None]:
    """Limit OpenMP to one thread if rows are few: on a busy machine its threads wait for each other for minutes."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1 if n_bytes <= CACHE_BYTES else None, user_api="openmp"):
        yield


def score_references(
    data: FoldedRows, also: Iterable[Any], clock: Clock, seed: int, seconds: float
) -> tuple[list[LeaderboardRow], dict[str, str]]:
    """Score every reference on the folds; return their rows, and why others have none.

    Trees may take so many seconds unless they are named. An error of another library becomes a note.
    """
    rows, problems = list[LeaderboardRow](), dict[str, str]()
    n_folds = data.n_folds
    for what in also:
        is_default = isinstance(what, str) and what == TREES
        reference = _trees(data, seconds, seed) if is_default else reference_of(what)
        if reference is None or (is_default and clock.up()):
            continue
        try:
            with progress.stage(f"{reference.name}: for comparison"):
                own = Clock(COMPARISON_SECONDS) if clock.budget is None else clock.share(1.0)
                found = reference.scan(data, list(range(reference.folds or n_folds)), own)
        except Exception as error:  # any error of another library
            problems[reference.name] = " ".join(str(error).split())[:200]
            continue
        if np.isfinite(found.scores).any():
            rows.append(leaderboard_row(reference.name, found, reference.note, n_folds))
    return rows, problems


def checked_references(also: Any) -> tuple[Any, ...]:
    """Return the references, one or several, or raise before any work if one is not a classifier."""
    asked = (also,) if isinstance(also, str) or hasattr(also, "fit") else tuple(also)
    for what in asked:
        if not isinstance(what, str) or what != TREES:
            reference_of(what)
    return asked


def reference_of(what: Any) -> Reference:
    """Return a classifier given as an object, as its class, or by name, such as sklearn.svm.SVC."""
    if isinstance(what, str):
        what = _import(what)
    made = what() if isinstance(what, type) else what
    if not hasattr(made, "fit") or not hasattr(made, "predict"):
        raise InputError(f"also takes classifiers with fit and predict, got {type(made).__name__}")
    if not _is_classifier(made):
        raise InputError(
            f"also takes classifiers, and {type(made).__name__} is none; pass one, such as sklearn.svm.SVC"
        )
    return Reference(type(made).__name__.removesuffix("Classifier"), made)


def _is_classifier(estimator: Any) -> bool:
    """Return whether an estimator is marked as a classifier, or not marked at all."""
    try:
        return is_classifier(estimator)
    except AttributeError:  # raised by scikit-learn if there are no tags
        return getattr(estimator, "_estimator_type", "classifier") == "classifier"


def _import(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"also names {name!r}, which cannot be imported ({error}); pass module.Class, such as "
            "sklearn.ensemble.RandomForestClassifier"
        ) from error


def _trees(data: FoldedRows, allowed: float, seed: int) -> Reference | None:
    """Return trees that take about so many seconds on these rows; None if the rows do not suit trees."""
    if not data.is_table or data.has_many_classes:
        return None
    from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier

    n, n_classes = int((data.folds != 0).sum()), data.n_classes
    most = SAMPLE_ROWS if n > SAMPLE_ROWS else None
    setting = {} if most is None else {"rows": most}
    fixed, per_value = _TREE_SECONDS
    tree = fixed + per_value * min(n, SAMPLE_ROWS) * data.X.shape[1]
    boosted = HistGradientBoostingClassifier(random_state=seed)
    seconds = boosted.max_iter * (1 if n_classes == 2 else n_classes) * tree
    if seconds <= allowed:
        folds = min(data.n_folds, int(allowed / seconds))
        return replace(reference_of(boosted), setting=setting, folds=folds, rows=most)
    forest = ExtraTreesClassifier(_FOREST, random_state=seed)
    folds = min(data.n_folds, max(1, int(allowed / (_FOREST * tree))))
    note = f"boosting would take about {seconds:.0f} s per fold; pass also= to run it"
    return replace(reference_of(forest), setting={"trees": _FOREST, **setting}, folds=folds, rows=most, note=note)


def text_columns_note(X: Any, texts: Sequence[str]) -> list[str]:
    """Return a note if columns of text make too many numbers for trees."""
    if not texts or (not hasattr(X, "tocsr") and X.shape[1] <= TABLE_COLUMNS):
        return []
    return [
        f"no trees of scikit-learn were grown for comparison, because they are slow on the {X.shape[1]:,} features of "
        f"the text in {listing(texts)}; pass also='sklearn.ensemble.RandomForestClassifier' to grow them"
    ]


def reference_note(best: LeaderboardRow, other: LeaderboardRow, rises: bool) -> str:
    """Return what a reference means for the user, from the differences fold by fold."""
    n = min(len(best.fold_scores), len(other.fold_scores))
    gaps = np.subtract(other.fold_scores[:n], best.fold_scores[:n]) * (1 if rises else -1)
    noise = 2 * float(np.std(gaps, ddof=1)) / np.sqrt(n) if n > 1 else SMALLEST_LAG
    folds = f"the same {n} folds" if n > 1 else "the same fold"
    scores = f"{np.mean(other.fold_scores[:n]):.3f} on {folds} and {best.model} has {np.mean(best.fold_scores[:n]):.3f}"
    verdict = "not better" if gaps.mean() <= 0 else "the difference may be luck"
    if gaps.mean() > noise:
        verdict = "it is better on these rows"
    return f"{other.model} (from another library, not saved) has {scores}: {verdict}"
