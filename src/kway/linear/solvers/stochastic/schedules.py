"""Learning rates: `at(t, eta, epochs)`, the rate at time t (in epochs) from the first rate eta.

    Constant  eta        Decay  eta / (1 + rate t)        Cosine  eta (1 + cos(pi t / epochs)) / 2

`eta=None` is chosen from the data: 1 / (curvature of the loss x mean ||x||^2), the longest step that cannot blow up
on a typical row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kway.errors import InputError


@dataclass(frozen=True)
class Constant:
    """eta."""

    eta: float | None = None

    def at(self, epoch: float, eta: float, epochs: int) -> float:
        """The same at all times."""
        return eta


@dataclass(frozen=True)
class Decay:
    """eta / (1 + rate t)."""

    eta: float | None = None
    rate: float = 0.1

    def at(self, epoch: float, eta: float, epochs: int) -> float:
        """Slowly to zero, as 1/t."""
        return eta / (1 + self.rate * epoch)


@dataclass(frozen=True)
class Cosine:
    """eta (1 + cos(pi t / epochs)) / 2."""

    eta: float | None = None

    def at(self, epoch: float, eta: float, epochs: int) -> float:
        """Half a cosine, from eta to zero at the last epoch."""
        return eta * (1 + math.cos(math.pi * min(1.0, epoch / epochs))) / 2


Schedule = Constant | Decay | Cosine

SCHEDULES: dict[str, type[Schedule]] = {
    "constant": Constant,
    "decay": Decay,
    "cosine": Cosine,
}


def pick_schedule(learning_rate: object) -> Schedule:
    """A schedule from itself, its name, "auto" (decay), or a number (that eta, decaying).

    >>> pick_schedule(0.1).at(10.0, 0.1, 100)
    0.05
    """
    if isinstance(learning_rate, str):
        name = "decay" if learning_rate == "auto" else learning_rate
        if name in SCHEDULES:
            return SCHEDULES[name]()
    elif isinstance(learning_rate, (int, float)) and not isinstance(learning_rate, bool) and learning_rate > 0:
        return Decay(float(learning_rate))
    elif isinstance(learning_rate, (Constant, Decay, Cosine)):
        return learning_rate
    raise InputError(
        f"learning_rate must be a number > 0, one of auto, {', '.join(SCHEDULES)}, or a schedule such as "
        f"Decay(eta=0.1, rate=0.1); got {learning_rate!r}"
    )
