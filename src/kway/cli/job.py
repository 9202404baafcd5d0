"""The work behind `kway fit`: compare models on held-out train rows, refit the best, test it once on untouched rows."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.cli.models import MODELS
from kway.data.dataset import Dataset, stratified
from kway.errors import BudgetError, InputError, KwayError

Part = tuple[Any, NDArray]  # X (n, d), y (n,)

_SHARES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)  # alphas to try, as shares of the mean square of X


@dataclass(frozen=True)
class Scores:
    """How well labels were predicted: shares of rows, and nats a row where the model has probabilities."""

    accuracy: float
    log_loss: float | None
    rows: int


@dataclass(frozen=True)
class Trial:
    """One line of the leaderboard; `problem` says why a model could not be fitted."""

    model: str
    accuracy: float | None
    log_loss: float | None
    seconds: float
    alpha: float | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Fitted:
    """The model that `kway fit` keeps, how it fared against the others, and on the test rows.

    `compared`: the trials are on rows held out of the train part; else there was nothing to choose, and they are tests.
    """

    best: str
    estimator: Any
    test: Scores
    trials: list[Trial]
    compared: bool


def fit_best(names: list[str], data: Dataset, alpha: float | None, seed: int) -> Fitted:
    """The best of the named models, fitted on all train rows and tested once on the test rows.

    Models and alphas are chosen on a fifth of the train rows, held out: test rows choose nothing.
    """
    assert data.y_train is not None
    assert data.y_test is not None
    alphas = {name: candidates(name, alpha, data.x_train) for name in names}
    compared = sum(map(len, alphas.values())) > 1
    trials = _compare(alphas, data.x_train, data.y_train, seed) if compared else []
    best = _best(trials) if compared else Trial(names[0], None, None, 0.0, alphas[names[0]][0])
    started = time.perf_counter()
    estimator = MODELS[best.model].make(best.alpha, seed).fit(data.x_train, data.y_train)
    seconds = time.perf_counter() - started
    test = score(estimator, data.x_test, data.y_test)
    trials = trials or [Trial(best.model, test.accuracy, test.log_loss, seconds, best.alpha)]
    return Fitted(best.model, estimator, test, trials, compared)


def candidates(name: str, alpha: float | None, X: Any) -> list[float | None]:
    """Alphas to try, from strong to weak: the one given, or shares of X's mean square; [None] without a penalty.

    In units of the mean square the penalty means the same whatever the features are measured in.
    """
    params = MODELS[name].make().get_params(deep=False)
    if "alpha" not in params or params.get("penalty", "none") in (None, "none"):
        return [None]
    if alpha is not None:
        return [alpha]
    scale = _mean_square(X)
    return [share * scale for share in _SHARES]


def score(estimator: Any, X: Any, y: NDArray) -> Scores:
    """Accuracy, and log loss where the estimator has probabilities that fit in memory."""
    if (y.dtype.kind in "UO") != (estimator.classes_.dtype.kind in "UO"):
        raise InputError(
            f"the labels are {_kind(y)} such as {y[0]!r}, those of the model {_kind(estimator.classes_)} such as "
            f"{estimator.classes_[0]!r}; write them alike"
        )
    accuracy = float(np.mean(estimator.predict(X) == y))
    return Scores(accuracy, _log_loss(estimator, X, y), len(y))


def _kind(labels: NDArray) -> str:
    return "text" if labels.dtype.kind in "UO" else "numbers"


def _compare(alphas: dict[str, list[float | None]], X: Any, y: NDArray, seed: int) -> list[Trial]:
    kept, held = stratified(y, seed)
    train, judge = (X[kept], y[kept]), (X[held], y[held])
    return [_tune(name, choices, seed, train, judge) for name, choices in alphas.items()]


def _tune(name: str, alphas: list[float | None], seed: int, train: Part, judge: Part) -> Trial:
    """The best alpha of a model: from strong to weak, until it gets worse."""
    best = _try(name, alphas[0], seed, train, judge)
    for alpha in alphas[1:]:
        trial = _try(name, alpha, seed, train, judge)
        if trial.accuracy is None or trial.accuracy < (best.accuracy or 0.0):
            break
        best = min(best, trial, key=_rank)
    return best


def _try(name: str, alpha: float | None, seed: int, train: Part, judge: Part) -> Trial:
    started = time.perf_counter()
    try:
        estimator = MODELS[name].make(alpha, seed).fit(*train)
    except KwayError as error:  # such as class numbers wanted of labels that are text: the others may still do
        return Trial(name, None, None, time.perf_counter() - started, alpha, str(error))
    seconds = time.perf_counter() - started
    scores = score(estimator, *judge)
    return Trial(name, scores.accuracy, scores.log_loss, seconds, alpha)


def _best(trials: list[Trial]) -> Trial:
    best = min(trials, key=_rank)
    if best.accuracy is None:
        raise InputError(f"no model could be fitted; {best.model}: {best.problem}")
    return best


def _rank(trial: Trial) -> tuple[float, float]:
    """Lowest first: the highest accuracy, and among equals the lowest log loss."""
    accuracy = -1.0 if trial.accuracy is None else trial.accuracy
    return -accuracy, np.inf if trial.log_loss is None else trial.log_loss


def _mean_square(X: Any) -> float:
    """Of some 10,000 rows; 1 where that is no scale (all zeros, or values that the gate will refuse)."""
    some = X[:: max(1, X.shape[0] // 10_000)]
    values = some.data if hasattr(some, "tocsr") else some
    with np.errstate(invalid="ignore", over="ignore"):
        mean = float(np.square(values, dtype=np.float64).sum() / max(1, some.shape[0] * some.shape[1]))
    return mean if np.isfinite(mean) and mean > 0 else 1.0


def _log_loss(estimator: Any, X: Any, y: NDArray) -> float | None:
    """Mean -log of the true class's probability, which is held above the smallest step of its dtype."""
    if not hasattr(estimator, "predict_proba"):
        return None
    try:
        p = estimator.predict_proba(X)  # (n, K)
    except BudgetError:
        return None
    place = {label: code for code, label in enumerate(estimator.classes_.tolist())}
    codes = np.array([place.get(label, -1) for label in y.tolist()])
    true = np.where(codes >= 0, p[np.arange(len(codes)), codes], 0.0)  # a class never seen has no probability
    return float(-np.log(np.clip(true, np.finfo(p.dtype).eps, 1.0)).mean())
