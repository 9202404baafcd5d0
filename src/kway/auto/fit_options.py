"""FitOptions: how models are chosen and fitted, for `kway.fit`, `kway.compare`, `kway.inspect` and their commands.

To add an option, add a field here and use it in the job. The option then exists in Python (name=) and on the command
line (--name). How DATA is read is declared in tables/read_options.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kway.declared_options import check_options, option, split_names
from kway.errors import UsageError
from kway.parameters import DEVICE, NONE, SEED, at_least, between, one_of, whole
from kway.suggest import listing, nearest

# A description of every family of classifiers, in the order of the comparison.
FAMILY_DESCRIPTIONS = {
    "centroid": "nearest class mean, by Euclidean distance or cosine",
    "softmax": "softmax (multinomial logistic) regression with an L2 penalty",
    "naive-bayes": "multinomial naive Bayes for word counts and TF-IDF",
    "svm-smooth": "one-vs-all linear SVM with the rounded hinge loss, for sparse rows such as texts",
    "svm-one-vs-all": "one linear SVM per class against all others, with the hinge loss",
    "neighbors": "k nearest neighbors by Euclidean distance",
    "neighbors-cosine": "k nearest neighbors by cosine similarity",
    "neighbors-manhattan": "k nearest neighbors by Manhattan (L1) distance",
    "neighbors-nca": "k nearest neighbors with learned weights of the columns (neighborhood components analysis)",
    "extra-trees": "300 extremely randomized trees",
    "kernel-softmax": "softmax on similarities to landmarks (Gaussian kernel)",
    "boosted": "gradient-boosted trees",
    "boosted-gentle": "gradient-boosted trees with smaller steps, smaller trees and early stopping",
    "least-squares": "ridge regression on one-hot labels",
    "logistic": "one-vs-all logistic regression with an L2 penalty",
    "perceptron": "multi-class perceptron",
    "svm": "multi-class linear SVM for all classes at once (Weston-Watkins)",
    "least-squares-number": "least squares that predicts the class index, a weak baseline that is run only if named",
}
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours"}


def _models(name: str, value: Any) -> tuple[Any, ...] | None:
    """Return families given by name (also separated by commas) or as objects; None and "all" mean all."""
    models = split_names(value) if isinstance(value, str) else value
    if models is None or tuple(models) == ("all",):
        return None
    from kway.auto.race.families import CLASS_NUMBER, FAMILIES

    models = tuple(models)
    families = (*FAMILIES, CLASS_NUMBER.name)
    choices = listing((*families, "all"), len(families) + 1)
    for model in models:
        if isinstance(model, str) and model not in families:
            raise UsageError(f"{name} has no {model!r}{nearest(model, families)}; known are {choices}")
    if not models:
        raise UsageError(f"{name} is empty; known are {choices}")
    return models


def _seconds(name: str, value: Any) -> float | None:
    """Return seconds given as a number, or as a time such as 60s, 2m or 1h."""
    if value is None:
        return None
    number, unit = (value[:-1], value[-1]) if isinstance(value, str) and value[-1:] in _UNITS else (value, "s")
    try:
        seconds = float(number) * timedelta(**{_UNITS[unit]: 1}).total_seconds()
    except (TypeError, ValueError):
        seconds = 0.0
    if isinstance(value, bool) or not 0 < seconds < math.inf:
        raise UsageError(f"{name} must be a number of seconds above 0 or a time such as 60s, 2m or 1h, got {value!r}")
    return seconds


def _metric(name: str, value: Any) -> str:
    from kway.auto.race.scoring import pick_measure

    return pick_measure(value).name


def _references(name: str, value: Any) -> tuple[Any, ...] | None:
    """Return classifiers of other libraries; "none" means no reference at all."""
    if value is None:
        return None
    from kway.auto.race.references import checked_references

    return checked_references(value)


@dataclass(frozen=True)
class FitOptions:
    """The options of a job. The text of each field is its help on the command line."""

    models: Sequence[Any] | None = option(
        None,
        "Families of classifiers to compare, separated by commas (listed below). By default, all that suit the data.",
        check=_models,
        flags=("--model", "-m"),
        metavar="NAMES",
    )
    alpha: float | None = option(
        None,
        "Regularization of linear models, a number of 0 or more. By default, chosen by cross-validation.",
        check=(NONE | at_least(0)).check,
        typed=float | None,
    )
    budget: float | None = option(
        None,
        "Time limit for the whole job, such as 60s, 2m or 1h. By default, the limit grows with the table (60 s for "
        "10,000 rows of 50 columns) and applies to estimated rather than measured time, so that every machine chooses "
        "the same model.",
        check=_seconds,
        metavar="TIME",
    )
    embed: Any = option(None, "Name or folder of a sentence-transformers model that turns text or images into vectors.")
    metric: str = option(
        "accuracy",
        "Metric that ranks the families: accuracy (the log loss decides among equally good ones), balanced (mean "
        "recall per class), macro-f1 or log-loss.",
        check=_metric,
        typed=str,
        metavar="NAME",
    )
    class_weight: str | None = option(
        None,
        "'balanced' gives every class the same total weight. By default, every row has the same weight.",
        check=(NONE | one_of("balanced")).check,
        metavar="NAME",
    )
    folds: int = option(5, "Number of folds of the cross-validation.", check=whole(2).check, typed=int)
    repeats: int = option(
        1,
        "Number of times to repeat the cross-validation, each time with new folds.",
        check=whole(1).check,
        typed=int,
    )
    also: Sequence[Any] | None = option(
        None,
        "Also score a classifier of another library on the same folds, such as sklearn.svm.SVC. It is scored for "
        "comparison only and never chosen.",
        check=_references,
        typed=list[str] | None,
        metavar="MODULE.CLASS",
        parse=lambda names: names or None,
    )
    single: bool = option(
        False,
        "Keep the best single family instead of a blend of several.",
        typed=bool,
        commands=("fit",),
    )
    sets: float | None = option(
        None,
        "Also predict, for each row, a set of labels that contains the correct one with this probability, such as 0.9.",
        check=(NONE | between(0, 1)).check,
        typed=float | None,
        metavar="SHARE",
        commands=("fit",),
    )
    unknown: float | None = option(
        None,
        'Predict "unknown" for rows unlike the training rows. SHARE is the largest share of rows of known classes that '
        "may be rejected, such as 0.05.",
        check=(NONE | between(0, 1)).check,
        typed=float | None,
        metavar="SHARE",
        commands=("fit",),
    )
    costs: Any = option(
        None,
        "CSV file with the cost of each mistake: a row per true label and a column per predicted label. Predictions "
        "then have the lowest expected cost.",
        metavar="FILE",
        commands=("fit",),
    )
    seed: int = option(
        0,
        "Seed of the random numbers. The same seed gives the same folds and test rows.",
        check=SEED.check,
        typed=int,
    )
    device: str = option(
        "cpu",
        "Where to compute: cpu, cuda (GPU), or auto (the GPU if there is one and the work is large enough).",
        check=DEVICE.check,
        typed=str,
        metavar="NAME",
    )

    def __post_init__(self) -> None:
        check_options(self)
        if self.costs is not None and self.guarantees:
            raise UsageError("decisions by costs= do not work with guarantees (sets=, unknown=); leave one of them out")

    @property
    def weighs_rows_equally(self) -> bool:
        """Whether a row of one class counts as much as a row of another."""
        from kway.auto.race.scoring import pick_measure

        return self.class_weight is None and not pick_measure(self.metric).by_class

    @property
    def guarantees(self) -> bool:
        """Whether the model predicts sets or the answer "unknown"."""
        return self.sets is not None or self.unknown is not None
