"""What a parameter may be: one rule a parameter, one sentence for all of them.

    check_parameters(model, alpha=at_least(0), n_neighbors=whole(1))    "alpha must be a number of at least 0, got 'x'"

Rules look at the kind before they compare, so that no value of the wrong kind ends in an error of Python's own. Numbers
are finite ones, as an alpha of infinity has no optimum, but for limits that may be infinite (`endless`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from kway.errors import InputError


@dataclass(frozen=True)
class Rule:
    """What is allowed, in words, and the test of it."""

    says: str
    allows: Callable[[Any], bool]

    def __or__(self, other: Rule) -> Rule:
        return Rule(f"{self.says} or {other.says}", lambda value: self.allows(value) or other.allows(value))

    def check(self, name: str, value: Any) -> None:
        """Raise unless the value is allowed."""
        if not self.allows(value):
            raise InputError(self.broken_by(name, value))

    def broken_by(self, name: str, value: Any) -> str:
        """The sentence."""
        endless = isinstance(value, float | np.floating) and not math.isfinite(value)
        return f"{name} must be {self.says}, got {value!r:.100}{', which is not finite' if endless else ''}"


def check_parameters(model: Any, **rules: Rule) -> None:
    """Refuse parameters of a model that their rules do not allow, all of them in one message."""
    given = {name: getattr(model, name) for name in rules}
    broken = [rule.broken_by(name, given[name]) for name, rule in rules.items() if not rule.allows(given[name])]
    if broken:
        raise InputError("; ".join(broken))


def whole(least: int) -> Rule:
    """Whole numbers from `least` on.

    >>> [whole(1).allows(value) for value in (1, np.int64(3), 0, 2.5, "a", True, None)]
    [True, True, False, False, False, False, False]
    """
    return Rule(f"a whole number of at least {least}", lambda value: _is(Integral, value) and bool(value >= least))


def at_least(low: float) -> Rule:
    """Numbers from `low` on."""
    return Rule(f"a number of at least {low:g}", lambda value: _is(Real, value) and bool(value >= low))


def above(low: float, endless: bool = False) -> Rule:
    """Numbers larger than `low`; `endless`: also infinity, the limit of what has none."""
    return Rule(
        f"a number above {low:g}",
        lambda value: (
            (_is(Real, value) and bool(value > low)) or (endless and isinstance(value, float) and value == math.inf)
        ),
    )


def within(low: float, high: float) -> Rule:
    """Numbers from `low` to `high`, both allowed."""
    return Rule(f"a number from {low:g} to {high:g}", lambda value: _is(Real, value) and bool(low <= value <= high))


def between(low: float, high: float) -> Rule:
    """Numbers above `low` and below `high`."""
    return Rule(f"a number between {low:g} and {high:g}", lambda value: _is(Real, value) and bool(low < value < high))


def share(low: float = 0) -> Rule:
    """Numbers from `low` on, below 1."""
    return Rule(f"a number from {low:g} to below 1", lambda value: _is(Real, value) and bool(low <= value < 1))


def one_of(*known: str) -> Rule:
    """One of these words."""
    says = f"one of {', '.join(map(repr, known))}" if len(known) > 1 else repr(known[0])
    return Rule(says, lambda value: isinstance(value, str) and value in known)


AUTO = one_of("auto")
NONE = Rule("None", lambda value: value is None)
YES_OR_NO = Rule("True or False", lambda value: isinstance(value, bool | np.bool_))
THREADS = NONE | Rule("a whole number other than 0", lambda value: _is(Integral, value) and value != 0)  # n_jobs
SEED = Rule(f"a whole number from 0 to {2**31}", lambda value: _is(Integral, value) and 0 <= value <= 2**31)
CLASS_WEIGHT = NONE | one_of("balanced") | Rule("weights by label", lambda value: isinstance(value, dict))
VERBOSE = YES_OR_NO | whole(0)
DEVICES = ("cpu", "cuda", "auto")  # where a model computes
NUMBERED_GPU = Rule("'cuda:N'", lambda value: isinstance(value, str) and bool(re.fullmatch(r"cuda:\d{1,3}", value)))
DEVICE = one_of(*DEVICES) | NUMBERED_GPU


def checked_k(k: Any, n_classes: int) -> int:
    """k of a top-k list: a whole number of at least 1, and no more than there are classes."""
    whole(1).check("k", k)
    return min(int(k), n_classes)


def checked_rng(random_state: Any) -> np.random.RandomState:
    """scikit-learn's random_state as a generator."""
    from sklearn.utils import check_random_state  # recipes of indexes do without it

    try:
        return check_random_state(random_state)
    except ValueError as error:
        raise InputError(f"random_state must be None, a whole number or a RandomState; {error}") from error


def _is(kind: Any, value: Any) -> bool:
    """Whether it is a finite number of a kind, and one that a machine's own type holds."""
    if not isinstance(value, kind) or isinstance(value, bool | np.bool_):
        return False
    return math.isfinite(value) if isinstance(value, float | np.floating) else bool(-(2**63) <= value < 2**63)
