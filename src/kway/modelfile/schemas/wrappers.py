"""Schemas of classifiers that contain another one: the inner manifest, its arrays under "inner.", and their own facts.

Inner classifiers are checked when they are restored. A blend stores a list of manifests, and the arrays of member j
under "members.j.". MappedClassifier stores z = (scale (x - center)) rotation'. PipelinedClassifier stores the steps of
a pipeline, the arrays of step i under "steps.i.". Step i reads "columns i" and makes "columns i+1", as many unless it
narrows them; the inner classifier takes what the last step makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.modelfile.plain_steps import PASSTHROUGH, STEPS
from kway.modelfile.schema import (
    FLOAT_TYPES,
    LARGEST,
    Array,
    FileLimit,
    Schema,
    StoredObject,
    ascending,
    below,
    fields_of,
    finite,
    flag,
    many,
    maybe,
    number,
    one_of,
    record,
    scalar,
    text,
    whole,
)
from kway.modelfile.schemas.index import index_arrays, index_facts, index_rules, index_sizes

_SHARE, _NUMBER = number(0.0, 1.0), number(finite=False)
_WITHIN = number(0.0, 1.0, above=True)
_NEEDS = {  # score of being known -> methods of the inner classifier
    "max-probability": ("predict_proba",),
    "energy": ("decision_function",),
    "margin": ("decision_function", "predict_proba"),
    "distance": ("kneighbors",),
    "joint": ("decision_function",),
}


def inner_manifest(value: Any) -> str | None:
    """Check the manifest of the inner classifier; its content is checked when it is restored."""
    fields = {"class": text(100), "params": _table, "facts": _table, "n_features": maybe(whole(1))}
    return record(fields)(value)


def _table(value: Any) -> str | None:
    return None if isinstance(value, dict) else "a table of values"


def same_columns(stored: StoredObject) -> str | None:
    """Check that the inner classifier takes the same columns."""
    inner, own = stored.facts["inner"]["n_features"], stored.sizes.get("d")
    return None if inner == own else f"takes {own} columns, and its inner classifier {inner}"


def same_labels(stored: StoredObject) -> str | None:
    """Check that the inner classifier has the same labels."""
    inner = stored.arrays.get("inner.classes_")
    fits = inner is not None and inner.shape == stored.classes.shape and bool(np.all(inner == stored.classes))
    return None if fits else "has other labels than its inner classifier"


def reasons(value: Any) -> str | None:
    """Check what counts for each class: columns, how much each one pulls, and how that was measured."""
    fields = {"how": text(1000), "classes": many(text()), "columns": many(many(text())), "pulls": many(many(number()))}
    expected = record(fields)(value)
    if expected:
        return expected
    widths = {len(row) for row in (*value["columns"], *value["pulls"])}
    fits = len(value["classes"]) == len(value["columns"]) == len(value["pulls"]) > 0 and len(widths) == 1
    return (
        None
        if fits and widths.pop() <= FileLimit.ITEMS
        else f"as many columns per class, at most {FileLimit.ITEMS:,}, as pulls"
    )


# ---- temperature


def _reliability(stored: StoredObject) -> dict[str, Array]:
    found = [when for when in ("before", "after") if f"{when}.edges" in stored.arrays]
    return {f"{when}.{name}": array for when in found for name, array in _diagram(when).items()}


def _diagram(when: str) -> dict[str, Array]:
    bins = f"bins {when}"
    one = Array(("float64",), (bins,))
    edges = Array(("float64",), (f"edges {when}",), (ascending,))
    return {"edges": edges, "confidence": one, "accuracy": one, "rows": Array(("int64",), (bins,), (below(LARGEST),))}


def _edges(stored: StoredObject) -> str | None:
    for when in ("before", "after"):
        edges, bins = stored.sizes.get(f"edges {when}"), stored.sizes.get(f"bins {when}")
        if edges is not None and bins is not None and edges != bins + 1:
            return f"has {edges} edges around {bins} bins of confidence"
    return None


def _gives_source(model: Any) -> str | None:
    method = "decision_function" if model.source_ == "decision_function" else "predict_proba"
    return None if hasattr(model.estimator_, method) else f"scales a {method} that its inner classifier does not have"


TEMPERATURE = Schema(
    facts={
        "inner": inner_manifest,
        "losses": many(_NUMBER, 2),
        "fit": fields_of("kway.confidence.temperature:TemperatureFit", temperature=number(0.0, above=True)),
        "scores": record({"source": one_of("decision_function", "log-probabilities"), "smoothing": _SHARE}),
    },
    arrays=_reliability,
    rules=(_edges, same_labels, same_columns),
    nested=("inner.",),
    after=(_gives_source,),
)


# ---- conformal


def _no_nan(array: NDArray, _: Any) -> str | None:
    return "contains NaN" if np.isnan(array).any() else None


def _gives_probabilities(model: Any) -> str | None:
    has = hasattr(model.estimator_, "predict_proba")
    return None if has else "needs probabilities that its inner classifier does not have"


_GUARANTEE = fields_of("kway.confidence.conformal:CoverageGuarantee", coverage=_WITHIN)


def _threshold(value: Any) -> str | None:
    fits = type(value) is float and value >= 0
    return None if fits else "a number of at least 0, or infinity"


def _shallow(stored: StoredObject) -> str | None:
    """Check the depth of the labels, because the nodes of every path are listed."""
    sep = str(stored.params["sep"]) or "/"
    deepest = max((str(label).count(sep) for label in stored.classes.tolist()), default=0)
    return None if deepest <= FileLimit.DEPTH else f"has labels of {deepest:,} levels"


HIERARCHICAL = Schema(
    facts={"inner": inner_manifest, "guarantee": _GUARANTEE, "threshold": _threshold},
    rules=(same_labels, same_columns, _shallow),
    params={"sep": text(100)},
    nested=("inner.",),
    after=(_gives_probabilities,),
)


CONFORMAL = Schema(
    facts={"inner": inner_manifest, "guarantee": _GUARANTEE},
    arrays=lambda _: {"thresholds": Array(("float64",), ("K",), (_no_nan,))},
    rules=(same_labels, same_columns),
    nested=("inner.",),
    after=(_gives_probabilities,),
)


COSTS = Schema(
    facts={"inner": inner_manifest},
    arrays=lambda _: {"costs": Array(("float64",), ("K", "K"), (finite,))},
    rules=(same_labels, same_columns),
    nested=("inner.",),
    after=(_gives_probabilities,),
)


# ---- blend


def _backgrounds(stored: StoredObject) -> dict[str, Array]:
    names = [f"background.{j}" for j in range(len(stored.facts["members"]))]
    found = [name for name in names if name in stored.arrays]
    return {name: Array(FLOAT_TYPES, (f"rows of {name}", f"columns of {name}")) for name in found}


def _members(stored: StoredObject) -> str | None:
    """Check that there is a name and a weight per member, and that members have the labels and columns of the blend."""
    members, own = stored.facts["members"], stored.sizes.get("d")
    if not len(members) == len(stored.facts["names"]) == len(stored.facts["weights"]) > 0:
        return f"has {len(members)} members, {len(stored.facts['names'])} names, {len(stored.facts['weights'])} weights"
    for j, member in enumerate(members):
        inner = stored.arrays.get(f"members.{j}.classes_")
        if inner is None or inner.shape != stored.classes.shape or not bool(np.all(inner == stored.classes)):
            return f"has other labels than its member {j}"
        if member["n_features"] != own:
            return f"takes {own} columns, and its member {j} takes {member['n_features']}"
    return None


def _blends(model: Any) -> str | None:
    """Check that each member gives probabilities, and takes the columns of its background rows."""
    for j, (estimator, _) in enumerate(model._inputs(None)):
        if not hasattr(estimator, "predict_proba"):
            return f"needs probabilities that its member {j} does not have"
        background = model._background.get(j)
        if background is not None and background.shape[1] != getattr(estimator, "n_features_in_", None):
            return f"has background rows of {background.shape[1]} columns, which its member {j} does not take"
    return None


BLEND = Schema(
    facts={
        "members": many(inner_manifest),
        "names": many(text(1000)),
        "weights": many(number(0.0, above=True)),
        "reasons": reasons,
    },
    optional_facts=("reasons",),
    arrays=_backgrounds,
    rules=(_members,),
    nested=("members.",),
    after=(_blends,),
)


# ---- open set

_REPORT = fields_of("kway.confidence.impostors:FalseAccepts", score=one_of(*_NEEDS))


def _index_arrays(stored: StoredObject) -> dict[str, Array]:
    if stored.facts["index"] is None:
        return {}
    found = index_arrays(stored.facts["index"], stored.under("index."), ids=None)
    return {f"index.{name}": array for name, array in found.items()}


def _label_fits(stored: StoredObject) -> str | None:
    """Check that the label for unknown rows is text if the labels are text."""
    words = isinstance(stored.classes[0], str)
    fits = isinstance(stored.facts["unknown"], str) == words
    return None if fits else "has an unknown label of another kind than its classes"


def _measures(model: Any) -> str | None:
    """Check that the chosen score can be computed."""
    own, index = model.estimator_, model._scorer.index
    if model.score_ == "joint" and index is None:
        return "measures distances, but has no rows"
    if model.score_ == "distance" and index is not None:
        return None
    return None if any(hasattr(own, name) for name in _NEEDS[model.score_]) else "has a score that it cannot compute"


OPEN_SET = Schema(
    facts={
        "inner": inner_manifest,
        "unknown": scalar,
        "guarantee": fields_of(
            "kway.confidence.openset:OpenSetGuarantee",
            score=one_of(*_NEEDS),
            false_rejects=_WITHIN,
            false_accepts=maybe(_REPORT),
        ),
        "reports": many(_REPORT),
        "index": maybe(index_facts),
        "spreads": many(number(0.0, above=True), 2),
    },
    arrays=_index_arrays,
    sizes=lambda stored: {} if stored.facts["index"] is None else index_sizes(stored.facts["index"]),
    rules=(_label_fits, same_labels, same_columns, *index_rules()),
    nested=("inner.",),
    after=(_measures,),
    optional_facts=("spreads",),  # only with an index
)


def _arrays(stored: StoredObject) -> dict[str, Array]:
    one = Array(("float64",), ("d",), (finite,))
    found = {"map.scale": one, "map.center": one}
    return found | (
        {"map.rotation": Array(("float64",), ("r", "d"), (finite,))} if "map.rotation" in stored.arrays else {}
    )


def _widths(stored: StoredObject) -> str | None:
    """Check that the inner classifier takes the columns of the map."""
    made, inner = stored.sizes.get("r", stored.sizes.get("d")), stored.facts["inner"]["n_features"]
    return None if inner == made else f"makes {made} columns, and its inner classifier takes {inner}"


MAPPED = Schema(
    facts={"inner": inner_manifest},
    arrays=_arrays,
    rules=(same_labels, _widths),
    params={"map": one_of("scales", "mixtures")},
    nested=("inner.",),
)


_STEP = record({"name": text(), "kind": one_of(*STEPS, PASSTHROUGH), "params": _table, "values": _table})


def _step(value: Any) -> str | None:
    expected = _STEP(value)
    if expected or value["kind"] == PASSTHROUGH:
        return expected
    known = STEPS[value["kind"]]
    for name, check in known.params.items():
        expected = check(value["params"].get(name))
        if expected:
            return f"{name} is {expected}"
    return record(known.values, optional=tuple(known.arrays))(value["values"])


def _read(steps: list[Mapping[str, Any]]) -> list[str]:
    """Return the name of the size that each step reads, and of the size that the last step makes."""
    found = ["columns 0"]
    for i, step in enumerate(steps):
        narrows = step["kind"] in STEPS and STEPS[step["kind"]].narrows
        found.append(f"columns {i + 1}" if narrows else found[-1])
    return found


def _pipeline_arrays(stored: StoredObject) -> dict[str, Array]:
    steps, found = stored.facts["steps"], {}
    sizes = _read(steps)
    for i, step in enumerate(steps):
        if step["kind"] == PASSTHROUGH:
            continue
        for name, array in STEPS[step["kind"]].declared(step["params"]).items():
            shape = tuple({"in": sizes[i], "out": sizes[i + 1]}.get(str(axis), axis) for axis in array.shape)
            found[f"steps.{i}.{name}"] = replace(array, shape=shape)
    return found


def _sizes(stored: StoredObject) -> dict[str, int]:
    return {"columns 0": stored.sizes["d"]} if "d" in stored.sizes else {}


def _pipeline_widths(stored: StoredObject) -> str | None:
    """Check that the inner classifier takes the columns of the last step."""
    inner, last = stored.facts["inner"], _read(stored.facts["steps"])[-1]
    made = stored.sizes.get(last)
    return (
        None if inner["n_features"] == made else f"makes {made} columns, and its inner classifier takes another number"
    )


def _featured(stored: StoredObject) -> str | None:
    """Check that Features are the first step, stored by the inner FeaturedClassifier."""
    fits = not stored.facts["featured"] or (
        not stored.facts["steps"] and stored.facts["inner"]["class"] == "FeaturedClassifier"
    )
    return None if fits else "has features that are not its first step"


PIPELINED = Schema(
    facts={
        "inner": inner_manifest,
        "name": text(),
        "features_name": text(),
        "featured": flag,
        "steps": many(_step),
    },
    arrays=_pipeline_arrays,
    sizes=_sizes,
    rules=(same_labels, _pipeline_widths, _featured),
    nested=("inner.",),
)
