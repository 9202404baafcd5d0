"""Read DATA for a saved model: the columns that the model needs, in its order, in blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

if TYPE_CHECKING:
    from kway.tables.labeled_rows import LabeledRows, RowRequirements
    from kway.tables.read_options import ReadOptions


class ModelRows(NamedTuple):
    """Rows as the model takes them, their labels if DATA has any, and the columns to write next to the predictions.

    `positions` (n,) are the positions of the rows in DATA; None if these are 0, 1, 2, ...
    """

    X: Any
    y: NDArray | None
    kept: Mapping[str, Any]
    positions: NDArray | None = None


class ModelAndBlocks(NamedTuple):
    """A saved model and its rows in blocks, which are read when needed; `skipped` lists the files left out so far."""

    model: Any
    blocks: Iterator[ModelRows]
    skipped: list[str]


def read_all(
    path: str, data: str, reading: ReadOptions, needs_labels: bool, embed: str | None = None
) -> tuple[Any, ModelRows]:
    """Return the model and all rows of DATA, or the test rows of a dataset that has some."""
    from kway.tables.reading import read_rows

    reader = ModelReader(path, reading, needs_labels, embed)
    return reader.model, reader.prepare(read_rows(data, reader.reading, reader.requirements))


def read_blocks(
    path: str, data: str, reading: ReadOptions, needs_labels: bool, embed: str | None = None
) -> ModelAndBlocks:
    """Return the model and the rows of DATA in blocks, so that DATA may be larger than memory."""
    from kway.tables.row_stream import row_stream

    reader = ModelReader(path, reading, needs_labels, embed)
    blocks = map(reader.prepare, row_stream(data, reader.reading, reader.requirements))
    first = list(islice(blocks, 1))  # read now, so that errors are raised before anything is written
    return ModelAndBlocks(reader.model, chain(first, blocks), reader.skipped)


class ModelReader:
    """Reads rows for a saved model, with the options `reading` and the columns and format that the model requires.

    `embed` is the name or folder of the embedding model that the file is allowed to use.
    """

    def __init__(self, path: str, reading: ReadOptions, needs_labels: bool, embed: str | None = None) -> None:
        from kway import modelfile
        from kway.pipelines import features_of, label_separator

        self.model = load_model(path, embed)
        notes = modelfile.info(path).notes
        self.separator = label_separator(self.model)
        reading = replace(reading, multilabel=self.separator)
        self.reading = reading.without_labels()
        if needs_labels:
            self.reading = replace(
                reading, target=reading.target or notes.get("target"), target_from_model=reading.target is None
            )
        required = _requirements_of(self.model)
        if self.model.classes_.dtype.kind in "iuf":
            required = required._replace(number_classes=tuple(self.model.classes_.tolist()))
        self.requirements = _in_training_format(required, notes.get("reading"))
        self.hierarchy = notes.get("hierarchy")
        self._check_drop(self.requirements.columns)
        self._needs_labels = needs_labels
        self.skipped: list[str] = []  # files that could not be read so far
        self._as_numbers = not any(features.is_table_ for features in features_of(self.model))

    def _check_drop(self, columns: tuple[str, ...] | None) -> None:
        """Raise if the user drops a column that the model uses."""
        from kway.errors import UsageError

        needed = [c for c in self.reading.drop if c in (columns or ())]
        if needed:
            raise UsageError(f"the model uses the column {needed[0]!r}, which drop= leaves out; remove it from drop=")

    def prepare(self, rows: LabeledRows) -> ModelRows:
        """Convert rows that were read to what the model takes."""
        from kway.tables.labeled_rows import number_rows

        if self._needs_labels:
            rows.required_labels()
        self._note_skipped(rows)
        if self._as_numbers:
            self._check_image(rows)
            rows = number_rows(rows, self.requirements.columns)
        if rows.test_rows is not None:
            return ModelRows(rows.test_rows, self._spelled(rows.test_y), rows.test_kept_columns, rows.test_positions)
        return ModelRows(rows.rows, self._spelled(rows.y), rows.kept_columns, rows.positions)

    def _spelled(self, y: NDArray | None) -> NDArray | None:
        """Return labels in the spelling of the classes of the model, with --join-labels."""
        from kway.tables.sources.labels import joined_labels, joined_sets

        if y is None or not self.reading.join_labels:
            return y
        known = self.model.classes_.tolist()
        if self.separator is None:
            return joined_labels(y, known, self.hierarchy)
        return joined_sets(y, self.separator, known)

    def _note_skipped(self, rows: LabeledRows) -> None:
        """Print notes on images, lines, rows and cells that were left out."""
        from kway import progress
        from kway.cli.options import with_flags
        from kway.text_tables import printable

        self.skipped += rows.skipped
        for note in rows.left_out:
            progress.note(printable(f"note: {with_flags(note)}"))

    def _check_image(self, rows: LabeledRows) -> None:
        """Raise if a model for images gets a table whose columns cannot be the pixels."""
        from kway.errors import InputError
        from kway.tables.sources.frames import is_table

        image = self.requirements.image
        if image is None or not is_table(rows.rows):
            return
        columns, pixels = rows.rows.num_columns, image.height * image.width * image.channels
        if columns != pixels:
            raise InputError(
                f"the model takes images ({image}), but {rows.name} is a table of {columns:,} columns; "
                f"pass an image, a folder of images, or a table with the {pixels:,} pixels as columns"
            )


def load_model(path: str, embed: str | None = None) -> Any:
    """Load the classifier of a model file; a Pipeline becomes one classifier with all methods of kway's own."""
    from kway import modelfile
    from kway.errors import InputError

    model = modelfile.load(path, embed=embed)
    if not hasattr(model, "classes_"):
        raise InputError(f"{path} contains an index, which predicts no classes; open it in Python with kway.load")
    if not hasattr(model, "named_steps"):
        return model
    from kway.pipelines import PipelinedClassifier

    wrapped = PipelinedClassifier.of(model)
    return wrapped.estimator_ if wrapped.featured_ else wrapped


def _in_training_format(required: RowRequirements, notes: Any) -> RowRequirements:
    """Add the format of the training file, such as its separator, from the notes of the model."""
    from kway.tables.read_options import ReadOptions, TextForm

    try:
        form = TextForm(**notes["form"]) if "form" in notes else required.form
        ReadOptions().in_form(form)  # checks it
        return required._replace(form=form, id=notes.get("id"))
    except (TypeError, KeyError, AttributeError, ValueError):  # notes that kway did not write
        return required


def _requirements_of(model: Any) -> RowRequirements:
    """Return what the model requires of rows; a model without Features takes plain numbers in order."""
    from kway.pipelines import features_of
    from kway.tables.labeled_rows import RowRequirements, joined_requirements

    text_labels = model.classes_.dtype.kind in "UO"
    if requirements := [features.requirements(text_labels) for features in features_of(model)]:
        return joined_requirements(requirements)
    return RowRequirements(_remove_names(model), n_features=model.n_features_in_, text_labels=text_labels)


def _remove_names(model: Any) -> tuple[str, ...] | None:
    """Remove and return the column names of the model, because it will get plain arrays in its order."""
    names = getattr(model, "feature_names_in_", None)
    while model is not None:
        for part in (model, *(step for _, step in getattr(model, "steps_", ()) if not isinstance(step, str))):
            part.__dict__.pop("feature_names_in_", None)
        model = getattr(model, "estimator_", None)
    return None if names is None else tuple(map(str, names))
