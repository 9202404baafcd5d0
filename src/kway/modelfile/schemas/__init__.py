"""The schema of each class in a model file; `check` compares a file with it before the object is restored.

estimators.py   parameters by name; linear models, neighbors, centroids, exemplars, several labels per row
trees.py        boosted trees and forests
wrappers.py     classifiers that contain another one: temperature, prediction sets, "unknown", blends, maps, pipelines
index.py        indexes, their stores and metrics
features.py     the columns that Features learned
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.errors import KwayError, ModelFileError
from kway.modelfile.schema import DAMAGED, Schema, StoredObject, check_arrays, check_facts, raise_if
from kway.modelfile.schemas import estimators, features, trees, wrappers
from kway.modelfile.schemas.estimators import PARAMS
from kway.modelfile.value_checks import optional, whole_number

SCHEMAS: dict[str, Schema] = {
    "BlendClassifier": wrappers.BLEND,
    "CentroidClassifier": estimators.CENTROID,
    "ConformalClassifier": wrappers.CONFORMAL,
    "CostSensitiveClassifier": wrappers.COSTS,
    "ExemplarClassifier": estimators.EXEMPLAR,
    "FeaturedClassifier": features.FEATURED,
    "HierarchicalConformalClassifier": wrappers.HIERARCHICAL,
    "KernelSoftmaxClassifier": estimators.KERNEL_SOFTMAX,
    "LeastSquaresClassifier": estimators.LINEAR,
    "LinearClassifier": estimators.LINEAR,
    "LogisticClassifier": estimators.LINEAR,
    "MappedClassifier": wrappers.MAPPED,
    "MultilabelClassifier": estimators.MULTILABEL,
    "NaiveBayesClassifier": estimators.LINEAR,
    "NeighborsClassifier": estimators.NEIGHBORS,
    "OpenSetClassifier": wrappers.OPEN_SET,
    "PerceptronClassifier": estimators.LINEAR,
    "PipelinedClassifier": wrappers.PIPELINED,
    "SVMClassifier": estimators.LINEAR,
    "SoftmaxClassifier": estimators.LINEAR,
    "TemperatureScaledClassifier": wrappers.TEMPERATURE,
    "TreesClassifier": trees.TREES,
}


def check_params(name: str, estimator: Any) -> None:
    """Raise ModelFileError for parameters that `fit` would refuse, or that would fail later in `predict`."""
    _check_types(name, estimator)
    check_parameters = getattr(estimator, "_check_parameters", None)
    if check_parameters is None:
        return
    try:
        check_parameters()
    except (KwayError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ModelFileError(
            f"the parameters of the {name} in the model file do not fit: {error}; {DAMAGED}"
        ) from error


def _check_types(name: str, estimator: Any) -> None:
    """Check the parameters of an estimator and of the estimators among them."""
    params = estimator.get_params(deep=False)
    params_of_class = SCHEMAS[name].params if name in SCHEMAS else {}
    for key, check_value in {**PARAMS, **params_of_class}.items():
        raise_if(check_value(params[key]) if key in params else None, f"the parameter {key} of the {name}")
    members = [each[-1] if isinstance(each, tuple) else each for each in params.get("estimators") or ()]
    for value in (*params.values(), *members):
        if hasattr(value, "get_params"):
            _check_types(type(value).__name__, value)


def check(
    name: str, estimator: Any, facts: Any, arrays: Mapping[str, NDArray], classes: NDArray, n_features: int | None
) -> None:
    """Raise ModelFileError for content that does not match the schema."""
    schema = SCHEMAS[name]
    check_params(name, estimator)
    check_facts(schema, facts, name)
    sizes = {"K": len(classes)} | ({} if n_features is None else {"d": n_features})
    check_arrays(schema, StoredObject(name, estimator.get_params(deep=False), facts, arrays, classes, sizes))


def check_restored(name: str, estimator: Any) -> None:
    """Raise ModelFileError if the parts of a restored object do not fit together."""
    for rule in SCHEMAS[name].after_restore:
        raise_if(rule(estimator), f"the {name}")


def check_common(name: str, classes: Any, names: Any, n_features: Any) -> None:
    """Raise ModelFileError for invalid labels, names of columns or number of columns, which every class has."""
    if classes.ndim != 1 or not len(classes):
        raise_if(f"has labels of shape {classes.shape}, expected (K,)", f"the {name}")
    if not bool(np.all(classes[1:] > classes[:-1])):
        raise_if("has labels that are not in ascending order, each once", f"the {name}")
    raise_if(optional(whole_number(1))(n_features), f"n_features of the {name}")
    if names is not None and (names.dtype.kind not in "UO" or names.shape != (n_features,)):
        got = f"names of columns of dtype {names.dtype} and shape {names.shape}"
        raise_if(f"has {got}, expected text of shape ({n_features},)", f"the {name}")
