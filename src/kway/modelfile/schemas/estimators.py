"""Schemas of linear models, neighbors, centroids and exemplars, and checks of parameters by name.

PARAMS          checks of parameters by name, for all classes. Parameters that only `fit` uses, and those that the
                class itself checks (`_check_parameters`), are not in it.
LINEAR          W (R, d) and b (R,). R is 1 for two classes or `targets="number"`, otherwise K. s* is the
                number of support rows; a size with a star may be 0.
KERNEL_SOFTMAX  W (R, r) and b (R,) on r columns, which m landmarks make from rows of d columns.
NEIGHBORS       n training rows with class codes (n,) < K, and an index of the m rows that vote.
CENTROID        one mean per class (K, d), and an index if the classifier has one.
EXEMPLAR        n exemplars (n, d) with their offsets and class codes.
MULTILABEL      several labels per row: base rates and thresholds (K,), calibration (3,), and one of two kinds of model:
                linear, with weights (K, d) and biases (K,); or neighbors, a NeighborsClassifier under "inner." and the
                labels of its n rows as CSR, indptr (n + 1,) and indices (m,) < K.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.modelfile.schema import (
    FLOAT_TYPES,
    INT32_64,
    Array,
    FileLimit,
    Schema,
    StoredObject,
    finite,
    index_below,
    offsets_to,
    same_dtype,
    valid_weights,
)
from kway.modelfile.schemas.index import (
    INDEX_RULES,
    POWER,
    base_of,
    declared_rows,
    index_arrays,
    index_facts,
    index_sizes,
    row_rules,
)
from kway.modelfile.schemas.wrappers import inner_manifest
from kway.modelfile.value_checks import (
    LARGEST_INT,
    Check,
    ValueCheck,
    label,
    list_of,
    number,
    one_of,
    optional,
    record,
    text,
    whole_number,
)


def _is_estimator(value: Any) -> bool:
    return hasattr(value, "fit") and hasattr(value, "get_params")


def _is_member(value: Any) -> bool:
    """Return whether a value is an estimator or a pair (name, estimator)."""
    is_pair = isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str)
    return _is_estimator(value[1] if is_pair else value)


_ESTIMATOR = ValueCheck("a classifier", _is_estimator)
_MEMBER = ValueCheck("a classifier", _is_member)
_PART = ValueCheck("a part of kway", dataclasses.is_dataclass)
_CLASS_WEIGHTS = ValueCheck("{label: weight}", lambda value: isinstance(value, dict))

PARAMS: dict[str, Check] = {
    "class_weight": optional(one_of("balanced") | _CLASS_WEIGHTS),
    "device": text(100),
    "estimator": optional(_ESTIMATOR),
    "estimators": optional(list_of(_MEMBER)),
    "features": optional(_ESTIMATOR),
    "index": optional(text(100) | _PART),
    "metric": text(100) | _PART,
    "n_jobs": optional(whole_number(1, 2**31) | whole_number(-(2**31), -1)),
    "outlier_label": optional(label),
    "random_state": optional(whole_number(0, 2**32 - 1)),
    "unknown": optional(label),
    "weights": text(100) | _PART,
}


def _linear_arrays(stored: StoredObject) -> dict[str, Array]:
    """Declare the arrays; `support` and `margin` exist together (hinge loss) or not at all."""
    arrays = {"coef": Array(FLOAT_TYPES, ("R", "d")), "intercept": Array(FLOAT_TYPES, ("R",))}
    if "support" in stored.arrays or "margin" in stored.arrays:
        arrays |= {
            "support": Array(("int64",), ("s*",), (index_below(LARGEST_INT),)),
            "margin": Array(FLOAT_TYPES, ("R",)),
        }
    return arrays


def _linear_sizes(stored: StoredObject) -> dict[str, int]:
    n_classes = stored.sizes["K"]
    return {"R": 1 if n_classes == 2 or stored.params.get("targets") == "number" else n_classes}


def _two_classes(stored: StoredObject) -> str | None:
    return None if stored.sizes["K"] >= 2 else "has one class only"


LINEAR = Schema(
    facts={
        "n_iter": whole_number(),
        "objective": number(allow_nan=True),
        "solver": text(),
        "history": list_of(number(allow_nan=True)),
        "epochs": whole_number(1),
    },
    optional_facts=("epochs",),  # only after partial_fit
    arrays=_linear_arrays,
    sizes=_linear_sizes,
    rules=(_two_classes, same_dtype("coef", "intercept")),
)

KERNEL_SOFTMAX = Schema(
    facts={**LINEAR.facts, "gamma": number(0.0, exclusive=True)},
    optional_facts=LINEAR.optional_facts,
    arrays=lambda _: {
        "landmarks": Array(FLOAT_TYPES, ("m", "d"), (finite,)),
        "projection": Array(("float64",), ("m", "r"), (finite,)),
        "coef": Array(FLOAT_TYPES, ("R", "r")),
        "intercept": Array(FLOAT_TYPES, ("R",)),
    },
    sizes=_linear_sizes,
    rules=LINEAR.rules,
)


def _neighbors_arrays(stored: StoredObject) -> dict[str, Array]:
    return {
        "codes": Array(("int64",), ("n",), (index_below("K"),)),
        "weights": Array(("float64",), ("n",), (valid_weights,), optional=True),
        **(declared_rows("n", "rows.indptr" in stored.arrays) if _has_rows(stored) else {}),
        **index_arrays(stored, "n"),
    }


def _has_rows(stored: StoredObject) -> bool:
    """Return whether the original rows are stored next to the index, dense or as CSR."""
    return "rows" in stored.arrays or "rows.indptr" in stored.arrays


def _codes_and_rows_fit(stored: StoredObject) -> str | None:
    """Require one code per row, and the original rows if the index does not contain them unchanged."""
    n, m, index = stored.sizes["n"], stored.sizes["m"], stored.facts["index"]
    if "index.ids" not in stored.arrays and n != m:
        return f"has {n:,} codes for the {m:,} rows of its index"
    store = getattr(index["recipe"], "store", None)
    reranked = store is not None and store.rerank
    if not _has_rows(stored) and (reranked or n != m or base_of(index) == "haversine"):
        return "does not contain its original rows"
    return None


def _n_neighbors_bounded(stored: StoredObject) -> str | None:
    """Bound n_neighbors, because a search allocates that many distances per query."""
    k, bound = stored.params["n_neighbors"], max(stored.sizes["m"], FileLimit.ITEMS)
    return None if k <= bound else f"has n_neighbors={k}, above {bound:,}"


def _sparse_rows_supported(model: Any) -> str | None:
    """Require a metric and an index for sparse rows if the file has sparse rows."""
    index = model.index_
    fits = not (index.recipe.sparse and hasattr(index.rows, "tocsr")) or model._takes_sparse()
    return None if fits else "has sparse rows with a metric or an index that does not accept them"


NEIGHBORS = Schema(
    facts={"index": index_facts, "agreement": optional(record("kway.neighbors.agreement.Agreement"))},
    arrays=_neighbors_arrays,
    sizes=index_sizes,
    rules=(_codes_and_rows_fit, _n_neighbors_bounded, *INDEX_RULES, *row_rules("n")),
    after_restore=(_sparse_rows_supported,),
)


def _centroid_arrays(stored: StoredObject) -> dict[str, Array]:
    """Declare the means, and the index over the means of classes with rows."""
    arrays = {"means": Array(FLOAT_TYPES, ("K", "d")), "weights": Array(("float64",), ("K",), (valid_weights,))}
    return arrays | index_arrays(stored, "n")


def _index_covers_classes(stored: StoredObject) -> str | None:
    """Require an index of at most one row per class; without ids, row i is class i, so all classes must be there."""
    K, m = stored.sizes["K"], stored.sizes.get("m")
    fits = m is None or (m == K if "index.ids" not in stored.arrays else m <= K)
    return None if fits else f"has {m:,} rows in its index for {K:,} classes"


def _index_matches_params(stored: StoredObject) -> str | None:
    """Require an index with the metric of the parameters, and none if `index` is None."""
    if "index" not in stored.facts:
        return None
    if stored.params["index"] is None:
        return "has an index although index=None"
    base, metric = base_of(stored.facts["index"]), stored.params["metric"]
    return None if base == metric else f"has an index with the metric {base!r}, not {metric!r}"


CENTROID = Schema(
    facts={
        "spread": number(0.0),
        "dtype": one_of("float32", "float64"),
        "unit": POWER,
        "index": index_facts,
    },
    optional_facts=("unit", "index"),
    arrays=_centroid_arrays,
    sizes=lambda stored: {"n": stored.sizes["K"]} | index_sizes(stored),
    rules=(_index_matches_params, _index_covers_classes, *INDEX_RULES),
    params={"metric": one_of("euclidean", "cosine")},
)

EXEMPLAR = Schema(
    facts={"unit": number(0.0, exclusive=True), "n_iter": whole_number(), "power": POWER},
    optional_facts=("power",),
    arrays=lambda _: {
        "exemplars": Array(FLOAT_TYPES, ("n", "d")),
        "offsets": Array(FLOAT_TYPES, ("n",)),
        "codes": Array(("int64",), ("n",), (index_below("K"),)),
        "center": Array(FLOAT_TYPES, ("d",), (finite,)),
    },
    rules=(same_dtype("exemplars", "offsets"),),
)


# ---- several labels per row


def _between_0_and_1(array: NDArray, _: Any) -> str | None:
    return None if (array > 0).all() and (array < 1).all() else "contains values that are not between 0 and 1"


def _multilabel_arrays(stored: StoredObject) -> dict[str, Array]:
    arrays = {
        "rates": Array(("float64",), ("K",), (_between_0_and_1,)),
        "thresholds": Array(("float64",), ("K",), (finite,)),
        "calibration": Array(("float64",), (3,), (finite,)),
    }
    if stored.params["kind"] == "linear":
        return {**arrays, "weights": Array(FLOAT_TYPES, ("K", "d")), "biases": Array(FLOAT_TYPES, ("K",))}
    return {
        **arrays,
        "rows.indptr": Array(INT32_64, ("n + 1",), (offsets_to("m*"),)),
        "rows.indices": Array(INT32_64, ("m*",), (index_below("K"),)),
    }


def _kind_fits(stored: StoredObject) -> str | None:
    inner = stored.facts.get("inner")
    if stored.params["kind"] == "linear":
        return None if inner is None else "has an inner classifier that a linear model does not use"
    if inner is None or inner["class"] != "NeighborsClassifier":
        return "has no nearest neighbors"
    return None if inner["n_features"] == stored.sizes.get("d") else "takes other columns than its neighbors"


def _rows_fit(model: Any) -> str | None:
    """Require the labels of every row that the index can return, and at least n_neighbors rows."""
    if model.kind == "linear":
        return None
    rows, neighbors = model.label_rows_.shape[0], model.neighbors_
    if rows != neighbors.index_.n_rows:
        return f"has labels of {rows:,} rows, and {neighbors.index_.n_rows:,} rows in its index"
    return None if neighbors.n_neighbors <= rows else "has a larger n_neighbors than rows"


def _labels_are_text(stored: StoredObject) -> str | None:
    return None if np.asarray(stored.classes).dtype.kind in "UOT" else "has labels that are not text"


MULTILABEL = Schema(
    facts={"inner": inner_manifest},
    optional_facts=("inner",),
    arrays=_multilabel_arrays,
    rules=(_kind_fits, _labels_are_text),
    params={
        "kind": one_of("linear", "neighbors"),
        "sep": text(100),
        "alpha": number(0.0),
        "n_neighbors": whole_number(1),
        "metric": one_of("euclidean", "cosine"),
    },
    after_restore=(_rows_fit,),
)
