"""What rows must bring to be used with a model, or beside other rows: told before a file is read."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from kway.data.sources.images import ImageForm
from kway.data.sources.text_form import OPEN, TextForm


class RowRequirements(NamedTuple):
    """columns of a table (None: any), those read as text, the form of images, the width of a matrix.

    `text_labels`: labels are text although all of a csv look like numbers, for a model whose other labels are not.
    `written`, `form` and `id` say how the first rows were written (written_values, text_form) and which of
    their columns named them: later rows are read the same way.
    """

    columns: tuple[str, ...] | None = None
    words: tuple[str, ...] = ()
    image: ImageForm | None = None
    n_features: int | None = None
    text_labels: bool = False
    written: Mapping[str, str] = MappingProxyType({})
    form: TextForm = OPEN
    id: str | None = None
