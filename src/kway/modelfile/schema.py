"""What a model file must contain: facts and arrays as declared, checked once, before anything is built from them.

    Schema(facts={"n_iter": whole()}, arrays=lambda stored: {"coef": Array(FLOAT_TYPES, ("R", "d"))})

Sizes are names (K classes, d columns, n rows). A size that is known must agree; an unknown one takes the value of the
first array that has it. All are at least 1, except those with a star ("z*"). The bytes of every array are in the file,
so whatever is later allocated in these sizes is bounded by the size of the file. Index arrays (codes, cells, ids,
offsets) are read once to check their range; rows and weights are never read.

A check of a single value returns None if the value is allowed, and otherwise what it should have been:

    whole(1)("x")                        -> "a whole number of at least 1"
    record({"n_rows": whole(1)})({})     -> "n_rows missing"
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.errors import ModelFileError

FLOAT_TYPES = ("float32", "float64")
INT32_64 = ("int32", "int64")  # index arrays of scipy
AGAIN = "the file is damaged or was not written by kway; get it, or save it, again"


@dataclass(frozen=True)
class StoredObject:
    """What a file holds of one object: parameters, facts, arrays by name, and the sizes known so far."""

    what: str  # the class, in messages
    params: Mapping[str, Any]
    facts: Mapping[str, Any]
    arrays: Mapping[str, NDArray]
    classes: NDArray
    sizes: dict[str, int]

    def under(self, prefix: str) -> dict[str, NDArray]:
        """The arrays whose names begin with a prefix, without it."""
        return {name.removeprefix(prefix): array for name, array in self.arrays.items() if name.startswith(prefix)}


Values = Callable[[NDArray, Mapping[str, int]], str | None]  # array and sizes -> what is wrong with the values
CrossRule = Callable[[StoredObject], str | None]  # what is wrong between facts and arrays


@dataclass(frozen=True)
class Array:
    """One array: dtypes it may have, shape in names of sizes or numbers, rules its values keep."""

    dtypes: tuple[str, ...]
    shape: tuple[str | int, ...]
    values: tuple[Values, ...] = ()
    optional: bool = False


def _nothing(_: StoredObject) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Schema:
    """One class: checks of its parameters and facts, sizes that facts give, arrays, rules across them.

    `params` adds to the checks of all classes (schemas/estimators.py). `nested` are prefixes of arrays that another
    object restores and checks. `after` looks at the restored object: whether its parts can do what is asked of them.
    """

    facts: Mapping[str, Check]
    arrays: Callable[[StoredObject], Mapping[str, Array]] = _nothing
    sizes: Callable[[StoredObject], Mapping[str, int]] = _nothing
    rules: tuple[CrossRule, ...] = ()
    params: Mapping[str, Check] = field(default_factory=dict)
    nested: tuple[str, ...] = ()
    after: tuple[Callable[[Any], str | None], ...] = ()
    optional_facts: tuple[str, ...] = ()


def check_facts(schema: Schema, facts: Any, what: str) -> None:
    """Refuse facts that are missing, unknown or out of range."""
    if not isinstance(facts, dict):
        raise ModelFileError(f"the facts of the {what} are {short_repr(facts)}, expected a table; {AGAIN}")
    wrong = missing_and_unknown(facts, schema.facts, schema.optional_facts)
    if wrong:
        raise ModelFileError(f"the facts of the {what} do not fit: {wrong}; {AGAIN}")
    check_values(schema.facts, facts, f"the fact {{}} of the {what}")


def check_values(fields: Mapping[str, Check], values: Mapping[str, Any], where: str) -> None:
    """Refuse values out of range; `where` names one in the message."""
    for name, check in fields.items():
        said = check(values[name]) if name in values else None
        if said:
            raise ModelFileError(f"{where.format(name)} is {short_repr(values[name])}, expected {said}; {AGAIN}")


def check_arrays(schema: Schema, stored: StoredObject) -> None:
    """Refuse arrays that are missing, unknown, of another shape or dtype, or out of range."""
    for name, size in schema.sizes(stored).items():
        _agree(stored, name, size, f"the facts of the {stored.what}")
    declared = schema.arrays(stored)
    own = [name for name in stored.arrays if not name.startswith(schema.nested or ("\0",))]
    wrong = missing_and_unknown(own, declared, [name for name, array in declared.items() if array.optional])
    if wrong:
        raise ModelFileError(f"the arrays of the {stored.what} do not fit: {wrong}; {AGAIN}")
    for name in own:
        _check_shape(name, stored.arrays[name], declared[name], stored)
    for name in own:
        for rule in declared[name].values:
            _refuse(rule(stored.arrays[name], stored.sizes), f"array {name!r}")
    for across in schema.rules:
        _refuse(across(stored), f"the {stored.what}")


def _check_shape(name: str, array: NDArray, declared: Array, stored: StoredObject) -> None:
    if array.dtype.name not in declared.dtypes:
        _refuse(f"is of dtype {array.dtype}, expected {' or '.join(declared.dtypes)}", f"array {name!r}")
    if array.ndim != len(declared.shape):
        _refuse(f"has shape {array.shape}, expected ({', '.join(map(str, declared.shape))})", f"array {name!r}")
    for axis, (wanted, size) in enumerate(zip(declared.shape, array.shape)):
        if isinstance(wanted, str):
            _agree(stored, wanted, size, f"axis {axis} of array {name!r}")
        elif size != wanted:
            _refuse(f"has shape {array.shape}, but its axis {axis} is {wanted}", f"array {name!r}")


def _agree(stored: StoredObject, name: str, size: int, who: str) -> None:
    """Size `name` is `size`, says `who`: it must be what it was before."""
    known = stored.sizes.setdefault(name, size)
    if known != size:
        _refuse(f"has {name.rstrip('*')} = {size:,}, but elsewhere in the file it is {known:,}", who)
    if size < 1 and not name.endswith("*"):
        _refuse(f"is empty ({name} = {size})", who)


def _refuse(said: str | None, who: str) -> None:
    if said:
        raise ModelFileError(f"{who} of the model file {said}; {AGAIN}")


# ---- what values of index arrays must keep


def below(size: str | int) -> Values:
    """0 <= every value < the size."""

    def check(array: NDArray, sizes: Mapping[str, int]) -> str | None:
        most = sizes[size] if isinstance(size, str) else size
        if not array.size:
            return None
        low, high = int(array.min()), int(array.max())
        return None if low >= 0 and high < most else f"holds {low} to {high}, expected 0 to {most - 1}"

    return check


def distinct(array: NDArray, _: Mapping[str, int]) -> str | None:
    """No value twice, none negative; in one pass where they ascend, as they do as a rule."""
    if not array.size:
        return None
    if array.min() < 0:
        return f"holds {int(array.min())}, expected none below 0"
    twice = not (array[1:] > array[:-1]).all() and len(np.unique(array)) < len(array)
    return "holds a value twice" if twice else None


def ascending(array: NDArray, _: Mapping[str, int]) -> str | None:
    """Every value above the one before."""
    return None if (array[1:] > array[:-1]).all() else "is not in ascending order"


def offsets_to(size: str) -> Values:
    """From 0 to the size, never down."""

    def check(array: NDArray, sizes: Mapping[str, int]) -> str | None:
        most = sizes[size]
        fits = array[0] == 0 and array[-1] == most and bool((array[1:] >= array[:-1]).all())
        return None if fits else f"does not ascend from 0 to {most}"

    return check


def finite(array: NDArray, _: Mapping[str, int]) -> str | None:
    """Numbers all; for short arrays only (a pass over every value)."""
    return None if np.isfinite(array).all() else "holds NaN or infinity"


def positive(array: NDArray, _: Mapping[str, int]) -> str | None:
    """Above 0 all, and finite."""
    return None if np.isfinite(array).all() and (array > 0).all() else "holds values that are not above 0"


def counts(array: NDArray, _: Mapping[str, int]) -> str | None:
    """Finite, none below 0, some above."""
    fits = np.isfinite(array).all() and (array >= 0).all() and (array > 0).any()
    return None if fits else "holds NaN, infinity or values below 0, or nothing above 0"


def ascending_in_rows(indices: NDArray, indptr: NDArray) -> str | None:
    """Columns of each CSR row in ascending order, none twice."""
    falls = np.flatnonzero(indices[1:] <= indices[:-1]) + 1  # a row's first entry may
    starts = np.zeros(len(indices) + 1, bool)
    starts[indptr] = True
    return None if starts[falls].all() else "holds columns that do not ascend within a row"


def same_dtype(*names: str) -> CrossRule:
    """Arrays that one kernel reads together."""

    def check(stored: StoredObject) -> str | None:
        kinds = {name: stored.arrays[name].dtype.name for name in names if name in stored.arrays}
        said = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
        return None if len(set(kinds.values())) < 2 else f"mixes dtypes: {said}"

    return check


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
        return next((f"{name} is {short_repr(value[name])}, expected {said}" for name, said in found if said), None)

    return check


def missing_and_unknown(found: Collection[Any], fields: Collection[str], optional: Collection[str] = ()) -> str | None:
    """What of `fields` is not there, or what is there beside them."""
    missing = [name for name in fields if name not in found and name not in optional]
    unknown = [name for name in found if name not in fields]
    said = ([f"{', '.join(map(short_repr, missing[:5]))} missing"] if missing else []) + (
        [f"{', '.join(map(short_repr, unknown[:5]))} unknown"] if unknown else []
    )
    return " and ".join(said) or None


def short_repr(value: Any, longest: int = 60) -> str:
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
