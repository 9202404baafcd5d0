"""Heats: where a pass over all rows and classes is slow, linear families first run against the others on a few classes.

    K' classes     the most for which a pass over their rows is not heavy; every fold of them is scored

Who is behind there by more than two standard errors, fold by fold, and a point and a half is left out: with more
classes and as many columns a linear family falls back further, while neighbours have the same rows around them.
24,000 images of 1,623 classes: one fold of softmax took 67 s of processor time, three quarters of the comparison; 221
of the classes take 5 s and say 0.37 against 0.39.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway import progress
from kway.errors import KwayError
from kway.planning.comparison import HEAVY
from kway.select.contest.clock import Clock
from kway.select.contest.families import LinearFamily
from kway.select.contest.measures import HOPELESS
from kway.select.contest.sample import some_classes
from kway.select.contest.scans import FoldedRows

SLOW_PASS = 0.3  # seconds of a pass: a path of alphas on one fold then takes half a minute
_LEAST = 50  # classes of a heat


def outrun(data: FoldedRows, families: Mapping[str, Any], clock: Clock) -> dict[str, str]:
    """Linear families that a heat leaves behind, and by how much; none where passes are quick, nobody else runs, or the
    few classes would be all of them."""
    linear = [name for name, family in families.items() if isinstance(family, LinearFamily)]
    if data.sparse or data.pass_seconds() < SLOW_PASS or not 0 < len(linear) < len(families):
        return {}
    few = _few_classes(data)
    if len(few.codes) == len(data.codes):
        return {}
    tried = {name: _scores(family, few, clock) for name, family in families.items()}
    scores = {name: found for name, found in tried.items() if np.isfinite(found).all()}
    if not scores:
        return {}
    leader = max(scores, key=lambda name: scores[name].mean())
    where = f"on {int(few.codes.max()) + 1:,} of the {int(data.codes.max()) + 1:,} classes"
    means = {name: f"{data.measure.shown(found.mean()):.3f}" for name, found in scores.items()}
    return {
        name: f"{where} it has {means[name]} and {leader} {means[leader]}; ask by name"
        for name in linear
        if name in scores and _behind(scores[leader] - scores[name])
    }


def _behind(gaps: NDArray[np.float64]) -> bool:
    """Whether the leader's gain (folds,) is more than luck."""
    noise = 2 * float(gaps.std(ddof=1)) / np.sqrt(len(gaps)) if len(gaps) > 1 else np.inf
    return bool(gaps.mean() > max(HOPELESS, noise))


def _few_classes(data: FoldedRows) -> FoldedRows:
    """All rows of as many classes as make a pass that is not heavy."""
    n_classes = int(data.codes.max()) + 1
    share = float(np.sqrt(HEAVY / data.pass_seconds()))  # a pass costs rows x classes, and both shrink
    rows = some_classes(data.codes, max(_LEAST, round(share * n_classes)), np.random.default_rng(0))
    codes = np.unique(data.codes[rows], return_inverse=True)[1]
    return FoldedRows(data.X[rows], codes, data.folds[rows], {}, data.measure)


def _scores(family: Any, few: FoldedRows, clock: Clock) -> NDArray[np.float64]:
    """The best setting's score on every fold (folds,), higher is better; nan where there is none, or no time."""
    n_folds = int(few.folds.max()) + 1
    if clock.up() or family.idle(few):
        return np.full(n_folds, np.nan)
    try:
        with progress.stage(f"{family.name}: a few classes"):
            found = family.scan(few, list(range(n_folds)), clock)
    except KwayError:
        return np.full(n_folds, np.nan)
    return found.scores[:, found.best]
