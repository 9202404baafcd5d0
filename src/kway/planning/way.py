"""Way: one way to do a job, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from kway.planning import words
from kway.planning.rates import Rates
from kway.planning.size import Size


@dataclass(frozen=True)
class Way:
    """What one way costs; seconds are those of a typical set of this size on this machine."""

    name: str
    call: str  # how it is asked for
    parameters: int  # numbers that are learned or kept
    fit_bytes: int  # in memory while fitting, rows included
    model_bytes: int  # in memory while answering
    disk_bytes: int
    operations: float  # multiply-adds of a fit, twice
    fit_seconds: float
    predict_seconds: float  # of one row among many
    gives_up: str
    missing: str = ""  # why it cannot be used here; empty: it can
    device_bytes: int = 0  # on a GPU while fitting, rows included

    def record(self) -> dict[str, Any]:
        """As plain facts."""
        return asdict(self)

    def needs(self) -> str:
        """In a clause: what it takes."""
        return (
            f"{words.size(self.fit_bytes)} of memory while fitting for {words.count(self.parameters)} parameters and "
            f"about {words.time(self.fit_seconds)}"
        )


Formula = Callable[[Size, Rates], Way]  # every way is one
