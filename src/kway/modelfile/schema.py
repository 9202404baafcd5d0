"""Schemas of model files: facts and arrays are checked once, before any object is built from them.

    Schema(facts={"n_iter": whole()}, arrays=lambda stored: {"coef": Array(FLOAT_TYPES, ("R", "d"))})

Sizes have names (K classes, d columns, n rows). A known size must agree; an unknown one is set by the first array that
has it. Sizes are at least 1, except those with a star ("z*"). The bytes of every array are in the file, so the memory
that is later allocated for these sizes is bounded by the size of the file. Index arrays (codes, cells, ids, offsets)
are read once to check their range. Rows and weights are not read.

A check of a single value returns None if the value is allowed, and otherwise a description of the expected value:

    whole(1)("x")                        -> "a whole number of at least 1"
    record({"n_rows": whole(1)})({})     -> "n_rows missing"
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import math
import sys
import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.errors import ModelFileError

FLOAT_TYPES = ("float32", "float64")
INT32_64 = ("int32", "int64")  # index arrays of scipy
DAMAGED = "the file is damaged or was not written by kway; copy it or save the model again"

LARGEST = int(np.iinfo(np.int64).max)  # largest whole number


class FileLimit(IntEnum):
    """Limits of a file, against hostile ones (tests/attack/file_attack)."""

    HEADER_BYTES = 100_000_000  # as in the safetensors library
    DEPTH = 400  # levels of nested JSON: Python stops at 1,000 nested calls
    ITEMS = 10_000  # entries of lists that only the header bounds: array parameters, hash tables, columns, voters


@dataclass(frozen=True)
class StoredObject:
    """The content of a file for one object: parameters, facts, arrays by name, and the sizes known so far."""

    what: str  # the class name in messages
    params: Mapping[str, Any]
    facts: Mapping[str, Any]
    arrays: Mapping[str, NDArray]
    classes: NDArray
    sizes: dict[str, int]

    def under(self, prefix: str) -> dict[str, NDArray]:
        """Return the arrays whose names begin with a prefix, without the prefix."""
        return {name.removeprefix(prefix): array for name, array in self.arrays.items() if name.startswith(prefix)}


Values = Callable[[NDArray, Mapping[str, int]], str | None]  # array and sizes -> the problem with the values
CrossRule = Callable[[StoredObject], str | None]  # the problem between facts and arrays


@dataclass(frozen=True)
class Array:
    """One array: its allowed dtypes, its shape as names of sizes or numbers, and rules for its values."""

    dtypes: tuple[str, ...]
    shape: tuple[str | int, ...]
    values: tuple[Values, ...] = ()
    optional: bool = False


def _nothing(_: StoredObject) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Schema:
    """The schema of one class: checks of its parameters and facts, sizes given by facts, arrays, rules across them.

    `params` are added to the checks of all classes (schemas/estimators.py). `nested` are prefixes of arrays that
    another object restores and checks. `after` checks the restored object.
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
    """Raise ModelFileError for facts that are missing, unknown or out of range."""
    if not isinstance(facts, dict):
        raise ModelFileError(f"the facts of the {what} are {short_repr(facts)}, expected a table; {DAMAGED}")
    wrong = missing_and_unknown(facts, schema.facts, schema.optional_facts)
    if wrong:
        raise ModelFileError(f"the facts of the {what} do not fit: {wrong}; {DAMAGED}")
    check_values(schema.facts, facts, f"the fact {{}} of the {what}")


def check_values(fields: Mapping[str, Check], values: Mapping[str, Any], where: str) -> None:
    """Raise ModelFileError for values out of range; `where` is the name of a value in the message."""
    for name, check in fields.items():
        expected = check(values[name]) if name in values else None
        if expected:
            raise ModelFileError(f"{where.format(name)} is {short_repr(values[name])}, expected {expected}; {DAMAGED}")


def check_arrays(schema: Schema, stored: StoredObject) -> None:
    """Raise ModelFileError for arrays that are missing, unknown, of another shape or dtype, or out of range."""
    for name, size in schema.sizes(stored).items():
        _agree(stored, name, size, f"the facts of the {stored.what}")
    declared = schema.arrays(stored)
    own = [name for name in stored.arrays if not name.startswith(schema.nested or ("\0",))]
    wrong = missing_and_unknown(own, declared, [name for name, array in declared.items() if array.optional])
    if wrong:
        raise ModelFileError(f"the arrays of the {stored.what} do not fit: {wrong}; {DAMAGED}")
    for name in own:
        _check_shape(name, stored.arrays[name], declared[name], stored)
    for name in own:
        for rule in declared[name].values:
            _refuse(rule(stored.arrays[name], stored.sizes), f"array {name!r}")
    for across in schema.rules:
        _refuse(across(stored), f"the {stored.what}")


def _check_shape(name: str, array: NDArray, declared: Array, stored: StoredObject) -> None:
    if array.dtype.name not in declared.dtypes:
        _refuse(f"has dtype {array.dtype}, expected {' or '.join(declared.dtypes)}", f"array {name!r}")
    if array.ndim != len(declared.shape):
        _refuse(f"has shape {array.shape}, expected ({', '.join(map(str, declared.shape))})", f"array {name!r}")
    for axis, (wanted, size) in enumerate(zip(declared.shape, array.shape)):
        if isinstance(wanted, str):
            _agree(stored, wanted, size, f"axis {axis} of array {name!r}")
        elif size != wanted:
            _refuse(f"has shape {array.shape}, but its axis {axis} is {wanted}", f"array {name!r}")


def _agree(stored: StoredObject, name: str, size: int, where: str) -> None:
    """Set the size `name`; raise ModelFileError, which names `where`, if it has another value already."""
    known = stored.sizes.setdefault(name, size)
    if known != size:
        _refuse(f"has {name.rstrip('*')} = {size:,}, but elsewhere in the file it is {known:,}", where)
    if size < 1 and not name.endswith("*"):
        _refuse(f"is empty ({name} = {size})", where)


def _refuse(problem: str | None, where: str) -> None:
    if problem:
        raise ModelFileError(f"{where} of the model file {problem}; {DAMAGED}")


# ---- rules for the values of index arrays


def below(size: str | int) -> Values:
    """Require 0 <= value < size."""

    def check(array: NDArray, sizes: Mapping[str, int]) -> str | None:
        most = sizes[size] if isinstance(size, str) else size
        if not array.size:
            return None
        low, high = int(array.min()), int(array.max())
        return None if low >= 0 and high < most else f"contains {low} to {high}, expected 0 to {most - 1}"

    return check


def distinct(array: NDArray, _: Mapping[str, int]) -> str | None:
    """Require distinct values that are not negative."""
    if not array.size:
        return None
    if array.min() < 0:
        return f"contains {int(array.min())}, expected none below 0"
    twice = not (array[1:] > array[:-1]).all() and len(np.unique(array)) < len(array)
    return "contains a value twice" if twice else None


def ascending(array: NDArray, _: Mapping[str, int]) -> str | None:
    """Require strictly ascending values."""
    return None if (array[1:] > array[:-1]).all() else "is not in ascending order"


def offsets_to(size: str) -> Values:
    """Require values that ascend from 0 to the size."""

    def check(array: NDArray, sizes: Mapping[str, int]) -> str | None:
        most = sizes[size]
        fits = array[0] == 0 and array[-1] == most and bool((array[1:] >= array[:-1]).all())
        return None if fits else f"does not ascend from 0 to {most}"

    return check


def finite(array: NDArray, _: Mapping[str, int]) -> str | None:
    """Require finite values; only for short arrays, because every value is read."""
    return None if np.isfinite(array).all() else "contains NaN or infinity"


def positive(array: NDArray, _: Mapping[str, int]) -> str | None:
    """Require finite values above 0."""
    return None if np.isfinite(array).all() and (array > 0).all() else "contains values that are not above 0"


def counts(array: NDArray, _: Mapping[str, int]) -> str | None:
    """Require finite values, none below 0 and some above."""
    fits = np.isfinite(array).all() and (array >= 0).all() and (array > 0).any()
    return None if fits else "contains NaN, infinity or values below 0, or nothing above 0"


def ascending_in_rows(indices: NDArray, indptr: NDArray) -> str | None:
    """Require strictly ascending columns in each CSR row."""
    falls = np.flatnonzero(indices[1:] <= indices[:-1]) + 1  # allowed at the first entry of a row
    starts = np.zeros(len(indices) + 1, bool)
    starts[indptr] = True
    return None if starts[falls].all() else "contains columns that do not ascend within a row"


def same_dtype(*names: str) -> CrossRule:
    """Require the same dtype for arrays that one kernel reads together."""

    def check(stored: StoredObject) -> str | None:
        kinds = {name: stored.arrays[name].dtype.name for name in names if name in stored.arrays}
        listed = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
        return None if len(set(kinds.values())) < 2 else f"mixes dtypes: {listed}"

    return check


Check = Callable[[Any], str | None]

_LARGEST_FLOAT = sys.float_info.max


def whole(least: int = 0, most: int = LARGEST) -> Check:
    """Require a whole number within bounds; true and false are not numbers."""
    upper = "" if most == LARGEST else f" and at most {most:,}"

    def check(value: Any) -> str | None:
        fits = type(value) is int and least <= value <= most
        return None if fits else f"a whole number of at least {least:,}{upper}"

    return check


def number(least: float = -math.inf, most: float = math.inf, *, finite: bool = True, above: bool = False) -> Check:
    """Require a number within bounds; `finite=False` allows infinity and NaN, `above=True` excludes `least` itself."""

    def fits(value: Any) -> bool:
        if type(value) not in (int, float) or abs(value) > _LARGEST_FLOAT:
            return type(value) is float and not finite  # infinite, or a whole number too large for a float
        if math.isnan(value):
            return not finite
        return (value > least if above else value >= least) and value <= most

    lower = "" if least == -math.inf else f" above {least:g}" if above else f" of at least {least:g}"
    expected = f"a {'finite ' if finite else ''}number{lower}{'' if most == math.inf else f' and at most {most:g}'}"
    return lambda value: None if fits(value) else expected


def text(longest: int = 100_000) -> Check:
    """Require text of limited length."""

    def check(value: Any) -> str | None:
        return None if isinstance(value, str) and len(value) <= longest else f"text of at most {longest:,} characters"

    return check


def flag(value: Any) -> str | None:
    """Require true or false."""
    return None if isinstance(value, bool) else "true or false"


def scalar(value: Any) -> str | None:
    """Require a label: text, a number, true or false."""
    return None if isinstance(value, str | bool | int | float) else "text or a number"


def anything(_: Any) -> str | None:
    """Allow any value: it is not used after loading, or its own class checks it."""
    return None


def one_of(*known: Any) -> Check:
    """Require one of a few values."""

    def check(value: Any) -> str | None:
        fits = any(type(value) is type(k) and value == k for k in known)
        return None if fits else f"one of {', '.join(map(repr, known))}"

    return check


def maybe(check: Check) -> Check:
    """Allow None and the values that `check` allows."""
    return lambda value: None if value is None else _or_none(check(value))


def either(*checks: Check) -> Check:
    """Allow the values that one of the checks allows."""

    def check(value: Any) -> str | None:
        expected = [check(value) for check in checks]
        return None if None in expected else " or ".join(map(str, expected))

    return check


def many(check: Check, length: int | None = None) -> Check:
    """Require a list or tuple of values that `check` allows."""

    def every(value: Any) -> str | None:
        if not isinstance(value, list | tuple):
            return "a list"
        if length is not None and len(value) != length:
            return f"a list of {length}, not of {len(value):,}"
        return next((f"a list whose entries are {expected}" for expected in map(check, value) if expected), None)

    return every


def record(fields: Mapping[str, Check], optional: Collection[str] = ()) -> Check:
    """Require a table with exactly these fields; those in `optional` may be missing."""

    def check(value: Any) -> str | None:
        if not isinstance(value, dict):
            return "a table of values"
        wrong = missing_and_unknown(value, fields, optional)
        if wrong:
            return wrong
        found = ((name, fields[name](entry)) for name, entry in value.items())
        return next((f"{name} is {short_repr(value[name])}, expected {want}" for name, want in found if want), None)

    return check


def fields_of(place: str, **own: Check) -> Check:
    """Require a table with the fields of a dataclass, such as "kway.neighbors.agreement:Agreement".

    The module is imported when the first such table is checked. `own` has checks that replace those of annotations,
    and checks of further fields.
    """
    module, _, name = place.partition(":")

    @functools.cache
    def check() -> Check:
        return record(annotated_checks(getattr(importlib.import_module(module), name)) | own)

    return lambda value: check()(value)


def annotated_checks(cls: type) -> dict[str, Check]:
    """Return a check per field of a dataclass by its annotation, such as a whole number of 0 or more.

    Arrays are left out, because they are not stored in a table.
    """
    hints = typing.get_type_hints(cls)
    stored = [f.name for f in dataclasses.fields(cls) if typing.get_origin(hints[f.name]) is not np.ndarray]
    return {name: _check_of(hints[name]) for name in stored}


def _check_of(hint: Any) -> Check:
    args = typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        kinds = either(*(_check_of(arg) for arg in args if arg is not type(None)))
        return maybe(kinds) if type(None) in args else kinds
    if typing.get_origin(hint) is tuple:
        return many(_check_of(args[0]), None if args[-1] is ... else len(args))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return record({"type": one_of(hint.__name__), **annotated_checks(hint)})
    simple: dict[Any, Check] = {int: whole(), float: number(finite=False), str: text(), bool: flag}
    return simple.get(hint, anything)


def missing_and_unknown(found: Collection[Any], fields: Collection[str], optional: Collection[str] = ()) -> str | None:
    """Return a message about missing and unknown fields; None if there are none."""
    missing = [name for name in fields if name not in found and name not in optional]
    unknown = [name for name in found if name not in fields]
    problems = ([f"{', '.join(map(short_repr, missing[:5]))} missing"] if missing else []) + (
        [f"{', '.join(map(short_repr, unknown[:5]))} unknown"] if unknown else []
    )
    return " and ".join(problems) or None


def short_repr(value: Any, longest: int = 60) -> str:
    """Return a value from a file for a message, shortened."""
    if isinstance(value, str):
        return ascii(value if len(value) <= longest else value[:longest] + "...")
    if isinstance(value, int) and abs(value) > 10**30:
        return "a whole number of more than 30 digits"
    if isinstance(value, bool | int | float) or value is None:
        return repr(value)
    return f"a {type(value).__name__}"


def _or_none(expected: str | None) -> str | None:
    return expected and f"{expected}, or none"
