"""Embedding models that a model file may use: only those that the caller of `load` allows.

A saved model contains the name of the model that embeds its texts. A hostile file could name a model whose code kway
would then download and run. So the caller names the allowed models: kway.load(path, embed="all-MiniLM-L6-v2"). Only
these are loaded, and only if they match the model that was used in fit (tables/features/embedder.py).

A name can be in two places: in `embed_` of fitted Features, which predictions load, and in a parameter `embed`, which a
new fit would load.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from kway.errors import InputError, ModelFileError
from kway.modelfile.value_checks import short_repr

AllowedModels = str | Path | Collection[str | Path] | Callable[[Any], Any] | None


def allow_embedding(model: Any, embed: AllowedModels, path: str | Path) -> Any:
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
    """Yield all estimators in a value, at any depth and under any attribute, so that none escapes the check."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for entry in value:
            yield from _estimators_in(entry)
    elif hasattr(value, "get_params") and not isinstance(value, type):
        yield value
        yield from _estimators_in(vars(value))
