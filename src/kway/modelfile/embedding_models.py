"""Embedding models that a model file may use: only those that the caller of `load` allows.

A saved model contains the name of the model that embeds its texts. If kway downloaded and ran any name in a file, the
file could choose the code. So the caller names the allowed models: kway.load(path, embed="all-MiniLM-L6-v2"). Only they
are opened, after a comparison with the model of the fit (tables/features/embedder.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kway.errors import InputError, ModelFileError
from kway.modelfile.value_checks import short_repr

AllowedModels = str | Path | Collection[str | Path] | Callable[[Any], Any] | None


class _EmbedParameter(NamedTuple):
    """A parameter with the name of an embedding model, which a new fit would open."""

    owner: Any
    key: str
    name: str


def allow_embedding(model: Any, embed: AllowedModels, path: str | Path) -> Any:
    """Return the model with the embedder of the caller; raise ModelFileError if the file names another one."""
    one = embed if callable(embed) or isinstance(embed, str | Path) else None
    embedding = [features for features in _features(model) if getattr(features, "embed_", None) is not None]
    if one is not None and not embedding:
        raise InputError(f"{path} was trained without embed; leave embed out")
    names = _names(embed)
    chosen = [_allowed(features, one, names, path) for features in embedding]
    for parameter in list(_embed_parameters(model)):
        if not _among(parameter.name, names):
            if not chosen:
                raise _not_allowed(parameter.name, path)
            parameter.owner.set_params(**{parameter.key: chosen[0]})
    return model


def _allowed(features: Any, one: Any, names: list[str | Path], path: str | Path) -> str | None:
    """Return the name of the embedding model that these features use from now on; None for a function."""
    identity = features.embed_
    if identity.kind != "function" and _among(identity.name, names):
        return str(identity.name)
    if one is not None:
        features.use_embed(one)  # a function, or the new path of a folder
        return None if callable(one) else str(one)
    if identity.kind != "function":
        raise _not_allowed(identity.name, path)
    return None  # a function is not part of a file; its first use raises an error


def _names(embed: AllowedModels) -> list[str | Path]:
    if embed is None or callable(embed):
        return []
    return [embed] if isinstance(embed, str | Path) else list(embed)


def _not_allowed(name: str, path: str | Path) -> ModelFileError:
    shown = short_repr(name, 4000)
    return ModelFileError(
        f"{path} embeds its rows with the model {shown}, which would be downloaded and run; if you trust that model, "
        f"allow it by name: kway.load(path, embed={shown}), or --embed on the command line"
    )


def _among(name: str, names: list[str | Path]) -> bool:
    """Return whether a name or folder is one of those allowed."""
    return any(str(each) == name or Path(each).absolute() == Path(name).absolute() for each in names)


def _layers(model: Any) -> Iterator[Any]:
    """Yield a classifier and those inside it: the last step of a Pipeline, members of a blend, fitted or not."""
    yield model
    steps = _steps(model)
    inside = [*steps[-1:], getattr(model, "estimator_", None), *getattr(model, "estimators_", ())]
    given = getattr(model, "estimators", None) or ()
    for inner in (*inside, *(each[-1] if isinstance(each, tuple) else each for each in given)):
        if inner is not None:
            yield from _layers(inner)


def _steps(model: Any) -> list[Any]:
    """Return the steps of a Pipeline; [] for a classifier."""
    return [step for _, step in model.steps] if hasattr(model, "named_steps") else []


def _features(model: Any) -> Iterator[Any]:
    for layer in _layers(model):
        if hasattr(layer, "features_"):
            yield layer.features_
        yield from (step for step in _steps(layer) if hasattr(step, "use_embed"))


def _embed_parameters(model: Any) -> Iterator[_EmbedParameter]:
    for holder in (*_layers(model), *_features(model)):
        for key, value in holder.get_params(deep=True).items():
            if key.rpartition("__")[2] == "embed" and value is not None:
                yield _EmbedParameter(holder, key, str(value))
