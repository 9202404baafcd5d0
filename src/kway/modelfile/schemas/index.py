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
    boolean,
    json_object,
    number,
    one_of,
    short_repr,
    text,
    whole_number,
)

Facts = Mapping[str, Any]
_BASES = {"gaussian": "euclidean", "laplacian": "manhattan"}  # metric -> the distance that orders rows in the same way
POWER = whole_number(-(2**11), 2**11)  # exponent of the power of two that scales the rows, if it is not 1
_AUTO = one_of("auto") | whole_number(1, 2**31)


@dataclass(frozen=True)
class IndexKind:
    """One kind of index.

    Parameters
    ----------
    recipe, facts : mapping of str to Check
        Fields of its recipe, and facts in addition to those of every index.
    arrays : callable
        The facts of the index -> its arrays, in addition to rows and codes.
    bases, coded_bases : tuple of str
        The distances that it supports with full rows, and with codes.
    sparse : bool
        Whether it accepts CSR rows.
    """

    recipe: Mapping[str, Check] = field(default_factory=dict)
    facts: Mapping[str, Check] = field(default_factory=dict)
    arrays: Callable[[Facts], Mapping[str, Array]] = lambda _: {}
    bases: tuple[str, ...] = ()
    coded_bases: tuple[str, ...] = ()
    sparse: bool = False


def _stores_bits(facts: Facts) -> bool:
    store = facts["recipe"].get("store")
    return store is not None and store.get("name") == "bits"


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


_INT8 = json_object({"name": one_of("int8"), "rerank": boolean})
_BITS = json_object(
    {"name": one_of("bits"), "rerank": boolean, "bits": one_of(1, 2, 4), "miss": number(0.0, 0.5, exclusive=True)}
)


def _check_store(value: Any) -> str | None:
    """Check the store of an index: None, int8 or bits."""
    if value is None:
        return None
    return (_BITS if isinstance(value, dict) and value.get("name") == "bits" else _INT8)(value)


_KINDS: dict[str, IndexKind] = {
    "flat": IndexKind(
        {"store": _check_store},
        bases=("euclidean", "manhattan", "cosine", "dot", "hamming", "haversine"),
        coded_bases=("euclidean", "manhattan", "cosine", "dot"),
        sparse=True,
    ),
    "kdtree": IndexKind({"leaf_size": whole_number(1, 2**31)}, bases=("euclidean", "manhattan", "cosine", "haversine")),
    "landmarks": IndexKind(
        {"n_landmarks": _AUTO, "probes": _AUTO, "seed": whole_number(), "store": _check_store, "verbose": boolean},
        {"length": whole_number(1), "trained": whole_number(1), "probes": whole_number(1)},
        _landmarks,
        bases=("euclidean", "cosine", "dot", "haversine"),
        coded_bases=("euclidean", "cosine", "dot"),
    ),
    "lsh": IndexKind(
        {"n_tables": whole_number(1), "n_bits": _AUTO, "probes": _AUTO, "seed": whole_number()},
        {"probes": whole_number(1, 2**31)},
        _lsh,
        bases=("euclidean", "manhattan", "cosine", "dot", "haversine"),
    ),
}


def _inner_recipe(value: Any) -> str | None:
    """Check the recipe of the index of each shard: any kind but sharded."""
    name = value.get("index") if isinstance(value, dict) else None
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None or name == "sharded":
        return f"is {short_repr(value)}, expected the recipe of an index that is not sharded"
    return json_object({"index": text(100), **kind.recipe})(value)


_KINDS["sharded"] = IndexKind(
    {"recipe": _inner_recipe, "shards": whole_number(1, 2**12), "replicas": whole_number(1, 2**12)},
    bases=_KINDS["flat"].bases,
    sparse=True,
)
_METRIC = json_object(
    {"name": text(100), "sigma": number(0.0, exclusive=True), "degrees": boolean}, optional=("sigma", "degrees")
)
_FOREIGN_RECIPE = ValueCheck(
    "the recipe of an index of another package", lambda value: isinstance(value, dict) and value.get("store") is None
)


def base_of(facts: Facts) -> str:
    """Return the distance that the index computes."""
    name = str(facts["metric"]["name"])
    return _BASES.get(name, name)


def index_facts(value: Any) -> str | None:
    """Check the facts of an index by the kind that its recipe names."""
    recipe = value.get("recipe") if isinstance(value, dict) else None
    if not isinstance(recipe, dict) or not isinstance(recipe.get("index"), str):
        return f"is {short_repr(value)}, expected the facts of an index with its recipe"
    kind = _KINDS.get(recipe["index"])
    fields: dict[str, Check] = {
        "recipe": _FOREIGN_RECIPE if kind is None else json_object({"index": text(100), **kind.recipe}),
        "metric": _METRIC,
        "n_rows": whole_number(1),
        "n_features": whole_number(1),
        "why": text(),
        "unit": POWER,
    }
    problem = json_object(fields | dict({} if kind is None else kind.facts), optional=("unit",))(value)
    return problem or (None if kind is None else _metric_problem(kind, value))


def index_arrays(stored: StoredObject, ids: str | int | None) -> dict[str, Array]:
    """Return the arrays of the index, if there is one; `ids` bounds its ids, None if it may have no ids of its own."""
    facts = stored.facts.get("index")
    if facts is None:
        return {}
    name, store = facts["recipe"]["index"], facts["recipe"].get("store")
    kind = _KINDS.get(name, IndexKind())
    arrays = {} if ids is None else {"ids": Array(("int64",), ("m",), (index_below(ids), distinct), optional=True)}
    codes_only = store is not None and not store["rerank"]
    if _stores_bits(facts):
        arrays |= _BIT_CODES
        if name == "landmarks":  # its codes are relative to the landmark of their cell
            del arrays["codes.center"]
    elif store is not None:  # an index on a GPU writes full rows without codes; reading computes them
        arrays |= {name: replace(array, optional=not codes_only) for name, array in _INT8_CODES.items()}
    if not codes_only:
        arrays |= declared_rows("m", kind.sparse and "index.rows.indptr" in stored.arrays)
    return {f"index.{name}": array for name, array in (arrays | dict(kind.arrays(facts))).items()}


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
    B, T = stored.sizes["B"], stored.facts["index"]["recipe"]["n_tables"]
    fits = T <= FileLimit.ITEMS and B % T == 0 and B // T <= 62  # a hash is an int64, of at most 62 bits
    return None if fits else f"has {B} directions for {T} hash tables"


def _codes_of_bits(stored: Any) -> str | None:
    """The words of a row contain all bits of D columns, and the type of factors fits the encoding."""
    from kway.kernels.codes.bits import WIDEST_FILTER

    D, P, words = (stored.sizes.get(name) for name in ("D", "P", "words*"))
    if P is None:
        return None
    W, bits, m = D // 64, stored.facts["index"]["recipe"]["store"]["bits"], stored.sizes["m"]
    fits = D % 64 == 0 and stored.sizes["d"] <= D and min(W, WIDEST_FILTER) == P and P + words == bits * W
    center = stored.arrays.get("index.codes.center")
    # codes of unit rows around 0 have a factor of 2 bytes and no half square; all others 4 bytes and both
    unit_rows = base_of(stored.facts["index"]) == "cosine" and center is not None and not center.any()
    layout = (stored.arrays["index.codes.factor"].itemsize, stored.sizes["halves*"])
    fits = fits and layout == ((2, 0) if unit_rows else (4, m))
    return None if fits else f"has codes of {P} and {words} words per row for {D} columns of {bits} bits"


def _sharded_hashes(stored: Any) -> str | None:
    """The hash tables of sharded LSH indexes, computed when the file is read, fit in memory."""
    facts = stored.facts.get("index")
    inner = facts and facts["recipe"].get("recipe")
    if not inner or inner["index"] != "lsh":
        return None
    rows, d, tables = stored.sizes["m"], stored.sizes["d"], inner["n_tables"]
    # loading computes the tables again: at most 62 directions per table, of 8 bytes per row and per column
    needed = 8 * tables * 62 * (rows + d * min(facts["recipe"]["shards"], rows))
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
    _sharded_hashes,
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


def _metric_problem(kind: IndexKind, facts: Facts) -> str | None:
    """Return why the kind of index does not support the metric or its number of columns, or None."""
    base, coded = base_of(facts), facts["recipe"].get("store") is not None
    if base not in (kind.coded_bases if coded else kind.bases):
        return f"has the metric {base!r}, which this kind of index does not support"
    fits = base != "haversine" or facts["n_features"] == 2
    return None if fits else f"has {facts['n_features']:,} columns, expected two columns for haversine"
