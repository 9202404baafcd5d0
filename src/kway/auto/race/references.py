"""References: classifiers of other libraries, scored on the same folds, so that a user sees where they do better.

    also = ["sklearn.ensemble.RandomForestClassifier", SVC()]    by name, or as objects
    trees   unless told otherwise: scikit-learn's gradient boosting if it is quick enough, else a forest

Boosting grows a tree per class in each of 100 rounds, a forest 30 extremely randomized trees for all classes; both
learn from at most 20,000 rows. A whole forest says more than boosting that is cut short, and trees with random cuts are
as good as those of a random forest in half of the time (test accuracy, seconds of processor time; boosting has 0.860 on
covertype in 6.2 s, 0.967 on letter in 12.7):

    60 trees, best cuts     letter 0.962, 1.7 s   covertype 0.853, 1.4 s   vowel 0.965, 0.25 s   texture 0.983, 1.1 s
    30 trees, random cuts   letter 0.966, 0.7 s   covertype 0.846, 0.7 s   vowel 0.990, 0.08 s   texture 0.989, 0.2 s

The size of the data alone decides which of the two runs, on how many rows and folds; the row of the leaderboard says
it. References are never chosen and never saved. Each ends between folds when its time is up.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier

from kway import progress
from kway.auto.race.clock import Clock
from kway.auto.race.families import comparison_seconds
from kway.auto.race.scoring import FoldedRows, FoldScores, LeaderboardRow, Scan, leaderboard_row, scores_of
from kway.errors import InputError
from kway.suggest import listing
from kway.threads import workers

TREES = "trees"  # the name of the trees of scikit-learn that are quick on the rows
_PATIENCE = 60.0  # seconds of a reference that was named after which it begins no other fold
_LEAST_SECONDS = 0.3  # processor seconds that trees may always take unasked (T11)
_SHARE = 0.06  # share of the comparison's seconds that they may take if that is more (T11)
_ROUND = 1.3e-3, 1.2e-8  # seconds of a tree of boosting: fixed, and per value of its rows
_TREE = 2e-3, 4e-8  # the same for a tree of a forest
_FOREST = 30  # trees of the forest
_MOST_ROWS = 20_000  # rows that trees learn from
_SMALL = 1e5  # values up to which a pool of threads costs more than it saves
_WIDEST, _MOST_CLASSES = 200, 200  # columns and classes above which trees are slow, and rows seldom are tables
_LEAST_LEAD = 0.005  # smallest lead of a reference that the notes call better


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
        """One fit per fold, while the time lasts."""
        begun = time.perf_counter()
        scores = FoldScores.empty(len(which), 1)
        stop = clock.pace(len(which))
        for row, fold in enumerate(which):
            if stop():
                break
            learn = self._outside(data, fold)
            with _few_threads(data.X.size):
                model = clone(self.estimator).fit(data.X[learn], data.codes[learn])
            inside = data.folds == fold
            for values, value in zip(scores, scores_of(model, data.X[inside], data.codes[inside])):
                values[row, 0] = value
        seconds = time.perf_counter() - begun
        return Scan([self.setting], **scores._asdict(), seconds=seconds, measure=data.measure)

    def _outside(self, data: FoldedRows, fold: int) -> NDArray[np.int64]:
        """Rows outside a fold, a random sample if there are too many."""
        learn = np.flatnonzero(data.folds != fold)
        if self.rows is None or len(learn) <= self.rows:
            return learn
        return np.sort(np.random.default_rng(fold).choice(learn, self.rows, replace=False))


@contextmanager
def _few_threads(values: int) -> Iterator[None]:
    """Limit OpenMP to one thread if rows are few: its threads spin, and waited for minutes on a busy machine."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1 if values <= _SMALL else None, user_api="openmp"):
        yield


class ReferenceScores(NamedTuple):
    """Rows of references for the leaderboard, and why others have none."""

    leaderboard: list[LeaderboardRow]
    problems: dict[str, str]


def score_references(data: FoldedRows, also: Iterable[Any], clock: Clock, seed: int = 0) -> ReferenceScores:
    """Score every reference on the folds; an error of another library becomes a note."""
    leaderboard, problems = list[LeaderboardRow](), dict[str, str]()
    n_folds = data.n_folds
    for what in also:
        unasked = isinstance(what, str) and what == TREES
        reference = _trees(data, seed) if unasked else reference_of(what)
        if reference is None or (unasked and clock.up()):
            continue
        try:
            with progress.stage(f"{reference.name}: for comparison"):
                own = Clock(_PATIENCE) if clock.budget is None else clock.share(1.0)
                found = reference.scan(data, list(range(reference.folds or n_folds)), own)
        except Exception as error:  # another library's, with rows it may not take
            problems[reference.name] = " ".join(str(error).split())[:200]
            continue
        if np.isfinite(found.scores).any():
            leaderboard.append(leaderboard_row(reference.name, found, reference.note, n_folds))
    return ReferenceScores(leaderboard, problems)


def checked_references(also: Any) -> tuple[Any, ...]:
    """The references named, one or several; raises before any work if one is no classifier."""
    asked = (also,) if isinstance(also, str) or hasattr(also, "fit") else tuple(also)
    for what in asked:
        if not isinstance(what, str) or what != TREES:
            reference_of(what)
    return asked


def reference_of(what: Any) -> Reference:
    """A classifier given as an object, as its class, or by name, such as sklearn.svm.SVC."""
    if isinstance(what, str):
        what = _imported(what)
    made = what() if isinstance(what, type) else what
    if not hasattr(made, "fit") or not hasattr(made, "predict"):
        raise InputError(f"also takes classifiers with fit and predict, got {type(made).__name__}")
    if not _is_classifier(made):
        raise InputError(
            f"also takes classifiers, and {type(made).__name__} is none; give one, such as sklearn.svm.SVC"
        )
    return Reference(type(made).__name__.removesuffix("Classifier"), made)


def _is_classifier(estimator: Any) -> bool:
    """Whether it says that it is a classifier; if it says nothing, it counts as one."""
    try:
        return is_classifier(estimator)
    except AttributeError:  # scikit-learn's answer to what has no tags
        return getattr(estimator, "_estimator_type", "classifier") == "classifier"


def _imported(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"also names {name!r}, which cannot be imported ({error}); give module.Class, such as "
            "sklearn.ensemble.RandomForestClassifier"
        ) from error


def _trees(data: FoldedRows, seed: int) -> Reference | None:
    """The trees that are quick on these rows; None if none are."""
    if not _suits_trees(data):
        return None
    from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier

    n, n_folds, n_classes = int((data.folds != 0).sum()), data.n_folds, data.n_classes
    values, most = min(n, _MOST_ROWS) * data.X.shape[1], _MOST_ROWS if n > _MOST_ROWS else None
    setting = {} if most is None else {"rows": most}
    allowed = max(_LEAST_SECONDS, _SHARE * comparison_seconds(data.size()))
    boosted = HistGradientBoostingClassifier(random_state=seed)
    seconds = boosted.max_iter * (1 if n_classes == 2 else n_classes) * _tree_seconds(_ROUND, values)
    if seconds <= allowed:
        folds = min(n_folds, int(allowed / seconds))
        return replace(reference_of(boosted), setting=setting, folds=folds, rows=most)
    threads = workers(None) if values > _SMALL else 1
    forest = ExtraTreesClassifier(_FOREST, n_jobs=threads, random_state=seed)
    folds = min(n_folds, max(1, int(allowed / (_FOREST * _tree_seconds(_TREE, values)))))
    note = f"a forest: boosting would take about {seconds:.0f} s a fold; ask for it by also="
    return replace(reference_of(forest), setting={"trees": _FOREST, **setting}, folds=folds, rows=most, note=note)


def _suits_trees(data: FoldedRows) -> bool:
    return not data.sparse and data.X.shape[1] <= _WIDEST and data.n_classes <= _MOST_CLASSES


def words_note(X: Any, texts: Sequence[str]) -> tuple[str, ...]:
    """A note if columns of text make too many numbers for trees."""
    if not texts or (not hasattr(X, "tocsr") and X.shape[1] <= _WIDEST):
        return ()
    return (
        f"no trees of scikit-learn were grown for comparison: they are slow on the {X.shape[1]:,} numbers that the "
        f"text of {listing(texts)} makes; ask by also='sklearn.ensemble.RandomForestClassifier'",
    )


def _tree_seconds(costs: tuple[float, float], values: int) -> float:
    return costs[0] + costs[1] * values


def verdict(best: LeaderboardRow, other: LeaderboardRow, rises: bool) -> str:
    """What a reference means for the user; the folds are the same, so differences are taken fold by fold."""
    n = min(len(best.fold_scores), len(other.fold_scores))
    gaps = np.subtract(other.fold_scores[:n], best.fold_scores[:n]) * (1 if rises else -1)
    noise = 2 * float(np.std(gaps, ddof=1)) / np.sqrt(n) if n > 1 else 0.02
    said = f"{other.model} (not kway's, not saved) has {np.mean(other.fold_scores[:n]):.3f} on the same "
    said += f"{n} folds" if n > 1 else "fold"
    here = f"where {best.model} has {np.mean(best.fold_scores[:n]):.3f}"
    if gaps.mean() > max(_LEAST_LEAD, noise):
        return f"{said} {here}: that family does better on these rows"
    return f"{said}, {here}" + (": no better" if gaps.mean() <= 0 else ": a difference that luck could give")
