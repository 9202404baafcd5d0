"""Schemas of indexes: m rows of d columns, dense, CSR or as codes, and the arrays of each kind of index.

    flat        rows, or codes (and rows, if candidates are reranked)
    kdtree      rows; the tree is built again
    landmarks   rows or codes, the cell (m,) < C of each row, landmarks (C, s), and the projection to s coordinates:
                mean (p,), basis (p, M*). Codes of bits are stored in the order of cells, with their row numbers "names"
                (m,) and the sizes (C,) of the cells.
    lsh         rows, directions (p, B), and per direction its middle (B,), and the length of the longest row in
                "longest" (1,); B = n_tables x bits per table
    sharded     rows; the shards are built again

p is the number of coordinates of a point: d, except 3 for haversine (points on the sphere) and d + 1 for lsh with dot.
The columns of `basis` are directions: M* of them, or 0 if the projection keeps the coordinates as they are.

Sizes of codes of bits (search/codecs/bits.py); a size with a star may be 0:

    D         rotated columns: d rounded up to a multiple of 64
    P         words of 64 bits per row that the first filter reads, in codes.head
    words*    the other words of a row, in codes.rest
    halves*   m, or 0 if all rows have length 1 and the codes have no half squares
    rounds    rounds of signs of the rotation

An index of another package, which is not in _KINDS, stores only its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import kway
from kway.errors import KwayError
from kway.memory import BLOCK_BYTES, MAX_EXPANSION, expands_too_much
from kway.modelfile.schema import (
    FLOAT_TYPES,
    INT32_64,
    Array,
    CrossRule,
    FileLimit,
    Schema,
    StoredObject,
    ascending_in_rows,
    check_arrays,
    check_facts,
    distinct,
    finite,
    index_below,
    offsets_to,
    valid_weights,
)
from kway.modelfile.value_checks import (
    LARGEST_INT,
    Check,
    ValueCheck,
    json_object,
    text,
    whole_number,
)

Facts = Mapping[str, Any]
POWER = whole_number(-(2**11), 2**11)  # exponent of the power of two that scales the rows, if it is not 1
_RECIPE = ValueCheck("the recipe of an index", lambda value: isinstance(value, kway.search.Recipe))
_METRIC = ValueCheck("a metric", lambda value: isinstance(value, kway.search.Metric))


@dataclass(frozen=True)
class IndexKind:
    """One kind of index.

    Parameters
    ----------
    facts : mapping of str to Check
        Facts in addition to those of every index.
    arrays : callable
        The facts of the index -> its arrays, in addition to rows and codes.
    """

    facts: Mapping[str, Check] = field(default_factory=dict)
    arrays: Callable[[Facts], Mapping[str, Array]] = lambda _: {}


def _store(facts: Facts) -> Any:
    """Return the store of the index; None if it stores full rows."""
    return getattr(facts["recipe"], "store", None)


def _stores_bits(facts: Facts) -> bool:
    store = _store(facts)
    return store is not None and store.name == "bits"


def _landmarks(facts: Facts) -> dict[str, Array]:
    n_coordinates = 3 if base_of(facts) == "haversine" else "d"
    ordered = {
        # the row number of each row in the order of cells, and the number of rows of each cell
        "names": Array(("int64",), ("m",), (index_below("m"), distinct)),
        "sizes": Array(("int64",), ("C",), (valid_weights,)),
    }
    cells = {"cells": Array(("int64",), ("m",), (index_below("C"),))}
    return (ordered if _stores_bits(facts) else cells) | {
        "landmarks": Array(("float32",), ("C", facts["length"]), (finite,)),
        "mean": Array(("float64",), (n_coordinates,), (finite,)),
        "basis": Array(("float32",), (n_coordinates, "M*"), (finite,)),
    }


def _lsh(facts: Facts) -> dict[str, Array]:
    n_coordinates: str | int = {"haversine": 3, "dot": facts["n_features"] + 1}.get(base_of(facts), "d")
    return {
        "directions": Array(("float32",), (n_coordinates, "B")),
        "middle": Array(("float64",), ("B",), (finite,)),
        "longest": Array(("float64",), (1,), (finite,)),
    }


_KINDS: dict[str, IndexKind] = {
    "landmarks": IndexKind(
        {"length": whole_number(1), "trained": whole_number(1), "probes": whole_number(1)}, _landmarks
    ),
    "lsh": IndexKind({"probes": whole_number(1, 2**31)}, _lsh),
}


def base_of(facts: Facts) -> str:
    """Return the distance that the index computes."""
    return str(facts["metric"].distance.name)


def index_facts(value: Any) -> str | None:
    """Check the facts of an index, and whether its recipe supports its metric."""
    recipe = value.get("recipe") if isinstance(value, dict) else None
    fields: dict[str, Check] = {
        "recipe": _RECIPE,
        "metric": _METRIC,
        "n_rows": whole_number(1),
        "n_features": whole_number(1),
        "why": text(),
        "unit": POWER,
    }
    own = _KINDS.get(str(getattr(recipe, "name", "")), IndexKind()).facts
    problem = json_object(fields | dict(own), optional=("unit",))(value)
    if problem:
        return problem
    try:
        value["recipe"].check(value["metric"])
        value["metric"].check(value["n_features"])
    except KwayError as error:
        return f"cannot be searched: {error}"
    return None


def index_arrays(stored: StoredObject, ids: str | int | None) -> dict[str, Array]:
    """Return the arrays of the index, if there is one; `ids` bounds its ids, None if it may have no ids of its own."""
    facts = stored.facts.get("index")
    if facts is None:
        return {}
    recipe, store = facts["recipe"], _store(facts)
    arrays = {} if ids is None else {"ids": Array(("int64",), ("m",), (index_below(ids), distinct), optional=True)}
    codes_only = store is not None and not store.rerank
    if _stores_bits(facts):
        arrays |= _BIT_CODES
        if recipe.name == "landmarks":  # its codes are relative to the landmark of their cell
            del arrays["codes.center"]
    elif store is not None:  # an index on a GPU writes full rows without codes; reading computes them
        arrays |= {name: replace(array, optional=not codes_only) for name, array in _INT8_CODES.items()}
    if not codes_only:
        supports_sparse = recipe.sparse and facts["metric"].distance.sparse
        arrays |= declared_rows("m", supports_sparse and "index.rows.indptr" in stored.arrays)
    arrays |= _KINDS.get(recipe.name, IndexKind()).arrays(facts)
    return {f"index.{name}": array for name, array in arrays.items()}


def declared_rows(n: str, sparse: bool) -> dict[str, Array]:
    """Declare rows (n, d), dense or CSR."""
    if not sparse:
        return {"rows": Array(FLOAT_TYPES, (n, "d"))}
    entries = f"entries of {n}*"
    return {
        "rows.data": Array(FLOAT_TYPES, (entries,)),
        "rows.indices": Array(INT32_64, (entries,), (index_below("d"),)),
        "rows.indptr": Array(INT32_64, (f"offsets of {n}",), (offsets_to(entries),)),
    }


def row_rules(n: str, prefix: str = "") -> tuple[CrossRule, ...]:
    """Return the rules of CSR rows: one more offset than rows, columns in ascending order."""

    def offsets(stored: Any) -> str | None:
        n_offsets = stored.sizes.get(f"offsets of {n}")
        fits = n_offsets is None or n_offsets == stored.sizes[n] + 1
        return None if fits else f"has {n_offsets:,} offsets of CSR rows, expected {stored.sizes[n] + 1:,}"

    def ordered(stored: Any) -> str | None:
        indices, indptr = (stored.arrays.get(f"{prefix}rows.{part}") for part in ("indices", "indptr"))
        return None if indptr is None else ascending_in_rows(indices, indptr)

    return (offsets, ordered)


def _stored_bytes(stored: StoredObject) -> int:
    return sum(array.nbytes for name, array in stored.arrays.items() if name.startswith("index."))


def _projection(stored: StoredObject) -> str | None:
    """A projection keeps at most the coordinates of its basis, or all coordinates without a basis."""
    width = stored.sizes.get("M*")
    if width is None:
        return None
    facts = stored.facts["index"]
    length, n_coordinates = facts.get("length"), 3 if base_of(facts) == "haversine" else stored.sizes["d"]
    fits = length <= width if width else length == n_coordinates
    return None if fits else f"has projections of {length} out of {width or n_coordinates} coordinates"


def _hash_tables(stored: StoredObject) -> str | None:
    """The tables of LSH have equally many directions, at most 62 each."""
    if "B" not in stored.sizes:
        return None
    B, T = stored.sizes["B"], stored.facts["index"]["recipe"].n_tables
    fits = T <= FileLimit.ITEMS and B % T == 0 and B // T <= 62  # a hash is an int64, of at most 62 bits
    return None if fits else f"has {B} directions for {T} hash tables"


def _codes_of_bits(stored: Any) -> str | None:
    """The words of a row contain all bits of D columns, and the type of factors fits the encoding."""
    from kway.kernels.codes.bits import WIDEST_FILTER

    D, P, words = (stored.sizes.get(name) for name in ("D", "P", "words*"))
    if P is None:
        return None
    W, bits, m = D // 64, _store(stored.facts["index"]).bits, stored.sizes["m"]
    fits = D % 64 == 0 and stored.sizes["d"] <= D and min(W, WIDEST_FILTER) == P and P + words == bits * W
    center = stored.arrays.get("index.codes.center")
    # codes of unit rows around 0 have a factor of 2 bytes and no half square; all others 4 bytes and both
    unit_rows = base_of(stored.facts["index"]) == "cosine" and center is not None and not center.any()
    layout = (stored.arrays["index.codes.factor"].itemsize, stored.sizes["halves*"])
    fits = fits and layout == ((2, 0) if unit_rows else (4, m))
    return None if fits else f"has codes of {P} and {words} words per row for {D} columns of {bits} bits"


def _sharded_indexes(stored: Any) -> str | None:
    """The shards, which are built when the file is read, are few, and the hash tables of LSH indexes fit in memory."""
    facts = stored.facts.get("index")
    recipe: Any = facts and facts["recipe"]
    inner = getattr(recipe, "recipe", None)
    if inner is not None and max(recipe.shards, recipe.replicas) > FileLimit.ITEMS:
        return f"has {recipe.shards:,} shards with {recipe.replicas:,} replicas"
    if inner is None or inner.name != "lsh":
        return None
    rows, d, tables = stored.sizes["m"], stored.sizes["d"], inner.n_tables
    # loading computes the tables again: at most 62 directions per table, of 8 bytes per row and per column
    needed = 8 * tables * 62 * (rows + d * min(recipe.shards, rows))
    fits = tables <= FileLimit.ITEMS and needed <= max(BLOCK_BYTES, MAX_EXPANSION * _stored_bytes(stored))
    return None if fits else f"has {tables:,} hash tables for {rows:,} rows of {d:,} columns"


def _dense_queries(stored: StoredObject) -> str | None:
    """A dense query for sparse rows is not much larger than the stored rows."""
    if "index.rows.indptr" not in stored.arrays:
        return None
    n_bytes, d = _stored_bytes(stored), stored.sizes["d"]
    fits = not expands_too_much(n_bytes, 8 * d)  # a search makes a dense query of d float64
    return None if fits else f"has sparse rows of {d:,} columns in {n_bytes:,} bytes"


def _cell_sizes(stored: Any) -> str | None:
    """The sizes of the cells add up to the number of rows."""
    sizes = stored.arrays.get("index.sizes")
    fits = sizes is None or ((sizes <= stored.sizes["m"]).all() and int(sizes.sum()) == stored.sizes["m"])
    return None if fits else f"has cells of {int(sizes.sum()):,} rows in all for {stored.sizes['m']:,} rows"


# rules across the facts and the arrays of an index
INDEX_RULES: tuple[CrossRule, ...] = (
    _projection,
    _hash_tables,
    _codes_of_bits,
    _sharded_indexes,
    _dense_queries,
    _cell_sizes,
    *row_rules("m", "index."),
)


def check_index(facts: Any, arrays: Mapping[str, NDArray], shape: tuple[int, int] | None = None) -> None:
    """Raise ModelFileError for invalid facts or arrays of an index without a classifier.

    `shape` (m, d) is the expected number of rows and columns, None for any.
    """
    prefixed = {f"index.{name}": array for name, array in arrays.items()}
    check_facts(_ALONE, {"index": facts}, "index")
    sizes = {} if shape is None else dict(zip("md", shape))
    check_arrays(_ALONE, StoredObject("index", {}, {"index": facts}, prefixed, np.empty(0), sizes))


def index_sizes(stored: StoredObject) -> dict[str, int]:
    """Return the sizes that the facts of the index give; none if there is no index."""
    facts = stored.facts.get("index")
    return {} if facts is None else {"m": facts["n_rows"], "d": facts["n_features"]}


_INT8_CODES = {
    "codes": Array(("int8",), ("m", "d")),
    "codes.scale": Array(("float32",), ("m",)),
    "codes.center": Array(("float32",), ("d",), (finite,)),
}


_BIT_CODES = {
    "codes.head": Array(("uint64",), ("P", "m")),
    "codes.rest": Array(("uint64",), ("m", "words*")),
    "codes.factor": Array(("uint16", "float32"), ("m",)),
    "codes.half": Array(("float32",), ("halves*",)),
    "codes.widest": Array(("float32",), (1,), (finite,)),
    "codes.center": Array(("float32",), ("d",), (finite,)),
    "codes.signs": Array(("int8",), ("rounds", "D")),
}


_ALONE = Schema(
    facts={"index": index_facts},
    arrays=lambda stored: index_arrays(stored, LARGEST_INT),
    sizes=index_sizes,
    rules=INDEX_RULES,
)
