"""Parameters by name: one word means one thing in every classifier, so one check serves all.

Only what is used after loading is checked here, and beside what the classifier's own check of its parameters refuses:
what matters to `fit` alone is refused by `fit`.
"""

from __future__ import annotations

from typing import Any

from kway.store.facts import Check, either, flag, maybe, number, one_of, scalar, text, whole


def _estimator(value: Any) -> str | None:
    return None if hasattr(value, "fit") and hasattr(value, "get_params") else "a classifier"


def _part(value: Any) -> str | None:
    return None if hasattr(value, "__dataclass_fields__") else "one of kway's parts"


PARAMS: dict[str, Check] = {
    "class_weight": maybe(either(one_of("balanced"), lambda v: None if isinstance(v, dict) else "{label: weight}")),
    "device": text(100),
    "estimator": maybe(_estimator),
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
    "promise": maybe(_part),
    "random_state": maybe(whole(0, 2**32 - 1)),
    "smoothing": number(0.0, above=True),
    "temperature": number(0.0, above=True),
    "ties": text(100),
    "unknown": maybe(scalar),
    "verbose": either(whole(), flag),
    "weights": either(text(100), _part),
}
