"""References: classifiers of other libraries, scored on the same folds for comparison.

    also = ["sklearn.ensemble.RandomForestClassifier", SVC()]    by name, or as objects

References never win and are never saved. When the time is up, a reference stops before its next fold.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sklearn.base import clone, is_classifier
from sklearn.utils.validation import has_fit_parameter

from kway import progress
from kway.auto.race.clock import Clock
from kway.auto.race.families import PlainFamily
from kway.auto.race.family import Runner
from kway.auto.race.scoring import FoldedRows, LeaderboardRow, Measure, Predictions, leaderboard_row
from kway.confidence.splits import Split
from kway.errors import InputError
from kway.trees.learn import few_openmp_threads


@dataclass(frozen=True)
class Reference(PlainFamily):
    """A classifier of another library."""

    foreign: Any = None  # the classifier

    def make(self, setting: dict[str, Any], seed: int) -> Any:
        """Return an unfitted copy of the classifier."""
        return clone(self.foreign)

    def fit_predict(self, data: FoldedRows, split: Split, *args: Any) -> Predictions:
        """Fit the classifier, with one OpenMP thread if there are few rows."""
        if data.weights is not None and not has_fit_parameter(self.foreign, "sample_weight"):
            raise InputError("it cannot learn with weights of the rows, because its fit takes no sample_weight")
        with few_openmp_threads(data.size().rows_bytes):
            return super().fit_predict(data, split, *args)


def score_references(
    data: FoldedRows, also: Iterable[Any], clock: Clock, measure: Measure
) -> tuple[list[LeaderboardRow], dict[str, str]]:
    """Score every reference on the folds; return rows of the leaderboard, and the errors of the others by name."""
    rows, problems = list[LeaderboardRow](), dict[str, str]()
    for classifier in also:
        reference = reference_of(classifier)
        runner = Runner(reference, data, [{}], measure, [0])
        stop = clock.pace(data.n_folds)
        try:
            with progress.stage(f"{reference.name}: for comparison"):
                runner.add_folds(stop)
            if runner.predictions:
                rows.append(leaderboard_row(reference.name, runner.scan, "", data.n_folds))
        except Exception as error:  # another library may raise anything, and the comparison goes on
            problems[reference.name] = " ".join(str(error).split())[:200]
    return rows, problems


def checked_references(also: Any) -> tuple[Any, ...]:
    """Return one or several references as a tuple, without "none"; raise InputError if one is not a classifier."""
    given = (also,) if isinstance(also, str) or hasattr(also, "fit") else tuple(also)
    references = tuple(each for each in given if not isinstance(each, str) or each != "none")
    for classifier in references:
        reference_of(classifier)
    return references


def reference_of(classifier: Any) -> Reference:
    """Return a classifier, given as an object, as a class or by name (such as "sklearn.svm.SVC"), as a reference."""
    if isinstance(classifier, str):
        classifier = _import(classifier)
    if isinstance(classifier, type):
        classifier = classifier()
    name = type(classifier).__name__
    if not hasattr(classifier, "fit") or not hasattr(classifier, "predict"):
        raise InputError(f"also takes classifiers with fit and predict, got {name}")
    if not _is_classifier(classifier):
        raise InputError(f"also takes classifiers, and {name} is none; pass one, such as sklearn.svm.SVC")
    return Reference(name.removesuffix("Classifier"), "", foreign=classifier)


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
