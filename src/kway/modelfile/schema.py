"""Schemas of model files: parameters, facts and arrays are checked once, before any object is built from them.

    Schema(facts={"n_iter": whole_number()}, arrays=lambda stored: {"coef": Array(FLOAT_TYPES, ("R", "d"))})

Axes of arrays have the names of sizes (K classes, d columns, n rows; each schema explains its own letters). The first
array or fact that has a size sets it, and all others must agree. Sizes are at least 1, except those with a star ("z*").
The bytes of every array are in the file, so the memory that is later allocated for these sizes is bounded by the size
of the file. Index arrays (codes, cells, ids, offsets) are read once to check their range. Rows and weights are not
read.

Checks of single values are in value_checks.py. A rule for an array returns None if its values are allowed, and
otherwise the problem with them, such as "contains NaN or infinity".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.errors import ModelFileError
from kway.modelfile.value_checks import Check, json_object, missing_and_unknown

FLOAT_TYPES = ("float32", "float64")
INT32_64 = ("int32", "int64")  # index arrays of scipy
DAMAGED = "the file is damaged or was not written by kway; copy it or save the model again"


class FileLimit(IntEnum):
    """Limits that keep a hostile file from using much memory or time."""

    HEADER_BYTES = 100_000_000  # as in the safetensors library
    DEPTH = 400  # levels of nested JSON: Python stops at 1,000 nested calls
    ITEMS = 10_000  # entries of a list whose length is stated only in the header: hash tables, columns, neighbors


@dataclass(frozen=True)
class StoredObject:
    """The content of a file for one object, and the sizes known so far.

    Parameters
    ----------
    class_name : str
        The class of the object, for messages.
    params, facts : mapping of str to object
        Parameters of its constructor, and what `fit` learned apart from arrays.
    arrays : mapping of str to ndarray
        Arrays by name.
    classes : ndarray of shape (K,)
        The labels; empty for an index.
    sizes : dict of str to int
        Values of the named sizes. Checking arrays adds to it.
    """

    class_name: str
    params: Mapping[str, Any]
    facts: Mapping[str, Any]
    arrays: Mapping[str, NDArray]
    classes: NDArray
    sizes: dict[str, int]


ArrayRule = Callable[[NDArray, Mapping[str, int]], str | None]  # array and sizes -> the problem with the values
CrossRule = Callable[[StoredObject], str | None]  # the problem between facts and arrays


@dataclass(frozen=True)
class Array:
    """One array: its allowed dtypes, its shape as names of sizes or numbers, and rules for its values."""

    dtypes: tuple[str, ...]
    shape: tuple[str | int, ...]
    rules: tuple[ArrayRule, ...] = ()
    optional: bool = False


def _no_sizes_or_arrays(_: StoredObject) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Schema:
    """What a model file contains for one class.

    Parameters
    ----------
    facts : mapping of str to Check
        A check per fact.
    arrays : callable
        StoredObject -> the arrays by name; they may depend on parameters and facts.
    sizes : callable
        StoredObject -> sizes that parameters and facts determine.
    rules : tuple of CrossRule
        Rules across facts and arrays. They run after the arrays were checked one by one.
    params : mapping of str to Check
        Checks of parameters in addition to those of all classes (schemas/estimators.py).
    after_restore : tuple of callable
        Rules for the restored object.
    optional_facts : tuple of str
        Facts that may be missing.
    """

    facts: Mapping[str, Check]
    arrays: Callable[[StoredObject], Mapping[str, Array]] = _no_sizes_or_arrays
    sizes: Callable[[StoredObject], Mapping[str, int]] = _no_sizes_or_arrays
    rules: tuple[CrossRule, ...] = ()
    params: Mapping[str, Check] = field(default_factory=dict)
    after_restore: tuple[Callable[[Any], str | None], ...] = ()
    optional_facts: tuple[str, ...] = ()


def check_facts(schema: Schema, facts: Any, class_name: str) -> None:
    """Raise ModelFileError for facts that are missing, unknown or out of range."""
    raise_if(json_object(schema.facts, schema.optional_facts)(facts), f"the {class_name}")


def check_arrays(schema: Schema, stored: StoredObject) -> None:
    """Raise ModelFileError for arrays that are missing, unknown, of another shape or dtype, or out of range."""
    for name, size in schema.sizes(stored).items():
        _set_size(stored, name, size, f"the facts of the {stored.class_name}")
    declared = schema.arrays(stored)
    # contained classifiers have schemas of their own
    contained = tuple(f"{fact}." for fact in ("inner", "members") if fact in stored.facts)
    names = [name for name in stored.arrays if not name.startswith(contained)]
    wrong = missing_and_unknown(names, declared, [name for name, array in declared.items() if array.optional])
    raise_if(wrong and f"has other arrays than expected ({wrong})", f"the {stored.class_name}")
    for name in names:
        _check_shape(name, stored.arrays[name], declared[name], stored)
    for name in names:  # after all shapes: rules use the sizes
        for array_rule in declared[name].rules:
            raise_if(array_rule(stored.arrays[name], stored.sizes), f"array {name!r}")
    for cross_rule in schema.rules:
        raise_if(cross_rule(stored), f"the {stored.class_name}")


def _check_shape(name: str, array: NDArray, declared: Array, stored: StoredObject) -> None:
    if array.dtype.name not in declared.dtypes:
        raise_if(f"has dtype {array.dtype}, expected {' or '.join(declared.dtypes)}", f"array {name!r}")
    if array.ndim != len(declared.shape):
        raise_if(f"has shape {array.shape}, expected ({', '.join(map(str, declared.shape))})", f"array {name!r}")
    for axis, (expected, size) in enumerate(zip(declared.shape, array.shape)):
        if isinstance(expected, str):
            _set_size(stored, expected, size, f"axis {axis} of array {name!r}")
        elif size != expected:
            raise_if(f"has shape {array.shape}, expected {expected} on axis {axis}", f"array {name!r}")


def _set_size(stored: StoredObject, name: str, size: int, where: str) -> None:
    """Set a size; raise ModelFileError, which names `where`, if it is 0 or was set to another value before."""
    first_size = stored.sizes.setdefault(name, size)
    if first_size != size:
        raise_if(f"has {name.rstrip('*')} = {size:,}, but elsewhere in the file it is {first_size:,}", where)
    if size < 1 and not name.endswith("*"):
        raise_if(f"is empty ({name} = {size})", where)


def raise_if(problem: str | None, where: str) -> None:
    """Raise ModelFileError if there is a problem; `where` says what has it."""
    if problem:
        raise ModelFileError(f"{where} of the model file {problem}; {DAMAGED}")


# ---- rules for the values of arrays


def index_below(size: str | int, least: int = 0) -> ArrayRule:
    """Require least <= value < size; a `least` of -1 allows the value for none."""

    def rule(array: NDArray, sizes: Mapping[str, int]) -> str | None:
        bound = sizes[size] if isinstance(size, str) else size
        if not array.size:
            return None
        low, high = int(array.min()), int(array.max())
        return None if low >= least and high < bound else f"contains {low} to {high}, expected {least} to {bound - 1}"

    return rule


def distinct(array: NDArray, _: Mapping[str, int]) -> str | None:
    """Require distinct values that are not negative."""
    if not array.size:
        return None
    if array.min() < 0:
        return f"contains {int(array.min())}, expected no value below 0"
    is_ascending = bool((array[1:] > array[:-1]).all())
    return None if is_ascending or len(np.unique(array)) == len(array) else "contains a value twice"


def ascending(array: NDArray, _: Mapping[str, int]) -> str | None:
    """Require strictly ascending values."""
    return None if (array[1:] > array[:-1]).all() else "is not in ascending order"


def offsets_to(size: str) -> ArrayRule:
    """Require values that ascend from 0 to the size."""

    def rule(array: NDArray, sizes: Mapping[str, int]) -> str | None:
        last = sizes[size]
        fits = array[0] == 0 and array[-1] == last and bool((array[1:] >= array[:-1]).all())
        return None if fits else f"does not ascend from 0 to {last}"

    return rule


def finite(array: NDArray, _: Mapping[str, int]) -> str | None:
    """Require finite values; only for short arrays, because every value is read."""
    return None if np.isfinite(array).all() else "contains NaN or infinity"


def no_nan(array: NDArray, _: Mapping[str, int]) -> str | None:
    """Allow infinity, but not NaN; only for short arrays, because every value is read."""
    return "contains NaN" if np.isnan(array).any() else None


def positive(array: NDArray, _: Mapping[str, int]) -> str | None:
    """Require finite values above 0."""
    return None if np.isfinite(array).all() and (array > 0).all() else "contains values that are not above 0"


def valid_weights(array: NDArray, _: Mapping[str, int]) -> str | None:
    """Require finite values of at least 0, some of them above 0."""
    fits = np.isfinite(array).all() and (array >= 0).all() and (array > 0).any()
    return None if fits else "contains NaN, infinity or values below 0, or no value above 0"


def ascending_in_rows(indices: NDArray, indptr: NDArray) -> str | None:
    """Require strictly ascending columns in each CSR row."""
    descents = np.flatnonzero(indices[1:] <= indices[:-1]) + 1  # allowed at the first entry of a row
    row_starts = np.zeros(len(indices) + 1, bool)
    row_starts[indptr] = True
    return None if row_starts[descents].all() else "contains columns that do not ascend within a row"


def same_dtype(*names: str) -> CrossRule:
    """Require the same dtype for arrays that one kernel reads together."""

    def rule(stored: StoredObject) -> str | None:
        dtypes = {name: stored.arrays[name].dtype.name for name in names if name in stored.arrays}
        listed = ", ".join(f"{name} {dtype}" for name, dtype in dtypes.items())
        return None if len(set(dtypes.values())) < 2 else f"mixes dtypes: {listed}"

    return rule
