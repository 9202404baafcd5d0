"""DATA of the command line as it came: rows of a table or a matrix, not yet numbers, with labels, groups and order.

    csv, tsv, JSON lines (.gz), parquet, a folder    rows: pyarrow Table without the target, group, order and id
    of parquet or csv files, stdin ("-")             columns; numbers and dates read as people write them
    npz, npy, a folder of npy, libsvm, known sets    rows: (n, d) array or CSR
    an image, a folder of them (a class a folder)    rows: (n, d) bytes, with the form they were brought to

A column (or npz key) `split` that says train, val and test cuts the rows; otherwise there is no test part.
Every verb reads through `read_rows` with the same ReadOptions.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.data.datasets import catalog
from kway.data.datasets.array_files import read_libsvm, read_npz
from kway.data.datasets.dataset import Dataset
from kway.data.labelled_rows import ALL, LabelledRows, ReadOptions
from kway.data.sources import images
from kway.data.sources.arrow_types import is_text, plain_numbers, whole_column
from kway.data.sources.code_columns import code_columns
from kway.data.sources.column_names import refuse_repeated, refuse_unknown
from kway.data.sources.delimited import OpenedTable
from kway.data.sources.file_columns import refuse_lacking
from kway.data.sources.frames import take_rows
from kway.data.sources.head_rows import first_words
from kway.data.sources.images import ImageForm
from kway.data.sources.label_column import LEAVE_THEM, column_labels, rows_with_labels, unlabelled_note
from kway.data.sources.npy_files import map_arrays, npy_files
from kway.data.sources.requirements import RowRequirements
from kway.data.sources.split_column import split_masks
from kway.data.sources.table_files import (
    FILE_SUFFIXES,
    STDIN,
    TableSource,
    csv_files,
    open_table,
    parquet_files,
    suffix_of,
    table_source,
)
from kway.data.sources.text_form import TextForm
from kway.data.sources.written_values import convert
from kway.data.suggest import listing, nearest
from kway.errors import InputError, UsageError

__all__ = ["ANY_ROWS", "AS_IT_IS", "LabelledRows", "ReadOptions", "read_rows"]

AS_IT_IS, ANY_ROWS = ReadOptions(), RowRequirements()

_USUAL_LABELS = ("y", "label", "target")  # what the labels that come with rows of numbers may be called


def read_rows(source: Any, how: ReadOptions = AS_IT_IS, like: RowRequirements = ANY_ROWS) -> LabelledRows:
    """A file, a folder or a known set; `like` is what a model (`Features.requirements()`) or other rows ask for.

    Only the columns that it names are then taken, text as text, images in its form. What has `labelled_rows` of its
    own (kway.data.given_rows) is asked for them.
    """
    if hasattr(source, "labelled_rows"):
        return source.labelled_rows(how, like)
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


# ---- folders


def _from_folder(path: Path, how: ReadOptions, like: RowRequirements) -> LabelledRows:
    if parquet_files(path) or csv_files(path):
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
            f"folder {path} has neither parquet, csv or npy files nor images ({known}) in sub-folders, one a class"
        )
    return _from_images(loose, None, path.name, how, like)


def _from_images(
    files: list[Path], labels: list[str] | None, name: str, how: ReadOptions, like: RowRequirements
) -> LabelledRows:
    _refuse_column_options(how, name, "images", "--group", "--order", "--id")
    if how.target is not None:
        raise UsageError(f"{name} is images, whose labels are the names of their folders; leave out --target")
    found = images.read_images(files, labels, like.image, how.skip_bad)
    beside = {"file": np.asarray(found.files)}
    return LabelledRows(
        name, found.rows, found.labels, image=found.form, files=found.files, notes=found.notes, beside=beside,
        skipped=found.skipped,
    )  # fmt: skip


def _refuse_column_options(how: ReadOptions, name: str, what: str, *more: str) -> None:
    """Options that name columns, where there are none."""
    given = {"--group": how.group, "--order": how.order, "--id": how.id}
    used: dict[str, Any] = {o: v for o, v in given.items() if o in more}
    used |= {"--types": how.types, "--drop": how.drop, "--keep": how.keep if how.keep != ALL else ()}
    for option, value in used.items():
        if value:
            raise UsageError(f"{name} is {what}, which have no columns by name; leave out {option}")


# ---- files and known sets


def _from_file(path: Path, how: ReadOptions, like: RowRequirements) -> LabelledRows:
    _refuse_no_file(path)
    suffix = suffix_of(path, how.form)
    if suffix == ".npz":
        return _from_arrays(read_npz(path), how)
    if suffix == ".npy":
        return _from_npy(path, how)
    if "svm" in suffix:
        return _from_arrays(read_libsvm(path, like.n_features), how)
    return table_rows(table_source(path, how.form), path.name, how, like)


def _from_npy(path: Path, how: ReadOptions) -> LabelledRows:
    found = map_arrays(npy_files(path), path.name)
    return _from_arrays(Dataset(path.name, found.rows(), found.y), how)


def _from_catalog(name: str, how: ReadOptions, like: RowRequirements) -> LabelledRows:
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
        raise InputError(f"{path} is neither a file nor a folder (a pipe or a device?); give a file, or - for stdin")
    if not path.is_file():
        raise InputError(f"no file {path}{_near_files(path)}; give an existing file or the name of a known set")


def _near_files(path: Path) -> str:
    folder = path.parent
    return nearest(path.name, [p.name for p in folder.iterdir()]) if folder.is_dir() else ""


def _from_arrays(data: Dataset, how: ReadOptions) -> LabelledRows:
    _refuse_column_options(how, data.name, "rows of numbers")
    if how.target not in (None, *_USUAL_LABELS) and not how.usual:
        raise UsageError(f"{data.name} is rows of numbers that come with their labels; leave out --target")
    data = data.named()
    ids = _extra(data, how.id, "id", data.x_train if data.x_test is None else data.x_test)
    return LabelledRows(
        data.name,
        _flat(data.x_train),
        data.y_train,
        None if data.x_test is None else _flat(data.x_test),
        data.y_test,
        groups=_extra(data, how.group, "group"),
        order=_extra(data, how.order, "order"),
        feature_names=data.feature_names,
        image=picture_form(data.x_train.shape),
        beside={} if ids is None or how.id is None else {how.id: ids},
    )


def picture_form(shape: tuple[int, ...]) -> ImageForm | None:
    """The form of images given as (n, height, width) or (n, height, width, 1 or 3)."""
    if len(shape) == 3:
        return ImageForm(shape[1], shape[2], 1)
    return ImageForm(shape[1], shape[2], shape[3]) if len(shape) == 4 and shape[3] in (1, 3) else None


def _flat(x: Any) -> Any:
    return x.reshape(len(x), -1) if x.ndim > 2 else x


def _extra(data: Dataset, key: str | None, what: str, of: Any = None) -> NDArray | None:
    """The array of an npz file that holds groups, order or ids, of the training rows or of the rows `of`."""
    if key is None:
        return None
    rows = data.x_train if of is None else of
    part = "train" if rows is data.x_train else "test"
    values = data.extras.get(f"{key}_{part}", data.extras.get(key))
    if values is None or values.shape[:1] != (rows.shape[0],):
        raise UsageError(f"{data.name} has no {what} {key!r} of one value a row; it has {listing(data.extras)}")
    return np.asarray(values)


# ---- tables


def table_rows(
    source: TableSource, name: str, how: ReadOptions, like: RowRequirements, usual_target: str | None = None
) -> LabelledRows:
    """Rows of a table; what looks like a number in the target is text if the file, or training, says so."""
    table, form, notes, lacking = _opened(source, how, like, usual_target)
    columns = [str(c) for c in table.column_names]
    refuse_repeated(columns, name)
    if how.target is None and usual_target in columns and how.answer is None:
        how = replace(how, target=usual_target)
    refuse_columns(columns, how, name)
    if table.num_rows == 0:
        raise InputError(f"{name} has a header but no rows; give rows to learn from or to predict")
    beside = _beside(source, columns, how, like, form)
    if how.target is not None and how.skip_bad:
        table, kept, left_out = rows_with_labels(table, how.target)
        beside = {c: column.filter(kept) for c, column in beside.items()}
        notes = (*notes, *([unlabelled_note(left_out)] if left_out else []))
    y = None
    if how.target is not None:
        what, typed = f"target {how.target!r} of {name}", source.typed or like.text_labels
        y = column_labels(table.column(how.target), what, typed, LEAVE_THEM, written=not source.typed)
    features = _feature_columns(columns, how, like, name)
    extra = [c for c in (how.group, how.order) if c is not None]
    refuse_lacking([*features, *extra, *([] if how.target is None else [how.target])], lacking)
    leave = tuple(w for w in like.words if w not in like.written)
    wanted = table.select(list(dict.fromkeys([*features, *extra])))
    wanted, written = convert(wanted, form.decimal or like.form.decimal or ".", like.written, how.types, leave)
    groups = None if how.group is None else _sortable(wanted.column(how.group), f"group {how.group!r} of {name}")
    line = None if how.order is None else _sortable(wanted.column(how.order), f"order {how.order!r} of {name}")
    found = LabelledRows(
        name, wanted.select(features), y, groups=groups, order=line, form=form, written=written,
        notes=tuple(f"{name}: {note}" for note in notes), beside=beside,
        words={} if source.typed or like.columns is not None else first_words(source, form, columns),
    )  # fmt: skip
    return _cut_by_split(found)


def _opened(source: TableSource, how: ReadOptions, like: RowRequirements, usual_target: str | None) -> OpenedTable:
    """The table; of one that nothing is known of, codes such as 0052 are kept as they are written."""
    words = _as_written(how, like, usual_target)
    found = open_table(source, words, how.form, like.form, _named(how, like), skip_bad=how.skip_bad)
    known = like.columns is not None or None not in (how.form.sep, how.form.encoding, how.form.decimal, how.form.header)
    if source.typed or known:  # a later piece of a file is read as the first was
        return found
    codes = code_columns(source, found.table, found.form, how.skip_bad)
    if not codes:
        return found
    again = open_table(source, [*words, *codes], found.form, skip_bad=how.skip_bad)
    return found._replace(table=again.table)


def refuse_columns(columns: list[str], how: ReadOptions, name: str) -> None:
    """Columns that were named and are not there."""
    for what, column in (("target", how.target), ("group", how.group), ("order", how.order), ("id", how.id)):
        if column is not None:
            named = not (how.usual and what == "target")
            refuse_unknown(column, columns, name, what, UsageError if named else InputError)
    for column in (*how.drop, *how.types, *(() if how.keep == ALL else how.keep)):
        refuse_unknown(column, columns, name, "such")


def _as_written(how: ReadOptions, like: RowRequirements, usual_target: str | None) -> list[str]:
    """Columns of a csv that are kept as words at first."""
    asked = [c for c, kind in how.types.items() if kind not in ("drop", "true/false", "vector")]
    named = [c for c in (how.target, how.answer, how.id, usual_target) if c is not None]
    return list(dict.fromkeys([*like.words, *like.written, *asked, *named]))


def _named(how: ReadOptions, like: RowRequirements) -> list[str]:
    """Names that a header, if there is one, holds."""
    asked = (how.target, how.answer, how.group, how.order, how.id)
    return [*(like.columns or ()), *(c for c in asked if c is not None), *how.drop, *how.types]


def _beside(
    source: TableSource, columns: list[str], how: ReadOptions, like: RowRequirements, form: TextForm
) -> dict[str, Any]:
    """The id and the columns to keep, as they are written; plain numbers as such, where these are asked for."""
    name = how.id or (like.id if like.id in columns else None)
    only = ([name] if name else []) + [c for c in (columns if how.keep == ALL else how.keep) if c != name]
    if not only:
        return {}
    table = open_table(source, only, form, only=only, skip_bad=how.skip_bad).table
    kept = {c: table.column(c) for c in only}
    return {c: plain_numbers(column) for c, column in kept.items()} if how.numbers and not source.typed else kept


def _feature_columns(columns: list[str], how: ReadOptions, like: RowRequirements, name: str) -> list[str]:
    """Those asked for, or every column but those that are something else."""
    if like.columns is not None:
        for column in like.columns:
            refuse_unknown(column, columns, name, "feature", InputError)
        return list(like.columns)
    if how.answer is not None:
        refuse_unknown(how.answer, columns, name, "such")
    taken = {how.target, how.group, how.order, how.id, how.answer, *how.drop}
    features = [c for c in columns if c not in taken]
    if not features:
        raise InputError(f"{name} has no column besides {listing(columns)}; there is nothing to learn from")
    return features


def _sortable(column: Any, what: str) -> NDArray:
    """Values (n,) that can be sorted and compared."""
    column = whole_column(column)
    if column.null_count:
        raise InputError(f"{what} is empty in {column.null_count:,} of {len(column):,} rows; fill or drop these rows")
    values = column.to_numpy(zero_copy_only=False)
    return np.asarray(values.tolist()) if values.dtype == object else np.asarray(values)


def _cut_by_split(found: LabelledRows) -> LabelledRows:
    """Train and test part by a column `split`, where it says nothing but train, val and test."""
    if found.y is None or "split" not in found.rows.column_names:
        return found
    words = whole_column(found.rows.column("split"))
    if not is_text(words.type) or words.null_count:
        return found
    try:
        train, test = split_masks(np.asarray(words.to_pylist()), found.name)
    except InputError:  # some other column of that name
        return found
    if not train.any() or not test.any():
        return found
    rows = found.rows.drop_columns(["split"])
    note = f"column split cuts the rows: {int(train.sum()):,} to learn from, {int(test.sum()):,} to test"
    return replace(
        found,
        rows=take_rows(rows, train),
        y=found.y[train],
        test_rows=take_rows(rows, test),
        test_y=found.y[test],
        groups=None if found.groups is None else found.groups[train],
        order=None if found.order is None else found.order[train],
        notes=(*found.notes, note),
    )
