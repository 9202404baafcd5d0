"""Steps of a scikit-learn Pipeline that a model file can contain: transformers whose state is numbers.

PlainStep   the module of a transformer, the arrays it learned (shapes in "in" and "out" columns) and the single values
pack_step   a fitted transformer -> facts and arrays          unpack_step   the reverse, for listed transformers only
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.errors import ModelFileError
from kway.modelfile.schema import FLOAT_TYPES, Array, finite, positive
from kway.modelfile.value_checks import Check, list_of, number, optional, whole_number
from kway.modelfile.values import encode_value

PASSTHROUGH = "passthrough"  # a step of scikit-learn that does nothing
_IN_COLUMN = Array(FLOAT_TYPES, ("in",), (finite,))
_SCALE = Array(FLOAT_TYPES, ("in",), (positive,))
_OUT_COLUMN = Array(FLOAT_TYPES, ("out",), (finite,))
_SAMPLES_SEEN = Array((*FLOAT_TYPES, "int32", "int64"), ("in",), optional=True)  # per column, if values are missing
_COUNT = optional(number(0.0))


@dataclass(frozen=True)
class PlainStep:
    """A transformer of scikit-learn, and what its `fit` learns.

    Parameters
    ----------
    module : str
        The module that defines the class.
    arrays : mapping of str to Array
        Learned arrays. Axes are called "in" and "out", for the columns that the step reads and outputs. An attribute
        that may be an array or a single value (`n_samples_seen_`) is declared in `arrays` and in `values`.
    values : mapping of str to Check
        Learned single values.
    changes_width : bool
        Whether the number of output columns can differ from the number of input columns.
    only_with : mapping of str to str
        `only_with[array] = parameter`: the array is learned only if this parameter is True.
    params : mapping of str to Check
        Checks of parameters.
    """

    module: str
    arrays: Mapping[str, Array] = field(default_factory=dict)
    values: Mapping[str, Check] = field(default_factory=dict)
    changes_width: bool = False
    only_with: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, Check] = field(default_factory=dict)

    def declared(self, params: Mapping[str, Any]) -> dict[str, Array]:
        """Return the arrays of a step with these parameters."""
        without = {array for array, param in self.only_with.items() if params.get(param) is not True}
        return {name: replace(a, optional=a.optional or name in without) for name, a in self.arrays.items()}


_SVD_ARRAYS = {
    "components_": Array(FLOAT_TYPES, ("out", "in")),
    **dict.fromkeys(("explained_variance_", "explained_variance_ratio_", "singular_values_"), _OUT_COLUMN),
}
STEPS: dict[str, PlainStep] = {
    "StandardScaler": PlainStep(
        "sklearn.preprocessing",
        {"mean_": _IN_COLUMN, "var_": _IN_COLUMN, "scale_": _SCALE, "n_samples_seen_": _SAMPLES_SEEN},
        {"n_samples_seen_": _COUNT},
        only_with={"mean_": "with_mean", "var_": "with_std", "scale_": "with_std"},
    ),
    "MinMaxScaler": PlainStep(
        "sklearn.preprocessing",
        {**dict.fromkeys(("min_", "data_min_", "data_max_", "data_range_"), _IN_COLUMN), "scale_": _SCALE},
        {"n_samples_seen_": _COUNT},
        params={"feature_range": list_of(number(), 2)},
    ),
    "MaxAbsScaler": PlainStep(
        "sklearn.preprocessing", {"max_abs_": _IN_COLUMN, "scale_": _SCALE}, {"n_samples_seen_": _COUNT}
    ),
    "RobustScaler": PlainStep(
        "sklearn.preprocessing",
        {"center_": _IN_COLUMN, "scale_": _SCALE},
        only_with={"center_": "with_centering", "scale_": "with_scaling"},
        params={"quantile_range": list_of(number(), 2)},
    ),
    "Normalizer": PlainStep("sklearn.preprocessing"),
    "Binarizer": PlainStep("sklearn.preprocessing"),
    "PCA": PlainStep(
        "sklearn.decomposition",
        {**_SVD_ARRAYS, "mean_": _IN_COLUMN},
        {"noise_variance_": number(), "n_components_": whole_number(1), "n_samples_": whole_number(1)},
        changes_width=True,
    ),
    "TruncatedSVD": PlainStep("sklearn.decomposition", _SVD_ARRAYS, changes_width=True),
}


class PackedStep(NamedTuple):
    """A step as facts and arrays."""

    facts: dict[str, Any]
    arrays: dict[str, NDArray]


def pack_step(name: str, step: Any) -> PackedStep:
    """Pack a fitted step; raise ModelFileError if a model file cannot contain it."""
    if step is None or (isinstance(step, str) and step == PASSTHROUGH):
        return PackedStep({"name": name, "kind": PASSTHROUGH, "params": {}, "values": {}}, {})
    kind = type(step).__name__
    if kind not in STEPS or type(step) is not _class(kind):
        raise ModelFileError(
            f"step {name!r} of the pipeline is a {type(step).__module__.split('.')[0]} {kind}, and a model file, "
            f"which stores no code, cannot contain it; use {', '.join(STEPS)}, or kway.Features as the first step"
        )
    if not hasattr(step, "n_features_in_"):
        raise ModelFileError(f"step {name!r} of the pipeline, a {kind}, is not fitted; call fit first")
    params = step.get_params(deep=False)
    for key, value in params.items():
        encode_value(value, f"step {name!r}: {kind}({key}=...)")  # the error names the step
    learned = {attribute: getattr(step, attribute, None) for attribute in _attributes(STEPS[kind])}
    arrays = {key: value for key, value in learned.items() if isinstance(value, np.ndarray) and value.ndim}
    not_finite = [key for key, value in arrays.items() if value.dtype.kind == "f" and not np.isfinite(value).all()]
    if not_finite:
        raise ModelFileError(
            f"step {name!r} of the pipeline, a {kind}, learned NaN or infinity ({not_finite[0]}); look for "
            "columns that are empty or have huge values"
        )
    values = {key: learned[key] for key in STEPS[kind].values if key not in arrays}
    return PackedStep({"name": name, "kind": kind, "params": params, "values": values}, arrays)


def unpack_step(facts: Mapping[str, Any], arrays: Mapping[str, NDArray], n_columns: int) -> Any:
    """Reverse `pack_step`; the schema has checked the facts and arrays."""
    if facts["kind"] == PASSTHROUGH:
        return PASSTHROUGH
    try:
        step = _class(facts["kind"])(**facts["params"])
        step._validate_params()  # as its `fit` does
    except (TypeError, ValueError) as error:
        raise ModelFileError(
            f"the parameters of step {facts['name']!r} in the model file do not fit this scikit-learn: {error}; "
            "install the version that wrote it"
        ) from error
    for attribute in _attributes(STEPS[facts["kind"]]):
        setattr(step, attribute, arrays.get(attribute, facts["values"].get(attribute)))
    step.n_features_in_ = n_columns
    return step


def _attributes(step: PlainStep) -> dict[str, None]:
    return dict.fromkeys((*step.arrays, *step.values))


def _class(kind: str) -> Any:
    return getattr(importlib.import_module(STEPS[kind].module), kind)
