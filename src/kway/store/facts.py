"""Checks of single values: each gives None where a value may stand, and otherwise says what it should have been.

    whole(1)("x")                        -> "a whole number of at least 1"
    record({"n_rows": whole(1)})({})     -> "n_rows missing"

A fact is what JSON gave: whatever is asked of a value, it may be of any type.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

Check = Callable[[Any], str | None]

LARGEST = 2**63 - 1  # what an int64 holds
_LARGEST_FLOAT = sys.float_info.max


def whole(least: int = 0, most: int = LARGEST) -> Check:
    """A whole number within bounds; true and false are none."""
    upper = "" if most == LARGEST else f" and at most {most:,}"

    def check(value: Any) -> str | None:
        fits = type(value) is int and least <= value <= most
        return None if fits else f"a whole number of at least {least:,}{upper}"

    return check


def number(least: float = -math.inf, most: float = math.inf, *, finite: bool = True, above: bool = False) -> Check:
    """A number within bounds; `finite=False` lets infinity and NaN pass, `above=True` leaves `least` itself out."""

    def fits(value: Any) -> bool:
        if type(value) not in (int, float) or abs(value) > _LARGEST_FLOAT:
            return type(value) is float and not finite  # infinite, or a whole number that no float holds
        if math.isnan(value):
            return not finite
        return (value > least if above else value >= least) and value <= most

    lower = "" if least == -math.inf else f" above {least:g}" if above else f" of at least {least:g}"
    said = f"a {'finite ' if finite else ''}number{lower}{'' if most == math.inf else f' and at most {most:g}'}"
    return lambda value: None if fits(value) else said


def text(longest: int = 100_000) -> Check:
    """Text that is not absurdly long."""

    def check(value: Any) -> str | None:
        return None if isinstance(value, str) and len(value) <= longest else f"text of at most {longest:,} characters"

    return check


def flag(value: Any) -> str | None:
    """True or false."""
    return None if isinstance(value, bool) else "true or false"


def scalar(value: Any) -> str | None:
    """A label: text, a number, true or false."""
    return None if isinstance(value, str | bool | int | float) else "text or a number"


def anything(_: Any) -> str | None:
    """What is not looked at after loading, or is checked by its own class."""
    return None


def one_of(*known: Any) -> Check:
    """One of a few values."""

    def check(value: Any) -> str | None:
        fits = any(type(value) is type(k) and value == k for k in known)
        return None if fits else f"one of {', '.join(map(repr, known))}"

    return check


def maybe(check: Check) -> Check:
    """None, or what `check` lets pass."""
    return lambda value: None if value is None else _or_none(check(value))


def either(*checks: Check) -> Check:
    """What one of the checks lets pass."""

    def check(value: Any) -> str | None:
        said = [check(value) for check in checks]
        return None if None in said else " or ".join(map(str, said))

    return check


def many(check: Check, length: int | None = None) -> Check:
    """A list or tuple of what `check` lets pass."""

    def every(value: Any) -> str | None:
        if not isinstance(value, list | tuple):
            return "a list"
        if length is not None and len(value) != length:
            return f"a list of {length}, not of {len(value):,}"
        return next((f"a list whose entries are {said}" for said in map(check, value) if said), None)

    return every


def record(fields: Mapping[str, Check], optional: Collection[str] = ()) -> Check:
    """A table of exactly these fields, those in `optional` where they are there."""

    def check(value: Any) -> str | None:
        if not isinstance(value, dict):
            return "a table of values"
        wrong = missing_and_unknown(value, fields, optional)
        if wrong:
            return wrong
        found = ((name, fields[name](entry)) for name, entry in value.items())
        return next((f"{name} is {in_few_words(value[name])}, expected {said}" for name, said in found if said), None)

    return check


def missing_and_unknown(found: Collection[Any], fields: Collection[str], optional: Collection[str] = ()) -> str | None:
    """What of `fields` is not there, or what is there beside them."""
    missing = [name for name in fields if name not in found and name not in optional]
    unknown = [name for name in found if name not in fields]
    said = ([f"{', '.join(map(in_few_words, missing[:5]))} missing"] if missing else []) + (
        [f"{', '.join(map(in_few_words, unknown[:5]))} unknown"] if unknown else []
    )
    return " and ".join(said) or None


def in_few_words(value: Any, longest: int = 60) -> str:
    """A value from a file as it may stand in a message: short, whatever it is."""
    if isinstance(value, str):
        return ascii(value if len(value) <= longest else value[:longest] + "...")
    if isinstance(value, int) and abs(value) > 10**30:
        return "a whole number of more than 30 digits"
    if isinstance(value, bool | int | float) or value is None:
        return repr(value)
    return f"a {type(value).__name__}"


def _or_none(said: str | None) -> str | None:
    return said and f"{said}, or none"
