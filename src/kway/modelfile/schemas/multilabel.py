"""Schema of MultilabelClassifier: base rates and thresholds (K,), calibration (3,), and one of two kinds of model.

linear      weights (K, d), biases (K,)
neighbors   a NeighborsClassifier under "inner.", and the labels of its n rows as CSR: indptr (n + 1,), indices (m,) < K
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.modelfile.schema import FLOAT_TYPES, INT32_64, Array, Schema, StoredObject, finite, index_below, offsets_to
from kway.modelfile.schemas.wrappers import inner_manifest
from kway.modelfile.value_checks import number, one_of, text, whole_number


def _between_0_and_1(array: NDArray, _: Any) -> str | None:
    return None if (array > 0).all() and (array < 1).all() else "contains values that are not between 0 and 1"


def _arrays(stored: StoredObject) -> dict[str, Array]:
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
    arrays=_arrays,
    rules=(_kind_fits, _labels_are_text),
    params={
        "kind": one_of("linear", "neighbors"),
        "sep": text(100),
        "alpha": number(0.0),
        "n_neighbors": whole_number(1),
        "metric": one_of("euclidean", "cosine"),
    },
    nested=("inner.",),
    after_restore=(_rows_fit,),
)
