"""References: classifiers of other libraries, scored on the same folds, so that the user sees whether they do better.

    also = ["sklearn.ensemble.RandomForestClassifier", SVC()]    by name, or as objects

References are never chosen and never saved. Each ends between folds when its time is up.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sklearn.base import clone, is_classifier

from kway import progress
from kway.auto.race.clock import Clock
from kway.auto.race.families import PlainFamily
from kway.auto.race.folds import Split
from kway.auto.race.runner import Runner
from kway.auto.race.scoring import FoldedRows, LeaderboardRow, Measure, Predictions, leaderboard_row
from kway.errors import InputError
from kway.memory import CACHE_BYTES


@dataclass(frozen=True)
class Reference(PlainFamily):
    """A classifier of another library."""

    foreign: Any = None

    def make(self, setting: dict[str, Any], seed: int) -> Any:
        """Return an unfitted copy."""
        return clone(self.foreign)

    def fit_predict(self, data: FoldedRows, split: Split, *args: Any) -> Predictions:
        """Fit once, with few threads if rows are few."""
        with _few_threads(data.size().rows_bytes):
            return super().fit_predict(data, split, *args)


@contextmanager
def _few_threads(n_bytes: float) -> Iterator[None]:
    """Limit OpenMP to one thread if rows are few: on a busy machine its threads wait for each other for minutes."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1 if n_bytes <= CACHE_BYTES else None, user_api="openmp"):
        yield


def score_references(
    data: FoldedRows, also: Iterable[Any], clock: Clock, measure: Measure
) -> tuple[list[LeaderboardRow], dict[str, str]]:
    """Score every reference on the folds; return their rows, and why others have none.

    An error of another library becomes a note.
    """
    rows, problems = list[LeaderboardRow](), dict[str, str]()
    for what in also:
        reference = reference_of(what)
        runner = Runner(reference, data, [{}], measure, [0])
        stop = clock.pace(data.n_folds)
        try:
            with progress.stage(f"{reference.name}: for comparison"):
                runner.add_folds(stop)
            if runner.predictions:
                rows.append(leaderboard_row(reference.name, runner.scan, "", data.n_folds))
        except Exception as error:  # any error of another library
            problems[reference.name] = " ".join(str(error).split())[:200]
    return rows, problems


def checked_references(also: Any) -> tuple[Any, ...]:
    """Return the references, one or several, or raise before any work if one is not a classifier."""
    asked = (also,) if isinstance(also, str) or hasattr(also, "fit") else tuple(also)
    for what in asked:
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
    name = type(made).__name__.removesuffix("Classifier")
    return Reference(name, "", foreign=made)


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
