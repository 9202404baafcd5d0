"""Schemas of linear models, neighbors, centroids and exemplars, and checks of parameters by name.

PARAMS     parameters by name. Only those that are used after loading are checked, in addition to the check of the class
LINEAR     W (R, d) and b (R,); R is 1 for two classes or `targets="number"`, else K
KERNEL_SOFTMAX  the same on r columns, which m landmarks make from rows (n, d)
NEIGHBORS  n training rows with codes (n,) < K, and an index of the m rows that vote
"""

from __future__ import annotations

from typing import Any

from kway.modelfile.schema import (
    FLOAT_TYPES,
    LARGEST,
    Array,
    Check,
    CrossRule,
    FileLimit,
    Schema,
    StoredObject,
    anything,
    below,
    counts,
    either,
    fields_of,
    finite,
    flag,
    many,
    maybe,
    number,
    one_of,
    same_dtype,
    scalar,
    text,
    whole,
)
from kway.modelfile.schemas.index import (
    POWER,
    base_of,
    declared_rows,
    index_arrays,
    index_facts,
    index_rules,
    index_sizes,
    row_rules,
)


def _estimator(value: Any) -> str | None:
    return None if hasattr(value, "fit") and hasattr(value, "get_params") else "a classifier"


def _member(value: Any) -> str | None:
    named = isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str)
    return _estimator(value[1] if named else value)


def _part(value: Any) -> str | None:
    return None if hasattr(value, "__dataclass_fields__") else "a part of kway"


PARAMS: dict[str, Check] = {
    "agreement": maybe(either(number(0.0, 1.0), _part)),
    "class_weight": maybe(either(one_of("balanced"), lambda v: None if isinstance(v, dict) else "{label: weight}")),
    "device": text(100),
    "estimator": maybe(_estimator),
    "estimators": maybe(many(_member)),
    "features": maybe(_estimator),
    "index": maybe(either(text(100), _part)),
    "loss": text(100),
    "max_distance": maybe(number(finite=False)),
    "method": text(100),
    "metric": either(text(100), _part),
    "multiclass": text(100),
    "n_exemplars": whole(1),
    "n_jobs": maybe(either(whole(1, 2**31), whole(-(2**31), -1))),
    "n_neighbors": whole(1),
    "outlier_label": maybe(scalar),
    "per_class": flag,
    "random_state": maybe(whole(0, 2**32 - 1)),
    "smoothing": number(0.0, above=True),
    "temperature": number(0.0, above=True),
    "ties": text(100),
    "unknown": maybe(scalar),
    "verbose": either(whole(), flag),
    "weights": either(text(100), _part),
}


def _arrays(stored: StoredObject) -> dict[str, Array]:
    """Declare the arrays; `support` and `margin` exist together (hinge loss) or not at all."""
    found = {"coef": Array(FLOAT_TYPES, ("R", "d")), "intercept": Array(FLOAT_TYPES, ("R",))}
    if "support" in stored.arrays or "margin" in stored.arrays:
        found |= {"support": Array(("int64",), ("s*",), (below(LARGEST),)), "margin": Array(FLOAT_TYPES, ("R",))}
    return found


def _sizes(stored: StoredObject) -> dict[str, int]:
    n_classes = stored.sizes["K"]
    return {"R": 1 if n_classes == 2 or stored.params.get("targets") == "number" else n_classes}


def _two_classes(stored: StoredObject) -> str | None:
    return None if stored.sizes["K"] >= 2 else "has one class only"


LINEAR = Schema(
    facts={
        "n_iter": whole(),
        "objective": number(finite=False),
        "solver": text(),
        "history": many(number(finite=False)),
    },
    arrays=_arrays,
    sizes=_sizes,
    rules=(_two_classes, same_dtype("coef", "intercept")),
    params={"targets": one_of("one-hot", "number"), "solver": anything},
)

KERNEL_SOFTMAX = Schema(
    facts={**LINEAR.facts, "gamma": number(0.0, above=True)},
    arrays=lambda _: {
        "landmarks": Array(FLOAT_TYPES, ("m", "d"), (finite,)),
        "projection": Array(("float64",), ("m", "r"), (finite,)),
        "coef": Array(FLOAT_TYPES, ("R", "r")),
        "intercept": Array(FLOAT_TYPES, ("R",)),
    },
    sizes=_sizes,
    rules=LINEAR.rules,
    params={"gamma": either(one_of("scale"), number(0.0, above=True))},
)


_SHARE = number(0.0, 1.0)
_AGREEMENT = fields_of(
    "kway.neighbors.agreement:Agreement", **dict.fromkeys(("target", "confidence", "bound"), _SHARE), n_rows=whole(1)
)


def _neighbors_arrays(stored: StoredObject) -> dict[str, Array]:
    index = index_arrays(stored.facts["index"], stored.under("index."), ids="n")
    kept = "rows" in stored.arrays or "rows.indptr" in stored.arrays
    return {
        "codes": Array(("int64",), ("n",), (below("K"),)),
        "weights": Array(("float64",), ("n",), (counts,), optional=True),
        **(declared_rows("n", stored.arrays) if kept else {}),
        **{f"index.{name}": array for name, array in index.items()},
    }


def _every_row_voted_on(stored: StoredObject) -> str | None:
    """Check that every row has a code, and that rows which the index changes are stored next to it."""
    n, m, index = stored.sizes["n"], stored.sizes["m"], stored.facts["index"]
    if "index.ids" not in stored.arrays and n != m:
        return f"has {n:,} codes for the {m:,} rows of its index"
    store = index["recipe"].get("store")
    coded = store is not None and store["rerank"]
    kept = "rows" in stored.arrays or "rows.indptr" in stored.arrays
    if not kept and (coded or n != m or base_of(index) == "haversine"):
        return "does not contain its original rows"
    return None


def _bounded_lists(stored: StoredObject) -> str | None:
    k, most = (
        stored.params["n_neighbors"],
        max(stored.sizes["m"], FileLimit.ITEMS),
    )  # lists of n_neighbors are allocated
    return None if k <= most else f"has n_neighbors={k}, above {most:,}"


def _takes_its_own_rows(model: Any) -> str | None:
    """Check that the metric and the index accept sparse rows if the file has them."""
    index = model.index_
    fits = not (index.recipe.sparse and hasattr(index.rows, "tocsr")) or model._takes_sparse()
    return None if fits else "has sparse rows with a metric or an index that does not accept them"


NEIGHBORS = Schema(
    facts={"index": index_facts, "agreement": maybe(_AGREEMENT)},
    arrays=_neighbors_arrays,
    sizes=lambda stored: index_sizes(stored.facts["index"]),
    rules=(_every_row_voted_on, _bounded_lists, *index_rules(), *row_rules("n")),
    after=(_takes_its_own_rows,),
)


def _centroid_arrays(stored: StoredObject) -> dict[str, Array]:
    """Declare the means, and the index over the means of classes with rows."""
    found = {"means": Array(FLOAT_TYPES, ("K", "d")), "weights": Array(("float64",), ("K",), (counts,))}
    if "index" in stored.facts:
        index = index_arrays(stored.facts["index"], stored.under("index."), ids="n")
        found |= {f"index.{name}": array for name, array in index.items()}
    return found


def _centroid_sizes(stored: StoredObject) -> dict[str, int]:
    return {"n": stored.sizes["K"]} | (index_sizes(stored.facts["index"]) if "index" in stored.facts else {})


def _every_class_found(stored: StoredObject) -> str | None:
    """Check that the index has one row per class; without ids, positions are codes."""
    K, m = stored.sizes["K"], stored.sizes.get("m")
    fits = m is None or (m == K if "index.ids" not in stored.arrays else m <= K)
    return None if fits else f"has {m:,} rows in its index for {K:,} classes"


def _index_as_asked(stored: StoredObject) -> str | None:
    """Check that there is an index only if the parameters ask for one, and that it has their metric."""
    if "index" not in stored.facts:
        return None
    if stored.params["index"] is None:
        return "has an index although index=None"
    base = base_of(stored.facts["index"])
    return (
        None
        if base == stored.params["metric"]
        else f"has an index with the metric {base!r}, not {stored.params['metric']!r}"
    )


def _if_indexed(rule: CrossRule) -> CrossRule:
    return lambda stored: rule(stored) if "index" in stored.facts else None


CENTROID = Schema(
    facts={
        "spread": number(0.0),
        "dtype": one_of("float32", "float64"),
        "unit": POWER,
        "index": index_facts,
    },
    optional_facts=("unit", "index"),
    arrays=_centroid_arrays,
    sizes=_centroid_sizes,
    rules=(_index_as_asked, _every_class_found, *map(_if_indexed, index_rules())),
    params={"metric": one_of("euclidean", "cosine")},
)

EXEMPLAR = Schema(
    facts={"unit": number(0.0, above=True), "n_iter": whole(), "power": POWER},
    optional_facts=("power",),
    arrays=lambda _: {
        "exemplars": Array(FLOAT_TYPES, ("n", "d")),
        "offsets": Array(FLOAT_TYPES, ("n",)),
        "codes": Array(("int64",), ("n",), (below("K"),)),
        "center": Array(FLOAT_TYPES, ("d",), (finite,)),
    },
    rules=(same_dtype("exemplars", "offsets"),),
)
