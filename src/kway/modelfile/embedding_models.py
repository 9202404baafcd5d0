"""Embedding models: a file may only use those that whoever loads it allows.

A saved model names the model that embeds its texts. Fetching and running what a file names would let the file choose
code, so the caller says which names are fine: kway.load(path, embed="all-MiniLM-L6-v2"). Nothing is opened here but
what the caller named; whether it is the one of the fit is compared before it is fetched or read
(tables/features/embedder.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kway.errors import InputError, ModelFileError
from kway.modelfile.schema import short_repr

Allowed = str | Path | Collection[str | Path] | Callable[[Any], Any] | None


class _Wish(NamedTuple):
    """A parameter that names an embedding model, which a new fit would open."""

    holder: Any
    key: str
    name: str


def allow_embedding(model: Any, embed: Allowed, path: str | Path) -> Any:
    """The model, with the embedder that the caller gave; ModelFileError where the file names one not allowed."""
    one = embed if callable(embed) or isinstance(embed, str | Path) else None
    embedding = [features for features in _features(model) if getattr(features, "embed_", None) is not None]
    if one is not None and not embedding:
        raise InputError(f"{path} was trained without embed, so it takes none; leave it out")
    names = _names(embed)
    chosen = [_allowed(features, one, names, path) for features in embedding]
    for wish in list(_wishes(model)):
        if not _among(wish.name, names):
            if not chosen:
                raise _not_allowed(wish.name, path)
            wish.holder.set_params(**{wish.key: chosen[0]})  # a folder as it was written then: now the one allowed
    return model


def _allowed(features: Any, one: Any, names: list[str | Path], path: str | Path) -> str | None:
    """The name under which these features embed from now on, None for a function."""
    identity = features.embed_
    if identity.kind != "function" and _among(identity.name, names):
        return str(identity.name)
    if one is not None:
        features.use_embed(one)  # the caller's own: a function, or the new place of a folder
        return None if callable(one) else str(one)
    if identity.kind != "function":
        raise _not_allowed(identity.name, path)
    return None  # a function is no part of a file: the first use asks for it


def _names(embed: Allowed) -> list[str | Path]:
    if embed is None or callable(embed):
        return []
    return [embed] if isinstance(embed, str | Path) else list(embed)


def _not_allowed(name: str, path: str | Path) -> ModelFileError:
    said = short_repr(name, 4000)
    return ModelFileError(
        f"{path} embeds its rows with the model {said}, which would be opened, or fetched, and run; if you trust that "
        f"model, allow it by name: kway.load(path, embed={said}), or --embed on the command line"
    )


def _among(name: str, names: list[str | Path]) -> bool:
    """Whether a name, or the folder that it stands for, is one of those allowed."""
    return any(str(each) == name or Path(each).absolute() == Path(name).absolute() for each in names)


def _layers(model: Any) -> Iterator[Any]:
    """A fitted classifier and those inside it; of a Pipeline its last step."""
    while model is not None:
        yield model
        steps = _steps(model)
        model = steps[-1] if steps else getattr(model, "estimator_", None)


def _steps(model: Any) -> list[Any]:
    """The steps of a Pipeline; none of a classifier."""
    return [step for _, step in model.steps] if hasattr(model, "named_steps") else []


def _features(model: Any) -> Iterator[Any]:
    for layer in _layers(model):
        if hasattr(layer, "features_"):
            yield layer.features_
        yield from (step for step in _steps(layer) if hasattr(step, "use_embed"))


def _wishes(model: Any) -> Iterator[_Wish]:
    for holder in (*_layers(model), *_features(model)):
        for key, value in holder.get_params(deep=True).items():
            if key.rpartition("__")[2] == "embed" and value is not None:
                yield _Wish(holder, key, str(value))
