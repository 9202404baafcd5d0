"""Read files, folders, built-in datasets and rows in memory as LabeledRows.

The kind of source decides the form of the rows:

- csv, tsv, JSON lines (.gz), parquet, a folder of parquet or csv files, stdin ("-"), a frame: a pyarrow Table without
  the target, group, order and id columns (table_rows.py).
- npz, npy, a folder of npy files, libsvm, most built-in datasets, a matrix: an (n, d) array or CSR matrix.
- an image, or a folder with one sub-folder of images per class: (n, d) bytes, all images resized to one form.

A column (or npz key) `split` with the values train, val and test divides the rows. Otherwise there is no test part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.errors import InputError, UsageError
from kway.suggest import listing, nearest
from kway.tables.datasets import catalog
from kway.tables.datasets.arrays import Dataset, map_arrays, npy_files, read_libsvm, read_npz
from kway.tables.labeled_rows import LabeledRows, RowRequirements
from kway.tables.read_options import ALL, ReadOptions
from kway.tables.sources import images
from kway.tables.sources.frames import as_table, is_table
from kway.tables.sources.images import ImageForm
from kway.tables.sources.labels import column_labels, label_sets
from kway.tables.sources.table_files import FILE_SUFFIXES, STDIN, list_files, suffix_of, table_source
from kway.tables.table_rows import frame_rows, table_rows
from kway.validation import explained

DEFAULT_OPTIONS, NO_REQUIREMENTS = ReadOptions(), RowRequirements()

_USUAL_LABELS = ("y", "label", "target")  # values of target= that are accepted for files of arrays


@dataclass(frozen=True, eq=False)
class RowsInMemory:
    """A table or matrix in memory.

    Parameters
    ----------
    rows : table or matrix of shape (n, d)
        The rows.
    y : array-like of shape (n,), optional
        The labels, if they are not a column of the table.
    name : str
        The name of the table in messages.
    weights : array-like of shape (n,), optional
        The weights of the rows, if they are not a column of the table.
    """

    rows: Any
    y: Any = None
    name: str = "the table"
    weights: Any = None

    def __str__(self) -> str:
        return self.name


def read_rows(
    source: Any, options: ReadOptions = DEFAULT_OPTIONS, requirements: RowRequirements = NO_REQUIREMENTS
) -> LabeledRows:
    """Read rows and their labels.

    Parameters
    ----------
    source : str, Path or RowsInMemory
        A file, a folder, "-" for stdin, the name of a built-in dataset, or rows in memory.
    options : ReadOptions
        How to read the table. Options that are not set are detected.
    requirements : RowRequirements
        What a model, or other rows, require (`Features.requirements`): only the columns that they name are read, with
        the same kinds, and images are resized to their form.

    Returns
    -------
    LabeledRows
        The rows, their labels if there are any, and notes on how they were read.
    """
    if isinstance(source, RowsInMemory):
        return _from_memory(source, options, requirements)
    path = Path(source)
    if str(source) == STDIN:
        return table_rows(table_source(path), "stdin", options, requirements)
    if path.is_dir():
        return _from_folder(path, options, requirements)
    if path.suffix.lower() in images.IMAGE_SUFFIXES:
        _refuse_missing_file(path)
        return _from_images([path], None, path.name, options, requirements)
    if path.exists() or "/" in str(source) or str(source).lower().endswith(FILE_SUFFIXES):
        return _from_file(path, options, requirements)
    return _from_catalog(str(source), options, requirements)


# ---- folders and images


def _from_folder(path: Path, options: ReadOptions, requirements: RowRequirements) -> LabeledRows:
    if list_files(path):
        return table_rows(table_source(path, options.form), path.name, options, requirements)
    if npy_files(path):
        return _from_npy(path, options)
    folders = images.class_folders(path)
    files = [(file, folder.name) for folder in folders for file in images.image_files(folder)]
    if files:
        labels = [label for _, label in files]
        return _from_images([file for file, _ in files], labels, path.name, options, requirements)
    unlabeled = images.image_files(path)
    if not unlabeled:
        suffixes = listing(images.IMAGE_SUFFIXES)
        raise InputError(
            f"folder {path} has neither parquet, csv or npy files nor images ({suffixes}); give tables, or images in "
            "one sub-folder per class"
        )
    return _from_images(unlabeled, None, path.name, options, requirements)


def _from_images(
    files: list[Path], labels: list[str] | None, name: str, options: ReadOptions, requirements: RowRequirements
) -> LabeledRows:
    _refuse_column_options(options, name, "images", "group", "order", "weight", "id")
    if options.target is not None:
        raise UsageError(
            f"{name} has images, and the labels of images are the names of their folders; leave out target="
        )
    read = images.read_images(files, labels, requirements.image, options.skip_bad)
    return LabeledRows(
        name,
        read.rows,
        read.labels,
        image=read.form,
        files=read.files,
        notes=read.notes,
        kept_columns={"file": np.asarray(read.files)},
        skipped=read.skipped,
        left_out=(f"{name}: {images.skipped_note(read.skipped)}",) if read.skipped else (),
    )


def _refuse_column_options(options: ReadOptions, name: str, what: str, *more: str) -> None:
    """Raise UsageError for options that name columns (and for those in `more`), because `what` has no named columns."""
    values: dict[str, Any] = {option: getattr(options, option) for option in more}
    values |= {"types": options.types, "drop": options.drop, "keep": options.keep if options.keep != ALL else ()}
    for option, value in values.items():
        if value:
            raise UsageError(f"{name} is {what}, which have no named columns; leave out {option}=")


# ---- files and built-in datasets


def _from_file(path: Path, options: ReadOptions, requirements: RowRequirements) -> LabeledRows:
    _refuse_missing_file(path)
    suffix = suffix_of(path, options.form)
    if suffix == ".npz":
        return _from_arrays(read_npz(path), options)
    if suffix == ".npy":
        return _from_npy(path, options)
    if "svm" in suffix:
        return _from_arrays(read_libsvm(path, requirements.n_features), options)
    return table_rows(table_source(path, options.form), path.name, options, requirements)


def _from_npy(path: Path, options: ReadOptions) -> LabeledRows:
    arrays = map_arrays(npy_files(path), path.name)
    return _from_arrays(Dataset(path.name, arrays.rows(), arrays.y), options)


def _from_catalog(name: str, options: ReadOptions, requirements: RowRequirements) -> LabeledRows:
    file = catalog.table_file(name)
    if file is not None:
        if options.target is None and options.unused_target is None:
            options = replace(options, target=catalog.TARGET)
        return table_rows(table_source(file), name, options, requirements)
    if name not in catalog.names():
        raise InputError(
            f"{name!r} is neither a file, a folder nor a built-in dataset{nearest(name, catalog.names())}; built-in "
            f"datasets are {listing(catalog.names(), 40)}, and files end in {listing(FILE_SUFFIXES, 20)}"
        )
    return _from_arrays(catalog.load(name), options)


def _refuse_missing_file(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise InputError(
            f"{path} is neither a file nor a folder, but perhaps a pipe or a device; give a file, or - for stdin"
        )
    if not path.is_file():
        folder = path.parent
        hint = nearest(path.name, [p.name for p in folder.iterdir()]) if folder.is_dir() else ""
        raise InputError(f"there is no file {path}{hint}; give an existing file or the name of a built-in dataset")


def _from_arrays(data: Dataset, options: ReadOptions) -> LabeledRows:
    _refuse_column_options(options, data.name, "arrays of numbers")
    if options.target not in (None, *_USUAL_LABELS) and not options.target_from_model:
        raise UsageError(f"{data.name} is a file of arrays that contains its labels; leave out target=")
    data = data.named()
    test_ids = None if data.x_test is None else _named_array(data, options.id, "id", "test")
    ids = _named_array(data, options.id, "id", "train", is_required=data.x_test is None)
    return LabeledRows(
        data.name,
        _flat(data.x_train),
        data.y_train,
        None if data.x_test is None else _flat(data.x_test),
        data.y_test,
        groups=_named_array(data, options.group, "group", "train"),
        order=_named_array(data, options.order, "order", "train"),
        weights=_named_array(data, options.weight, "weight", "train"),
        test_weights=None if data.x_test is None else _named_array(data, options.weight, "weight", "test"),
        feature_names=data.feature_names,
        image=_image_form(data.x_train.shape),
        kept_columns=_ids(options, ids),
        test_kept_columns=_ids(options, test_ids),
    )


def _ids(options: ReadOptions, values: NDArray | None) -> dict[str, NDArray]:
    return {} if values is None or options.id is None else {options.id: values}


def _image_form(shape: tuple[int, ...]) -> ImageForm | None:
    """Return the form of images of shape (n, height, width) or (n, height, width, 1 or 3); None for other shapes."""
    if len(shape) == 3:
        return ImageForm(shape[1], shape[2], 1)
    return ImageForm(shape[1], shape[2], shape[3]) if len(shape) == 4 and shape[3] in (1, 3) else None


def _flat(x: Any) -> Any:
    return x.reshape(len(x), -1) if x.ndim > 2 else x


def _named_array(data: Dataset, key: str | None, role: str, part: str, is_required: bool = True) -> NDArray | None:
    """Return the array `key`, or `key_train` or `key_test`, of an npz file, one value per row of that part."""
    if key is None:
        return None
    rows = data.x_train if part == "train" else data.x_test
    values = data.extras.get(f"{key}_{part}", data.extras.get(key))
    if values is None or rows is None or values.shape[:1] != (rows.shape[0],):
        if not is_required:
            return None
        raise UsageError(
            f"{data.name} has no array {key!r} with one value per row for {role}; it has {listing(data.extras)}"
        )
    return np.asarray(values)


# ---- rows in memory


def _from_memory(given: RowsInMemory, options: ReadOptions, requirements: RowRequirements) -> LabeledRows:
    if not is_table(given.rows):
        return _from_matrix(given, options)
    table = as_table(given.rows, given.name)
    y = None if given.y is None else _given_labels(given, table.num_rows, options.multilabel)
    weights = None if given.weights is None else _given_weights(given, table.num_rows)
    return frame_rows(table, given.name, options, requirements, y, weights)


def _from_matrix(given: RowsInMemory, options: ReadOptions) -> LabeledRows:
    columns = (options.target, options.group, options.order, options.weight, options.id, *options.drop, *options.types)
    named = [column for column in columns if column is not None]
    if named:
        raise InputError(f"{given.name} has no column {named[0]!r}: it is a matrix; give a table, or the labels as y")
    try:
        rows = given.rows if hasattr(given.rows, "tocsr") else np.asanyarray(given.rows)  # the estimator checks it
    except ValueError as error:
        raise explained(error, given.rows) from error
    flat = _flat(rows)
    labels = None if given.y is None else _given_labels(given, flat.shape[0], options.multilabel)
    weights = None if given.weights is None else _given_weights(given, flat.shape[0])
    return LabeledRows(given.name, flat, labels, image=_image_form(rows.shape), weights=weights)


def _given_weights(given: RowsInMemory, n: int) -> NDArray[np.float64]:
    """Return the weights in memory as an array (n,); raise InputError if they are not one number per row."""
    try:
        weights = np.asarray(given.weights, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"weight must be numbers, one per row of {given.name} ({error})") from error
    if weights.shape != (n,):
        raise InputError(
            f"weight has shape {weights.shape}; give one number for each of the {n:,} rows of {given.name}"
        )
    return weights


def _given_labels(given: RowsInMemory, n: int, separator: str | None) -> NDArray:
    """Return y, checked as a column of a table is checked.

    With a separator each row has a set of labels, which is returned as text.
    """
    if separator is not None:
        if len(given.y) != n:
            raise InputError(
                f"target has {len(given.y):,} sets of labels for {n:,} rows of {given.name}; give one per row"
            )
        return label_sets(given.y, separator)
    shape = getattr(given.y, "shape", None) or np.shape(np.asarray(given.y, dtype=object))
    if len(shape) != 1:
        raise InputError(f"target has shape {tuple(shape)}; give one label per row, as a list or a 1-D array")
    column = as_table({"y": given.y}).column("y")
    if len(column) != n:
        raise InputError(f"target has {len(column):,} labels for {n:,} rows of {given.name}; give one label per row")
    return column_labels(column, "target", typed=True)
