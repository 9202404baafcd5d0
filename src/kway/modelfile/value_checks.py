"""Checks of single values of a model file: its parameters and facts, which are stored as JSON.

A check is a function of the value. It returns None if the value is allowed, and otherwise the problem with it, as the
end of a sentence that begins with the name of the value:

    whole_number(1)("x")                          -> "is 'x', expected a whole number of at least 1"
    json_object({"n_rows": whole_number(1)})({})  -> "has other fields than expected ('n_rows' missing)"

A `ValueCheck` also describes the allowed values, so that `|` can name several. Every field of a file must have a
check: model files come from strangers, and `field_check` refuses a type that it does not know.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import sys
import types
import typing
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any

import numpy as np

from kway.parameters import Rule

Check = Callable[[Any], str | None]  # value -> the problem with it, or None

LARGEST_INT = int(np.iinfo(np.int64).max)
_LARGEST_FLOAT = sys.float_info.max


class ValueCheck(Rule):
    """A check that a predicate decides, with a description of the allowed values."""

    def __call__(self, value: Any) -> str | None:
        """Return the problem with a value, or None."""
        return None if self.allows(value) else f"is {short_repr(value)}, expected {self.expected}"


def whole_number(minimum: int = 0, maximum: int = LARGEST_INT) -> ValueCheck:
    """Require an integer within bounds; True and False are not integers."""
    upper = "" if maximum == LARGEST_INT else f" and at most {maximum:,}"
    return ValueCheck(
        f"a whole number of at least {minimum:,}{upper}",
        lambda value: type(value) is int and minimum <= value <= maximum,
    )


def number(
    minimum: float = -math.inf, maximum: float = math.inf, *, allow_nan: bool = False, exclusive: bool = False
) -> ValueCheck:
    """Require a number within bounds.

    `allow_nan=True` also allows NaN and infinity. `exclusive=True` excludes `minimum` itself.
    """

    def allows(value: Any) -> bool:
        if type(value) not in (int, float) or abs(value) > _LARGEST_FLOAT:
            return type(value) is float and allow_nan  # infinity; an int this large does not fit into a float
        if math.isnan(value):
            return allow_nan
        return (value > minimum if exclusive else value >= minimum) and value <= maximum

    lower = "" if minimum == -math.inf else f" above {minimum:g}" if exclusive else f" of at least {minimum:g}"
    upper = "" if maximum == math.inf else f" and at most {maximum:g}"
    return ValueCheck(f"a {'' if allow_nan else 'finite '}number{lower}{upper}", allows)


def text(max_length: int = 100_000) -> ValueCheck:
    """Require text of limited length."""
    return ValueCheck(
        f"text of at most {max_length:,} characters",
        lambda value: isinstance(value, str) and len(value) <= max_length,
    )


boolean = ValueCheck("true or false", lambda value: isinstance(value, bool))
label = ValueCheck("text or a number", lambda value: isinstance(value, str | bool | int | float))
plain_dict = ValueCheck("a JSON object", lambda value: isinstance(value, dict))


def one_of(*allowed: Any) -> ValueCheck:
    """Require one of these values; 1, 1.0 and True differ."""
    return ValueCheck(
        f"one of {', '.join(map(repr, allowed))}",
        lambda value: any(type(value) is type(other) and value == other for other in allowed),
    )


def optional(check: Check) -> Check:
    """Allow None and the values that `check` allows."""
    return lambda value: None if value is None else check(value)


def list_of(check: Check, length: int | None = None) -> Check:
    """Require a list or tuple, of this length if it is given, whose entries `check` allows."""

    def check_list(value: Any) -> str | None:
        if not isinstance(value, list | tuple):
            return f"is {short_repr(value)}, expected a list"
        if length is not None and len(value) != length:
            return f"is a list of {len(value):,} entries, expected {length}"
        return next((f"has an entry that {problem}" for problem in map(check, value) if problem), None)

    return check_list


def json_object(fields: Mapping[str, Check], optional: Collection[str] = ()) -> Check:
    """Require a JSON object with exactly these fields; those in `optional` may be missing."""

    def check_object(value: Any) -> str | None:
        if not isinstance(value, dict):
            return f"is {short_repr(value)}, expected a JSON object"
        wrong = missing_and_unknown(value, fields, optional)
        if wrong:
            return f"has other fields than expected ({wrong})"
        problems = ((name, fields[name](entry)) for name, entry in value.items())
        return next((f"has a field {name} that {problem}" for name, problem in problems if problem), None)

    return check_object


def dataclass_object(cls: type, **checks: Check) -> Check:
    """Require a JSON object with the fields of a dataclass, checked by their types.

    `checks` replaces the checks of fields by name, and adds further fields. Arrays are left out: they are not in JSON.
    """
    hints = typing.get_type_hints(cls)
    stored = [f.name for f in dataclasses.fields(cls) if typing.get_origin(hints[f.name]) is not np.ndarray]
    return json_object({name: checks[name] if name in checks else field_check(hints[name]) for name in stored} | checks)


def record(path: str, **checks: Check) -> Check:
    """Require the fields of the dataclass with this path, which is imported when a value is checked."""
    module, _, name = path.rpartition(".")

    @cache
    def fields() -> Check:
        return dataclass_object(getattr(importlib.import_module(module), name), **checks)

    return lambda value: fields()(value)


def field_check(hint: Any) -> Check:
    """Return the check of a dataclass field from its type; raise TypeError for a type without a check."""
    simple: dict[Any, Check] = {int: whole_number(), float: number(allow_nan=True), str: text(), bool: boolean}
    if hint in simple:
        return simple[hint]
    args = typing.get_args(hint)
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        choices = [field_check(arg) for arg in args if arg is not type(None)]
        check = choices[0] if len(choices) == 1 else _first_allowed(choices)
        return optional(check) if type(None) in args else check
    if typing.get_origin(hint) is tuple:
        return list_of(field_check(args[0]), None if args[-1] is ... else len(args))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return dataclass_object(hint, type=one_of(hint.__name__))
    raise TypeError(f"a field of type {hint} has no check; pass one to dataclass_object")


def _first_allowed(checks: Collection[Check]) -> Check:
    """Allow the values that one of the checks allows; the problem is that of the last check."""

    def check(value: Any) -> str | None:
        problems = [each(value) for each in checks]
        return None if None in problems else problems[-1]

    return check


def missing_and_unknown(names: Collection[Any], fields: Collection[str], optional: Collection[str] = ()) -> str | None:
    """Return a description of missing and unknown names; None if there are none."""
    missing = [name for name in fields if name not in names and name not in optional]
    unknown = [name for name in names if name not in fields]
    problems = [
        f"{', '.join(map(short_repr, wrong[:5]))} {kind}"
        for wrong, kind in ((missing, "missing"), (unknown, "unknown"))
        if wrong
    ]
    return " and ".join(problems) or None


def short_repr(value: Any, max_length: int = 60) -> str:
    """Return a value from a file as it appears in messages: shortened, in ASCII."""
    if isinstance(value, str):
        return ascii(value if len(value) <= max_length else value[:max_length] + "...")
    if isinstance(value, int) and abs(value) > 10**30:
        return "a whole number of more than 30 digits"
    if isinstance(value, bool | int | float) or value is None:
        return repr(value)
    return f"a {type(value).__name__}"
