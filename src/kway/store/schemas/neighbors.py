"""Neighbours, centroids and exemplars: n training rows with codes (n,) < K, an index of the m that vote."""

from __future__ import annotations

from typing import Any

from kway.store.facts import maybe, number, one_of, record, whole
from kway.store.schema import FLOATS, Array, Held, Schema, below, counts, finite, same_dtype
from kway.store.schemas.index import (
    POWER,
    base_of,
    declared_rows,
    index_arrays,
    index_facts,
    index_rules,
    index_sizes,
    row_rules,
)

MOST_VOTERS = 2**20  # more than rows: lists are filled up to n_neighbors, so it is memory

_SHARE = number(0.0, 1.0)
_PROMISE = record(
    {
        "target": _SHARE,
        "confidence": _SHARE,
        "of": one_of("votes", "recall"),
        "n_queries": whole(),
        "disagreements": whole(),
        "bound": _SHARE,
        "probes": maybe(whole(1)),
        "n_rows": whole(1),
    }
)


def _arrays(held: Held) -> dict[str, Array]:
    index = index_arrays(held.facts["index"], held.under("index."), ids=True)
    kept = "rows" in held.arrays or "rows.indptr" in held.arrays
    return {
        "codes": Array(("int64",), ("n",), (below("K"),)),
        "weights": Array(("float64",), ("n",), (counts,), optional=True),
        **(declared_rows("n", held.arrays) if kept else {}),
        **{f"index.{name}": array for name, array in index.items()},
    }


def _every_row_voted_on(held: Held) -> str | None:
    """Without ids positions are ids; rows that the index has not as they came are kept beside it."""
    n, m, index = held.sizes["n"], held.sizes["m"], held.facts["index"]
    if "index.ids" not in held.arrays and n != m:
        return f"has {n:,} codes for the {m:,} rows of its index"
    store = index["recipe"].get("store")
    coded = store is not None and store["rerank"]
    kept = "rows" in held.arrays or "rows.indptr" in held.arrays
    if not kept and (coded or n != m or base_of(index) == "haversine"):
        return "keeps its rows nowhere as they came"
    return None


def _bounded_lists(held: Held) -> str | None:
    k, most = held.params["n_neighbors"], max(held.sizes["m"], MOST_VOTERS)
    return None if k <= most else f"has n_neighbors={k}, above {most:,}"


def _takes_its_own_rows(model: Any) -> str | None:
    """Sparse rows are only there where metric and index, by the parameters, take them."""
    index = model.index_
    fits = not (index.recipe.sparse and hasattr(index.rows, "tocsr")) or model._takes_sparse()
    return None if fits else "keeps sparse rows under a metric or an index that takes none"


NEIGHBORS = Schema(
    facts={"index": index_facts, "promise": maybe(_PROMISE)},
    arrays=_arrays,
    sizes=lambda held: index_sizes(held.facts["index"]),
    rules=(_every_row_voted_on, _bounded_lists, *index_rules(), *row_rules("n")),
    after=(_takes_its_own_rows,),
)

CENTROID = Schema(
    facts={"spread": number(0.0), "dtype": one_of("float32", "float64"), "unit": POWER},
    optional_facts=("unit",),
    arrays=lambda _: {
        "means": Array(("float64",), ("K", "d")),
        "weights": Array(("float64",), ("K",), (counts,)),
    },
    params={"metric": one_of("euclidean", "cosine")},
)

EXEMPLAR = Schema(
    facts={"unit": number(0.0, above=True), "n_iter": whole(), "power": POWER},
    optional_facts=("power",),
    arrays=lambda _: {
        "exemplars": Array(FLOATS, ("n", "d")),
        "offsets": Array(FLOATS, ("n",)),
        "codes": Array(("int64",), ("n",), (below("K"),)),
        "centre": Array(FLOATS, ("d",), (finite,)),
    },
    rules=(same_dtype("exemplars", "offsets"),),
)
