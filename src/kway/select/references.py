"""References: classifiers that are not kway's, scored on the same folds, so that a user learns where they do better.

    also = ["sklearn.ensemble.RandomForestClassifier", SVC()]    by name, or as they are
    trees   unasked: scikit-learn's gradient boosting where that is a second's work, else a forest of it on one fold

Boosting grows a tree a class in each of 100 rounds, a forest 60 trees for all classes (16,000 letters, one fold: a
second of processor time). Which of the two, on how many rows and folds, follows from the size of the data alone, and
the line says it.

They are never chosen and never saved. Each ends between folds when its time is up.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from kway import progress
from kway.compute.threads import workers
from kway.errors import InputError
from kway.select.clock import Clock
from kway.select.scans import FoldedRows, FoldScores, Scan, scores_of
from kway.select.standings import Standing, standing_of

TREES = "trees"  # stands for those of scikit-learn that are quick on the rows
_PATIENCE = 60.0  # seconds that a reference asked for by name may take before another fold is begun
_BOOSTED = 5e7  # rows x features x classes x rounds of boosting up to which it is run,
_FEW_TREES = 400  # and trees: each costs a millisecond, however few the rows
_FOREST = 60  # trees
_EVERY_FOLD = 2e5  # rows x features up to which a forest is grown in every fold, else in the first
_FOREST_ROWS = 20_000  # that each tree of a forest is grown from
_WIDEST, _MOST_CLASSES = 200, 200  # columns and classes above which trees are slow, and rows seldom are tables
_LEAST_LEAD = 0.005


@dataclass(frozen=True)
class Reference:
    """An unfitted classifier of another library."""

    name: str
    estimator: Any
    setting: dict[str, Any] = field(default_factory=dict)  # what the line says of it
    folds: int | None = None  # that it is run on; None: all

    def scan(self, data: FoldedRows, which: list[int], clock: Clock) -> Scan:
        """A fit a fold, while the time lasts."""
        begun = time.perf_counter()
        scores = FoldScores(*np.full((4, len(which), 1), np.nan))
        stop = clock.pace(len(which))
        for row, fold in enumerate(which):
            if stop():
                break
            model = clone(self.estimator).fit(*_outside(data, fold))
            inside = data.folds == fold
            for values, value in zip(scores, scores_of(model, data.X[inside], data.codes[inside])):
                values[row, 0] = value
        accuracy, loss, balanced, macro_f1 = scores
        return Scan([self.setting], accuracy, loss, time.perf_counter() - begun, 0.0, balanced, macro_f1, data.measure)


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
            lines.append(standing_of(reference.name, found, "", n_folds))
    return Referred(lines, problems)


def reference_of(what: Any) -> Reference:
    """A classifier given as it is, as its class, or by name, such as sklearn.svm.SVC."""
    if isinstance(what, str):
        what = _imported(what)
    made = what() if isinstance(what, type) else what
    if not hasattr(made, "fit") or not hasattr(made, "predict"):
        raise InputError(f"also takes classifiers with fit and predict, got {type(made).__name__}")
    return Reference(type(made).__name__.removesuffix("Classifier"), made)


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
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

    n_classes = int(data.codes.max()) + 1
    if data.sparse or data.X.shape[1] > _WIDEST or n_classes > _MOST_CLASSES:
        return None
    boosted = HistGradientBoostingClassifier(random_state=seed)
    trees = boosted.max_iter * (1 if n_classes == 2 else n_classes)
    if trees <= _FEW_TREES and trees * data.X.size <= _BOOSTED:
        return reference_of(boosted)
    setting: dict[str, Any] = {"trees": _FOREST}
    n, most = int((data.folds != 0).sum()), None
    if n > _FOREST_ROWS:
        most, setting["rows"] = _FOREST_ROWS, _FOREST_ROWS
    forest = RandomForestClassifier(_FOREST, max_samples=most, n_jobs=workers(None), random_state=seed)
    return replace(reference_of(forest), setting=setting, folds=None if data.X.size <= _EVERY_FOLD else 1)


def _outside(data: FoldedRows, fold: int) -> tuple[Any, NDArray]:
    learn = data.folds != fold
    return data.X[learn], data.codes[learn]


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
