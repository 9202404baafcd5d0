"""Classifiers around another: its manifest and arrays under "inner.", checked as it is restored, and what it adds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.store.facts import LARGEST, anything, flag, many, maybe, number, one_of, record, scalar, text, whole
from kway.store.schema import Array, Held, Schema, ascending, below
from kway.store.schemas.index import index_arrays, index_facts, index_rules, index_sizes

_SHARE, _NUMBER = number(0.0, 1.0), number(finite=False)
_WITHIN = number(0.0, 1.0, above=True)
_NEEDS = {  # score of being known -> what the classifier inside must have
    "max-probability": ("predict_proba",),
    "energy": ("decision_function",),
    "margin": ("decision_function", "predict_proba"),
    "distance": ("kneighbors",),
    "joint": ("decision_function",),
}


def inner_manifest(value: Any) -> str | None:
    """The manifest of the classifier inside; its content is checked when that is restored."""
    fields = {"class": text(100), "params": _table, "facts": _table, "n_features": maybe(whole(1))}
    return record(fields)(value)


def _table(value: Any) -> str | None:
    return None if isinstance(value, dict) else "a table of values"


def same_columns(held: Held) -> str | None:
    """The classifier inside takes the columns of the one around it."""
    inner, own = held.facts["inner"]["n_features"], held.sizes.get("d")
    return None if inner == own else f"takes {own} columns, and the classifier inside it {inner}"


def same_labels(held: Held) -> str | None:
    """The classifier inside has the labels of the one around it."""
    inner = held.arrays.get("inner.classes_")
    fits = inner is not None and inner.shape == held.classes.shape and bool(np.all(inner == held.classes))
    return None if fits else "has other labels than the classifier inside it"


# ---- temperature


def _reliability(held: Held) -> dict[str, Array]:
    found = [when for when in ("before", "after") if f"{when}.edges" in held.arrays]
    return {f"{when}.{name}": array for when in found for name, array in _diagram(when).items()}


def _diagram(when: str) -> dict[str, Array]:
    bins = f"bins {when}"
    one = Array(("float64",), (bins,))
    edges = Array(("float64",), (f"edges {when}",), (ascending,))
    return {"edges": edges, "confidence": one, "accuracy": one, "rows": Array(("int64",), (bins,), (below(LARGEST),))}


def _edges(held: Held) -> str | None:
    for when in ("before", "after"):
        edges, bins = held.sizes.get(f"edges {when}"), held.sizes.get(f"bins {when}")
        if edges is not None and bins is not None and edges != bins + 1:
            return f"has {edges} edges around {bins} bins of confidence"
    return None


def _gives_source(model: Any) -> str | None:
    method = "decision_function" if model.source_ == "decision_function" else "predict_proba"
    return None if hasattr(model.estimator_, method) else f"scales a {method} that the classifier inside has not"


TEMPERATURE = Schema(
    facts={
        "inner": inner_manifest,
        "losses": many(_NUMBER, 2),
        "fit": record(
            {
                "temperature": number(0.0, above=True),
                "low": _NUMBER,
                "high": _NUMBER,
                "slope_low": _NUMBER,
                "slope_high": _NUMBER,
                "n_rows": whole(),
                "imagined_miss": flag,
            }
        ),
        "scores": record({"source": one_of("decision_function", "log-probabilities"), "smoothing": _SHARE}),
    },
    arrays=_reliability,
    rules=(_edges, same_labels, same_columns),
    nested=("inner.",),
    after=(_gives_source,),
)


# ---- conformal


def _no_nan(array: NDArray, _: Any) -> str | None:
    return "holds NaN" if np.isnan(array).any() else None


def _gives_probabilities(model: Any) -> str | None:
    has = hasattr(model.estimator_, "predict_proba")
    return None if has else "makes sets of probabilities that the classifier inside has not"


CONFORMAL = Schema(
    facts={
        "inner": inner_manifest,
        "promise": record(
            {
                "coverage": _WITHIN,
                "method": text(100),
                "per_class": flag,
                "n_calibration": whole(),
                "n_short": whole(),
                "n_classes": whole(1),
                "n_full": whole(),
                "n_zero": whole(),
            },
            optional=("n_full", "n_zero"),  # which 0.1 did not count
        ),
    },
    arrays=lambda _: {"thresholds": Array(("float64",), ("K",), (_no_nan,))},
    rules=(same_labels, same_columns),
    nested=("inner.",),
    after=(_gives_probabilities,),
)


# ---- open set

_REPORT = record(
    {
        "score": one_of(*_NEEDS),
        "impostors": text(100),
        "auroc": _NUMBER,
        "accepted": whole(),
        "n_impostors": whole(),
        "bound": _NUMBER,
        "confidence": _NUMBER,
        "worst_class": anything,
        "worst_share": _NUMBER,
    }
)


def _index_arrays(held: Held) -> dict[str, Array]:
    if held.facts["index"] is None:
        return {}
    found = index_arrays(held.facts["index"], held.under("index."), ids=False)
    return {f"index.{name}": array for name, array in found.items()}


def _label_fits(held: Held) -> str | None:
    """Text goes with text, numbers with numbers."""
    words = isinstance(held.classes[0], str)
    fits = isinstance(held.facts["unknown"], str) == words
    return None if fits else "has an unknown label of another kind than its classes"


def _measures(model: Any) -> str | None:
    """The score that was chosen can be computed."""
    own, index = model.estimator_, model._scorer.index
    if model.score_ == "joint" and index is None:
        return "measures distances, but keeps no rows"
    if model.score_ == "distance" and index is not None:
        return None
    return None if any(hasattr(own, name) for name in _NEEDS[model.score_]) else "has a score it cannot compute"


OPEN_SET = Schema(
    facts={
        "inner": inner_manifest,
        "unknown": scalar,
        "promise": record(
            {
                "score": one_of(*_NEEDS),
                "false_rejects": _WITHIN,
                "n_calibration": whole(),
                "threshold": _NUMBER,
                "false_accepts": maybe(_REPORT),
            }
        ),
        "reports": many(_REPORT),
        "index": maybe(index_facts),
        "spreads": many(number(0.0, above=True), 2),
    },
    arrays=_index_arrays,
    sizes=lambda held: {} if held.facts["index"] is None else index_sizes(held.facts["index"]),
    rules=(_label_fits, same_labels, same_columns, *index_rules()),
    nested=("inner.",),
    after=(_measures,),
    optional_facts=("spreads",),  # where there is no index
)
