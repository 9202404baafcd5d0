"""The time of a job: what is left of its budget once the end (refit, calibration, page) has been provided for.

    left = budget - spent - reserve        reserve = ending(seconds that a fit of the leader takes)

Work is asked for in pieces. `up(needed)` says whether a piece would not fit any more; it never ends one that runs.
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
    interrupted: bool = False  # by Ctrl-C: from then on the time is up
    cut: bool = False  # whether anything was left undone

    def spent(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self.begun

    def keep(self, fit_seconds: float) -> None:
        """Provide for the end of the job, in which a model that takes so long is fitted."""
        self.reserve = self.ending(fit_seconds)

    def up(self, needed: float = 0.0) -> bool:
        """Whether the time is up, or would be after `needed` seconds more."""
        late = self.budget is not None and self.spent() + self.reserve + needed > self.budget
        self.cut = self.cut or late or self.interrupted
        return late or self.interrupted

    def share(self, part: float) -> Clock:
        """A clock for one step of several, which gets this part of the time left."""
        if self.budget is None:
            return self
        left = max(0.0, self.budget - self.reserve - self.spent())
        return replace(self, budget=self.budget - (1 - part) * left, cut=False)

    def pace(self, fits: int) -> Callable[[], bool]:
        """Asked before each of so many like fits, which it counts: whether one as long as the last is too much."""
        asked: list[float] = []

        def stop() -> bool:
            now = time.perf_counter()
            took = now - asked[-1] if asked else 0.0
            asked.append(now)
            progress.step(len(asked) - 1, fits, f"fit {len(asked)} of {fits}")
            return self.up(took)

        return stop
