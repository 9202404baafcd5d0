"""The time of a job: what is left of its budget.

    left = budget - spent - reserve        reserve: the fits of the chosen models on all rows, the test and the report

Work is done in pieces, each with a planned number of seconds. `up(needed)` returns True if the next piece does not fit
any more. A running piece is never ended.

A budget of the user is in real seconds. The default budget is in planned seconds, which are the same on every machine,
so that the same command gives the same model. Real time then only limits jobs that take far longer than planned.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from kway import progress
from kway.planning.costs import Size

REPORT_SECONDS = 4.0  # seconds that are reserved for test and report (T11)
SMALL_SECONDS, DEFAULT_SECONDS = 20.0, 60.0  # the default budget of few rows, and of DEFAULT_ROWS of 50 columns (T11)
DEFAULT_ROWS, DEFAULT_VALUES = 10_000, 10_000 * 50
MOST_COUNTED = 128  # numbers per row that count; rows with more are images, texts or embeddings (T11)
_SAFETY = 3.0  # a default budget ends when so many times its seconds have really passed
_EXTRA_SHARE = 0.05  # share of the budget that the learning curve may take (T11)


def default_budget(size: Size) -> float:
    """Return the planned seconds that a job may take if the user gave no budget."""
    values = size.n * min(MOST_COUNTED, size.values / size.n)
    small = SMALL_SECONDS + (DEFAULT_SECONDS - SMALL_SECONDS) * min(1.0, size.n / DEFAULT_ROWS)
    return max(small, DEFAULT_SECONDS * values / DEFAULT_VALUES)


@dataclass
class Clock:
    """What is spent of a budget (None: no limit): seconds since `begun`, or the sum of `planned` seconds."""

    budget: float | None = None
    begun: float = field(default_factory=time.perf_counter)
    reserve: float = 0.0
    planned: float | None = None  # seconds of all pieces done, as planned; None: real seconds count
    interrupted: bool = False  # by Ctrl-C: the time is up from then on
    cut: bool = False  # whether some work was left out

    def use_default(self, size: Size) -> None:
        """Count planned seconds of the default budget, unless the user gave a budget."""
        if self.budget is None:
            self.budget, self.planned = default_budget(size), 0.0

    def charge(self, planned: float, took: float) -> float:
        """Count a piece of work, and return its seconds in the unit of the budget."""
        if self.planned is None:
            return took
        self.planned += planned
        return planned

    def spent(self) -> float:
        """Return how much of the budget is spent."""
        return time.perf_counter() - self.begun if self.planned is None else self.planned

    def left(self) -> float:
        """Return the seconds left."""
        return np.inf if self.budget is None else min(self.budget - self.reserve - self.spent(), self.real_seconds())

    def real_seconds(self) -> float:
        """Return the real seconds left."""
        if self.budget is None:
            return np.inf
        most = self.budget if self.planned is None else _SAFETY * max(self.budget, DEFAULT_SECONDS)
        return most - self.reserve - (time.perf_counter() - self.begun)

    @property
    def too_slow(self) -> bool:
        """Whether a default budget ended because the machine was far slower than planned."""
        return self.planned is not None and self.cut and self.real_seconds() <= 0

    def up(self, needed: float = 0.0) -> bool:
        """Return whether the time is up, or would be after `needed` more seconds."""
        late = needed > self.left()
        self.cut = self.cut or late or self.interrupted
        return late or self.interrupted

    def extra_seconds(self) -> float:
        """Return the seconds that an extra such as the learning curve may take."""
        return np.inf if self.budget is None else min(_EXTRA_SHARE * self.budget, self.left())

    def pace(self, fits: int) -> Callable[[], bool]:
        """Return a function to call before each of `fits` similar fits: whether one as long as the last is too late.

        Planned seconds are those of all fits together, so only real time can end them early.
        """
        calls: list[float] = []

        def stop() -> bool:
            now = time.perf_counter()
            took = now - calls[-1] if calls else 0.0
            calls.append(now)
            progress.step(len(calls) - 1, max(fits, len(calls)), f"fit {len(calls)} of {fits}")
            late = self.interrupted or took > self.real_seconds()
            self.cut = self.cut or late
            return late

        return stop
