"""The time of a job: what is left of its budget, and what the parts of a job may take.

    left = budget - spent - reserve        reserve = ending(seconds of one fit of the leader)

The reserve is for the end of the job: refit, calibration, test and report. Work is done in pieces. `up(needed)` returns
True if the next piece does not fit any more. It never ends a running piece.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kway import progress

# Expected seconds of one fit of each family, at the default rates, above which families are compared on a sample of the
# rows. A single fit that takes longer uses a wider tolerance (T11, omniglot).
COMPARISON_SECONDS = 60.0
_EXTRA_SECONDS, _EXTRA_SHARE = 0.5, 0.15  # seconds that an extra may always take; the share of the comparison (T11)


def extra_seconds(comparison: float) -> float:
    """Return the seconds that trees for comparison, the learning curve, or a fit that is only timed may take."""
    return max(_EXTRA_SECONDS, _EXTRA_SHARE * comparison)


@dataclass
class Clock:
    """Seconds since `begun` against a budget (None: no limit)."""

    budget: float | None = None
    begun: float = field(default_factory=time.perf_counter)
    ending: Callable[[float], float] = lambda fit_seconds: 0.0
    reserve: float = 0.0
    interrupted: bool = False  # by Ctrl-C: the time is up from then on
    cut: bool = False  # whether some work was left out

    def spent(self) -> float:
        """Return the seconds since the beginning."""
        return time.perf_counter() - self.begun

    def keep(self, fit_seconds: float) -> None:
        """Reserve time for the end of the job, in which a model that takes so long is fitted."""
        self.reserve = self.ending(fit_seconds)

    def up(self, needed: float = 0.0) -> bool:
        """Return whether the time is up, or would be after `needed` more seconds."""
        late = self.budget is not None and self.spent() + self.reserve + needed > self.budget
        self.cut = self.cut or late or self.interrupted
        return late or self.interrupted

    def share(self, part: float) -> Clock:
        """Return a clock for one step, which gets this part of the time left."""
        if self.budget is None:
            return self
        left = max(0.0, self.budget - self.reserve - self.spent())
        return replace(self, budget=self.budget - (1 - part) * left, cut=False)

    def pace(self, fits: int) -> Callable[[], bool]:
        """Return a function to call before each of `fits` similar fits: whether one as long as the last is too late."""
        calls: list[float] = []

        def stop() -> bool:
            now = time.perf_counter()
            took = now - calls[-1] if calls else 0.0
            calls.append(now)
            progress.step(len(calls) - 1, fits, f"fit {len(calls)} of {fits}")
            return self.up(took)

        return stop
