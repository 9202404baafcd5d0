"""Heats: where a pass over all rows and classes is slow, linear families first run against the others on a few classes.

    K' classes     the most for which a pass over their rows is not heavy; every fold of them is scored

Who is far behind there (measures.py) is left out. 24,000 images of 1,623 classes: one fold of softmax took 67 s of
processor time, three quarters of the comparison; 200 of the classes take 4 s and say 0.35 against 0.40.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kway import progress
from kway.errors import KwayError
from kway.planning.comparison import HEAVY
from kway.select.clock import Clock
from kway.select.families import LinearFamily
from kway.select.sample import some_classes
from kway.select.scans import FoldedRows

SLOW = 0.3  # seconds of a pass: a path of alphas on one fold then takes half a minute
_LEAST = 50  # classes of a heat


def outrun(data: FoldedRows, families: Mapping[str, Any], clock: Clock) -> dict[str, str]:
    """Linear families that a heat leaves behind, and by how much; none where passes are quick or nobody else runs."""
    linear = [name for name, family in families.items() if isinstance(family, LinearFamily)]
    if data.sparse or data.pass_seconds() < SLOW or not 0 < len(linear) < len(families):
        return {}
    few = _few_classes(data)
    means = {name: mean for name, family in families.items() if (mean := _mean(family, few, clock)) is not None}
    if not means:
        return {}
    leader = max(means, key=lambda name: means[name])
    lead, shown, counts = means[leader], data.measure.shown, np.bincount(few.codes)
    behind = [name for name in linear if name in means and means[name] < lead - data.measure.far(lead, counts)]
    where = f"on {len(counts):,} of the {int(data.codes.max()) + 1:,} classes"
    return {
        name: f"{where} it has {shown(means[name]):.3f} and {leader} {shown(lead):.3f}; ask by name" for name in behind
    }


def _few_classes(data: FoldedRows) -> FoldedRows:
    """All rows of as many classes as make a pass that is not heavy."""
    n_classes = int(data.codes.max()) + 1
    share = float(np.sqrt(HEAVY / data.pass_seconds()))  # a pass costs rows x classes, and both shrink
    rows = some_classes(data.codes, max(_LEAST, round(share * n_classes)), np.random.default_rng(0))
    codes = np.unique(data.codes[rows], return_inverse=True)[1]
    return FoldedRows(data.X[rows], codes, data.folds[rows], {}, data.measure)


def _mean(family: Any, few: FoldedRows, clock: Clock) -> float | None:
    """The best setting's mean score over the folds; None where there is none, or no time."""
    if clock.up() or family.idle(few):
        return None
    try:
        with progress.stage(f"{family.name}: a few classes"):
            found = family.scan(few, list(range(int(few.folds.max()) + 1)), clock)
    except KwayError:
        return None
    scores = found.scores[:, found.best]
    return float(np.nanmean(scores)) if np.isfinite(scores).any() else None
