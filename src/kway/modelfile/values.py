"""Parameters as JSON and back. Nothing that a file contains is executed.

    None, true, numbers, text                as they are; infinity and NaN as {"$": "float", "value": "inf"}
    list, tuple, dict, small arrays          {"$": "tuple", "items": [...]}, {"$": "dict", "items": [[key, value], ...]}
    parts: Gaussian(2.0), Bits(1)            {"$": "part", "module": "kway.search", "name": ..., "values": {...}}
    recipes of indexes: Landmarks(...)       {"$": "index", "name": "landmarks", "values": {...}}
    an unfitted kway classifier              {"$": "estimator", "class": ..., "params": {...}}
    the manifest of a nested classifier      {"$": "packed", "value": ...}, because it is JSON already

A part is a frozen dataclass that _PARTS lists by its package and name, so that files stay valid if its module moves.
Nothing that is not listed is imported. A recipe is found by its name in `kway.search.INDEXES`.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import re
import reprlib
from collections.abc import Callable
from typing import Any

import numpy as np

import kway
from kway.errors import ModelFileError
from kway.memory import BLOCK_BYTES
from kway.modelfile.schema import FileLimit

_PARTS = {  # package -> name -> module in the package
    "kway.search": {
        "Int8": "codecs.int8",
        "Bits": "codecs.bits",
        **dict.fromkeys(
            ("Euclidean", "Manhattan", "Cosine", "Dot", "Hamming", "Haversine", "Gaussian", "Laplacian"),
            "metrics",
        ),
    },
    "kway.linear": {
        "LBFGS": "solvers.lbfgs",
        "Proximal": "solvers.proximal",
        "Dual": "solvers.dual",
        "GradientDescent": "solvers.gradient_descent",
        "LeastSquares": "solvers.least_squares",
        "SGD": "solvers.sgd",
        "Sampled": "solvers.sampled",
        **dict.fromkeys(("Constant", "Decay", "Cosine"), "solvers.schedules"),
    },
    "kway.neighbors": {"Target": "agreement"},
}
_INTERNAL = {
    "CostSensitiveClassifier": "kway.confidence.costs",
    "FeaturedClassifier": "kway.pipelines",
    "Features": "kway.tables.features.features",
    "MultilabelClassifier": "kway.confidence.multilabel",
    "PipelinedClassifier": "kway.pipelines",
}  # classes in files that are not public names
_ARRAY_DTYPE = re.compile(r"[<>|=]?([fiub][0-9]{1,2}|U[0-9]{1,8})")


class Packed(dict[str, Any]):
    """A manifest whose values are encoded already."""


def estimator_class(name: str) -> type | None:
    """Return the kway classifier (or the class of _INTERNAL) of that name; None if there is none."""
    if name in _INTERNAL:
        return getattr(importlib.import_module(_INTERNAL[name]), name)
    if name not in kway.__all__ or not name.endswith("Classifier"):
        return None
    found = getattr(kway, name)
    return found if isinstance(found, type) else None


def encode_params(estimator: Any) -> dict[str, Any]:
    """Return the encoded constructor parameters of an estimator."""
    name = type(estimator).__name__
    params = estimator._stored_params() if hasattr(estimator, "_stored_params") else estimator.get_params(deep=False)
    return {key: encode_value(value, f"{name}({key}=...)") for key, value in params.items()}


def decode_params(name: str, params: dict[str, Any]) -> Any:
    """Return a new, unfitted estimator of that class with these parameters."""
    cls = estimator_class(name)
    if cls is None:
        raise ModelFileError(
            f"the model file has class {name!r}, which this kway {kway.__version__} does not have; upgrade kway"
        )
    values = {key: decode_value(value) for key, value in params.items()}
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        raise ModelFileError(
            f"the parameters in the model file do not fit this kway {kway.__version__}: {error}; upgrade kway"
        ) from error


def encode_value(value: Any, where: str) -> Any:
    """Return a value as JSON; `where` is its name in the error message if it cannot be stored."""
    if isinstance(value, (np.bool_, np.integer, np.floating)):
        value = value.item()
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return _encode_text(value, where)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$": "float", "value": repr(value)}
    if isinstance(value, (list, tuple)):
        items = [encode_value(v, where) for v in value]
        return {"$": "tuple" if type(value) is tuple else "list", "items": items}
    if isinstance(value, Packed):
        return {"$": "packed", "value": dict(value)}
    if isinstance(value, dict):
        items = [[encode_value(k, where), encode_value(v, f"{where}[{k!r}]")] for k, v in value.items()]
        return {"$": "dict", "items": items}
    if isinstance(value, np.ndarray):
        return _encode_array(value, where)
    return _encode_object(value, where)


def decode_value(value: Any) -> Any:
    """Reverse `encode_value`; raise ModelFileError for unexpected values."""
    if not isinstance(value, dict):
        return value
    if "$" not in value:  # a table of the manifest
        return {key: decode_value(v) for key, v in value.items()}
    try:
        return _DECODERS[value["$"]](value)
    except ModelFileError:
        raise  # a ValueError, too
    except (KeyError, TypeError, ValueError, AttributeError, ImportError, RecursionError, OverflowError) as error:
        raise ModelFileError(
            f"the model file has a value that this kway cannot read: {reprlib.repr(value)}; upgrade kway"
        ) from error


def _encode_text(value: str, where: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ModelFileError(
            f"{where} is text that is not Unicode ({error.reason}); replace these characters"
        ) from error
    return str(value)


def _encode_array(array: np.ndarray, where: str) -> dict[str, Any]:
    if array.dtype.kind not in "fiubU" or array.size > FileLimit.ITEMS or array.nbytes > BLOCK_BYTES:
        raise ModelFileError(
            f"{where} is an array of dtype {array.dtype} and {array.size:,} items; array parameters in a model file "
            f"must be numbers or text with at most {FileLimit.ITEMS:,} items"
        )
    return {"$": "array", "dtype": array.dtype.str, "items": encode_value(array.tolist(), where)}


def _encode_object(value: Any, where: str) -> dict[str, Any]:
    cls = type(value)
    if estimator_class(cls.__name__) is cls:
        return {"$": "estimator", "class": cls.__name__, "params": encode_params(value)}
    if isinstance(value, kway.search.Recipe) and kway.search.INDEXES.get(value.name) is cls:
        return {"$": "index", "name": value.name, "values": _encode_fields(value, where)}
    if dataclasses.is_dataclass(value) and _part(cls.__module__, cls.__name__) is cls:
        package = _package(cls.__module__)
        return {"$": "part", "module": package, "name": cls.__name__, "values": _encode_fields(value, where)}
    advice = "use the name of a built-in function" if callable(value) else "use a number, text, or a part of kway"
    if isinstance(value, (np.random.RandomState, np.random.Generator)):
        advice = "use a whole number as the seed"
    raise ModelFileError(
        f"{where} is a {cls.__module__}.{cls.__name__}, which a file without code cannot contain; {advice}, "
        "or pickle the estimator instead"
    )


def _encode_fields(value: Any, where: str) -> dict[str, Any]:
    return {f.name: encode_value(getattr(value, f.name), where) for f in dataclasses.fields(value) if f.init}


def _package(module: str) -> str:
    return ".".join(module.split(".")[:2])


def _part(module: str, name: str) -> type | None:
    """Return the part of that name in the package of that module; None if it is not listed."""
    package = _package(module)
    home = _PARTS.get(package, {}).get(name)
    return None if home is None else getattr(importlib.import_module(f"{package}.{home}"), name)


def _decode_part(value: dict[str, Any]) -> Any:
    module, name = value["module"], value["name"]
    cls = _part(module, name)
    if cls is None:
        raise ModelFileError(f"the model file names {module}.{name}, which is not a part of kway; do not trust it")
    return cls(**{key: decode_value(v) for key, v in value["values"].items()})


def _decode_index(value: dict[str, Any]) -> Any:
    recipe = kway.search.INDEXES.get(value["name"])
    if recipe is None:
        known = ", ".join(kway.search.INDEXES)
        raise ModelFileError(f"the model file contains an unknown index {value['name']!r:.100}; expected {known}")
    return recipe(**{key: decode_value(v) for key, v in value["values"].items()})


def _decode_array(value: dict[str, Any]) -> np.ndarray:
    """Return the array; its size is checked first, because a dtype may claim 2 GB per text."""
    if not _ARRAY_DTYPE.fullmatch(value["dtype"]):
        raise ValueError(value["dtype"])
    dtype, items = np.dtype(value["dtype"]), decode_value(value["items"])
    n = _count(items)
    if n > FileLimit.ITEMS or n * dtype.itemsize > BLOCK_BYTES:
        raise ModelFileError(
            f"an array parameter in the model file has {n:,} items of {dtype.itemsize:,} bytes, and at most "
            f"{FileLimit.ITEMS:,} items and {BLOCK_BYTES:,} bytes are allowed; do not trust it"
        )
    return np.array(items, dtype)


def _count(items: Any) -> int:
    """Count the leaves of nested lists."""
    return sum(map(_count, items)) if isinstance(items, list) else 1


_DECODERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "float": lambda value: {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[value["value"]],
    "list": lambda value: [decode_value(v) for v in value["items"]],
    "tuple": lambda value: tuple(decode_value(v) for v in value["items"]),
    "dict": lambda value: {decode_value(k): decode_value(v) for k, v in value["items"]},
    "array": _decode_array,
    "packed": lambda value: value["value"],
    "part": _decode_part,
    "index": _decode_index,
    "estimator": lambda value: decode_params(value["class"], value["params"]),
}
