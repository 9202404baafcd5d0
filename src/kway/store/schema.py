"""What a model file must hold: facts and arrays as declared, checked once, before anything is built from them.

    Schema(facts={"n_iter": whole()}, arrays=lambda held: {"coef": Array(FLOAT_TYPES, ("R", "d"))})

Sizes are names (K classes, d columns, n rows). One that is known already must agree, one that is not takes the value
of the first array that has it; all are at least 1, but those written with a star ("z*"). Since the bytes of every array
lie in the file, whatever is later allocated in these sizes is bounded by the size of the file.

Index arrays (codes, cells, ids, offsets) are read once to check their range; rows and weights are never read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.errors import ModelFileError
from kway.store.facts import Check, in_few_words, missing_and_unknown

FLOAT_TYPES = ("float32", "float64")
INT32_64 = ("int32", "int64")  # index arrays of scipy
AGAIN = "the file is damaged or was not written by kway; get it, or save it, again"


@dataclass(frozen=True)
class Held:
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
CrossRule = Callable[[Held], str | None]  # what is wrong between facts and arrays


@dataclass(frozen=True)
class Array:
    """One array: dtypes it may have, shape in names of sizes or numbers, rules its values keep."""

    dtypes: tuple[str, ...]
    shape: tuple[str | int, ...]
    values: tuple[Values, ...] = ()
    optional: bool = False


def _nothing(_: Held) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Schema:
    """One class: checks of its parameters and facts, sizes that facts give, arrays, rules across them.

    `params` are checks beside those of all classes (schemas/params.py). `nested` are prefixes of arrays that another
    object restores and checks. `after` looks at the restored object: whether its parts can do what is asked of them.
    """

    facts: Mapping[str, Check]
    arrays: Callable[[Held], Mapping[str, Array]] = _nothing
    sizes: Callable[[Held], Mapping[str, int]] = _nothing
    rules: tuple[CrossRule, ...] = ()
    params: Mapping[str, Check] = field(default_factory=dict)
    nested: tuple[str, ...] = ()
    after: tuple[Callable[[Any], str | None], ...] = ()
    optional_facts: tuple[str, ...] = ()


def check_facts(schema: Schema, facts: Any, what: str) -> None:
    """Refuse facts that are missing, unknown or out of range."""
    if not isinstance(facts, dict):
        raise ModelFileError(f"the facts of the {what} are {in_few_words(facts)}, expected a table; {AGAIN}")
    wrong = missing_and_unknown(facts, schema.facts, schema.optional_facts)
    if wrong:
        raise ModelFileError(f"the facts of the {what} do not fit: {wrong}; {AGAIN}")
    check_values(schema.facts, facts, f"the fact {{}} of the {what}")


def check_values(fields: Mapping[str, Check], values: Mapping[str, Any], where: str) -> None:
    """Refuse values out of range; `where` names one in the message."""
    for name, check in fields.items():
        said = check(values[name]) if name in values else None
        if said:
            raise ModelFileError(f"{where.format(name)} is {in_few_words(values[name])}, expected {said}; {AGAIN}")


def check_arrays(schema: Schema, held: Held) -> None:
    """Refuse arrays that are missing, unknown, of another shape or dtype, or out of range."""
    for name, size in schema.sizes(held).items():
        _agree(held, name, size, f"the facts of the {held.what}")
    declared = schema.arrays(held)
    own = [name for name in held.arrays if not name.startswith(schema.nested or ("\0",))]
    wrong = missing_and_unknown(own, declared, [name for name, array in declared.items() if array.optional])
    if wrong:
        raise ModelFileError(f"the arrays of the {held.what} do not fit: {wrong}; {AGAIN}")
    for name in own:
        _check_shape(name, held.arrays[name], declared[name], held)
    for name in own:
        for rule in declared[name].values:
            _refuse(rule(held.arrays[name], held.sizes), f"array {name!r}")
    for across in schema.rules:
        _refuse(across(held), f"the {held.what}")


def _check_shape(name: str, array: NDArray, declared: Array, held: Held) -> None:
    if array.dtype.name not in declared.dtypes:
        _refuse(f"is of dtype {array.dtype}, expected {' or '.join(declared.dtypes)}", f"array {name!r}")
    if array.ndim != len(declared.shape):
        _refuse(f"has shape {array.shape}, expected ({', '.join(map(str, declared.shape))})", f"array {name!r}")
    for axis, (wanted, size) in enumerate(zip(declared.shape, array.shape)):
        if isinstance(wanted, str):
            _agree(held, wanted, size, f"axis {axis} of array {name!r}")
        elif size != wanted:
            _refuse(f"has shape {array.shape}, but its axis {axis} is {wanted}", f"array {name!r}")


def _agree(held: Held, name: str, size: int, who: str) -> None:
    """Size `name` is `size`, says `who`: it must be what it was before."""
    known = held.sizes.setdefault(name, size)
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

    def check(held: Held) -> str | None:
        kinds = {name: held.arrays[name].dtype.name for name in names if name in held.arrays}
        said = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
        return None if len(set(kinds.values())) < 2 else f"mixes dtypes: {said}"

    return check
