"""Learning rate schedules of stochastic solvers.

    Constant    eta
    Decay       eta / (1 + rate t)
    Cosine      eta (1 + cos(pi t / epochs)) / 2

t is the time in epochs; the first epoch starts at 0. `schedule.at(t, eta, epochs)` returns the rate. With `eta=None`
the solver chooses the initial rate from the data. For SGD it is 1 / (curvature of the loss * mean ||x||^2), the largest
step that does not diverge on a typical row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from kway.parameters import NONE, Rule, above, at_least, check_parameters, one_of


@dataclass(frozen=True)
class Constant:
    """Keep the learning rate at eta.

    Parameters
    ----------
    eta : float, optional
        Learning rate; chosen from the data if None.
    """

    eta: float | None = None

    def __post_init__(self) -> None:
        check_parameters(self, eta=NONE | above(0))

    def at(self, epoch: float, eta: float, epochs: int) -> float:
        """Return eta."""
        return eta


@dataclass(frozen=True)
class Decay:
    """Reduce the learning rate as eta / (1 + rate t), t in epochs.

    Parameters
    ----------
    eta : float, optional
        Initial learning rate; chosen from the data if None.
    rate : float
        Speed of the decay. The learning rate is eta / 2 after 1 / rate epochs.
    """

    eta: float | None = None
    rate: float = 0.1

    def __post_init__(self) -> None:
        check_parameters(self, eta=NONE | above(0), rate=at_least(0))

    def at(self, epoch: float, eta: float, epochs: int) -> float:
        """Return eta / (1 + rate epoch)."""
        return eta / (1 + self.rate * epoch)


@dataclass(frozen=True)
class Cosine:
    """Reduce the learning rate from eta to zero at the last epoch, along half a period of a cosine.

    Parameters
    ----------
    eta : float, optional
        Initial learning rate; chosen from the data if None.
    """

    eta: float | None = None

    def __post_init__(self) -> None:
        check_parameters(self, eta=NONE | above(0))

    def at(self, epoch: float, eta: float, epochs: int) -> float:
        """Return eta (1 + cos(pi epoch / epochs)) / 2; zero after the last epoch."""
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
    """Return the schedule that `learning_rate` specifies.

    Parameters
    ----------
    learning_rate : float, str or schedule
        A schedule is returned as it is. A name selects a schedule with default parameters; "auto" is "decay". A number
        is the initial rate of Decay.

    Examples
    --------
    >>> pick_schedule(0.1).at(10.0, 0.1, 100)
    0.05
    """
    LEARNING_RATE.check("learning_rate", learning_rate)
    if isinstance(learning_rate, str):
        return SCHEDULES["decay" if learning_rate == "auto" else learning_rate]()
    return learning_rate if isinstance(learning_rate, Schedule) else Decay(float(learning_rate))
