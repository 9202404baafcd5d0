"""The main job: rows -> features -> families compared -> the best refitted and calibrated -> tested once.

Test rows are transformed and predicted at the very end; nothing is chosen by them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from kway.confidence import TemperatureScaledClassifier
from kway.data.features import Features
from kway.data.labels import encode
from kway.data.names import listing
from kway.errors import KwayError
from kway.featured import FeaturedClassifier
from kway.select.compare import Comparison, compare
from kway.select.families import FAMILIES, STRAW_MAN, Family, Linear
from kway.select.finals import Line, fit_lines
from kway.select.judge import Judged, McNemar, judge, mcnemar
from kway.select.split import Parts

CROSS_FITTED = 5.0  # seconds a fit may take to be calibrated by folds; a slower one holds out a fifth
STRAW_WIDTH = 3000  # features up to which the straw man, a dense solve, is worth fitting

Told = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Wishes:
    """What the caller asks for; `families` None compares all, `alpha` fixes the penalty, `budget` is in seconds."""

    families: Sequence[str] | None = None
    alpha: float | None = None
    budget: float | None = None
    seed: int = 0
    n_folds: int = 5
    embed: Any = None


@dataclass(frozen=True)
class RunnerUp:
    """The second of the leaderboard on the same test rows, and the exact test of the difference."""

    model: str
    accuracy: float
    test: McNemar


@dataclass(frozen=True, eq=False)
class Outcome:
    """All that the job found: what is saved, printed and drawn."""

    parts: Parts
    X: Any  # training rows as numbers (n, d)
    test_X: Any
    comparison: Comparison
    lines: list[Line]
    model: FeaturedClassifier
    judged: Judged
    baselines: dict[str, float]  # test accuracy of guessing and of the straw man
    runner_up: RunnerUp | None
    temperature: float | None
    notes: tuple[str, ...]
    seconds: dict[str, float]  # of the stages

    @property
    def best(self) -> Line:
        """The winner."""
        return self.lines[0]


@dataclass(frozen=True, eq=False)
class Compared:
    """The job up to the choice."""

    features: Features
    X: Any
    comparison: Comparison
    notes: tuple[str, ...]


def compare_parts(parts: Parts, wishes: Wishes, told: Told | None = None) -> Compared:
    """Features learned from the training rows, and the families compared on them."""
    features = Features(embed=wishes.embed, image=parts.image)
    X = features.fit_transform(parts.rows)
    found = compare(
        X, parts.y, families_of(wishes), wishes.n_folds, parts.groups, parts.order, wishes.budget, wishes.seed, told,
        curves=True,
    )  # fmt: skip
    cut = () if found.finished else ("the comparison was cut short; the best until then was kept",)
    reasons = dict.fromkeys(found.problems.values())
    names = {why: listing(n for n, w in found.problems.items() if w == why) for why in reasons}
    left_out = tuple(f"{names[why]} was left out: {why}" for why in reasons)
    return Compared(features, X, found, (*parts.notes, *cut, *left_out))


def run_job(parts: Parts, wishes: Wishes, told: Told | None = None) -> Outcome:
    """Compare, refit, calibrate, test once."""
    clock = _Clock()
    chosen = compare_parts(parts, wishes, told)
    clock.lap("compare")
    say = (lambda what: None) if told is None else (lambda what: told(what, 1, 1))
    spent = lambda: wishes.budget is not None and clock.total() > wishes.budget  # noqa: E731
    lines = fit_lines(chosen.comparison, chosen.X, parts.y, wishes.seed, spent, say)
    clock.lap("refit")
    say("calibrating")
    calibrated, trouble = calibrate(lines[0], chosen, parts, wishes)
    clock.lap("calibrate")
    say("testing")
    test_X = chosen.features.transform(parts.test_rows)
    judged = judge(calibrated, test_X, parts.test_y)
    runner_up = _runner_up(lines, judged, test_X, parts.test_y)
    baselines = _baselines(chosen.X, test_X, parts)
    clock.lap("test")
    return Outcome(
        parts, chosen.X, test_X, chosen.comparison, lines, FeaturedClassifier.of(chosen.features, calibrated), judged,
        baselines, runner_up, getattr(calibrated, "temperature_", None), (*chosen.notes, *trouble), clock.laps,
    )  # fmt: skip


def families_of(wishes: Wishes) -> list[str | Family] | None:
    """The families asked for, at the alpha given where one is; None where neither was said."""
    if wishes.families is None and wishes.alpha is None:
        return None
    known = {**FAMILIES, STRAW_MAN.name: STRAW_MAN}
    chosen: list[Any] = [known.get(n, n) for n in (FAMILIES if wishes.families is None else wishes.families)]
    if wishes.alpha is None:
        return chosen
    return [replace(f, alphas=(wishes.alpha,)) if isinstance(f, Linear) else f for f in chosen]


def calibrate(line: Line, chosen: Compared, parts: Parts, wishes: Wishes) -> tuple[Any, tuple[str, ...]]:
    """The winner with a temperature learned on rows it did not see, and a note where that cannot be done."""
    plain = line.model
    cv: Any = 5
    if parts.groups is not None or parts.order is not None:
        folds = chosen.comparison.folds
        cv = [(np.flatnonzero(folds != f), np.flatnonzero(folds == f)) for f in range(int(folds.max()) + 1)]
    elif (line.fit_seconds or 0.0) > CROSS_FITTED:
        cv = 0.2
    try:
        return TemperatureScaledClassifier(clone(plain), cv, wishes.seed).fit(chosen.X, parts.y), ()
    except (KwayError, AttributeError) as error:
        return plain, (f"probabilities are not calibrated: {error}",)


def _runner_up(lines: list[Line], judged: Judged, X: Any, y: NDArray) -> RunnerUp | None:
    other = next((line for line in lines[1:] if line.model is not None), None)
    if other is None:
        return None
    right = other.model.predict(X) == y
    return RunnerUp(other.standing.model, float(right.mean()), mcnemar(judged.predicted == y, right))


def _baselines(X: Any, test_X: Any, parts: Parts) -> dict[str, float]:
    """Always the commonest class; and least squares on the class number, which has no reason to be right."""
    labels = encode(parts.y)
    most = labels.classes[np.bincount(labels.codes).argmax()]
    found = {"majority class": float(np.mean(parts.test_y == most))}
    if X.shape[1] <= STRAW_WIDTH and not hasattr(X, "tocsr"):
        straw = STRAW_MAN.make({"targets": "number"}, 0).fit(X, labels.codes)
        found["straw man"] = float(np.mean(labels.classes[straw.predict(test_X)] == parts.test_y))
    return found


class _Clock:
    """Seconds of the stages."""

    def __init__(self) -> None:
        self.begun = self.last = time.perf_counter()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self.last = now - self.last, now

    def total(self) -> float:
        return time.perf_counter() - self.begun
