"""DATA for a model file: the columns that the model needs, by name and in its order, a block at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

if TYPE_CHECKING:
    from kway.tables.labeled_rows import LabeledRows, RowRequirements
    from kway.tables.options import ReadOptions


class ModelRows(NamedTuple):
    """X, as the model takes it (n rows), y (n,) if the data has labels, and the columns to write beside predictions."""

    X: Any
    y: NDArray | None
    beside: Mapping[str, Any]


class ModelAndRows(NamedTuple):
    """A model from a file and the rows to use it on."""

    model: Any
    rows: ModelRows


class ModelAndBlocks(NamedTuple):
    """The same with the rows in blocks, read when they are needed; `skipped` lists the files left out so far."""

    model: Any
    blocks: Iterator[ModelRows]
    skipped: list[str]


def read_all(path: str, data: str, reading: ReadOptions, needs_labels: bool, embed: str | None = None) -> ModelAndRows:
    """The model and all rows of DATA; of a set with a test part, the test rows."""
    from kway.tables.reading import read_rows

    reader = ModelReader(path, reading, needs_labels, embed)
    return ModelAndRows(reader.model, reader.given(read_rows(data, reader.reading, reader.like)))


def read_blocks(
    path: str, data: str, reading: ReadOptions, needs_labels: bool, embed: str | None = None
) -> ModelAndBlocks:
    """The same a block at a time, so that DATA may be larger than memory."""
    from kway.tables.row_stream import row_stream

    reader = ModelReader(path, reading, needs_labels, embed)
    blocks = map(reader.given, row_stream(data, reader.reading, reader.like))
    first = list(islice(blocks, 1))  # read at once, so that errors come before anything is written
    return ModelAndBlocks(reader.model, chain(first, blocks), reader.skipped)


class ModelReader:
    """A model from a file, and how its rows are read: `reading` and `like`, as the reader takes them.

    `embed` allows the embedding model that the file names, or is its new folder.
    """

    def __init__(self, path: str, reading: ReadOptions, needs_labels: bool, embed: str | None = None) -> None:
        from kway import modelfile
        from kway.pipelines import FeaturedClassifier

        self.model = load_model(path, embed)
        notes = modelfile.info(path).notes
        self.reading = reading.without_labels()
        if needs_labels:
            self.reading = replace(
                reading, target=reading.target or notes.get("target"), target_from_model=reading.target is None
            )
        self.like = _read_alike(_requirements_of(self.model), notes.get("reading"))
        self._refuse_drop(self.like.columns)
        self._needs_labels = needs_labels
        self.skipped: list[str] = []  # files of the rows given so far that could not be read
        self._as_numbers = not isinstance(self.model, FeaturedClassifier) or not self.model.features_.is_table_

    def _refuse_drop(self, columns: tuple[str, ...] | None) -> None:
        """Raise if a column is to be left out that the model uses."""
        from kway.errors import UsageError

        used = [c for c in self.reading.drop if c in (columns or ())]
        if used:
            raise UsageError(f"the model uses the column {used[0]!r}, so that it cannot be left out; take it off drop=")

    def given(self, found: LabeledRows) -> ModelRows:
        """Rows that were read, as the model takes them."""
        from kway.tables.labeled_rows import number_rows

        if self._needs_labels:
            found.required_labels()
        self._tell_skipped(found)
        if self._as_numbers:
            self._refuse_table_for_image(found)
            found = number_rows(found, self.like.columns)
        if found.test_rows is not None:
            return ModelRows(found.test_rows, found.test_y, found.beside)
        return ModelRows(found.rows, found.y, found.beside)

    def _tell_skipped(self, found: LabeledRows) -> None:
        """Print a note on images, lines and rows that were left out and have no prediction."""
        from kway import progress
        from kway.cli.options import in_command_words
        from kway.tables.sources.images import skipped_note

        if found.skipped:
            self.skipped += found.skipped
            progress.note(f"note: {found.name}: {skipped_note(found.skipped)}")
        for note in found.notes:
            if "skip_bad=True" in note:
                progress.note(f"note: {in_command_words(note)}")

    def _refuse_table_for_image(self, found: LabeledRows) -> None:
        """Raise if a model of images is given a table, unless its columns can be the pixels."""
        from kway.errors import InputError
        from kway.tables.sources.frames import is_table

        image = self.like.image
        if image is None or not is_table(found.rows):
            return
        columns, pixels = found.rows.num_columns, image.height * image.width * image.channels
        if columns != pixels:
            raise InputError(
                f"this model takes images ({image}), and {found.name} is a table of {columns:,} columns; "
                f"give an image, a folder of them, or the {pixels:,} pixels as columns of numbers"
            )


def load_model(path: str, embed: str | None = None) -> Any:
    """The classifier of a file; a Pipeline as one classifier with all methods that kway's have."""
    from kway import modelfile

    model = modelfile.load(path, embed=embed)
    if not hasattr(model, "named_steps"):
        return model
    from kway.pipelines import PipelinedClassifier

    held = PipelinedClassifier.of(model)
    return held.estimator_ if held.featured_ else held


def _read_alike(like: RowRequirements, notes: Any) -> RowRequirements:
    """The requirements with the form of the training file, from the model's notes, if these are kway's."""
    from kway.tables.options import ReadOptions, TextForm

    try:
        form = TextForm(**notes["form"]) if "form" in notes else like.form
        ReadOptions().in_form(form)  # checks it
        written = {str(c): str(how) for c, how in notes.get("written", {}).items()}
        known = {c: how for c, how in written.items() if how in (".", ",") or "%" in how}
        return like._replace(form=form, written={**like.written, **known}, id=notes.get("id"))
    except (TypeError, KeyError, AttributeError, ValueError):
        return like


def _requirements_of(model: Any) -> RowRequirements:
    """What the model requires of rows; without features of its own it takes plain numbers in order."""
    from kway.pipelines import FeaturedClassifier
    from kway.tables.labeled_rows import RowRequirements

    text_labels = model.classes_.dtype.kind in "UO"
    if isinstance(model, FeaturedClassifier):
        return model.features_.requirements(text_labels)
    return RowRequirements(_take_names_off(model), n_features=model.n_features_in_, text_labels=text_labels)


def _take_names_off(model: Any) -> tuple[str, ...] | None:
    """Remove and return the names of the model's columns, as rows are given to it as plain arrays in its order."""
    names = getattr(model, "feature_names_in_", None)
    while model is not None:
        for each in (model, *(step for _, step in getattr(model, "steps_", ()) if not isinstance(step, str))):
            each.__dict__.pop("feature_names_in_", None)
        model = getattr(model, "estimator_", None)
    return None if names is None else tuple(map(str, names))
