"""References: classifiers that are not kway's, scored on the same folds, so that a user learns where they do better.

    also = ["sklearn.ensemble.RandomForestClassifier", SVC()]    by name, or as they are
    trees   unasked: scikit-learn's gradient boosting where it fits a part of the comparison, else a forest of it

Boosting grows a tree a class in each of 100 rounds, a forest 30 extremely random trees for all classes; both from
20,000 rows at most. Cut to fit, boosting says less than a whole forest, and trees whose cuts are drawn at random say no
less than those of a random forest, in half of the time (test accuracy, seconds of processor time; boosting has 0.860
on covertype in 6.2 s, 0.967 on letter in 12.7):

    60 trees, best cuts     letter 0.962, 1.7 s   covertype 0.853, 1.4 s   vowel 0.965, 0.25 s   texture 0.983, 1.1 s
    30 trees, random cuts   letter 0.966, 0.7 s   covertype 0.846, 0.7 s   vowel 0.990, 0.08 s   texture 0.989, 0.2 s

Which of the two, on how many rows and folds, follows from the size of the data alone, and the line says it.

They are never chosen and never saved. Each ends between folds when its time is up. Trees that nobody asked for grow on
another core while the families are compared (`begin_references`).
"""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier

from kway import light_imports, progress
from kway.compute.forked_work import beside
from kway.compute.threads import workers
from kway.data.suggest import listing
from kway.errors import InputError
from kway.planning.comparison import comparison_seconds
from kway.select.contest.clock import Clock
from kway.select.contest.scans import FoldedRows, FoldScores, Scan, scores_of
from kway.select.contest.standings import Standing, standing_of

TREES = "trees"  # stands for those of scikit-learn that are quick on the rows
_PATIENCE = 60.0  # seconds that a reference asked for by name may take before another fold is begun
_LEAST_SECONDS = 0.3  # of processor time that trees may take unasked,
_SHARE = 0.06  # or this share of the comparison
_ROUND = 1.3e-3, 1.2e-8  # seconds of a tree of boosting, and more a value of its rows
_TREE = 2e-3, 4e-8  # of a forest
_FOREST = 30  # trees
_MOST_ROWS = 20_000  # that trees are grown from
_SMALL = 1e5  # values up to which a pool of threads costs more than it saves
_WIDEST, _MOST_CLASSES = 200, 200  # columns and classes above which trees are slow, and rows seldom are tables
_LEAST_LEAD = 0.005


@dataclass(frozen=True)
class Reference:
    """An unfitted classifier of another library."""

    name: str
    estimator: Any
    setting: dict[str, Any] = field(default_factory=dict)  # what the line says of it
    folds: int | None = None  # that it is run on; None: all
    rows: int | None = None  # that it learns from; None: all
    note: str = ""

    def scan(self, data: FoldedRows, which: list[int], clock: Clock) -> Scan:
        """A fit a fold, while the time lasts."""
        begun = time.perf_counter()
        scores = FoldScores(*np.full((4, len(which), 1), np.nan))
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
        accuracy, loss, balanced, macro_f1 = scores
        return Scan([self.setting], accuracy, loss, time.perf_counter() - begun, 0.0, balanced, macro_f1, data.measure)

    def _outside(self, data: FoldedRows, fold: int) -> NDArray[np.int64]:
        """Rows outside a fold, as many as it may learn from, drawn at random."""
        learn = np.flatnonzero(data.folds != fold)
        if self.rows is None or len(learn) <= self.rows:
            return learn
        return np.sort(np.random.default_rng(fold).choice(learn, self.rows, replace=False))


@contextmanager
def _few_threads(values: int) -> Iterator[None]:
    """OpenMP on one thread where rows are few: its threads spin, and stood still for minutes on a busy machine."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1 if values <= _SMALL else None, user_api="openmp"):
        yield


class Referred(NamedTuple):
    """Lines of references, and why others have none."""

    lines: list[Standing]
    problems: dict[str, str]


def score_references(data: FoldedRows, also: Iterable[Any], clock: Clock, seed: int = 0) -> Referred:
    """Every reference on the folds; one that fails is told, not raised."""
    lines, problems = list[Standing](), dict[str, str]()
    n_folds = int(data.folds.max()) + 1
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
            lines.append(standing_of(reference.name, found, reference.note, n_folds))
    return Referred(lines, problems)


def begin_references(data: FoldedRows, also: Sequence[Any], clock: Clock, seed: int = 0) -> Callable[[], Referred]:
    """What gives the lines when it is asked; trees alone, without a budget to share, are begun now."""
    score = partial(score_references, data, also, clock, seed)
    if list(also) != [TREES] or clock.budget is not None or not _grows(data):
        return score
    text = beside(lambda: json.dumps(_plain(score())))
    return lambda: _referred(json.loads(text()))


def _plain(found: Referred) -> dict[str, Any]:
    return {"lines": [vars(line) for line in found.lines], "problems": found.problems}


def _referred(plain: dict[str, Any]) -> Referred:
    lines = [Standing(**_with_tuples(line)) for line in plain["lines"]]
    return Referred(lines, plain["problems"])


def _with_tuples(line: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in line.items()}


def checked_references(also: Any) -> tuple[Any, ...]:
    """What was asked for, one or several, each a classifier: refused before the work, not behind it."""
    asked = (also,) if isinstance(also, str) or hasattr(also, "fit") else tuple(also)
    for what in asked:
        if not isinstance(what, str) or what != TREES:
            reference_of(what)
    return asked


def reference_of(what: Any) -> Reference:
    """A classifier given as it is, as its class, or by name, such as sklearn.svm.SVC."""
    if isinstance(what, str):
        what = _imported(what)
    made = what() if isinstance(what, type) else what
    if not hasattr(made, "fit") or not hasattr(made, "predict"):
        raise InputError(f"also takes classifiers with fit and predict, got {type(made).__name__}")
    if not _tells_classes(made):
        raise InputError(
            f"also takes classifiers, and {type(made).__name__} is none; give one, such as sklearn.svm.SVC"
        )
    return Reference(type(made).__name__.removesuffix("Classifier"), made)


def _tells_classes(estimator: Any) -> bool:
    """Whether it is a classifier by its own word; one of a make that says nothing is taken for one."""
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
    """What grows in a second or two on such rows; None where nothing does."""
    if not _grows(data):
        return None
    light_imports.sklearn_ensemble()
    from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier

    n, n_folds, n_classes = int((data.folds != 0).sum()), int(data.folds.max()) + 1, int(data.codes.max()) + 1
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
    note = f"a forest: boosting would take about {seconds:.0f} s a fold; ask by --also"
    return replace(reference_of(forest), setting={"trees": _FOREST, **setting}, folds=folds, rows=most, note=note)


def _grows(data: FoldedRows) -> bool:
    return not data.sparse and data.X.shape[1] <= _WIDEST and int(data.codes.max()) < _MOST_CLASSES


def words_note(X: Any, texts: Sequence[str]) -> tuple[str, ...]:
    """A note where the words of columns of text make too many numbers for trees to be grown unasked."""
    if not texts or (not hasattr(X, "tocsr") and X.shape[1] <= _WIDEST):
        return ()
    return (
        f"no trees of scikit-learn were grown for comparison: they are slow on the {X.shape[1]:,} numbers that the "
        f"text of {listing(texts)} makes; ask by name (--also sklearn.ensemble.RandomForestClassifier)",
    )


def _tree_seconds(costs: tuple[float, float], values: int) -> float:
    return costs[0] + costs[1] * values


def verdict(best: Standing, other: Standing, rises: bool) -> str:
    """What a reference means for the user, in words; the folds are the same, so differences are taken fold by fold."""
    n = min(len(best.fold_scores), len(other.fold_scores))
    gaps = np.subtract(other.fold_scores[:n], best.fold_scores[:n]) * (1 if rises else -1)
    noise = 2 * float(np.std(gaps, ddof=1)) / np.sqrt(n) if n > 1 else 0.02
    said = f"{other.model} (not kway's, not saved) has {np.mean(other.fold_scores[:n]):.3f} on the same "
    said += f"{n} folds" if n > 1 else "fold"
    here = f"where {best.model} has {np.mean(best.fold_scores[:n]):.3f}"
    if gaps.mean() > max(_LEAST_LEAD, noise):
        return f"{said} {here}: that family does better on these rows"
    return f"{said}, {here}" + (": no better" if gaps.mean() <= 0 else ": a difference that luck could give")
