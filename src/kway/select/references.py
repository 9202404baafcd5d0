"""References: classifiers that are not kway's, scored on the same folds, so that a user learns where they do better.

    also = ["sklearn.ensemble.RandomForestClassifier", SVC()]    by name, or as they are
    trees   gradient boosting of scikit-learn, run unasked where it is quick: a few trees tell how long all would take

They are never chosen and never saved. Each ends between folds when its time is up.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from kway import progress
from kway.errors import InputError
from kway.select.clock import Clock
from kway.select.scans import FoldedRows, FoldScores, Scan, scores_of
from kway.select.standings import Standing, standing_of

TREES = "trees"  # stands for gradient boosting, where that is quick
_PATIENCE = 60.0  # seconds that a reference asked for by name may take before another fold is begun
_FEWEST_SECONDS = 2.0  # that trees may take in any case; else a part of what the comparison took
_SHARE = 0.25
_PROBED = (1, 4)  # iterations that tell how long one takes
_LARGEST = 2e7  # rows x features x classes up to which even these few are worth it; on 4e7 (digits) they cost 4 s
_LEAST_LEAD = 0.005


@dataclass(frozen=True)
class Reference:
    """An unfitted classifier of another library."""

    name: str
    estimator: Any

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
        return Scan([{}], accuracy, loss, time.perf_counter() - begun, 0.0, balanced, macro_f1, data.measure)


class Referred(NamedTuple):
    """Lines of references, and why others have none."""

    lines: list[Standing]
    problems: dict[str, str]


def score_references(data: FoldedRows, also: Iterable[Any], clock: Clock, seed: int = 0) -> Referred:
    """Every reference on the folds; one that fails is told, not raised."""
    lines, problems = [], {}
    for what in also:
        reference = _trees(seed) if isinstance(what, str) and what == TREES else reference_of(what)
        try:
            own = _time_of(data, reference, clock, unasked=isinstance(what, str) and what == TREES)
            if own is None:
                continue
            with progress.stage(f"{reference.name}: for comparison"):
                found = reference.scan(data, list(range(int(data.folds.max()) + 1)), own)
        except Exception as error:  # another library's, with rows it may not take
            problems[reference.name] = " ".join(str(error).split())[:200]
            continue
        if np.isfinite(found.scores).any():
            lines.append(standing_of(reference.name, found, "", len(found.accuracy)))
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


def _trees(seed: int) -> Reference:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return reference_of(HistGradientBoostingClassifier(random_state=seed))


def _time_of(data: FoldedRows, reference: Reference, clock: Clock, unasked: bool) -> Clock | None:
    """The clock of a reference; None where it is not run: nobody asked for it, and it would take too long."""
    if not unasked:
        return Clock(_PATIENCE) if clock.budget is None else clock.share(1.0)
    size = float(np.prod(data.X.shape)) * (int(data.codes.max()) + 1)
    limit = max(_FEWEST_SECONDS, _SHARE * clock.spent())
    if data.sparse or size > _LARGEST or clock.up(limit):
        return None
    few, some = (_seconds(reference.estimator, data, iterations) for iterations in _PROBED)
    needed = few + max(0.0, some - few) / (_PROBED[1] - _PROBED[0]) * reference.estimator.max_iter
    return None if needed > limit else Clock(limit)


def _seconds(estimator: Any, data: FoldedRows, iterations: int) -> float:
    begun = time.perf_counter()
    clone(estimator).set_params(max_iter=iterations).fit(*_outside(data, 0))
    return time.perf_counter() - begun


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
