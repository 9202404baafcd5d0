"""Schemas of indexes: m rows of d columns, dense, CSR or as codes, and the arrays of each kind of index.

    flat        rows, or codes (and rows, if candidates are reranked)
    kdtree      rows; the tree is built again
    landmarks   rows or codes, cells (m,) < C, landmarks (C, s), projection: mean (D,), basis (D, M); rows of bits are
                in the order of cells, with names (m,) and sizes (C,) instead of the cells
    lsh         rows, directions (D, B), shift, width (B,), factor (T, b), B = T b
    sharded     rows; the shards are built again

D is d, except 3 for haversine (points on the sphere) and d + 1 for lsh with dot. An index of another package, which is
not in _KINDS, stores only its rows.
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
    LARGEST,
    Array,
    Check,
    CrossRule,
    FileLimit,
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

Facts = Mapping[str, Any]
_BASES = {"gaussian": "euclidean", "laplacian": "manhattan"}  # metric -> the distance of the same order, if another
POWER = whole(-(2**11), 2**11)  # exponent of the power of two that scales the rows, if it is not 1
_AUTO = either(one_of("auto"), whole(1, 2**31))


@dataclass(frozen=True)
class IndexKind:
    """One kind of index: fields of its recipe, its own facts and arrays, and the distances it supports."""

    recipe: Mapping[str, Check] = field(default_factory=dict)
    facts: Mapping[str, Check] = field(default_factory=dict)
    arrays: Callable[[Facts], Mapping[str, Array]] = lambda _: {}
    bases: tuple[str, ...] = ()  # () for any
    coded_bases: tuple[str, ...] = ()
    sparse: bool = False
    ordered: bool = False  # bits are stored in the order of cells, relative to their landmarks


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
        "middle": Array(("float64",), ("B",), (finite,)),
        "longest": Array(("float64",), (1,), (finite,)),
    }


_BYTES = record({"name": one_of("int8"), "rerank": flag})
_BITS = record({"name": one_of("bits"), "rerank": flag, "bits": one_of(1, 2, 4), "miss": number(0.0, 0.5, above=True)})
_STORE = maybe(either(_BYTES, _BITS))
_KINDS: dict[str, IndexKind] = {
    "flat": IndexKind(
        {"store": _STORE},
        bases=("euclidean", "manhattan", "cosine", "dot", "hamming", "haversine"),
        coded_bases=("euclidean", "manhattan", "cosine", "dot"),
        sparse=True,
    ),
    "kdtree": IndexKind({"leaf_size": whole(1, 2**31)}, bases=("euclidean", "manhattan", "cosine", "haversine")),
    "landmarks": IndexKind(
        {"n_landmarks": _AUTO, "probes": _AUTO, "seed": whole(), "store": _STORE, "verbose": flag},
        {"length": whole(1), "trained": whole(1), "probes": whole(1)},
        _landmarks,
        ("euclidean", "cosine", "dot", "haversine"),
        coded_bases=("euclidean", "cosine", "dot"),
        ordered=True,
    ),
    "lsh": IndexKind(
        {"n_tables": whole(1), "n_bits": _AUTO, "probes": _AUTO, "seed": whole()},
        {"probes": whole(1, 2**31)},
        _lsh,
        ("euclidean", "manhattan", "cosine", "dot", "haversine"),
    ),
}


def _inner_recipe(value: Any) -> str | None:
    """Check the recipe of the index of each shard: any kind but sharded."""
    kind = (
        _KINDS.get(value.get("index", "")) if isinstance(value, dict) and isinstance(value.get("index"), str) else None
    )
    if kind is None or value["index"] == "sharded":
        return "the recipe of an index that is not sharded"
    return record({"index": text(100), **kind.recipe})(value)


_KINDS["sharded"] = IndexKind(
    {"recipe": _inner_recipe, "shards": whole(1, 2**12), "replicas": whole(1, 2**12)},
    bases=_KINDS["flat"].bases,
    sparse=True,
)
_METRIC = record({"name": text(100), "sigma": number(0.0, above=True), "degrees": flag}, optional=("sigma", "degrees"))


def base_of(facts: Facts) -> str:
    """Return the distance that the index computes."""
    name = str(facts["metric"]["name"])
    return _BASES.get(name, name)


def index_facts(value: Any) -> str | None:
    """Check the facts of an index by the kind that its recipe names."""
    recipe = value.get("recipe") if isinstance(value, dict) else None
    if not isinstance(recipe, dict) or not isinstance(recipe.get("index"), str):
        return "facts of an index with its recipe"
    kind = _KINDS.get(recipe["index"])
    whole_recipe = _any_recipe if kind is None else record({"index": text(100), **kind.recipe})
    own = {} if kind is None else kind.facts
    common = {"recipe": whole_recipe, "metric": _METRIC, "n_rows": whole(1), "n_features": whole(1), "why": text()}
    common["unit"] = POWER
    expected = record({**common, **own}, optional=("unit",))(value)
    return expected or (None if kind is None else _searchable(kind, value))


def index_arrays(facts: Facts, present: Mapping[str, NDArray], ids: str | int | None) -> dict[str, Array]:
    """Return the arrays of an index; `ids`: what its own ids are below, None if it may have none."""
    kind, store = _KINDS.get(facts["recipe"]["index"], IndexKind()), facts["recipe"].get("store")
    own = {} if ids is None else {"ids": Array(("int64",), ("m",), (below(ids), distinct), optional=True)}
    codes_only = store is not None and not store["rerank"]
    if _of_bits(facts):
        own |= {name: array for name, array in _BITTED.items() if name != "codes.center" or not kind.ordered}
    elif store is not None:  # an index on a GPU writes full rows without codes; reading computes them
        own |= {name: replace(array, optional=not codes_only) for name, array in _CODED.items()}
    if not codes_only:
        own |= declared_rows("m", present, kind.sparse)
    return own | dict(kind.arrays(facts))


def declared_rows(n: str, present: Mapping[str, NDArray], sparse: bool = True) -> dict[str, Array]:
    """Declare rows (n, d): dense, or CSR if those are present."""
    if not (sparse and "rows.indptr" in present):
        return {"rows": Array(FLOAT_TYPES, (n, "d"))}
    entries = f"entries of {n}*"
    return {
        "rows.data": Array(FLOAT_TYPES, (entries,)),
        "rows.indices": Array(INT32_64, (entries,), (below("d"),)),
        "rows.indptr": Array(INT32_64, (f"offsets of {n}",), (offsets_to(entries),)),
    }


def row_rules(n: str, prefix: str = "") -> tuple[CrossRule, ...]:
    """Return the rules of CSR rows: one more offset than rows, columns in ascending order."""

    def offsets(stored: Any) -> str | None:
        found = stored.sizes.get(f"offsets of {n}")
        fits = found is None or found == stored.sizes[n] + 1
        return None if fits else f"has {found:,} offsets of CSR rows, expected {stored.sizes[n] + 1:,}"

    def ordered(stored: Any) -> str | None:
        indices, indptr = (stored.arrays.get(f"{prefix}rows.{part}") for part in ("indices", "indptr"))
        return None if indptr is None else ascending_in_rows(indices, indptr)

    return (offsets, ordered)


def index_rules(key: str = "index") -> tuple[CrossRule, ...]:
    """Return the rules across the facts (under `key`) and the arrays of an index."""

    def sketch(stored: Any) -> str | None:
        length, width = stored.facts[key] and stored.facts[key].get("length"), stored.sizes.get("M*")
        if width is None:
            return None
        points = 3 if base_of(stored.facts[key]) == "haversine" else stored.sizes["d"]
        fits = length <= width if width else length == points
        return None if fits else f"has projections of {length} out of {width or points} coordinates"

    def tables(stored: Any) -> str | None:
        if "B" not in stored.sizes:
            return None
        B, T = stored.sizes["B"], stored.facts[key]["recipe"]["n_tables"]
        return (
            None if T <= FileLimit.ITEMS and B % T == 0 and B // T <= 62 else f"has {B} directions for {T} hash tables"
        )

    def planes(stored: Any) -> str | None:
        from kway.kernels.codes.bits import WIDEST_FILTER

        D, P, words = (stored.sizes.get(name) for name in ("D", "P", "words*"))
        if P is None:
            return None
        W, bits, m = D // 64, stored.facts[key]["recipe"]["store"]["bits"], stored.sizes["m"]
        fits = D % 64 == 0 and stored.sizes["d"] <= D and min(W, WIDEST_FILTER) == P and P + words == bits * W
        center = stored.arrays.get(f"{key}.codes.center")
        plain = base_of(stored.facts[key]) == "cosine" and center is not None and not center.any()
        kept = (stored.arrays[f"{key}.codes.factor"].itemsize, stored.sizes["halves*"])
        fits = fits and kept == ((2, 0) if plain else (4, m))
        return None if fits else f"has codes of {P} and {words} words per row for {D} columns of {bits} bits"

    def hashes(stored: Any) -> str | None:
        facts = stored.facts[key]
        inner = facts and facts["recipe"].get("recipe")
        if not inner or inner["index"] != "lsh":
            return None
        rows, d, tables = stored.sizes["m"], stored.sizes["d"], inner["n_tables"]
        need = 8 * tables * 62 * (rows + d * min(facts["recipe"]["shards"], rows))  # the tables are computed again
        held = sum(array.nbytes for name, array in stored.arrays.items() if name.startswith(f"{key}."))
        fits = tables <= FileLimit.ITEMS and need <= max(BLOCK_BYTES, MAX_EXPANSION * held)
        return None if fits else f"has {tables:,} hash tables for {rows:,} rows of {d:,} columns"

    def columns(stored: Any) -> str | None:
        indptr = stored.arrays.get(f"{key}.rows.indptr")
        held = sum(array.nbytes for name, array in stored.arrays.items() if name.startswith(f"{key}."))
        fits = indptr is None or not expands_too_much(held, 8 * stored.sizes["d"])  # of a search
        return None if fits else f"has sparse rows of {stored.sizes['d']:,} columns in {held:,} bytes"

    def cells(stored: Any) -> str | None:
        sizes = stored.arrays.get(f"{key}.sizes")
        fits = sizes is None or ((sizes <= stored.sizes["m"]).all() and int(sizes.sum()) == stored.sizes["m"])
        return None if fits else f"has cells of {int(sizes.sum()):,} rows in all for {stored.sizes['m']:,} rows"

    return (sketch, tables, planes, hashes, columns, cells, *row_rules("m", f"{key}."))


def check_index(facts: Any, arrays: Mapping[str, NDArray], shape: tuple[int, int] | None = None) -> None:
    """Raise ModelFileError for invalid facts and arrays of an index without a classifier; of this shape, if given."""
    under = {f"index.{name}": array for name, array in arrays.items()}
    check_facts(_ALONE, {"index": facts}, "index")
    sizes = {} if shape is None else dict(zip("md", shape))
    check_arrays(_ALONE, StoredObject("index", {}, {"index": facts}, under, np.empty(0), sizes))


def index_sizes(facts: Facts) -> dict[str, int]:
    """Return the sizes that the facts of an index give."""
    return {"m": facts["n_rows"], "d": facts["n_features"]}


_CODED = {
    "codes": Array(("int8",), ("m", "d")),
    "codes.scale": Array(("float32",), ("m",)),
    "codes.center": Array(("float32",), ("d",), (finite,)),
}


_BITTED = {
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
    arrays=lambda stored: {
        f"index.{name}": array
        for name, array in index_arrays(stored.facts["index"], stored.under("index."), ids=LARGEST).items()
    },
    sizes=lambda stored: index_sizes(stored.facts["index"]),
    rules=index_rules(),
)


def _any_recipe(value: Any) -> str | None:
    return None if isinstance(value, dict) and value.get("store") is None else "the recipe of an index"


def _searchable(kind: IndexKind, facts: Facts) -> str | None:
    base, coded = base_of(facts), facts["recipe"].get("store") is not None
    if base not in (kind.coded_bases if coded else kind.bases):
        return "a metric that this index supports"
    columns_fit = base != "haversine" or facts["n_features"] == 2
    return None if columns_fit else "two columns for haversine"
