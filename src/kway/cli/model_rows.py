"""DATA for a model that already exists: its columns by name, in its order."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray


class Rows(NamedTuple):
    """X, as the model takes it (n rows), and, where the data has labels, y (n,)."""

    X: Any
    y: NDArray | None


class Ready(NamedTuple):
    """A model from a file and the rows to use it on."""

    model: Any
    rows: Rows


def ready(path: str, data: str, target: str | None, needs_labels: bool, embed: str | None = None) -> Ready:
    """The model and the rows it asks for; of a set with a test part, the test rows.

    `embed` allows the embedding model that the file names, or is its new place where its folder has moved.
    """
    from kway import store
    from kway.featured import FeaturedClassifier

    model = store.load(path, embed=embed)
    if needs_labels:
        target = target or store.info(path).notes.get("target")
    if isinstance(model, FeaturedClassifier):
        return Ready(model, _raw_rows(model, data, target, needs_labels))
    names = _forget_names(model)
    return Ready(model, _number_rows(model, names, data, target, needs_labels))


def _raw_rows(model: Any, data: str, target: str | None, needs_labels: bool) -> Rows:
    """Rows as they are in the file; the model's own features turn them into numbers."""
    from kway.data.sources.frames import is_table
    from kway.data.sources.labelled import read_raw
    from kway.select.split import labels_of

    text = model.classes_.dtype.kind in "UO"
    like = model.features_.wanted(text)
    found = read_raw(data, target if needs_labels else None, like=like)
    if is_table(found.rows) and not model.features_.is_table_:
        return _number_rows(model, None, data, target, needs_labels)  # columns in order
    if needs_labels:
        labels_of(found)
    if found.test_rows is not None:
        return Rows(found.test_rows, found.test_y)
    return Rows(found.rows, found.y)


def _number_rows(model: Any, names: list[str] | None, data: str, target: str | None, needs_labels: bool) -> Rows:
    """Rows of numbers for a model without features of its own."""
    from kway.data.sources import numeric as source

    text = model.classes_.dtype.kind in "UO"
    found = source.read(data, target, names, model.n_features_in_, text_labels=text)
    if needs_labels:
        source.labelled(found, target)
    if found.x_test is not None:
        return Rows(found.x_test, found.y_test)
    return Rows(found.x_train, found.y_train)


def _forget_names(model: Any) -> list[str] | None:
    """The names of the model's columns, taken off it: rows come from here in its own order, as plain arrays."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return None
    del model.feature_names_in_
    return [str(n) for n in names]
