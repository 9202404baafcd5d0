"""What is left of a job's budget after the end of the job (refit, calibration, report) is reserved.

    left = budget - spent - reserve        reserve = ending(seconds that a fit of the leader takes)

Work is done in pieces. `up(needed)` says whether the next piece does not fit any more; it never ends a running one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kway import progress


@dataclass
class Clock:
    """Seconds since `begun` against a budget (None: no limit)."""

    budget: float | None = None
    begun: float = field(default_factory=time.perf_counter)
    ending: Callable[[float], float] = lambda fit_seconds: 0.0
    reserve: float = 0.0
    interrupted: bool = False  # by Ctrl-C: the time is up from then on
    cut: bool = False  # whether anything was left undone

    def spent(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self.begun

    def keep(self, fit_seconds: float) -> None:
        """Reserve time for the end of the job, in which a model that takes so long is fitted."""
        self.reserve = self.ending(fit_seconds)

    def up(self, needed: float = 0.0) -> bool:
        """Whether the time is up, or would be after `needed` seconds more."""
        late = self.budget is not None and self.spent() + self.reserve + needed > self.budget
        self.cut = self.cut or late or self.interrupted
        return late or self.interrupted

    def share(self, part: float) -> Clock:
        """A clock for one step, which gets this part of the time left."""
        if self.budget is None:
            return self
        left = max(0.0, self.budget - self.reserve - self.spent())
        return replace(self, budget=self.budget - (1 - part) * left, cut=False)

    def pace(self, fits: int) -> Callable[[], bool]:
        """A function to call before each of `fits` similar fits: whether one as long as the last would be too late."""
        calls: list[float] = []

        def stop() -> bool:
            now = time.perf_counter()
            took = now - calls[-1] if calls else 0.0
            calls.append(now)
            progress.step(len(calls) - 1, fits, f"fit {len(calls)} of {fits}")
            return self.up(took)

        return stop
