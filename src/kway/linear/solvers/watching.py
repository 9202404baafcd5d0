"""What a fit shows while it runs, and when it may stop early."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kway import progress
from kway.linear.objective import Objective

_PATIENCE = 5  # evaluations without a better validation loss


@contextmanager
def shown(title: str, max_iter: int, verbose: int) -> Iterator[Callable[[int, float], bool] | None]:
    """What is told of each iteration (kway.progress), or None when not asked for."""
    if not verbose:
        yield None
        return
    with progress.bar(title, max_iter) as at:

        def step(iteration: int, objective: float) -> bool:
            at(iteration, f"iteration {iteration}  objective {objective:.6g}")
            return False

        yield step


@dataclass
class Validation:
    """Early stopping: keeps the theta that is best on rows held out, stops after PATIENCE without a better one."""

    objective: Objective
    best: float = np.inf
    theta: NDArray | None = None
    since: int = 0
    history: list[float] = field(default_factory=list)

    def __call__(self, theta: NDArray) -> bool:
        """Whether to stop now."""
        value = self.objective.value(theta)
        self.history.append(value)
        if value < self.best:
            self.best, self.theta, self.since = value, theta.copy(), 0
        else:
            self.since += 1
        return self.since >= _PATIENCE
