"""Schemas of classifiers that contain another one.

Such a classifier stores the manifest of the inner classifier as the fact "inner" and its arrays under the prefix
"inner.". The inner classifier is checked by its own schema when it is restored.

    BlendClassifier        a list of manifests; the arrays of member j have the prefix "members.j."
    MappedClassifier       the map z = (scale * (x - center)) rotation', with scale and center (d,), rotation (r, d)
    PipelinedClassifier    the steps of a Pipeline; the arrays of step i have the prefix "steps.i."

Step i of a Pipeline reads "columns i" and outputs "columns i+1". These are the same size, unless the step changes the
number of columns (`changes_width`). The inner classifier reads the output of the last step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from kway.modelfile.plain_steps import PASSTHROUGH, STEPS
from kway.modelfile.schema import (
    FLOAT_TYPES,
    Array,
    FileLimit,
    Schema,
    StoredObject,
    ascending,
    finite,
    index_below,
    no_nan,
)
from kway.modelfile.schemas.index import INDEX_RULES, index_arrays, index_facts, index_sizes
from kway.modelfile.value_checks import (
    LARGEST_INT,
    ValueCheck,
    boolean,
    json_object,
    label,
    list_of,
    number,
    one_of,
    optional,
    plain_dict,
    record,
    text,
    whole_number,
)

_SHARE = number(0.0, 1.0)
_POSITIVE_SHARE = number(0.0, 1.0, exclusive=True)
_ANY_NUMBER = number(allow_nan=True)
_METHODS_OF_SCORE = {  # score_by of OpenSetClassifier -> methods of the inner classifier, one of which it needs
    "max-probability": ("predict_proba",),
    "energy": ("decision_function",),
    "margin": ("decision_function", "predict_proba"),
    "distance": ("kneighbors",),
    "joint": ("decision_function",),
}


inner_manifest = json_object(  # the content of params and facts is checked when the inner classifier is restored
    {"class": text(100), "params": plain_dict, "facts": plain_dict, "n_features": optional(whole_number(1))}
)


def same_columns(stored: StoredObject) -> str | None:
    """Require the same number of columns as the inner classifier."""
    inner, own = stored.facts["inner"]["n_features"], stored.sizes.get("d")
    return None if inner == own else f"takes {own} columns, but its inner classifier takes {inner}"


def same_labels(stored: StoredObject) -> str | None:
    """Require the same labels as the inner classifier."""
    return None if _has_labels_of(stored, "inner") else "has other labels than its inner classifier"


def _has_labels_of(stored: StoredObject, part: str) -> bool:
    """Return whether the classifier stored as `part` has the same labels."""
    labels = stored.arrays.get(f"{part}.classes_")
    return labels is not None and labels.shape == stored.classes.shape and bool(np.all(labels == stored.classes))


_REASONS = json_object(
    {
        "how": text(1000),
        "classes": list_of(text()),
        "columns": list_of(list_of(text())),
        "pulls": list_of(list_of(number())),
    }
)


def reasons(value: Any) -> str | None:
    """Check the important columns per class: their names, their effects ("pulls"), and how these were measured."""
    problem = _REASONS(value)
    if problem:
        return problem
    widths = {len(row) for row in (*value["columns"], *value["pulls"])}
    fits = len(value["classes"]) == len(value["columns"]) == len(value["pulls"]) > 0 and len(widths) == 1
    if fits and widths.pop() <= FileLimit.ITEMS:
        return None
    return f"does not have equally many columns and pulls per class, at most {FileLimit.ITEMS:,}"


# ---- temperature


def _reliability(when: str) -> dict[str, Array]:
    """Declare the arrays of the reliability diagram before or after scaling."""
    means = Array(("float64",), (f"bins {when}",), optional=True)
    return {
        f"{when}.edges": Array(("float64",), (f"edges {when}",), (ascending,), optional=True),
        f"{when}.confidence": means,
        f"{when}.accuracy": means,
        f"{when}.rows": Array(("int64",), (f"bins {when}",), (index_below(LARGEST_INT),), optional=True),
    }


def _edges_around_bins(stored: StoredObject) -> str | None:
    for when in ("before", "after"):
        edges, bins = stored.sizes.get(f"edges {when}"), stored.sizes.get(f"bins {when}")
        if edges is not None and bins is not None and edges != bins + 1:
            return f"has {edges} edges around {bins} bins of confidence"
    return None


def _has_source(model: Any) -> str | None:
    method = "decision_function" if model.source_ == "decision_function" else "predict_proba"
    return None if hasattr(model.estimator_, method) else f"scales a {method} that its inner classifier does not have"


TEMPERATURE = Schema(
    facts={
        "inner": inner_manifest,
        "losses": list_of(_ANY_NUMBER, length=2),
        "fit": record("kway.confidence.temperature.TemperatureFit", temperature=number(0.0, exclusive=True)),
        "scores": json_object({"source": one_of("decision_function", "log-probabilities"), "smoothing": _SHARE}),
    },
    arrays=lambda _: _reliability("before") | _reliability("after"),
    rules=(_edges_around_bins, same_labels, same_columns),
    after_restore=(_has_source,),
)


# ---- conformal


def _has_probabilities(model: Any) -> str | None:
    fits = hasattr(model.estimator_, "predict_proba")
    return None if fits else "needs probabilities that its inner classifier does not have"


_GUARANTEE = record("kway.confidence.conformal.CoverageGuarantee", coverage=_POSITIVE_SHARE)
_THRESHOLD = ValueCheck("a number of at least 0, or infinity", lambda value: type(value) is float and value >= 0)


def _depth_bounded(stored: StoredObject) -> str | None:
    """Bound the depth of the labels, because the nodes of every path are listed."""
    sep = str(stored.params["sep"]) or "/"
    deepest = max((str(value).count(sep) + 1 for value in stored.classes.tolist()), default=0)
    return None if deepest <= FileLimit.DEPTH + 1 else f"has labels of {deepest:,} levels"


HIERARCHICAL = Schema(
    facts={"inner": inner_manifest, "guarantee": _GUARANTEE, "threshold": _THRESHOLD},
    rules=(same_labels, same_columns, _depth_bounded),
    after_restore=(_has_probabilities,),
)


CONFORMAL = Schema(
    facts={"inner": inner_manifest, "guarantee": _GUARANTEE},
    arrays=lambda _: {"thresholds": Array(("float64",), ("K",), (no_nan,))},
    rules=(same_labels, same_columns),
    after_restore=(_has_probabilities,),
)


COSTS = Schema(
    facts={"inner": inner_manifest},
    arrays=lambda _: {"costs": Array(("float64",), ("K", "K"), (finite,))},
    rules=(same_labels, same_columns),
    after_restore=(_has_probabilities,),
)


# ---- blend


def _backgrounds(stored: StoredObject) -> dict[str, Array]:
    names = [f"background.{j}" for j in range(len(stored.facts["members"]))]
    present = [name for name in names if name in stored.arrays]
    return {name: Array(FLOAT_TYPES, (f"rows of {name}", f"columns of {name}")) for name in present}


def _check_members(stored: StoredObject) -> str | None:
    """Require a name and a weight per member, and members with the labels and columns of the blend."""
    members, n_features = stored.facts["members"], stored.sizes.get("d")
    if not len(members) == len(stored.facts["names"]) == len(stored.facts["weights"]) > 0:
        return f"has {len(members)} members, {len(stored.facts['names'])} names, {len(stored.facts['weights'])} weights"
    for j, member in enumerate(members):
        if not _has_labels_of(stored, f"members.{j}"):
            return f"has other labels than its member {j}"
        if member["n_features"] != n_features:
            return f"takes {n_features} columns, but its member {j} takes {member['n_features']}"
    return None


def _members_give_probabilities(model: Any) -> str | None:
    """Require members with probabilities, which accept the columns of their background rows."""
    for j, (estimator, _) in enumerate(model._inputs(None)):
        if not hasattr(estimator, "predict_proba"):
            return f"needs probabilities that its member {j} does not have"
        background = model._background.get(j)
        if background is not None and background.shape[1] != getattr(estimator, "n_features_in_", None):
            return f"has background rows of {background.shape[1]} columns, which its member {j} does not take"
    return None


BLEND = Schema(
    facts={
        "members": list_of(inner_manifest),
        "names": list_of(text(1000)),
        "weights": list_of(number(0.0, exclusive=True)),
        "dropped_refuses_nan": boolean,
        "reasons": reasons,
    },
    optional_facts=("reasons",),
    arrays=_backgrounds,
    rules=(_check_members,),
    after_restore=(_members_give_probabilities,),
)


# ---- open set

_SCORE = one_of(*_METHODS_OF_SCORE)
_FALSE_ACCEPTS = record("kway.confidence.impostors.FalseAccepts", score=_SCORE, worst_class=optional(label))
_OPEN_SET_GUARANTEE = record(
    "kway.confidence.openset.OpenSetGuarantee",
    score=_SCORE,
    false_rejects=_POSITIVE_SHARE,
    false_accepts=optional(_FALSE_ACCEPTS),
)


def _check_unknown_label(stored: StoredObject) -> str | None:
    """Require text as the label of unknown rows if and only if the other labels are text."""
    fits = isinstance(stored.facts["unknown"], str) == isinstance(stored.classes[0], str)
    return None if fits else "has an unknown label of another kind than its classes"


def _score_computable(model: Any) -> str | None:
    """Require what the score needs: a method of the inner classifier, or the rows that distances are measured to."""
    index = model._scorer.index
    if model.score_ == "joint" and index is None:
        return "measures distances, but has no rows"
    if model.score_ == "distance" and index is not None:
        return None
    methods = _METHODS_OF_SCORE[model.score_]
    return None if any(hasattr(model.estimator_, name) for name in methods) else "has a score that it cannot compute"


OPEN_SET = Schema(
    facts={
        "inner": inner_manifest,
        "unknown": label,
        "guarantee": _OPEN_SET_GUARANTEE,
        "reports": list_of(_FALSE_ACCEPTS),
        "index": optional(index_facts),
        "spreads": list_of(number(0.0, exclusive=True), length=2),
    },
    arrays=lambda stored: index_arrays(stored, None),
    sizes=index_sizes,
    rules=(_check_unknown_label, same_labels, same_columns, *INDEX_RULES),
    after_restore=(_score_computable,),
    optional_facts=("spreads",),  # only with an index
)


# ---- maps and pipelines


def _check_mapped_columns(stored: StoredObject) -> str | None:
    """Require an inner classifier that takes the columns of the map."""
    n_mapped, inner = stored.sizes.get("r", stored.sizes.get("d")), stored.facts["inner"]["n_features"]
    return None if inner == n_mapped else f"makes {n_mapped} columns, and its inner classifier takes {inner}"


MAPPED = Schema(
    facts={"inner": inner_manifest},
    arrays=lambda _: {
        **dict.fromkeys(("map.scale", "map.center"), Array(("float64",), ("d",), (finite,))),
        "map.rotation": Array(("float64",), ("r", "d"), (finite,), optional=True),
    },
    rules=(same_labels, _check_mapped_columns),
)


_STEP = json_object({"name": text(), "kind": one_of(*STEPS, PASSTHROUGH), "params": plain_dict, "values": plain_dict})


def _check_step(value: Any) -> str | None:
    problem = _STEP(value)
    if problem or value["kind"] == PASSTHROUGH:
        return problem
    declared = STEPS[value["kind"]]
    for name, check in declared.params.items():
        problem = check(value["params"].get(name))
        if problem:
            return f"has a parameter {name} that {problem}"
    return json_object(declared.values, optional=tuple(declared.arrays))(value["values"])


def _size_names(steps: list[Mapping[str, Any]]) -> list[str]:
    """Return the name of the number of columns before each step, and after the last."""
    names = ["columns 0"]
    for i, step in enumerate(steps):
        changes_width = step["kind"] in STEPS and STEPS[step["kind"]].changes_width
        names.append(f"columns {i + 1}" if changes_width else names[-1])
    return names


def _pipeline_arrays(stored: StoredObject) -> dict[str, Array]:
    steps = stored.facts["steps"]
    sizes = _size_names(steps)
    arrays = {}
    for i, step in enumerate(steps):
        if step["kind"] == PASSTHROUGH:
            continue
        for name, array in STEPS[step["kind"]].declared(step["params"]).items():
            shape = tuple({"in": sizes[i], "out": sizes[i + 1]}.get(str(axis), axis) for axis in array.shape)
            arrays[f"steps.{i}.{name}"] = replace(array, shape=shape)
    return arrays


def _pipeline_sizes(stored: StoredObject) -> dict[str, int]:
    return {"columns 0": stored.sizes["d"]} if "d" in stored.sizes else {}


def _check_pipeline_columns(stored: StoredObject) -> str | None:
    """Require an inner classifier that takes the columns of the last step."""
    inner = stored.facts["inner"]["n_features"]
    n_columns = stored.sizes.get(_size_names(stored.facts["steps"])[-1])
    return None if inner == n_columns else f"makes {n_columns} columns, and its inner classifier takes {inner}"


def _features_come_first(stored: StoredObject) -> str | None:
    """Require, if the Pipeline began with Features, no other steps: the inner FeaturedClassifier contains them."""
    if not stored.facts["featured"]:
        return None
    fits = not stored.facts["steps"] and stored.facts["inner"]["class"] == "FeaturedClassifier"
    return None if fits else "has features that are not its first step"


PIPELINED = Schema(
    facts={
        "inner": inner_manifest,
        "name": text(),
        "features_name": text(),
        "featured": boolean,
        "steps": list_of(_check_step),
    },
    arrays=_pipeline_arrays,
    sizes=_pipeline_sizes,
    rules=(same_labels, _check_pipeline_columns, _features_come_first),
)
