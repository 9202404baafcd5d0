"""The time of a job: how much of its budget is left.

    left = budget - spent - reserve        reserve: time for the fits of the chosen models on all rows, test and report

A job consists of pieces of work, each with a planned number of seconds. Before a piece begins, `up(seconds)` tells
whether it no longer fits. A piece that has begun is never stopped.

The budget that a user passes is in real seconds. The default budget is in planned seconds: each piece counts with the
seconds of its formula (planning/costs.py), which are the same on every machine. So the same command gives the same
model everywhere. As a safeguard, a job with a default budget also ends if it takes far longer than planned.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from kway import progress
from kway.auto.race.scoring import TABLE_COLUMNS
from kway.planning.costs import Size

REPORT_SECONDS = 4.0  # time reserved for the test and the report (see the time limits in benchmarks/tables.py)
_MIN_BUDGET, _BUDGET = 20.0, 60.0  # default budgets in seconds: of a tiny table, and of 10,000 rows x 50 columns
_ROWS, _COLUMNS = 10_000, 50  # the table size to which _BUDGET belongs
_SAFETY = 3.0  # real seconds, per second of the default budget, after which a job ends (of _BUDGET, if it is larger)
_EXTRA_SHARE = 0.05  # share of the budget that an extra, such as the learning curve, may take


def default_budget(size: Size, embeddings: bool = False) -> float:
    """Return the planned seconds that a job may take if the user gave no budget.

    Many columns of a table, or pixels, need more time, because trees and kernels learn from them. Embeddings need none
    of these.
    """
    most_columns = _COLUMNS if embeddings else TABLE_COLUMNS
    by_rows = _MIN_BUDGET + (_BUDGET - _MIN_BUDGET) * min(1.0, size.n / _ROWS)
    by_values = _BUDGET * size.n * min(most_columns, size.values / size.n) / (_ROWS * _COLUMNS)
    return max(by_rows, by_values)


@dataclass
class Clock:
    """The budget of a job, and how much of it is spent.

    Parameters
    ----------
    budget : float or None
        Seconds for the whole job; None means no limit.
    begun : float
        When the job began, as `time.perf_counter()` returns it.
    reserve : float
        Seconds that are kept for the end of the job.
    in_planned_seconds : bool
        Whether the budget is in planned seconds, as a default budget is, or in real seconds.
    planned : float
        Planned seconds of all finished pieces of work.
    interrupted : bool
        Whether the user pressed Ctrl-C. From then on the time is up.
    cut : bool
        Whether the race, or a series of fits, left out work because of the time.
    """

    budget: float | None = None
    begun: float = field(default_factory=time.perf_counter)
    reserve: float = 0.0
    in_planned_seconds: bool = False
    planned: float = 0.0
    interrupted: bool = False
    cut: bool = False

    def use_default(self, size: Size, embeddings: bool = False) -> None:
        """Use the default budget of rows of this size, unless the user gave a budget."""
        if self.budget is None:
            self.budget, self.in_planned_seconds = default_budget(size, embeddings), True

    def charge(self, planned: float, seconds: float) -> float:
        """Count a finished piece of work by its planned and real seconds; return those in the unit of the budget."""
        self.planned += planned
        return planned if self.in_planned_seconds else seconds

    def left(self) -> float:
        """Return the seconds left, in the unit of the budget; infinity without a budget."""
        if self.budget is None or not self.in_planned_seconds:
            return self.real_seconds()
        return min(self.budget - self.reserve - self.planned, self.real_seconds())

    def real_seconds(self) -> float:
        """Return the real seconds left; infinity without a budget."""
        if self.budget is None:
            return np.inf
        limit = _SAFETY * max(self.budget, _BUDGET) if self.in_planned_seconds else self.budget
        return limit - self.reserve - (time.perf_counter() - self.begun)

    @property
    def too_slow(self) -> bool:
        """Whether a default budget ended because the machine was far slower than planned."""
        return self.in_planned_seconds and self.real_seconds() <= 0

    def up(self, seconds: float = 0.0) -> bool:
        """Return whether the time is up, or would be up after a piece of work that takes this many seconds."""
        return self.interrupted or seconds > self.left()

    def extra_seconds(self) -> float:
        """Return the seconds that an extra, such as the learning curve, may take."""
        return np.inf if self.budget is None else min(_EXTRA_SHARE * self.budget, self.left())

    def pace(self, n_fits: int) -> Callable[[], bool]:
        """Return a function to call before each of `n_fits` similar fits, which also moves the progress bar.

        It returns True if the real time left is shorter than the previous fit took. Planned seconds count only after
        all fits (`charge`), so they do not end a series of fits early.
        """
        begun: list[float] = []  # times at which the fits began

        def stop() -> bool:
            now = time.perf_counter()
            previous = now - begun[-1] if begun else 0.0
            begun.append(now)
            progress.step(len(begun) - 1, max(n_fits, len(begun)), f"fit {len(begun)} of {n_fits}")
            late = self.interrupted or previous > self.real_seconds()
            self.cut = self.cut or late
            return late

        return stop
