"""A box-constrained support vector problem solved to high accuracy by a primal-dual interior point method.

    min_a  ||Z'a + w0||^2 / 2 - sum a,   0 <= a <= upper,   y.a = -s0 where there is a bias

Z (m, d) holds the rows y_i x_i that are undecided, w0 and s0 what the decided rows add to w and to sum a y. About 20
steps whatever the box, where coordinate descent needs a number that grows with it; each costs one product of min(m, d)
squared times max(m, d): (Z Z' + theta) from its smaller side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from kway.linear.solvers.newton.standard_columns import Floats

INTERIOR_STEPS = 60
SHY = 0.995  # share of the way to the nearest wall


class Optimum(NamedTuple):
    """Dual variables a (m,) and the bias; whoever asked judges them by the duality gap."""

    a: Floats
    b: float


@dataclass(frozen=True)
class Undecided:
    """What does not change from step to step; upper is infinite for the hard margin."""

    Z: Floats  # (m, d)
    y: Floats
    upper: Floats
    w0: Floats
    s0: float
    bias: bool

    @property
    def boxed(self) -> bool:
        """Whether a has upper walls."""
        return bool(np.isfinite(self.upper).all())


@dataclass
class State:
    """a with the distance to the upper wall, the bias, and the forces of the two walls."""

    a: Floats
    room: Floats  # upper - a
    b: float
    z: Floats  # of a >= 0
    v: Floats  # of a <= upper


def solve_box(part: Undecided, tol: float) -> Optimum:
    """Mehrotra's predictor and corrector until the walls' forces account for less than tol of the objective."""
    state = _central_state(part)
    for _ in range(INTERIOR_STEPS):
        w = state.a @ part.Z + part.w0
        slope = part.Z @ w + state.b * part.y - 1 - state.z + state.v  # dual residual (m,)
        drift = float(part.y @ state.a) + part.s0 if part.bias else 0.0
        energy = float(state.a @ state.z) + (float(state.room @ state.v) if part.boxed else 0.0)
        size = float(w @ w) / 2 + float(np.abs(state.a).sum())
        if energy <= tol * size and np.abs(slope).max() <= 1e-6 and abs(drift) <= 1e-9 * max(1.0, size):
            return Optimum(state.a, state.b)
        try:
            _advance(part, state, slope, drift, energy)
        except LinAlgError:
            break
    return Optimum(state.a, state.b)


def _central_state(part: Undecided) -> State:
    m = len(part.y)
    a = part.upper / 2 if part.boxed else np.ones(m)
    room = part.upper - a if part.boxed else np.ones(m)
    return State(a, room, 0.0, np.ones(m), np.ones(m) if part.boxed else np.zeros(m))


def _advance(part: Undecided, state: State, slope: Floats, drift: float, energy: float) -> None:
    """One predictor and one corrector step."""
    walls = len(state.a) * (2 if part.boxed else 1)
    inverse = _inverse(part.Z, state.z / state.a + state.v / state.room)
    along = inverse(part.y) if part.bias else part.y

    def direction(low: Floats, high: Floats) -> tuple[Floats, float, Floats, Floats]:
        """Solve for targets low of a z and high of room v."""
        rhs = -slope + (low / state.a - state.z) - (high / state.room - state.v)
        da, db = inverse(rhs), 0.0
        if part.bias:
            db = (float(part.y @ da) + drift) / float(part.y @ along)
            da = da - db * along
        dz = (low - state.z * da) / state.a - state.z
        dv = (high + state.v * da) / state.room - state.v
        return da, db, dz, dv

    none = np.zeros_like(state.a)
    da, db, dz, dv = direction(none, none)
    t = _reach(part, state, da, dz, dv)
    left = float((state.a + t * da) @ (state.z + t * dz))
    if part.boxed:
        left += float((state.room - t * da) @ (state.v + t * dv))
    mu = energy / walls * min(1.0, max(left / energy, 1e-8)) ** 3
    da, db, dz, dv = direction(mu - da * dz, (mu + da * dv) if part.boxed else none)
    t = SHY * _reach(part, state, da, dz, dv)
    state.a, state.b, state.z, state.v = state.a + t * da, state.b + t * db, state.z + t * dz, state.v + t * dv
    if part.boxed:
        state.room = state.room - t * da


def _reach(part: Undecided, state: State, da: Floats, dz: Floats, dv: Floats) -> float:
    """The longest step up to 1 / SHY that crosses no wall."""
    pairs = [(state.a, da), (state.z, dz)]
    if part.boxed:
        pairs += [(state.room, -da), (state.v, dv)]
    limits = [float((-x[dx < 0] / dx[dx < 0]).min(initial=np.inf)) for x, dx in pairs]
    return min(1 / SHY, *limits)


def _inverse(Z: Floats, theta: Floats) -> Callable[[Floats], Floats]:
    """x -> (Z Z' + diag(theta))^-1 x, through the smaller of (m, m) and (d, d)."""
    m, d = Z.shape
    if m <= d:
        G = Z @ Z.T
        G[np.arange(m), np.arange(m)] += theta
        small = cho_factor(G, lower=True, overwrite_a=True, check_finite=False)
        return lambda x: cho_solve(small, x, check_finite=False)
    scaled = Z / np.sqrt(theta)[:, None]
    B = scaled.T @ scaled  # (d, d)
    B[np.arange(d), np.arange(d)] += 1
    factor = cho_factor(B, lower=True, overwrite_a=True, check_finite=False)

    def once(x: Floats) -> Floats:
        part = x / theta
        return part - (Z @ cho_solve(factor, part @ Z, check_finite=False)) / theta

    def apply(x: Floats) -> Floats:
        """Refined once: near the walls theta spans many orders of magnitude and the formula above loses digits."""
        first = once(x)
        return first + once(x - theta * first - Z @ (first @ Z))

    return apply
