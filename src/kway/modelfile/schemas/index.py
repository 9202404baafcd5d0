"""Indexes: m rows of d columns, dense, CSR or as codes, and what each kind keeps beside them.

    flat        rows, or codes (and rows, where they are measured in full)
    kdtree      rows; the tree is grown again
    landmarks   rows or codes, cells (m,) < C, landmarks (C, s), sketch: mean (D,), basis (D, M); of bits, everything
                in the order of cells, with names (m,) and sizes (C,) instead of the cells
    lsh         rows, directions (D, B), shift, width (B,), factor (T, b), B = T b
    sharded     rows; the shards are built again

D is d; 3 under haversine (points on the sphere), and for lsh d + 1 under dot. An index that is registered from outside
and not declared in KINDS keeps its rows alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.modelfile.schema import (
    FLOAT_TYPES,
    INT32_64,
    Array,
    Check,
    CrossRule,
    Schema,
    StoredObject,
    ascending_in_rows,
    below,
    check_arrays,
    check_facts,
    counts,
    distinct,
    either,
    finite,
    flag,
    maybe,
    number,
    offsets_to,
    one_of,
    record,
    text,
    whole,
)

FILTER_WORDS = 4  # of the signs that lie row beside row, the others behind one another
MOST_TABLES = 4096  # of lsh: rows times tables are stored in memory, and both are the file's to say

Facts = Mapping[str, Any]
_BASES = {"gaussian": "euclidean", "laplacian": "manhattan"}  # metric -> the distance it orders by, where not itself
POWER = whole(-(2**11), 2**11)  # of two: the unit that rows are kept in, where it is not 1
_AUTO = either(one_of("auto"), whole(1, 2**31))


@dataclass(frozen=True)
class Kind:
    """One kind of index: fields of its recipe, its own facts and arrays, and the distances it searches."""

    recipe: Mapping[str, Check] = field(default_factory=dict)
    facts: Mapping[str, Check] = field(default_factory=dict)
    arrays: Callable[[Facts], Mapping[str, Array]] = lambda _: {}
    bases: tuple[str, ...] = ()  # () where the file does not tell
    coded_bases: tuple[str, ...] = ()
    sparse: bool = False
    ordered: bool = False  # bits lie in the order of cells, each about its landmark


def _of_bits(facts: Facts) -> bool:
    store = facts["recipe"].get("store")
    return store is not None and store.get("name") == "bits"


def _landmarks(facts: Facts) -> dict[str, Array]:
    points = 3 if base_of(facts) == "haversine" else "d"
    ordered = {
        "names": Array(("int64",), ("m",), (below("m"), distinct)),
        "sizes": Array(("int64",), ("C",), (counts,)),
    }
    cells = {"cells": Array(("int64",), ("m",), (below("C"),))}
    return (ordered if _of_bits(facts) else cells) | {
        "landmarks": Array(("float32",), ("C", facts["length"]), (finite,)),
        "mean": Array(("float64",), (points,), (finite,)),
        "basis": Array(("float32",), (points, "M*"), (finite,)),
    }


def _lsh(facts: Facts) -> dict[str, Array]:
    points: str | int = {"haversine": 3, "dot": facts["n_features"] + 1}.get(base_of(facts), "d")
    return {
        "directions": Array(("float32",), (points, "B")),
        "shift": Array(("float64",), ("B",), (finite,)),
        "width": Array(("float64",), ("B",), (finite, _all_or_none)),
        "factor": Array(("uint64",), ("T", "b")),
        "longest": Array(("float64",), (1,), (finite,)),
    }


_BYTES = record({"name": one_of("int8"), "rerank": flag}, optional=("name",))  # 0.1 had one, and no name for it
_BITS = record({"name": one_of("bits"), "rerank": flag, "bits": one_of(1, 2, 4), "miss": number(0.0, 0.5, above=True)})
_STORE = maybe(either(_BYTES, _BITS))
_KINDS: dict[str, Kind] = {
    "flat": Kind(
        {"store": _STORE},
        bases=("euclidean", "manhattan", "cosine", "dot", "hamming", "haversine"),
        coded_bases=("euclidean", "manhattan", "cosine", "dot"),
        sparse=True,
    ),
    "kdtree": Kind({"leaf_size": whole(1, 2**31)}, bases=("euclidean", "manhattan", "cosine", "haversine")),
    "landmarks": Kind(
        {"n_landmarks": _AUTO, "probes": _AUTO, "seed": whole(), "store": _STORE, "verbose": flag},
        {"length": whole(1), "trained": whole(1), "probes": whole(1)},
        _landmarks,
        ("euclidean", "cosine", "dot", "manhattan", "haversine"),
        coded_bases=("euclidean", "cosine", "dot"),
        ordered=True,
    ),
    "lsh": Kind(
        {"n_tables": _AUTO, "n_bits": _AUTO, "probes": _AUTO, "seed": whole()},
        {"probes": whole(1, 2**31)},
        _lsh,
        ("euclidean", "manhattan", "cosine", "dot", "haversine"),
    ),
}


def _inner_recipe(value: Any) -> str | None:
    """The recipe of an index that shards can be of: any kind but sharded."""
    kind = (
        _KINDS.get(value.get("index", "")) if isinstance(value, dict) and isinstance(value.get("index"), str) else None
    )
    if kind is None or value["index"] == "sharded":
        return "the recipe of an index of one machine"
    return record({"index": text(100), **kind.recipe})(value)


_KINDS["sharded"] = Kind(
    {"recipe": _inner_recipe, "shards": whole(1, 2**12), "replicas": whole(1, 2**12)},
    bases=_KINDS["flat"].bases,
    sparse=True,
)
_METRIC = record({"name": text(100), "sigma": number(0.0, above=True), "degrees": flag}, optional=("sigma", "degrees"))


def base_of(facts: Facts) -> str:
    """The distance that the index computes."""
    name = str(facts["metric"]["name"])
    return _BASES.get(name, name)


def index_facts(value: Any) -> str | None:
    """Check of the facts of an index, by the kind that its recipe names."""
    recipe = value.get("recipe") if isinstance(value, dict) else None
    if not isinstance(recipe, dict) or not isinstance(recipe.get("index"), str):
        return "facts of an index with its recipe"
    kind = _KINDS.get(recipe["index"])
    whole_recipe = _any_recipe if kind is None else record({"index": text(100), **kind.recipe})
    own = {} if kind is None else kind.facts
    common = {"recipe": whole_recipe, "metric": _METRIC, "n_rows": whole(1), "n_features": whole(1), "why": text()}
    common["unit"] = POWER
    said = record({**common, **own}, optional=("unit",))(value)
    return said or (None if kind is None else _searchable(kind, value))


def index_arrays(facts: Facts, present: Mapping[str, NDArray], ids: bool) -> dict[str, Array]:
    """The arrays of an index, given those that are there; `ids`: rows may have ids of the caller's own, below n."""
    kind, store = _KINDS.get(facts["recipe"]["index"], Kind()), facts["recipe"].get("store")
    own = {"ids": Array(("int64",), ("m",), (below("n"), distinct), optional=True)} if ids else {}
    codes_only = store is not None and not store["rerank"]
    if _of_bits(facts):
        own |= {name: array for name, array in _BITTED.items() if name != "codes.centre" or not kind.ordered}
    elif store is not None:  # landmarks of 0.1 kept full rows alone: codes that are missing are made again
        own |= {name: replace(array, optional=not codes_only) for name, array in _CODED.items()}
    if not codes_only:
        own |= declared_rows("m", present, kind.sparse)
    return own | dict(kind.arrays(facts))


def declared_rows(n: str, present: Mapping[str, NDArray], sparse: bool = True) -> dict[str, Array]:
    """Rows (n, d), dense, or CSR where that is what is there."""
    if not (sparse and "rows.indptr" in present):
        return {"rows": Array(FLOAT_TYPES, (n, "d"))}
    entries = f"entries of {n}*"
    return {
        "rows.data": Array(FLOAT_TYPES, (entries,)),
        "rows.indices": Array(INT32_64, (entries,), (below("d"),)),
        "rows.indptr": Array(INT32_64, (f"offsets of {n}",), (offsets_to(entries),)),
    }


def row_rules(n: str, prefix: str = "") -> tuple[CrossRule, ...]:
    """What CSR rows keep: as many offsets as rows and one more, columns in order."""

    def offsets(stored: Any) -> str | None:
        found = stored.sizes.get(f"offsets of {n}")
        fits = found is None or found == stored.sizes[n] + 1
        return None if fits else f"has {found:,} offsets of CSR rows, expected {stored.sizes[n] + 1:,}"

    def ordered(stored: Any) -> str | None:
        indices, indptr = (stored.arrays.get(f"{prefix}rows.{part}") for part in ("indices", "indptr"))
        return None if indptr is None else ascending_in_rows(indices, indptr)

    return (offsets, ordered)


def index_rules(key: str = "index") -> tuple[CrossRule, ...]:
    """Rules across the facts (under `key`) and the arrays of an index."""

    def sketch(stored: Any) -> str | None:
        length, width = stored.facts[key] and stored.facts[key].get("length"), stored.sizes.get("M*")
        if width is None:
            return None
        points = 3 if base_of(stored.facts[key]) == "haversine" else stored.sizes["d"]
        fits = length <= width if width else length == points
        return None if fits else f"has sketches of {length} out of {width or points} coordinates"

    def tables(stored: Any) -> str | None:
        T, b, B = (stored.sizes.get(name) for name in ("T", "b", "B"))
        fits = T is None or (T * b == B and b <= 62 and T <= MOST_TABLES)
        return None if fits else f"has {T} hash tables of {b} bits and {B} directions"

    def planes(stored: Any) -> str | None:
        D, P, words = (stored.sizes.get(name) for name in ("D", "P", "words*"))
        if P is None:
            return None
        W, bits, m = D // 64, stored.facts[key]["recipe"]["store"]["bits"], stored.sizes["m"]
        fits = D % 64 == 0 and stored.sizes["d"] <= D and min(W, FILTER_WORDS) == P and P + words == bits * W
        centre = stored.arrays.get(f"{key}.codes.centre")
        plain = base_of(stored.facts[key]) == "cosine" and centre is not None and not centre.any()
        kept = (stored.arrays[f"{key}.codes.factor"].itemsize, stored.sizes["halves*"])
        fits = fits and kept == ((2, 0) if plain else (4, m))
        return None if fits else f"has codes of {P} and {words} words a row for {D} columns of {bits} bits"

    def cells(stored: Any) -> str | None:
        sizes = stored.arrays.get(f"{key}.sizes")
        fits = sizes is None or ((sizes <= stored.sizes["m"]).all() and int(sizes.sum()) == stored.sizes["m"])
        return None if fits else f"has cells of {int(sizes.sum()):,} rows in all for {stored.sizes['m']:,} rows"

    return (sketch, tables, planes, cells, *row_rules("m", f"{key}."))


def check_index(facts: Any, arrays: Mapping[str, NDArray], n_rows: int, n_features: int) -> None:
    """Refuse the facts and arrays of an index that stands by itself, over so many rows and columns."""
    under = {f"index.{name}": array for name, array in arrays.items()}
    check_facts(_ALONE, {"index": facts}, "index")
    sizes = {"m": n_rows, "d": n_features}
    check_arrays(_ALONE, StoredObject("index", {}, {"index": facts}, under, np.empty(0), sizes))


def index_sizes(facts: Facts) -> dict[str, int]:
    """Sizes that the facts of an index give."""
    return {"m": facts["n_rows"], "d": facts["n_features"]}


_CODED = {
    "codes": Array(("int8",), ("m", "d")),
    "codes.scale": Array(("float32",), ("m",)),
    "codes.centre": Array(("float32",), ("d",), (finite,)),
}


_BITTED = {
    "codes.head": Array(("uint64",), ("P", "m")),
    "codes.rest": Array(("uint64",), ("m", "words*")),
    "codes.factor": Array(("uint16", "float32"), ("m",)),
    "codes.half": Array(("float32",), ("halves*",)),
    "codes.widest": Array(("float32",), (1,), (finite,)),
    "codes.centre": Array(("float32",), ("d",), (finite,)),
    "codes.signs": Array(("int8",), ("rounds", "D")),
}


_ALONE = Schema(
    facts={"index": index_facts},
    arrays=lambda stored: {
        f"index.{name}": array
        for name, array in index_arrays(stored.facts["index"], stored.under("index."), ids=False).items()
    },
    sizes=lambda stored: index_sizes(stored.facts["index"]),
    rules=index_rules(),
)


def _any_recipe(value: Any) -> str | None:
    return None if isinstance(value, dict) and value.get("store") is None else "the recipe of an index"


def _searchable(kind: Kind, facts: Facts) -> str | None:
    base, coded = base_of(facts), facts["recipe"].get("store") is not None
    if base not in (kind.coded_bases if coded else kind.bases):
        return "a metric that this index searches"
    columns_fit = base != "haversine" or facts["n_features"] == 2
    return None if columns_fit else "two columns, as haversine has"


def _all_or_none(width: NDArray, _: Mapping[str, int]) -> str | None:
    return None if (width > 0).all() or not width.any() else "holds 0 beside other widths"
