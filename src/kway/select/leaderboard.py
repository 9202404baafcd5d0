"""The leaderboard's models fitted on all training rows: what they take to fit, to ask and to keep.

The best is always fitted; the runner-up unless that takes minutes; the others if they are quick. What was stopped as a
clear loser is fitted only as the runner-up, and if that is a moment's work. Sizes tell what takes how long, and no
clock: the same rows give the same lines on a busy machine. Only a budget, when it is spent, ends the fits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway import progress
from kway.data.gate import Rows
from kway.errors import InputError, KwayError
from kway.select.all_rows import AllRows
from kway.select.contest.clock import Clock
from kway.select.contest.compare import Comparison, Standing
from kway.select.contest.families import LinearFamily

WORTH_TIMING = 1.0  # expected seconds that a fit of a loser and its answers may take, only to be timed
WORTH_A_LOOK = 0.5  # that those of a runner-up may that is a clear loser
WORTH_TESTING = 20.0  # that those of the runner-up may, to be held against the best on the test rows
_ASKED = 1000  # rows predicted to time a prediction


@dataclass(frozen=True)
class Line:
    """A line of the leaderboard with the model fitted on all training rows; None where it was not."""

    standing: Standing
    model: Any = None
    fit_seconds: float | None = None
    predict_seconds: float | None = None  # a row
    n_bytes: int | None = None

    def record(self) -> dict[str, Any]:
        """Plain values."""
        costs = {"fit_seconds": self.fit_seconds, "predict_seconds": self.predict_seconds, "bytes": self.n_bytes}
        return {**self.standing.record(), **costs}


def fit_lines(
    found: Comparison,
    rows_of: Callable[[str], Rows],
    y: NDArray,
    seed: int,
    clock: Clock,
    all_rows: AllRows,
) -> list[Line]:
    """The leaderboard, best first, each fitted on the rows of its family; one that cannot be goes to the end."""
    lines: list[Line] = []
    failed: list[Line] = []
    for place, standing in enumerate(found.standings):
        family = found.families[standing.model]
        expected = family.expected_seconds(all_rows.size)
        needed = all_rows.times(isinstance(family, LinearFamily)) * found.scans[standing.model].fit_seconds
        n_fitted = sum(line.model is not None for line in lines)
        if n_fitted and (expected > _worth(standing, len(lines)) or clock.up(needed)):
            lines.append(Line(standing))
            continue
        try:
            with progress.stage(f"{standing.model}: all training rows", place, len(found.standings)):
                made = all_rows.estimator(found.estimator(standing, seed))
                X = rows_of(standing.model)
                lines.append(fitted_line(standing, X, partial(made.fit, X, y)))
        except KwayError as error:
            failed.append(Line(replace(standing, note=f"could not be fitted: {error}")))
            continue
        if n_fitted == 0:
            clock.keep(lines[-1].fit_seconds or 0.0)
    if not lines or lines[0].model is None:
        raise InputError(f"no model could be fitted; {failed[0].standing.model}: {failed[0].standing.note}")
    return lines + failed


def _worth(standing: Standing, place: int) -> float:
    """Seconds that the runner-up (place 1), or one behind it, may take."""
    if standing.stopped:
        return WORTH_A_LOOK if place == 1 else 0.0
    return WORTH_TESTING if place == 1 else WORTH_TIMING


def fitted_line(standing: Standing, X: Rows, fit: Callable[[], Any]) -> Line:
    """The line of what `fit` gives, timed, and asked for some of the rows X (n, d)."""
    begun = time.perf_counter()
    model = fit()
    fit_seconds = time.perf_counter() - begun
    some = X[: min(_ASKED, X.shape[0])]
    model.predict(some[:8])  # kernels compiled, index warm
    begun = time.perf_counter()
    model.predict(some)
    return Line(standing, model, fit_seconds, (time.perf_counter() - begun) / some.shape[0], model_bytes(model))


def model_bytes(model: Any) -> int:
    """Bytes of the arrays that a model file would hold."""
    from kway.store import pack

    return int(sum(np.asarray(array).nbytes for array in pack(model)[1].values()))


def size_in_words(n_bytes: int | None) -> str:
    """Bytes for people; a dash where they are not known.

    >>> size_in_words(2_500_000), size_in_words(800)
    ('2.5 MB', '0.8 kB')
    """
    if n_bytes is None:
        return "–"
    return f"{n_bytes / 1e6:,.1f} MB" if n_bytes >= 1e6 else f"{n_bytes / 1e3:,.1f} kB"
