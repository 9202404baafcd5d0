"""DATA for a model that already exists: its columns by name, in its order."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray


class Rows(NamedTuple):
    """X (n, d) and, where the data has labels, y (n,)."""

    X: Any
    y: NDArray | None


class Ready(NamedTuple):
    """A model from a file and the rows to use it on."""

    model: Any
    rows: Rows


def ready(path: str, data: str, target: str | None, needs_labels: bool) -> Ready:
    """The model and the rows it asks for; of a set with a test part, the test rows."""
    from kway import store
    from kway.data import source

    model = store.load(path)
    if needs_labels:
        target = target or store.info(path).notes.get("target")
    names = _forget_names(model)
    found = source.read(data, target, names, model.n_features_in_, text_labels=model.classes_.dtype.kind in "UO")
    if needs_labels:
        source.labelled(found, target)
    if found.x_test is not None:
        return Ready(model, Rows(found.x_test, found.y_test))
    return Ready(model, Rows(found.x_train, found.y_train))


def _forget_names(model: Any) -> list[str] | None:
    """The names of the model's columns, taken off it: rows come from here in its own order, as plain arrays."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return None
    del model.feature_names_in_
    return [str(n) for n in names]
