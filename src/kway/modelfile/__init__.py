"""Model files: one file, no code in it, memory-mapped on load.

save(estimator, path)     parameters, labels and fitted arrays -> a safetensors file with a JSON manifest
load(path)                the estimator; its arrays are read-only views of the file, and what a schema says they are
info(path)                what the file holds, without building anything
verify(path)              reads every byte and compares with the digest written at save

container.py         the file: header, digests, tensors, text
values.py            parameters <-> JSON
schema.py            what a declaration is, and its check
schemas/             what every class stores, declared
plain_steps.py       transformers of a Pipeline that a file can hold
embedding_models.py  embedding models that a file may name
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import kway
from kway.errors import ModelFileError
from kway.modelfile import container, schemas
from kway.modelfile.container import TensorInfo, model_path, pack_arrays, unpack_arrays, verify
from kway.modelfile.embedding_models import Allowed, allow_embedding
from kway.modelfile.schema import short_repr
from kway.modelfile.values import Packed, decode_params, decode_value, encode_params, encode_value, estimator_class
from kway.tables.outputs import is_model, python_output, refuse_foreign

__all__ = ["ModelInfo", "info", "load", "pack", "save", "unpack", "verify"]

_PIPELINED = "PipelinedClassifier"  # what a Pipeline is in a model file
_LABELS, _FEATURES = "classes_", "feature_names_in_"  # arrays that every estimator has, kept by the store itself


@dataclass(frozen=True)
class ModelInfo:
    """What a model file holds."""

    path: str
    class_name: str
    params: dict[str, Any]
    facts: dict[str, Any]
    notes: dict[str, Any]
    n_classes: int | None
    n_features: int | None
    format_version: int
    kway_version: str
    n_bytes: int
    tensors: tuple[TensorInfo, ...]


def save(estimator: Any, path: str | Path, notes: Mapping[str, Any] | None = None, *, force: bool = False) -> None:
    """Write a fitted classifier, or a Pipeline of plain steps (kway.modelfile.plain_steps) that ends in one.

    `notes` are plain facts about it for people (`info` shows them, `load` ignores them).

    The file appears only when it is complete; a model that was at `path` stays until then. A file that is no model of
    kway's is replaced only with `force`.
    """
    refuse_foreign(python_output(model_path(path), "model", is_model), force)
    manifest, arrays = pack(estimator)
    tensors, kinds = pack_arrays(arrays)
    manifest = manifest | {
        "kway_version": kway.__version__,
        "notes": encode_value(dict(notes or {}), "notes"),
        "kinds": kinds,
    }
    container.write(path, manifest, tensors)


def load(path: str | Path, *, verify: bool = False, mmap: bool = True, embed: Allowed = None) -> Any:
    """The estimator in a model file.

    `verify` reads every byte and compares the digest first. `mmap=False` reads the arrays into memory instead of
    mapping them: slower, but nobody who cuts the file short can then end this process. `embed` names the embedding
    models that the file may use: a name or folder, several, or the function that embeds; a file that names another is
    refused, since a model file must not choose what is fetched and run.
    """
    opened = container.read(path, mmap=mmap, verify=verify)
    arrays = unpack_arrays(opened.tensors, opened.manifest.get("kinds"))
    return allow_embedding(unpack(opened.manifest, arrays), embed, path)


def info(path: str | Path) -> ModelInfo:
    """Class, parameters, labels, versions and the table of tensors; arrays are not read."""
    opened = container.read(path)
    manifest, table = opened.manifest, opened.table
    sizes = {t.name: t.shape for t in table}
    offsets = sizes.get(f"{_LABELS}.offsets")
    labels = sizes.get(_LABELS)
    n_classes = offsets[0] - 1 if offsets else labels[0] if labels else None
    return ModelInfo(
        path=str(path),
        class_name=str(manifest.get("class")),
        params=decode_value(_dict(manifest, "params")),
        facts=decode_value(_dict(manifest, "facts")),
        notes=decode_value(_dict(manifest, "notes")),
        n_classes=n_classes,
        n_features=_n_features(manifest),
        format_version=manifest["format_version"],
        kway_version=str(manifest.get("kway_version")),
        n_bytes=opened.n_bytes,
        tensors=table,
    )


def _n_features(manifest: Mapping[str, Any]) -> int | None:
    found = manifest.get("n_features")
    if found is not None and type(found) is not int:
        raise ModelFileError(f"n_features in the model file is {short_repr(found)}, expected a whole number")
    return found


def pack(estimator: Any) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """A fitted estimator as JSON and arrays; an estimator around another packs that one into its own with this."""
    estimator = _storable(estimator)
    name = type(estimator).__name__
    known: Any = estimator_class(name)
    if known is not type(estimator):
        raise ModelFileError(f"{name} is not one of kway's classifiers, so it cannot be written to a model file")
    if not hasattr(estimator, _LABELS):
        raise ModelFileError(f"this {name} is not fitted, so there is nothing to save; call fit first")
    facts, arrays = estimator._fitted()
    clash = {_LABELS, _FEATURES} & set(arrays)
    if clash:
        raise ModelFileError(f"{name} packs {sorted(clash)}, which the store keeps itself")
    n_features = encode_value(getattr(estimator, "n_features_in_", None), "n_features_in_")
    params, learned = encode_params(estimator), encode_value(facts, "facts")
    manifest = Packed({"class": name, "params": params, "facts": learned, "n_features": n_features})
    common = {key: np.asarray(getattr(estimator, key)) for key in (_LABELS, _FEATURES) if hasattr(estimator, key)}
    return manifest, {**common, **arrays}


def unpack(manifest: Mapping[str, Any], arrays: Mapping[str, NDArray]) -> Any:
    """Reverse of `pack`; what is not as the class's schema declares is a ModelFileError."""
    name, own = str(manifest.get("class")), dict(arrays)
    estimator = decode_params(name, _dict(manifest, "params"))
    facts, n_features = decode_value(_dict(manifest, "facts")), manifest.get("n_features")
    if _LABELS not in own:
        raise ModelFileError(f"the model file has no labels ({_LABELS}); it was not written by kway")
    classes, names = own.pop(_LABELS), own.pop(_FEATURES, None)
    schemas.check_common(name, classes, names, n_features)
    schemas.check(name, estimator, facts, own, classes, n_features)
    estimator.classes_ = classes
    if n_features is not None:
        estimator.n_features_in_ = n_features
    if names is not None:
        estimator.feature_names_in_ = names
    try:
        estimator._restore(facts, own)
    except ModelFileError:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise ModelFileError(
            f"the model file does not hold what a {name} needs: {error!r}; save the model again"
        ) from error
    schemas.check_after(name, estimator)
    return estimator.pipeline() if name == _PIPELINED else estimator


def _storable(estimator: Any) -> Any:
    """A Pipeline of scikit-learn's as the class that holds it in a model file; anything else as it is."""
    pipelines = sys.modules.get("sklearn.pipeline")  # no pipeline was made where it is not loaded
    known: Any = None if pipelines is None else pipelines.Pipeline
    if known is None or type(estimator) is not known:
        return estimator
    holder: Any = estimator_class(_PIPELINED)
    return holder.of(estimator)


def _dict(manifest: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = manifest.get(key)
    if not isinstance(value, dict):
        raise ModelFileError(f"the manifest of the model file has no {key!r}; it was not written by kway")
    return value
