"""The best temperature: minimise over b = 1/T > 0

    L(b) = mean_i [ log sum_c exp(b z_ic) - b z_iy ]          z (m, K) log-scores of held-out rows, y their classes
    L'(b) = mean_i [ E_p z_i - z_iy ],   L''(b) = mean_i Var_p z_i >= 0,   p = softmax(b z_i)

L is convex, so a bracket whose ends have slopes of opposite sign holds the minimum: that is the certificate. Newton
steps inside the bracket, bisection where one leaves it.

Two cases have no minimum. No row wrong: L falls for ever as T -> 0; then one miss in m + 2 is imagined, to the
runner-up, which turns the slope (and T stays below `most_if_right`: rows that are all right do not speak for less
confidence than stated). No better than chance: L falls as T grows; then T stops at a bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.threads import pmap, spans
from kway.confidence.heldout import HELD_ENTRIES

_WIDTH = 1e-9  # relative width of the final bracket
_GROW = 4.0
_MOST_GROWTH = 16  # 4^16: beyond that a slope is taken not to turn


class Slope(NamedTuple):
    """First and second derivative of L."""

    first: float
    second: float


@dataclass(frozen=True)
class TemperatureFit:
    """T, and a bracket of 1/T with the slopes of the loss at its ends: opposite signs prove the minimum."""

    temperature: float
    low: float
    high: float
    slope_low: float
    slope_high: float
    n_rows: int
    imagined_miss: bool = False  # no held-out row was wrong

    @property
    def certified(self) -> bool:
        """Whether the slopes have opposite signs."""
        return self.slope_low <= 0 <= self.slope_high


def best_temperature(z: NDArray[np.float64], codes: NDArray[np.int64], most_if_right: float = np.inf) -> TemperatureFit:
    """T that minimises the log loss of softmax(z / T) for z (m, K) and classes (m,)."""
    m = len(z)
    top = z.max(axis=1, initial=-np.inf)
    size = float(np.mean(top - z.mean(axis=1))) if m else 0.0
    if not size > 0:  # no rows, or no score above another: every T gives the same
        return TemperatureFit(1.0, 1.0, 1.0, 0.0, 0.0, m)
    own = z[np.arange(m), codes]
    imagined = bool(np.all(own >= top))
    target = own
    if imagined:
        target = own + (np.partition(z, -2, axis=1)[:, -2] - own) / (m + 2)  # (m,)

    def slope(b: float) -> Slope:
        return _slope(z, target, b)

    bracket = _bracket(slope, 1 / size)
    low, high, at_low, at_high = _narrow(slope, *bracket)
    found = at_low <= 0 <= at_high
    b = (low + high) / 2 if found else low  # no better than chance: the largest T looked at
    if imagined and 1 / b > most_if_right:
        b = 1 / most_if_right
        return TemperatureFit(most_if_right, b, np.inf, _slope(z, own, b).first, 0.0, m, imagined)
    return TemperatureFit(1 / b, low, high, at_low, at_high, m, imagined)


def _slope(z: NDArray[np.float64], target: NDArray[np.float64], b: float) -> Slope:
    def part(rows: slice) -> NDArray[np.float64]:
        block = z[rows]
        p = np.exp(b * (block - block.max(axis=1, keepdims=True)))
        p /= p.sum(axis=1, keepdims=True)
        mean = np.einsum("ij,ij->i", p, block)
        spread = np.einsum("ij,ij->i", p, np.square(block - mean[:, None]))
        return np.array([np.sum(mean - target[rows]), spread.sum()])

    total = np.sum(pmap(part, spans(len(z), max(1, HELD_ENTRIES // 8 // z.shape[1]))), axis=0)
    return Slope(float(total[0]) / len(z), float(total[1]) / len(z))


def _bracket(slope: Callable[[float], Slope], start: float) -> tuple[float, float, float, float]:
    """(low, high, slope at low, slope at high) around the minimum, where there is one."""
    low = high = start
    at_low = at_high = slope(start).first
    for _ in range(_MOST_GROWTH):
        if at_low <= 0:
            break
        high, at_high = low, at_low
        low /= _GROW
        at_low = slope(low).first
    for _ in range(_MOST_GROWTH):
        if at_high >= 0:
            break
        low, at_low = high, at_high
        high *= _GROW
        at_high = slope(high).first
    return low, high, at_low, at_high


def _narrow(
    slope: Callable[[float], Slope], low: float, high: float, at_low: float, at_high: float
) -> tuple[float, float, float, float]:
    """Newton inside the bracket; each end moves only to a point of its own sign, so the signs stay a proof."""
    b = (low + high) / 2
    for _ in range(200):
        if not (at_low < 0 < at_high) or high - low <= _WIDTH * high:
            break
        here = slope(b)
        if here.first <= 0:
            low, at_low = b, here.first
        if here.first >= 0:
            high, at_high = b, here.first
        step = b - here.first / here.second if here.second > 0 else low
        # a step past the root by the width wanted closes the bracket from the other side as well
        step += np.sign(step - b) * _WIDTH * b / 4
        b = step if low < step < high else (low + high) / 2
    return low, high, at_low, at_high
