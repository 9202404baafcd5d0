"""Where L-BFGS begins on all rows, and with which factor: its stages 1 to 3 (lbfgs.py)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kway.linear.objective.objective import Objective
from kway.linear.solvers.point import Point
from kway.linear.solvers.preconditioners.factors import Factor
from kway.linear.solvers.preconditioners.moments import (
    Moments,
    quick_moments,
    rows_a_factor,
    sample_rows,
    sample_size,
)
from kway.linear.solvers.quasi_newton import Pairs, descend
from kway.linear.solvers.shards.diary import Trail

SAMPLE_STEPS = 30
SAMPLE_TOL = 6e-3
CHEAP = 2  # gradients
SLOW = 12  # iterations on the sample, after which classes get factors of their own


@dataclass(frozen=True)
class Start:
    """Where the descent on all rows begins, and with which factor."""

    theta: NDArray
    moments: Moments
    factor: Factor
    all_drawn: bool = False  # it is one a score from every row of the sample
    by_means: bool = False  # it is shared but for the means of the classes
    at_zero: bool = False  # it is of theta = 0, which says nothing of the classes


def start_from(objective: Objective, theta: NDArray, known: Moments | None, sampled: bool, slow: bool) -> Start:
    """A start from theta, by way of a sample where that is `sampled` and theta says little."""
    sample = sample_rows(objective) if sampled else None
    found = replace(known, objective=objective) if known else quick_moments(objective, sample)
    warm = bool(objective.total(np.array([float(theta.any())]))[0])
    if warm and (known or sample is None):
        return Start(theta, found, _warm_factor(found, objective, theta, slow))
    factor = found.shared()
    if sample is None or (warm and sample.value(theta) < 0.7 * sample.value(np.zeros_like(theta))):
        return Start(theta, found, factor, at_zero=True)
    theta, used = on_sample(sample, theta, factor)
    n_drawn = max(500, 2 * objective.d)
    if found.dense and found.cost_per_class(sample, sample.n) <= CHEAP and found.holds_per_class(objective):
        return Start(theta, found, found.per_class(sample, theta, sample.n), all_drawn=True)
    if by_means := class_means(found, objective, sample, theta):
        return Start(theta, found, by_means, by_means=True)
    if used >= SLOW and found.affords_per_class(objective, n_drawn):
        return Start(theta, found, found.per_class(sample, theta, n_drawn))
    return Start(theta, found, factor)


def resumed(objective: Objective, trail: Trail, pairs: Pairs) -> Start:
    """Where an earlier run left off, with what it had learned on its last steps."""
    for old, new in itertools.pairwise(trail.points):
        pairs.add(old, new)
    found, theta = quick_moments(objective, sample_rows(objective)), trail.points[-1].theta
    return Start(theta, found, _warm_factor(found, objective, theta, slow=True))


def _warm_factor(found: Moments, objective: Objective, theta: NDArray, slow: bool) -> Factor:
    """Factors of each class, as theta already says something, where they are cheap or the way is `slow`."""
    n_drawn = rows_a_factor(objective)
    cheap = found.cost_per_class(objective, n_drawn) <= CHEAP
    by_means = None if cheap else class_means(found, objective, objective, theta)
    if by_means is not None:
        return by_means
    if (slow or cheap) and found.affords_per_class(objective, n_drawn):
        return found.per_class(objective, theta, n_drawn)
    return found.shared()


def class_means(found: Moments, objective: Objective, rows: Objective, theta: NDArray) -> Factor | None:
    """The shared factor corrected along the mean of each class's `rows`, some of the objective's; None: not here.

    It serves where a class has fewer rows than there are columns: their mean then says most of how they bend its score.
    """
    if objective.n >= objective.all_scores * objective.d or not found.knows_own(rows):
        return None
    return found.own(rows.some(sample_size(rows)), theta)


def on_sample(sample: Objective, theta: NDArray, factor: Factor) -> tuple[NDArray, int]:
    """theta after some iterations on the sample, and how many they were."""
    used = 0
    for used, step in enumerate(descend(sample, Point.centred_at(sample, theta), factor), 1):
        theta = step.point.theta
        if step.stuck or used >= SAMPLE_STEPS or step.promised < SAMPLE_TOL * step.point.value:
            break
    return theta, used
