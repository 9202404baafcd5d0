"""Embedding models: a file may only use those that whoever loads it allows.

A saved model names the model that embeds its texts. Fetching and running what a file names would let the file choose
code, so the caller says which names are fine: kway.load(path, embed="all-MiniLM-L6-v2"). Nothing is opened here but
what the caller named; whether it is the one of the fit is compared when it is opened (data/features/embedder.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from kway.errors import ModelFileError
from kway.store.facts import say

Allowed = str | Path | Collection[str | Path] | Callable[[Any], Any] | None


def allow_embedding(model: Any, embed: Allowed, path: str | Path) -> Any:
    """The model, with the embedder that the caller gave; ModelFileError where the file names one not allowed."""
    one = embed if callable(embed) or isinstance(embed, str | Path) else None
    names = [one] if isinstance(one, str | Path) else [] if one is not None else list(embed or ())  # type: ignore[arg-type]
    for features in _features(model):
        identity = getattr(features, "embed_", None)
        if identity is None:
            continue
        if one is not None and not (identity.kind != "function" and _among(identity.name, names)):
            features.use_embed(one)  # the caller's own: a function, or the new place of a folder
            names.append(identity.name)
        elif identity.kind != "function":
            _refuse_other(identity.name, names, path)
    for name in _asked_for(model):
        _refuse_other(name, names, path)
    return model


def _refuse_other(name: str, names: list[str | Path], path: str | Path) -> None:
    if not _among(name, names):
        raise ModelFileError(
            f"{path} embeds text with the model {say(name)}, which it would fetch or open and run; if you trust that "
            f"model, allow it by name: kway.load(path, embed={say(name)}), or --embed on the command line"
        )


def _among(name: str, names: list[str | Path]) -> bool:
    """Whether a name, or the folder that it stands for, is one of those allowed."""
    return any(str(each) == name or _folder(each) == _folder(name) for each in names)


def _folder(name: str | Path) -> Path:
    return Path(name).absolute()


def _layers(model: Any) -> Iterator[Any]:
    """A fitted classifier and those inside it."""
    while model is not None:
        yield model
        model = getattr(model, "estimator_", None)


def _features(model: Any) -> Iterator[Any]:
    return (layer.features_ for layer in _layers(model) if hasattr(layer, "features_"))


def _asked_for(model: Any) -> Iterator[str]:
    """Names that parameters hold, which a new fit would open."""
    for part in (*_layers(model), *_features(model)):
        for key, value in part.get_params(deep=True).items():
            if key.rpartition("__")[2] == "embed" and value is not None:
                yield str(value)
