"""Model files: one file without code, memory-mapped on load.

save(estimator, path)     parameters, labels and fitted arrays -> a safetensors file with a JSON manifest
load(path)                the estimator; its arrays are read-only views of the file, checked by a schema
info(path)                the content of a file, without building the estimator
verify(path)              reads every byte and compares it with the digest written by save

container.py         the file format: header, digests, tensors, text
values.py            parameters <-> JSON
schema.py            schemas, checks of arrays, and limits against hostile files
value_checks.py      checks of parameters and facts
schemas/             the schema of every class
plain_steps.py       transformers of a Pipeline that a file can contain
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import kway
from kway.errors import InputError, ModelFileError
from kway.modelfile import container, schemas
from kway.modelfile.container import TensorInfo, model_path, pack_arrays, unpack_arrays, verify
from kway.modelfile.schema import raise_if
from kway.modelfile.schemas.index import check_index
from kway.modelfile.value_checks import optional, short_repr, whole_number
from kway.modelfile.values import Packed, decode_params, decode_value, encode_params, encode_value, estimator_class
from kway.tables.outputs import is_model, python_output, refuse_foreign
from kway.versions import current

__all__ = ["ModelInfo", "info", "load", "pack", "save", "unpack", "verify"]

_PIPELINED = "PipelinedClassifier"  # the class that stores a Pipeline
_INDEX = "Index"  # the class of a file that contains an index alone
_LABELS, _FEATURES = "classes_", "feature_names_in_"  # arrays of every estimator
AllowedModels = str | Path | Collection[str | Path] | Callable[[Any], Any] | None  # embedding models, by name


@dataclass(frozen=True)
class ModelInfo:
    """The content of a model file.

    Parameters
    ----------
    path : str
        The file.
    class_name : str
        Class of the estimator.
    params : dict
        Its parameters.
    facts : dict
        What it learned, apart from arrays.
    notes : dict
        The notes given to `save`.
    n_classes, n_features : int or None
        Number of classes and of input columns.
    format_version : int
        Version of the file format.
    kway_version : str
        Version of kway that wrote the file.
    n_bytes : int
        Size of the file.
    tensors : tuple of TensorInfo
        Name, dtype, shape and place of each array.
    """

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
    """Write a fitted classifier, or a Pipeline that ends in one, to a file without code.

    The file appears only when it is complete. Until then, an existing model at `path` stays.

    Parameters
    ----------
    estimator : estimator
        A fitted classifier of kway, or a scikit-learn Pipeline of scalers, PCA, TruncatedSVD or Features before one.
    path : str or Path
        The file to write.
    notes : dict, optional
        Plain values that `kway info` shows and `load` ignores.
    force : bool, default=False
        Whether to replace a file that is not a model of kway.

    Raises
    ------
    ModelFileError
        If the estimator is not fitted, or contains something that a file without code cannot store.
    UsageError
        If `path` is a file that kway did not write, and `force` is False.

    Examples
    --------
    >>> import kway, os, tempfile
    >>> data = kway.datasets.load("iris")
    >>> model = kway.SoftmaxClassifier().fit(data.x_train, data.y_train)
    >>> path = os.path.join(tempfile.mkdtemp(), "iris.kway")
    >>> kway.save(model, path)
    >>> bool((kway.load(path).predict(data.x_test) == model.predict(data.x_test)).all())
    True
    """
    refuse_foreign(python_output(model_path(path), "model", is_model), force)
    manifest, arrays = pack(estimator)
    tensors, kinds = pack_arrays(arrays)
    entries = {"kway_version": kway.__version__, "notes": encode_value(dict(notes or {}), "notes"), "kinds": kinds}
    container.write(path, manifest | entries, tensors)


def save_index(facts: dict[str, Any], arrays: dict[str, NDArray], path: str | Path, force: bool) -> None:
    """Write the parts of an index to a file of its own."""
    refuse_foreign(python_output(model_path(path), "model", is_model), force)
    entries = {"class": _INDEX, "params": {}, "facts": encode_value(facts, "facts"), "n_features": facts["n_features"]}
    container.write(path, {**entries, "kway_version": kway.__version__, "notes": {}, "kinds": {}}, arrays)


def load(path: str | Path, *, verify: bool = False, mmap: bool = True, embed: AllowedModels = None) -> Any:
    """Load the estimator, or the index, of a model file.

    Parameters
    ----------
    path : str or Path
        The model file.
    verify : bool, default=False
        Whether to read every byte and compare it with the digest first.
    mmap : bool, default=True
        Whether to map the arrays instead of reading them into memory. Reading is slower, but the process then survives
        if the file is truncated later.
    embed : str, Path, collection of these or callable, optional
        Embedding models that the file may use: names or folders, or the function that embeds. A file that names another
        model raises an error, because a file must not choose which code is downloaded and run.

    Returns
    -------
    estimator or Index
        The fitted classifier or Pipeline, or the live index.

    Raises
    ------
    ModelFileError
        If the file is not a model file, is damaged, or is of a newer format.

    Examples
    --------
    >>> import kway, os, tempfile
    >>> data = kway.datasets.load("iris")
    >>> path = os.path.join(tempfile.mkdtemp(), "iris.kway")
    >>> kway.save(kway.CentroidClassifier().fit(data.x_train, data.y_train), path)
    >>> kway.load(path, verify=True)
    CentroidClassifier()
    """
    opened = container.read(path, mmap=mmap, verify=verify)
    if opened.manifest.get("class") == _INDEX:
        facts = decode_value(_dict(opened.manifest, "facts"))
        check_index(facts, opened.tensors)
        return kway.search.restore(facts, opened.tensors)
    arrays = unpack_arrays(opened.tensors, opened.manifest.get("kinds"))
    return _allow_embedding(unpack(opened.manifest, arrays), embed, path)


def info(path: str | Path) -> ModelInfo:
    """Return the content of a model file without reading its arrays.

    Parameters
    ----------
    path : str or Path
        The model file.

    Returns
    -------
    ModelInfo
        Class, parameters, versions and the table of tensors.
    """
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
    raise_if(optional(whole_number())(found), "n_features")
    return found


def pack(estimator: Any) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return a fitted estimator as JSON and arrays; estimators use it for the estimators that they contain."""
    estimator = _storable(estimator)
    name = type(estimator).__name__
    known: Any = estimator_class(name)
    if known is not type(estimator):
        raise ModelFileError(
            f"{name} is not a classifier of kway, so it cannot be written to a model file; pickle it instead"
        )
    if not hasattr(estimator, _LABELS):
        raise ModelFileError(f"this {name} is not fitted; call fit first")
    estimator = current(estimator)  # another thread may change it meanwhile
    facts, arrays = estimator._fitted()
    n_features = encode_value(getattr(estimator, "n_features_in_", None), "n_features_in_")
    params, learned = encode_params(estimator), encode_value(facts, "facts")
    manifest = Packed({"class": name, "params": params, "facts": learned, "n_features": n_features})
    common = {key: np.asarray(getattr(estimator, key)) for key in (_LABELS, _FEATURES) if hasattr(estimator, key)}
    return manifest, {**common, **arrays}


def unpack(manifest: Mapping[str, Any], arrays: Mapping[str, NDArray]) -> Any:
    """Reverse `pack`; raise ModelFileError for content that does not match the schema of the class."""
    name, remaining = str(manifest.get("class")), dict(arrays)
    estimator = decode_params(name, _dict(manifest, "params"))
    facts, n_features = decode_value(_dict(manifest, "facts")), manifest.get("n_features")
    if _LABELS not in remaining:
        raise ModelFileError(f"the model file has no labels ({_LABELS}); it was not written by kway")
    classes, names = remaining.pop(_LABELS), remaining.pop(_FEATURES, None)
    schemas.check_common(name, classes, names, n_features)
    schemas.check(name, estimator, facts, remaining, classes, n_features)
    estimator.classes_ = classes
    if n_features is not None:
        estimator.n_features_in_ = n_features
    if names is not None:
        estimator.feature_names_in_ = names
    try:
        estimator._restore(facts, remaining)
    except ModelFileError:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise ModelFileError(
            f"the model file does not contain what a {name} needs: {error!r}; save the model again"
        ) from error
    schemas.check_restored(name, estimator)
    return estimator.pipeline() if name == _PIPELINED else estimator


def _storable(estimator: Any) -> Any:
    """Return a scikit-learn Pipeline as the class that stores it; any other estimator as it is."""
    pipelines = sys.modules.get("sklearn.pipeline")  # without this module there is no Pipeline
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


# ---- embedding models
#
# A saved model contains the name of the model that embeds its texts. A hostile file could name a model whose code kway
# would then download and run. So the caller names the allowed models: kway.load(path, embed="all-MiniLM-L6-v2"). Only
# these are loaded, and only if they match the model that was used in fit (tables/features/embedder.py).
#
# A name can be in two places: in `embed_` of fitted Features, which predictions load, and in a parameter `embed`, which
# a new fit would load.


def _allow_embedding(model: Any, embed: AllowedModels, path: str | Path) -> Any:
    """Restrict a loaded model to the embedding models that `embed` allows, and return it.

    ModelFileError is raised if the file names another model. A single name, folder or function replaces the model of
    the file; the features then check that it gives the same embeddings.
    """
    estimators = list(_estimators_in(model))
    embedding = [estimator for estimator in estimators if getattr(estimator, "embed_", None) is not None]
    replacement = embed if callable(embed) or isinstance(embed, str | Path) else None
    if replacement is not None and not embedding:
        raise InputError(f"{path} was trained without embed; leave embed out")
    allowed = _allowed_names(embed)
    used = [_restrict_features(features, replacement, allowed, path) for features in embedding]
    for estimator in estimators:
        name = estimator.get_params(deep=False).get("embed")
        if name is None or _is_allowed(str(name), allowed):
            continue
        if not used:
            raise _forbidden(str(name), path)
        estimator.set_params(embed=used[0])  # a new fit loads what predictions load
    return model


def _restrict_features(features: Any, replacement: Any, allowed: list[str | Path], path: str | Path) -> str | None:
    """Return the name of the embedding model that fitted features use from now on; None for a function."""
    identity = features.embed_
    if identity.kind != "function" and _is_allowed(identity.name, allowed):
        return str(identity.name)
    if replacement is not None:
        features.use_embed(replacement)  # a function, or the new path of the folder
        return None if callable(replacement) else str(replacement)
    if identity.kind != "function":
        raise _forbidden(identity.name, path)
    return None  # a file does not contain functions; using the features raises an error that asks for it


def _allowed_names(embed: AllowedModels) -> list[str | Path]:
    if embed is None or callable(embed):
        return []
    return [embed] if isinstance(embed, str | Path) else list(embed)


def _is_allowed(name: str, allowed: list[str | Path]) -> bool:
    """Return whether a name, or a folder relative to the current folder, is one of those allowed."""
    return any(str(entry) == name or Path(entry).absolute() == Path(name).absolute() for entry in allowed)


def _forbidden(name: str, path: str | Path) -> ModelFileError:
    shown = short_repr(name, 4000)
    return ModelFileError(
        f"{path} embeds its rows with the model {shown}, which would be downloaded and run; if you trust that model, "
        f"allow it by name: kway.load(path, embed={shown}), or --embed on the command line"
    )


def _estimators_in(value: Any) -> Iterator[Any]:
    """Yield the estimators at any depth of mappings, lists, tuples and attributes of estimators."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for entry in value:
            yield from _estimators_in(entry)
    elif hasattr(value, "get_params") and not isinstance(value, type):
        yield value
        yield from _estimators_in(vars(value))
