"""What rows must bring to be used with a model, or beside other rows: told before a file is read."""

from __future__ import annotations

from typing import Any, NamedTuple

from kway.data.features.columns import is_text
from kway.data.sources.images import Form


class Wanted(NamedTuple):
    """columns of a table (None: not a table), those read as text, the form of images, the width of a matrix."""

    columns: tuple[str, ...] | None = None
    words: tuple[str, ...] = ()
    image: Form | None = None
    n_features: int | None = None
    text_labels: bool = False


def words_of(table: Any) -> tuple[str, ...]:
    """The columns of a pyarrow table that are text, also where it is kept as a dictionary."""
    import pyarrow.types as kinds

    types = {f.name: f.type.value_type if kinds.is_dictionary(f.type) else f.type for f in table.schema}
    return tuple(c for c, kind in types.items() if is_text(kind))
