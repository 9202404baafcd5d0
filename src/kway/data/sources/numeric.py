"""DATA of the command line: a file, or the name of a known set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kway.data.datasets import catalog
from kway.data.datasets.dataset import Dataset
from kway.data.sources import tables
from kway.data.suggest import listing, nearest
from kway.errors import InputError


def read(
    source: str,
    target: str | None = None,
    features: Sequence[str] | None = None,
    n_features: int | None = None,
    text_labels: bool = False,
) -> Dataset:
    """The dataset that `source` names, labels by name. A name that looks like a file is read as one."""
    if _is_file(source):
        return tables.read(source, target, features, n_features, text_labels).named()
    known = catalog.names()
    if source not in known:
        raise InputError(
            f"{source!r} is neither a file nor a known set{nearest(source, known)}; known sets are "
            f"{listing(known, 40)}, and files end in {listing(tables.SUFFIXES)}"
        )
    data = catalog.load(source)
    if data.x_train.dtype.kind not in "iufb":
        raise InputError(f"dataset {source!r} is text, not numbers; encode it as numbers first")
    return _only(data.named(), features)


def labelled(data: Dataset, target: str | None) -> Dataset:
    """The same, or an error that says how to name the label column."""
    if data.y_train is None:
        columns = f"; its columns are {listing(data.feature_names)}" if data.feature_names else ""
        raise InputError(f"{data.name} has no labels; name the column that holds them with --target{columns}")
    return data


def _is_file(source: str) -> bool:
    return Path(source).is_file() or "/" in source or source.lower().endswith(tables.SUFFIXES)


def _only(data: Dataset, features: Sequence[str] | None) -> Dataset:
    """Columns by name, where both sides have names."""
    if not features or not data.feature_names or tuple(features) == data.feature_names:
        return data
    missing = [f for f in features if f not in data.feature_names]
    if missing:
        raise InputError(f"{data.name} has no feature {listing(missing)}; it has {listing(data.feature_names)}")
    place = [data.feature_names.index(f) for f in features]
    x_test = None if data.x_test is None else data.x_test[:, place]
    return replace(data, x_train=data.x_train[:, place], x_test=x_test, feature_names=tuple(features))
