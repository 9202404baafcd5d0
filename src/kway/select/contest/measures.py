"""Measures: what a choice among models is made by, and when a model is behind by more than luck.

    accuracy    share of rows that are right              balanced   mean over classes of their recall
    macro-f1    mean over classes of 2 P R / (P + R)      log-loss   mean of -log p_y, lower is better

On one fold a family is left behind if its best is `far` below the leader's: three standard errors of a difference, and
a point and a half. The error of a mean over classes is that of K^2 / sum_c (1 / n_c) rows, which a small class makes
few.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.data.suggest import nearest
from kway.errors import InputError

HOPELESS = 0.015  # below the leader's on fold 0, beyond the noise, at which a family is not run further
_WORSE = (0.25, 0.05)  # the same for log loss: this share of the leader's and so many nats more


@dataclass(frozen=True)
class Measure:
    """A score by its name, the field of a scan that holds it, and whether more is better."""

    name: str
    field: str
    words: str
    rises: bool = True
    by_class: bool = False

    def of(self, scan: Any) -> NDArray[np.float64]:
        """(folds, settings), higher is better; nan where not run, or where a model has no such score."""
        values = np.asarray(getattr(scan, self.field), np.float64)
        return values if self.rises else -values

    def shown(self, value: Any) -> Any:
        """A value of `of`, or an array of them, as people know the score."""
        return value if self.rises else -value

    def far(self, lead: float, counts: NDArray[np.int64]) -> float:
        """How far below the leader is too far, on a fold that holds counts (K,) rows of the classes."""
        if not self.rises:
            return float(_WORSE[0] * abs(lead) + _WORSE[1])
        some = counts[counts > 0]
        held = len(some) ** 2 / float((1 / some).sum()) if self.by_class else float(some.sum())
        return max(HOPELESS, 3 * float(np.sqrt(2 * max(lead * (1 - lead), 1 / held) / held)))


ACCURACY = Measure("accuracy", "accuracy", "accuracy")
MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        ACCURACY,
        Measure("balanced", "balanced", "balanced accuracy", by_class=True),
        Measure("macro-f1", "macro_f1", "macro F1", by_class=True),
        Measure("log-loss", "log_loss", "log loss", rises=False),
    )
}


def pick_measure(name: str) -> Measure:
    """A measure by its name."""
    if name not in MEASURES:
        raise InputError(f"metric must be one of {', '.join(MEASURES)}; got {name!r}{nearest(name, list(MEASURES))}")
    return MEASURES[name]
