"""Steps of a scikit-learn Pipeline that a model file can hold: numbers and flags, no code.

PlainStep   its module, arrays that it learned (shapes in "in" and "out" columns), single values that it learned
pack_step   a fitted transformer -> facts and arrays          unpack_step   the reverse, nothing but what is listed
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.errors import ModelFileError
from kway.modelfile.schema import FLOAT_TYPES, Array, Check, finite, many, maybe, number, positive, whole
from kway.modelfile.values import encode_value

PASSTHROUGH = "passthrough"  # scikit-learn's word for a step that does nothing
_COLUMN = Array(FLOAT_TYPES, ("in",), (finite,))
_SCALE = Array(FLOAT_TYPES, ("in",), (positive,))
_PART = Array(FLOAT_TYPES, ("out",), (finite,))
_SEEN = Array((*FLOAT_TYPES, "int32", "int64"), ("in",), optional=True)  # rows a column, where there are gaps
_COUNT = maybe(number(0.0))


@dataclass(frozen=True)
class PlainStep:
    """A transformer of scikit-learn: where it lives and what its `fit` learns; `narrows` where "out" is not "in".

    `only_with` names the parameter without which an array need not be there; `params` are checks beside the step's own.
    """

    module: str
    arrays: Mapping[str, Array] = field(default_factory=dict)
    values: Mapping[str, Check] = field(default_factory=dict)
    narrows: bool = False
    only_with: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, Check] = field(default_factory=dict)

    def declared(self, params: Mapping[str, Any]) -> dict[str, Array]:
        """The arrays of a step with these parameters."""
        without = {name for name, flag in self.only_with.items() if params.get(flag) is not True}
        return {name: replace(a, optional=a.optional or name in without) for name, a in self.arrays.items()}


_SPECTRUM = {
    "components_": Array(FLOAT_TYPES, ("out", "in")),
    **dict.fromkeys(("explained_variance_", "explained_variance_ratio_", "singular_values_"), _PART),
}
STEPS: dict[str, PlainStep] = {
    "StandardScaler": PlainStep(
        "sklearn.preprocessing",
        {"mean_": _COLUMN, "var_": _COLUMN, "scale_": _SCALE, "n_samples_seen_": _SEEN},
        {"n_samples_seen_": _COUNT},
        only_with={"mean_": "with_mean", "var_": "with_std", "scale_": "with_std"},
    ),
    "MinMaxScaler": PlainStep(
        "sklearn.preprocessing",
        {**dict.fromkeys(("min_", "data_min_", "data_max_", "data_range_"), _COLUMN), "scale_": _SCALE},
        {"n_samples_seen_": _COUNT},
        params={"feature_range": many(number(), 2)},
    ),
    "MaxAbsScaler": PlainStep(
        "sklearn.preprocessing", {"max_abs_": _COLUMN, "scale_": _SCALE}, {"n_samples_seen_": _COUNT}
    ),
    "RobustScaler": PlainStep(
        "sklearn.preprocessing",
        {"center_": _COLUMN, "scale_": _SCALE},
        only_with={"center_": "with_centering", "scale_": "with_scaling"},
        params={"quantile_range": many(number(), 2)},
    ),
    "Normalizer": PlainStep("sklearn.preprocessing"),
    "Binarizer": PlainStep("sklearn.preprocessing"),
    "PCA": PlainStep(
        "sklearn.decomposition",
        {**_SPECTRUM, "mean_": _COLUMN},
        {"noise_variance_": number(), "n_components_": whole(1), "n_samples_": whole(1)},
        narrows=True,
    ),
    "TruncatedSVD": PlainStep("sklearn.decomposition", _SPECTRUM, narrows=True),
}


class PackedStep(NamedTuple):
    """A step as plain facts and as arrays by name."""

    facts: dict[str, Any]
    arrays: dict[str, NDArray]


def pack_step(name: str, step: Any) -> PackedStep:
    """A fitted step; one that no model file holds is an error that names it."""
    if step is None or (isinstance(step, str) and step == PASSTHROUGH):
        return PackedStep({"name": name, "kind": PASSTHROUGH, "params": {}, "values": {}}, {})
    kind = type(step).__name__
    if kind not in STEPS or type(step) is not _class(kind):
        raise ModelFileError(
            f"step {name!r} of the pipeline is a {type(step).__module__.split('.')[0]} {kind}, which a model file "
            f"without code does not hold; it holds {', '.join(STEPS)}, and kway's Features as the first step"
        )
    if not hasattr(step, "n_features_in_"):
        raise ModelFileError(f"step {name!r} of the pipeline, a {kind}, is not fitted; call fit first")
    params = step.get_params(deep=False)
    for key, value in params.items():
        encode_value(value, f"step {name!r}: {kind}({key}=...)")  # an error that names the step
    learned = {attribute: getattr(step, attribute, None) for attribute in _attributes(STEPS[kind])}
    arrays = {key: value for key, value in learned.items() if isinstance(value, np.ndarray) and value.ndim}
    odd = [key for key, value in arrays.items() if value.dtype.kind == "f" and not np.isfinite(value).all()]
    if odd:
        raise ModelFileError(
            f"step {name!r} of the pipeline, a {kind}, learned NaN or infinity ({odd[0]}), with which nothing can be "
            "predicted; look for columns without values, or of huge ones"
        )
    values = {key: learned[key] for key in STEPS[kind].values if key not in arrays}
    return PackedStep({"name": name, "kind": kind, "params": params, "values": values}, arrays)


def unpack_step(facts: Mapping[str, Any], arrays: Mapping[str, NDArray], n_columns: int) -> Any:
    """Reverse of `pack_step`; the facts and arrays are as the schema says."""
    if facts["kind"] == PASSTHROUGH:
        return PASSTHROUGH
    try:
        step = _class(facts["kind"])(**facts["params"])
        step._validate_params()  # as its `fit` does: what is wrong would show in `transform`
    except (TypeError, ValueError) as error:
        raise ModelFileError(
            f"the parameters of step {facts['name']!r} in the model file do not fit this scikit-learn: {error}"
        ) from error
    for attribute in _attributes(STEPS[facts["kind"]]):
        setattr(step, attribute, arrays.get(attribute, facts["values"].get(attribute)))
    step.n_features_in_ = n_columns
    return step


def _attributes(step: PlainStep) -> dict[str, None]:
    return dict.fromkeys((*step.arrays, *step.values))


def _class(kind: str) -> Any:
    return getattr(importlib.import_module(STEPS[kind].module), kind)
