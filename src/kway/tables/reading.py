"""Read files, folders, named sets and rows in memory as LabeledRows.

    csv, tsv, JSON lines (.gz), parquet, a folder    rows: pyarrow Table without the target, group, order and id
    of parquet or csv files, stdin ("-"), a frame    columns; numbers and dates may be written as people write them
    npz, npy, a folder of npy, libsvm, named sets,   rows: (n, d) array or CSR
    a matrix
    an image, a folder of images (one sub-folder     rows: (n, d) bytes, all resized to one form
    per class)

A column (or npz key) `split` with the values train, val and test divides the rows. Otherwise there is no test part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.errors import InputError, UsageError
from kway.suggest import listing, nearest
from kway.tables.datasets import catalog
from kway.tables.datasets.arrays import Dataset, map_arrays, npy_files, read_libsvm, read_npz
from kway.tables.labeled_rows import LabeledRows, RowRequirements
from kway.tables.read_options import ALL, ReadOptions, TextForm
from kway.tables.sources import images
from kway.tables.sources.csv_files import LoadedTable, TableRequest, first_words
from kway.tables.sources.frames import (
    as_table,
    is_table,
    is_text,
    plain_numbers,
    refuse_repeated,
    refuse_unknown,
    whole_column,
)
from kway.tables.sources.images import ImageForm
from kway.tables.sources.labels import SKIP_ROWS, column_labels, label_sets, rows_with_labels, split_masks
from kway.tables.sources.table_files import (
    FILE_SUFFIXES,
    STDIN,
    TableSource,
    list_files,
    open_table,
    refuse_lacking,
    suffix_of,
    table_source,
)
from kway.tables.sources.values import convert
from kway.validation import explained

DEFAULT_OPTIONS, NO_REQUIREMENTS = ReadOptions(), RowRequirements()

_USUAL_LABELS = ("y", "label", "target")  # values of target= that are accepted for files of arrays


@dataclass(frozen=True, eq=False)
class RowsInMemory:
    """A table or matrix (n, d), labels y (n,) if they are not a column of it, and its name in messages."""

    rows: Any
    y: Any = None
    name: str = "the table"

    def __str__(self) -> str:
        return self.name


def read_rows(source: Any, how: ReadOptions = DEFAULT_OPTIONS, like: RowRequirements = NO_REQUIREMENTS) -> LabeledRows:
    """Read a path, the name of a set, or RowsInMemory.

    `like` has the requirements of a model (`Features.requirements()`) or of other rows: only the columns that it names
    are read, with the same kinds, and images are resized to its form.
    """
    if isinstance(source, RowsInMemory):
        return _from_frame(source, how, like) if is_table(source.rows) else _from_matrix(source, how)
    path = Path(source)
    if str(source) == STDIN:
        return table_rows(table_source(path), "stdin", how, like)
    if path.is_dir():
        return _from_folder(path, how, like)
    if path.suffix.lower() in images.IMAGE_SUFFIXES:
        _refuse_no_file(path)
        return _from_images([path], None, path.name, how, like)
    if path.exists() or "/" in str(source) or str(source).lower().endswith(FILE_SUFFIXES):
        return _from_file(path, how, like)
    return _from_catalog(str(source), how, like)


# ---- folders and images


def _from_folder(path: Path, how: ReadOptions, like: RowRequirements) -> LabeledRows:
    if list_files(path):
        return table_rows(table_source(path, how.form), path.name, how, like)
    if npy_files(path):
        return _from_npy(path, how)
    folders = images.class_folders(path)
    files = [(file, sub.name) for sub in folders for file in images.image_files(sub)]
    if files:
        return _from_images([f for f, _ in files], [label for _, label in files], path.name, how, like)
    loose = images.image_files(path)
    if not loose:
        known = listing(images.IMAGE_SUFFIXES)
        raise InputError(
            f"folder {path} has neither parquet, csv or npy files nor images ({known}); give tables, or images in one "
            "sub-folder per class"
        )
    return _from_images(loose, None, path.name, how, like)


def _from_images(
    files: list[Path], labels: list[str] | None, name: str, how: ReadOptions, like: RowRequirements
) -> LabeledRows:
    _refuse_column_options(how, name, "images", "group", "order", "id")
    if how.target is not None:
        raise UsageError(
            f"{name} has images, and the labels of images are the names of their folders; leave out target="
        )
    found = images.read_images(files, labels, like.image, how.skip_bad)
    return LabeledRows(
        name, found.rows, found.labels, image=found.form, files=found.files, notes=found.notes,
        kept_columns={"file": np.asarray(found.files)}, skipped=found.skipped,
        left_out=tuple(f"{name}: {note}" for note in found.left_out),
    )  # fmt: skip


def _refuse_column_options(how: ReadOptions, name: str, what: str, *more: str) -> None:
    """Raise UsageError for options that name columns, because the data has no named columns."""
    used: dict[str, Any] = {option: getattr(how, option) for option in more}
    used |= {"types": how.types, "drop": how.drop, "keep": how.keep if how.keep != ALL else ()}
    for option, value in used.items():
        if value:
            raise UsageError(f"{name} is {what}, which have no named columns; leave out {option}=")


# ---- files and named sets


def _from_file(path: Path, how: ReadOptions, like: RowRequirements) -> LabeledRows:
    _refuse_no_file(path)
    suffix = suffix_of(path, how.form)
    if suffix == ".npz":
        return _from_arrays(read_npz(path), how)
    if suffix == ".npy":
        return _from_npy(path, how)
    if "svm" in suffix:
        return _from_arrays(read_libsvm(path, like.n_features), how)
    return table_rows(table_source(path, how.form), path.name, how, like)


def _from_npy(path: Path, how: ReadOptions) -> LabeledRows:
    found = map_arrays(npy_files(path), path.name)
    return _from_arrays(Dataset(path.name, found.rows(), found.y), how)


def _from_catalog(name: str, how: ReadOptions, like: RowRequirements) -> LabeledRows:
    file = catalog.table_file(name)
    if file is not None:
        return table_rows(table_source(file), name, how, like, catalog.TARGET)
    if name not in catalog.names():
        raise InputError(
            f"{name!r} is neither a file, a folder nor a known set{nearest(name, catalog.names())}; known sets are "
            f"{listing(catalog.names(), 40)}, and files end in {listing(FILE_SUFFIXES, 20)}"
        )
    return _from_arrays(catalog.load(name), how)


def _refuse_no_file(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise InputError(
            f"{path} is neither a file nor a folder, but perhaps a pipe or a device; give a file, or - for stdin"
        )
    if not path.is_file():
        folder = path.parent
        near = nearest(path.name, [p.name for p in folder.iterdir()]) if folder.is_dir() else ""
        raise InputError(f"there is no file {path}{near}; give an existing file or the name of a known set")


def _from_arrays(data: Dataset, how: ReadOptions) -> LabeledRows:
    _refuse_column_options(how, data.name, "arrays of numbers")
    if how.target not in (None, *_USUAL_LABELS) and not how.target_from_model:
        raise UsageError(f"{data.name} is a file of arrays that contains its labels; leave out target=")
    data = data.named()
    ids = _extra(data, how.id, "id", data.x_train if data.x_test is None else data.x_test)
    return LabeledRows(
        data.name,
        _flat(data.x_train),
        data.y_train,
        None if data.x_test is None else _flat(data.x_test),
        data.y_test,
        groups=_extra(data, how.group, "group", data.x_train),
        order=_extra(data, how.order, "order", data.x_train),
        feature_names=data.feature_names,
        image=_image_form(data.x_train.shape),
        kept_columns={} if ids is None or how.id is None else {how.id: ids},
    )


def _image_form(shape: tuple[int, ...]) -> ImageForm | None:
    """Return the form of images of shape (n, height, width) or (n, height, width, 1 or 3); None for other shapes."""
    if len(shape) == 3:
        return ImageForm(shape[1], shape[2], 1)
    return ImageForm(shape[1], shape[2], shape[3]) if len(shape) == 4 and shape[3] in (1, 3) else None


def _flat(x: Any) -> Any:
    return x.reshape(len(x), -1) if x.ndim > 2 else x


def _extra(data: Dataset, key: str | None, what: str, rows: Any) -> NDArray | None:
    """Return the array of an npz file with the groups, order or ids of the training or test rows."""
    if key is None:
        return None
    part = "train" if rows is data.x_train else "test"
    values = data.extras.get(f"{key}_{part}", data.extras.get(key))
    if values is None or values.shape[:1] != (rows.shape[0],):
        raise UsageError(
            f"{data.name} has no array {key!r} with one value per row for {what}; it has {listing(data.extras)}"
        )
    return np.asarray(values)


# ---- rows in memory


def _from_frame(given: RowsInMemory, how: ReadOptions, like: RowRequirements) -> LabeledRows:
    table, name = as_table(given.rows, given.name), given.name
    refuse_columns(list(table.column_names), how if like.columns is None else replace(how, drop=(), types={}), name)
    if table.num_rows == 0:
        raise InputError(f"{name} has no rows; give at least one row")
    labels, notes = _given_labels(given, table.num_rows, how.multilabel), tuple[str, ...]()
    if how.target is not None and how.skip_bad and how.multilabel is None:
        table, _, notes = rows_with_labels(table, how.target)
    found = _take_columns(table, name, how, like, typed=True)
    found = replace(found, y=labels if how.target is None else found.y, left_out=(*notes, *found.left_out))
    return _cut_by_split(found)


def _from_matrix(given: RowsInMemory, how: ReadOptions) -> LabeledRows:
    named = [name for name in (how.target, how.group, how.order, how.id, *how.drop, *how.types) if name is not None]
    if named:
        raise InputError(f"{given.name} has no column {named[0]!r}: it is a matrix; give a table, or the labels as y")
    try:
        rows = given.rows if hasattr(given.rows, "tocsr") else np.asanyarray(given.rows)  # checked later
    except ValueError as error:
        raise explained(error, given.rows) from error
    flat = _flat(rows)
    return LabeledRows(
        given.name, flat, _given_labels(given, flat.shape[0], how.multilabel), image=_image_form(rows.shape)
    )


def _given_labels(given: RowsInMemory, n: int, multilabel: str | None = None) -> NDArray | None:
    """Return y, checked as a column of a table is checked; sets of labels as text with the separator `multilabel`."""
    if given.y is None:
        return None
    if multilabel is not None:
        return _given_sets(given, n, multilabel)
    shape = getattr(given.y, "shape", None) or np.shape(np.asarray(given.y, dtype=object))
    if len(shape) != 1:
        raise InputError(f"target has shape {tuple(shape)}; give one label per row, as a list or a 1-D array")
    column = as_table({"y": given.y}).column("y")
    if len(column) != n:
        raise InputError(f"target has {len(column):,} labels for {n:,} rows of {given.name}; give one label per row")
    return column_labels(column, "target", typed=True)


def _given_sets(given: RowsInMemory, n: int, sep: str) -> NDArray:
    """Return one set of labels per row, from texts or from lists of labels."""
    if len(given.y) != n:
        raise InputError(f"target has {len(given.y):,} sets of labels for {n:,} rows of {given.name}; give one per row")
    return label_sets(given.y, sep)


# ---- tables


def table_rows(
    source: TableSource, name: str, how: ReadOptions, like: RowRequirements, usual_target: str | None = None
) -> LabeledRows:
    """Read the rows of a table; `usual_target` is the target if the table has it and no other was named."""
    loaded = _load(source, how, like, usual_target)
    columns = [str(c) for c in loaded.table.column_names]
    refuse_repeated(columns, name)
    if how.target is None and usual_target in columns and how.unused_target is None:
        how = replace(how, target=usual_target)
    refuse_columns(columns, how, name)
    if loaded.table.num_rows == 0:
        raise InputError(f"{name} has a header but no rows; give at least one row")
    kept_columns = _kept_columns(source, columns, how, like, loaded.form)
    table, left_out = loaded.table, loaded.left_out
    if how.target is not None and how.skip_bad and how.multilabel is None:
        table, there, unlabeled = rows_with_labels(table, how.target)
        kept_columns = {c: column.filter(there) for c, column in kept_columns.items()}
        left_out += unlabeled
    mark = loaded.form.decimal or like.form.decimal or "."
    found = _take_columns(table, name, how, like, source.typed, mark, loaded.lacking)
    found = replace(
        found,
        form=loaded.form,
        notes=tuple(f"{name}: {note}" for note in loaded.notes),
        left_out=tuple(f"{name}: {note}" for note in (*left_out, *found.left_out)),
        kept_columns=kept_columns,
        words=_first_words(source, loaded.form, columns) if like.columns is None else {},
    )
    return _cut_by_split(found)


def _load(source: TableSource, how: ReadOptions, like: RowRequirements, usual_target: str | None) -> LoadedTable:
    """Read the table; codes such as 0052 stay text unless the form is known from earlier rows."""
    form = how.form
    known = like.columns is not None or None not in (form.sep, form.encoding, form.decimal, form.header)
    typed = [c for c, kind in how.types.items() if kind not in ("drop", "true/false", "vector")]
    named = [c for c in (how.target, how.unused_target, how.id, usual_target) if c is not None]
    words = list(dict.fromkeys([*like.words, *like.before.written, *typed, *named]))
    in_header = [c for c in (how.target, how.unused_target, how.group, how.order, how.id) if c is not None]
    in_header = [*(like.columns or ()), *in_header, *how.drop, *how.types]
    return open_table(
        source, TableRequest(words, form, like.form, in_header, skip_bad=how.skip_bad, find_codes=not known)
    )


def _first_words(source: TableSource, form: TextForm, columns: list[str]) -> dict[str, str]:
    """Return a word of each column as it is written; {} if the format has types or the file is compressed."""
    content = source.content[0] if isinstance(source.content, tuple) else source.content
    packed = isinstance(content, Path) and content.name.lower().endswith(".gz")
    return {} if source.typed or packed else first_words(content, form, columns)


def _take_columns(
    table: Any, name: str, how: ReadOptions, like: RowRequirements, typed: bool, mark: str | None = None,
    lacking: Mapping[str, str] = MappingProxyType({}),
) -> LabeledRows:  # fmt: skip
    """Separate features, labels, groups and order. Without `mark` (a frame), the columns decide the decimal mark."""
    y = None
    if how.target is not None:
        what, column = f"target {how.target!r} of {name}", table.column(how.target)
        if how.multilabel is not None:
            y = label_sets(column.to_pylist(), how.multilabel)
        else:
            y = column_labels(column, what, typed or like.text_labels, SKIP_ROWS, written=not typed)
    features = _feature_columns(list(table.column_names), how, like, name)
    extra = [c for c in (how.group, how.order) if c is not None]
    refuse_lacking([*features, *extra, *([] if how.target is None else [how.target])], lacking)
    leave = [w for w in like.words if w not in like.before.written]
    wanted = table.select(list(dict.fromkeys([*features, *extra])))
    mark = mark or how.decimal
    wanted, written, strays = convert(wanted, mark, like.before, how.types, leave, how.skip_bad, f"{name}: ")
    groups, order = (
        None if c is None else _sortable(wanted.column(c), f"{what} {c!r} of {name}")
        for what, c in (("group", how.group), ("order", how.order))
    )
    rows = wanted.select(features)
    return LabeledRows(name, rows, y, groups=groups, order=order, written=written, left_out=strays)


def refuse_columns(columns: list[str], how: ReadOptions, name: str) -> None:
    """Raise UsageError if a column named by an option does not exist."""
    for what in ("target", "group", "order", "id"):
        column = getattr(how, what)
        if column is not None:
            named = not (how.target_from_model and what == "target")
            refuse_unknown(column, columns, name, what, UsageError if named else InputError)
    for column in (*how.drop, *how.types, *(() if how.keep == ALL else how.keep)):
        refuse_unknown(column, columns, name, "such")


def _kept_columns(
    source: TableSource, columns: list[str], how: ReadOptions, like: RowRequirements, form: TextForm
) -> dict[str, Any]:
    """Return the id and the kept columns as text, or as numbers if `how.numbers` is set."""
    name = how.id or (like.id if like.id in columns else None)
    only = ([name] if name else []) + [c for c in (columns if how.keep == ALL else how.keep) if c != name]
    if not only:
        return {}
    table = open_table(source, TableRequest(only, form, only=only, skip_bad=how.skip_bad)).table
    kept = {c: table.column(c) for c in only}
    return {c: plain_numbers(column) for c, column in kept.items()} if how.numbers and not source.typed else kept


def _feature_columns(columns: list[str], how: ReadOptions, like: RowRequirements, name: str) -> list[str]:
    """Return the columns that `like` names, or all columns without another role."""
    if like.columns is not None:
        for column in like.columns:
            refuse_unknown(column, columns, name, "feature", InputError)
        return list(like.columns)
    if how.unused_target is not None:
        refuse_unknown(how.unused_target, columns, name, "such")
    taken = {how.target, how.group, how.order, how.id, how.unused_target, *how.drop}
    features = [c for c in columns if c not in taken]
    if not features:
        raise InputError(f"{name} has no column besides {listing(columns)}; add columns to learn from")
    return features


def _sortable(column: Any, what: str) -> NDArray:
    """Return the values (n,) of a column as an array; raise InputError if some are missing."""
    column = whole_column(column)
    if column.null_count:
        raise InputError(f"{what} is empty in {column.null_count:,} of {len(column):,} rows; fill or drop these rows")
    values = column.to_numpy(zero_copy_only=False)
    return np.asarray(values.tolist()) if values.dtype == object else np.asarray(values)


def _cut_by_split(found: LabeledRows) -> LabeledRows:
    """Divide the rows by a column `split` if all its values are train, val or test."""
    if found.y is None or "split" not in found.rows.column_names:
        return found
    words = whole_column(found.rows.column("split"))
    if not is_text(words.type) or words.null_count:
        return found
    try:
        train, test = split_masks(np.asarray(words.to_pylist()), found.name)
    except InputError:  # another column of that name
        return found
    if not train.any() or not test.any():
        return found
    note = f"column split divides the rows: {int(train.sum()):,} for training, {int(test.sum()):,} for testing"
    whole = replace(found, rows=found.rows.drop_columns(["split"]), notes=(*found.notes, note))
    tested = whole.at(test)
    return replace(whole.at(train), test_rows=tested.rows, test_y=tested.y)
