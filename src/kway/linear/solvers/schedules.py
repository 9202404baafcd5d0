"""Learning rates: `at(t, eta, epochs)`, the rate at time t (in epochs) from the first rate eta.

    Constant  eta        Decay  eta / (1 + rate t)        Cosine  eta (1 + cos(pi t / epochs)) / 2

`eta=None` is chosen from the data: 1 / (curvature of the loss x mean ||x||^2), the longest step that cannot blow up
on a typical row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from kway.parameters import NONE, Rule, above, at_least, check_parameters, one_of


@dataclass(frozen=True)
class Constant:
    """eta."""

    eta: float | None = None

    def __post_init__(self) -> None:
        check_parameters(self, eta=NONE | above(0))

    def at(self, epoch: float, eta: float, epochs: int) -> float:
        """The same at all times."""
        return eta


@dataclass(frozen=True)
class Decay:
    """eta / (1 + rate t)."""

    eta: float | None = None
    rate: float = 0.1

    def __post_init__(self) -> None:
        check_parameters(self, eta=NONE | above(0), rate=at_least(0))

    def at(self, epoch: float, eta: float, epochs: int) -> float:
        """Slowly to zero, as 1/t."""
        return eta / (1 + self.rate * epoch)


@dataclass(frozen=True)
class Cosine:
    """eta (1 + cos(pi t / epochs)) / 2."""

    eta: float | None = None

    def __post_init__(self) -> None:
        check_parameters(self, eta=NONE | above(0))

    def at(self, epoch: float, eta: float, epochs: int) -> float:
        """Half a cosine, from eta to zero at the last epoch."""
        return eta * (1 + math.cos(math.pi * min(1.0, epoch / epochs))) / 2


Schedule = Constant | Decay | Cosine

SCHEDULES: dict[str, type[Schedule]] = {
    "constant": Constant,
    "decay": Decay,
    "cosine": Cosine,
}


LEARNING_RATE = (
    above(0)
    | Rule(f"one of auto, {', '.join(SCHEDULES)}", one_of("auto", *SCHEDULES).allows)
    | Rule("a schedule such as Decay(eta=0.1, rate=0.1)", lambda value: isinstance(value, Schedule))
)


def pick_schedule(learning_rate: Any) -> Schedule:
    """A schedule from itself, its name, "auto" (decay), or a number (that eta, decaying).

    >>> pick_schedule(0.1).at(10.0, 0.1, 100)
    0.05
    """
    LEARNING_RATE.check("learning_rate", learning_rate)
    if isinstance(learning_rate, str):
        return SCHEDULES["decay" if learning_rate == "auto" else learning_rate]()
    return learning_rate if isinstance(learning_rate, Schedule) else Decay(float(learning_rate))
