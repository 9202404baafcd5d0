"""Rules for the values of parameters. All errors have the same form.

    check_parameters(model, alpha=at_least(0), n_neighbors=whole(1))    "alpha must be a number of at least 0, got 'x'"

A rule checks the type of a value before it compares it, so that a value of another type raises InputError and not a
TypeError. Numbers must be finite, unless the rule says otherwise (`or_infinite`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Self

from kway.errors import InputError

if TYPE_CHECKING:  # the commands check their options before they load numpy
    import numpy as np


@dataclass(frozen=True)
class Rule:
    """A description of the allowed values, and a function that tells whether a value is allowed."""

    expected: str
    allows: Callable[[Any], bool]

    def __or__(self, other: Self) -> Self:
        return type(self)(
            f"{self.expected} or {other.expected}", lambda value: self.allows(value) or other.allows(value)
        )

    def check(self, name: str, value: Any) -> Any:
        """Return the value; raise InputError if it is not allowed."""
        if not self.allows(value):
            raise InputError(self.message(name, value))
        return value

    def message(self, name: str, value: Any) -> str:
        """Return the error message for a value that is not allowed."""
        infinite = isinstance(value, Real) and not isinstance(value, Integral) and not math.isfinite(value)
        return f"{name} must be {self.expected}, got {value!r:.100}{', which is not finite' if infinite else ''}"


def check_parameters(model: Any, **rules: Rule) -> None:
    """Raise one InputError for all parameters of a model that their rules do not allow."""
    given = {name: getattr(model, name) for name in rules}
    wrong = [rule.message(name, given[name]) for name, rule in rules.items() if not rule.allows(given[name])]
    if wrong:
        raise InputError("; ".join(wrong))


def whole(least: int) -> Rule:
    """Allow whole numbers of at least `least`.

    >>> import numpy as np
    >>> [whole(1).allows(value) for value in (1, np.int64(3), 0, 2.5, "a", True, None)]
    [True, True, False, False, False, False, False]
    """
    return Rule(f"a whole number of at least {least}", lambda value: _is(Integral, value) and bool(value >= least))


def at_least(low: float) -> Rule:
    """Allow numbers of at least `low`."""
    return Rule(f"a number of at least {low:g}", lambda value: _is(Real, value) and bool(value >= low))


def above(low: float, or_infinite: bool = False) -> Rule:
    """Allow numbers above `low`, and infinity if `or_infinite`."""
    return Rule(
        f"a number above {low:g}",
        lambda value: (
            (_is(Real, value) and bool(value > low)) or (or_infinite and isinstance(value, float) and value == math.inf)
        ),
    )


def within(low: float, high: float) -> Rule:
    """Allow numbers from `low` to `high`, including both."""
    return Rule(f"a number from {low:g} to {high:g}", lambda value: _is(Real, value) and bool(low <= value <= high))


def between(low: float, high: float) -> Rule:
    """Allow numbers above `low` and below `high`."""
    return Rule(f"a number between {low:g} and {high:g}", lambda value: _is(Real, value) and bool(low < value < high))


def share(low: float = 0) -> Rule:
    """Allow numbers of at least `low` and below 1."""
    return Rule(f"a number from {low:g} to below 1", lambda value: _is(Real, value) and bool(low <= value < 1))


def one_of(*known: str) -> Rule:
    """Allow one of these strings."""
    expected = f"one of {', '.join(map(repr, known))}" if len(known) > 1 else repr(known[0])
    return Rule(expected, lambda value: isinstance(value, str) and value in known)


AUTO = one_of("auto")
NONE = Rule("None", lambda value: value is None)
YES_OR_NO = Rule("True or False", lambda value: type(value).__name__ in ("bool", "bool_"))  # also those of numpy
THREADS = NONE | Rule("a whole number other than 0", lambda value: _is(Integral, value) and value != 0)  # n_jobs
SEED = Rule(f"a whole number from 0 to {2**31}", lambda value: _is(Integral, value) and 0 <= value <= 2**31)
CLASS_WEIGHT = NONE | one_of("balanced") | Rule("weights by label", lambda value: isinstance(value, dict))
VERBOSE = YES_OR_NO | whole(0)
DEVICES = ("cpu", "cuda", "auto")  # where a model computes
NUMBERED_GPU = Rule("'cuda:N'", lambda value: isinstance(value, str) and bool(re.fullmatch(r"cuda:\d{1,3}", value)))
DEVICE = one_of(*DEVICES) | NUMBERED_GPU


def checked_k(k: Any, n_classes: int) -> int:
    """Return the length of a top-k list: k, which must be at least 1, or the number of classes if k is larger."""
    whole(1).check("k", k)
    return min(int(k), n_classes)


def checked_rng(random_state: Any) -> np.random.RandomState:
    """Return the generator of a `random_state` of scikit-learn."""
    from sklearn.utils import check_random_state  # imported here, because indexes need only the rules

    try:
        return check_random_state(random_state)
    except ValueError as error:
        raise InputError(f"random_state must be None, a whole number or a RandomState; {error}") from error


def _is(kind: Any, value: Any) -> bool:
    """Return whether a value is a finite number of this type that fits in 64 bits."""
    if not isinstance(value, kind) or isinstance(value, bool):
        return False
    return bool(-(2**63) <= int(value) < 2**63) if isinstance(value, Integral) else math.isfinite(value)
