"""The time of a job: what is left of its budget.

    left = budget - spent - reserve        reserve: the fits of the chosen models on all rows, the test and the report

Work is done in pieces. `up(needed)` returns True if the next piece does not fit any more. A running piece is never
ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from kway import progress
from kway.planning.costs import Size

REPORT_SECONDS = 4.0  # seconds that are reserved for test and report (T11)
DEFAULT_SECONDS = 60.0  # the default budget of a table of up to DEFAULT_VALUES; more values get more time (T11)
DEFAULT_VALUES = 10_000 * 50
MOST_COUNTED = 128  # numbers per row that count; rows with more are images, texts or embeddings (T11)
_EXTRA_SHARE = 0.05  # share of the budget that the learning curve may take (T11)


def default_budget(size: Size) -> float:
    """Return the seconds that a job may take if the user gave no budget."""
    values = size.n * min(MOST_COUNTED, size.values / size.n)
    return DEFAULT_SECONDS * max(1.0, values / DEFAULT_VALUES)


@dataclass
class Clock:
    """Seconds since `begun` against a budget (None: no limit)."""

    budget: float | None = None
    begun: float = field(default_factory=time.perf_counter)
    reserve: float = 0.0
    interrupted: bool = False  # by Ctrl-C: the time is up from then on
    cut: bool = False  # whether some work was left out

    def spent(self) -> float:
        """Return the seconds since the beginning."""
        return time.perf_counter() - self.begun

    def left(self) -> float:
        """Return the seconds left."""
        return np.inf if self.budget is None else self.budget - self.reserve - self.spent()

    def up(self, needed: float = 0.0) -> bool:
        """Return whether the time is up, or would be after `needed` more seconds."""
        late = needed > self.left()
        self.cut = self.cut or late or self.interrupted
        return late or self.interrupted

    def extra_seconds(self) -> float:
        """Return the seconds that an extra such as the learning curve may take."""
        return np.inf if self.budget is None else min(_EXTRA_SHARE * self.budget, self.left())

    def pace(self, fits: int) -> Callable[[], bool]:
        """Return a function to call before each of `fits` similar fits: whether one as long as the last is too late."""
        calls: list[float] = []

        def stop() -> bool:
            now = time.perf_counter()
            took = now - calls[-1] if calls else 0.0
            calls.append(now)
            progress.step(len(calls) - 1, max(fits, len(calls)), f"fit {len(calls)} of {fits}")
            return self.up(took)

        return stop
