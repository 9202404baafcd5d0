"""Nonconformity: how odd a class would be as the label of a row; p are the row's probabilities, best first.

    LAC   s_c = 1 - p_c                                                    the smallest sets on average
    APS   s_c = sum of p_j > p_c  +  u * sum of p_j = p_c,  u ~ U(0, 1)    sets that grow with the row's difficulty

u is drawn once a row. Classes of equal probability (votes of neighbours) share one score, so their order in the list
does not matter. Both work on lists (q, k): `of(lists, u)` gives the scores of the listed classes, NaN where the list
ends before the score is known, and `least` (q,), a bound that no class without a score is below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kway.confidence.ranking import Ranked
from kway.errors import InputError


class Oddness(NamedTuple):
    """Scores (q, k) of the listed classes, and the least (q,) that any other class can have."""

    scores: NDArray[np.float64]
    least: NDArray[np.float64]


class Nonconformity(Protocol):
    """One way to score classes."""

    def of(self, lists: Ranked, u: NDArray[np.float64]) -> Oddness:
        """Scores of the listed classes and a bound for the others."""


@dataclass(frozen=True)
class Lac:
    """1 - p_c."""

    def of(self, lists: Ranked, u: NDArray[np.float64]) -> Oddness:
        """Every listed class has its score; the others are no more probable than the last."""
        scores = 1.0 - lists.probabilities
        return Oddness(scores, np.full(len(scores), np.inf) if lists.whole else scores[:, -1])


@dataclass(frozen=True)
class Aps:
    """The mass of the more probable classes and a random share of the class's own."""

    def of(self, lists: Ranked, u: NDArray[np.float64]) -> Oddness:
        """Classes tied with the last of the list may go on beyond it, so they have no score yet."""
        p = lists.probabilities  # (q, k)
        column = np.arange(p.shape[1])
        falls = np.diff(p, axis=1) < 0  # (q, k - 1)
        edge = np.ones((len(p), 1), bool)
        starts = np.maximum.accumulate(np.where(np.hstack([edge, falls]), column, 0), axis=1)
        ends = np.where(np.hstack([falls, edge]), column, p.shape[1])[:, ::-1]
        ends = np.minimum.accumulate(ends, axis=1)[:, ::-1]
        total = np.cumsum(p, axis=1)
        before = np.take_along_axis(total - p, starts, axis=1)
        through = np.take_along_axis(total, ends, axis=1)
        scores = np.minimum(before + u[:, None] * (through - before), 1.0)
        scores[p <= 0] = 1.0  # all mass lies before them: exactly, whatever the sum was rounded to
        if lists.whole:
            return Oddness(scores, np.full(len(p), np.inf))
        least = np.where(p[:, -1] <= 0, 1.0, before[:, -1])
        return Oddness(np.where(starts == starts[:, -1:], np.nan, scores), least)


METHODS: dict[str, Nonconformity] = {"lac": Lac(), "aps": Aps()}


def pick_method(method: str) -> Nonconformity:
    """The nonconformity of a name."""
    if not isinstance(method, str) or method not in METHODS:
        raise InputError(f"method must be one of {', '.join(map(repr, METHODS))}, got {method!r}")
    return METHODS[method]
