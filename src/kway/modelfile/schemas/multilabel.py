"""Schema of MultilabelClassifier: rates, thresholds (K,), calibration (3,), and one of two kinds of model.

linear      weights (K, d), biases (K,)
neighbors   a NeighborsClassifier under "inner.", and the labels of its rows: indptr (n + 1,), indices (m,) < K
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.modelfile.schema import (
    FLOAT_TYPES,
    INT32_64,
    Array,
    Schema,
    StoredObject,
    below,
    finite,
    number,
    offsets_to,
    one_of,
    text,
    whole,
)
from kway.modelfile.schemas.wrappers import inner_manifest


def _shares(array: NDArray, _: Any) -> str | None:
    return None if (array > 0).all() and (array < 1).all() else "contains values that are not between 0 and 1"


def _arrays(stored: StoredObject) -> dict[str, Array]:
    found = {
        "rates": Array(("float64",), ("K",), (_shares,)),
        "thresholds": Array(("float64",), ("K",), (finite,)),
        "calibration": Array(("float64",), (3,), (finite,)),
    }
    if stored.params["kind"] == "linear":
        return {**found, "weights": Array(FLOAT_TYPES, ("K", "d")), "biases": Array(FLOAT_TYPES, ("K",))}
    return {
        **found,
        "rows.indptr": Array(INT32_64, ("n + 1",), (offsets_to("m*"),)),
        "rows.indices": Array(INT32_64, ("m*",), (below("K"),)),
    }


def _kind_fits(stored: StoredObject) -> str | None:
    inner = stored.facts.get("inner")
    if stored.params["kind"] == "linear":
        return None if inner is None else "has an inner classifier that a linear model does not use"
    if inner is None or inner["class"] != "NeighborsClassifier":
        return "has no nearest neighbors"
    return None if inner["n_features"] == stored.sizes.get("d") else "takes other columns than its neighbors"


def _rows_fit(model: Any) -> str | None:
    """Check that there are labels for every row that the index can return, and as many rows as it needs."""
    if model.kind == "linear":
        return None
    rows, near = model.label_rows_.shape[0], model.neighbors_
    if rows != near.index_.n_rows:
        return f"has labels of {rows:,} rows, and {near.index_.n_rows:,} neighbors"
    return None if near.n_neighbors <= rows else "asks for more neighbors than it has rows"


def _text_labels(stored: StoredObject) -> str | None:
    return None if np.asarray(stored.classes).dtype.kind in "UOT" else "has labels that are not text"


MULTILABEL = Schema(
    facts={"inner": inner_manifest},
    optional_facts=("inner",),
    arrays=_arrays,
    rules=(_kind_fits, _text_labels),
    params={
        "kind": one_of("linear", "neighbors"),
        "sep": text(100),
        "alpha": number(0.0),
        "n_neighbors": whole(1),
        "metric": one_of("euclidean", "cosine"),
    },
    nested=("inner.",),
    after=(_rows_fit,),
)
