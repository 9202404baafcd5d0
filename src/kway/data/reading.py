"""DATA of the command line as it came: rows of a table or a matrix, not yet numbers, with labels, groups and order.

    csv, csv.gz, parquet, folder of parquet files    rows: pyarrow Table without the target, group and order columns
    npz, libsvm, known sets of numbers               rows: (n, d) array or CSR
    folder of images, one sub-folder a class         rows: (n, d) bytes, with the form they were brought to

A column (or npz key) `split` that says train, val and test cuts the rows; otherwise there is no test part.
Every verb reads through `read_rows` with the same ReadOptions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.data.datasets import catalog
from kway.data.datasets.array_files import read_libsvm, read_npz
from kway.data.datasets.dataset import Dataset
from kway.data.sources import images
from kway.data.sources.arrow_types import is_text, text_columns, whole
from kway.data.sources.column_names import refuse_repeated, refuse_unknown
from kway.data.sources.frames import n_rows, take_rows
from kway.data.sources.images import ImageForm
from kway.data.sources.label_column import column_labels
from kway.data.sources.requirements import RowRequirements
from kway.data.sources.split_column import split_masks
from kway.data.sources.table_files import FILE_SUFFIXES, parquet_files, read_table, suffix_of
from kway.data.suggest import listing, nearest
from kway.errors import InputError


@dataclass(frozen=True)
class ReadOptions:
    """How DATA is to be read: `target`, `group`, `order` and `drop` name columns; the last are left out.

    `skip_bad` leaves out images that cannot be read.
    """

    target: str | None = None
    group: str | None = None
    order: str | None = None
    drop: tuple[str, ...] = ()
    skip_bad: bool = False

    def without_labels(self) -> ReadOptions:
        """The same for rows to predict: the target, if there is one, is no feature, and may have gaps."""
        return replace(self, target=None, drop=(*self.drop, *([self.target] if self.target else [])))


AS_IT_IS, ANY_ROWS = ReadOptions(), RowRequirements()


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows with labels y (n,), groups and order (n,), each None where there is none; the test part likewise.

    `feature_names` are those of a matrix, where it has any (a table has its own); `image` is the form of pictures and
    `files` their names; `notes` say what was found on the way, in words.
    """

    name: str
    rows: Any
    y: NDArray | None = None
    test_rows: Any = None
    test_y: NDArray | None = None
    groups: NDArray | None = None
    order: NDArray | None = None
    feature_names: tuple[str, ...] = ()
    image: ImageForm | None = None
    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """Rows, the test part left out."""
        return n_rows(self.rows)

    def required_labels(self) -> NDArray:
        """The labels, or an error that says how to name their column."""
        if self.y is None:
            columns = getattr(self.rows, "column_names", None) or self.feature_names
            known = f"; its columns are {listing(columns)}" if columns else ""
            raise InputError(f"{self.name} has no labels; name the column that holds them with --target{known}")
        return np.asarray(self.y)

    def requirements(self) -> RowRequirements:
        """What another file must bring to be used beside this one."""
        text_labels = self.y is not None and self.y.dtype.kind in "UO"
        if not hasattr(self.rows, "column_names"):
            return RowRequirements(None, (), self.image, self.rows.shape[1], text_labels)
        columns = tuple(self.rows.column_names)
        return RowRequirements(columns, text_columns(self.rows), self.image, None, text_labels)


def read_rows(source: Any, how: ReadOptions = AS_IT_IS, like: RowRequirements = ANY_ROWS) -> LabelledRows:
    """A file, a folder or a known set; `like` is what a model (`Features.requirements()`) or other rows ask for.

    Only the columns that it names are then taken, text as text, images in its form. What has `labelled_rows` of its
    own (kway.data.given_rows) is asked for them.
    """
    if hasattr(source, "labelled_rows"):
        return source.labelled_rows(how, like)
    path = Path(source)
    if path.is_dir():
        return _from_folder(path, how, like)
    if path.is_file() or "/" in str(source) or str(source).lower().endswith(FILE_SUFFIXES):
        return _from_file(path, how, like)
    return _from_catalog(str(source), how, like)


# ---- folders


def _from_folder(path: Path, how: ReadOptions, like: RowRequirements) -> LabelledRows:
    if parquet_files(path):
        return _from_table(read_table(path), path.name, how, like, typed=True)
    if how.group or how.order:
        raise InputError(f"{path} is a folder of images, which has no columns; leave out --group and --order")
    labelled = bool(images.class_folders(path))
    if not labelled and not images.loose_images(path):
        known = listing(images.IMAGE_SUFFIXES)
        raise InputError(f"folder {path} has neither parquet files nor images ({known}) in sub-folders, one a class")
    found = (images.read_images if labelled else images.read_loose_images)(path, like.image, how.skip_bad)
    y = found.labels if labelled else None
    return LabelledRows(path.name, found.rows, y, image=found.form, files=found.files, notes=found.notes)


# ---- files and known sets


def _from_file(path: Path, how: ReadOptions, like: RowRequirements) -> LabelledRows:
    if not path.is_file():
        raise InputError(f"no file {path}{_near_files(path)}; give an existing file or the name of a known set")
    suffix = suffix_of(path)
    if suffix == ".npz":
        return _from_arrays(read_npz(path), how)
    if "svm" in suffix:
        return _from_arrays(read_libsvm(path, like.n_features), how)
    table = read_table(path, [*like.words, *([how.target] if how.target else [])])
    return _from_table(table, path.name, how, like, typed=suffix == ".parquet" or like.text_labels)


def _from_catalog(name: str, how: ReadOptions, like: RowRequirements) -> LabelledRows:
    file = catalog.table_file(name)
    if file is not None:
        target = how.target or catalog.TARGET
        table = read_table(file, [*like.words, target])
        if how.target or target in table.column_names:
            how = replace(how, target=target)
        return _from_table(table, name, how, like, like.text_labels)
    if name not in catalog.names():
        raise InputError(
            f"{name!r} is neither a file, a folder nor a known set{nearest(name, catalog.names())}; known sets are "
            f"{listing(catalog.names(), 40)}, and files end in {listing(FILE_SUFFIXES)}"
        )
    return _from_arrays(catalog.load(name), how)


def _near_files(path: Path) -> str:
    folder = path.parent
    return nearest(path.name, [p.name for p in folder.iterdir()]) if folder.is_dir() else ""


def _from_arrays(data: Dataset, how: ReadOptions) -> LabelledRows:
    data = data.named()
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
    )


def picture_form(shape: tuple[int, ...]) -> ImageForm | None:
    """The form of images given as (n, height, width) or (n, height, width, 1 or 3)."""
    if len(shape) == 3:
        return ImageForm(shape[1], shape[2], 1)
    return ImageForm(shape[1], shape[2], shape[3]) if len(shape) == 4 and shape[3] in (1, 3) else None


def _flat(x: Any) -> Any:
    return x.reshape(len(x), -1) if x.ndim > 2 else x


def _extra(data: Dataset, key: str | None, what: str) -> NDArray | None:
    """The array of an npz file that holds groups or order."""
    if key is None:
        return None
    values = data.extras.get(f"{key}_train", data.extras.get(key))
    if values is None or len(values) != data.x_train.shape[0]:
        raise InputError(f"{data.name} has no {what} {key!r} of one value a row; it has {listing(data.extras)}")
    return np.asarray(values)


# ---- tables


def _from_table(table: Any, name: str, how: ReadOptions, like: RowRequirements, typed: bool) -> LabelledRows:
    """Rows of a pyarrow table; `typed`: what looks like a number in the target is text if the file says so."""
    columns = [str(c) for c in table.column_names]
    refuse_repeated(columns, name)
    for what, column in (("target", how.target), ("group", how.group), ("order", how.order)):
        if column is not None:
            refuse_unknown(column, columns, name, what)
    if table.num_rows == 0:
        raise InputError(f"{name} has a header but no rows; give rows to learn from or to predict")
    target, group, order = (None if c is None else table.column(c) for c in (how.target, how.group, how.order))
    y = None if target is None else column_labels(target, f"target {how.target!r} of {name}", typed)
    rows = table.select(_feature_columns(columns, how, like, name))
    groups = None if group is None else _sortable(group, f"group {how.group!r} of {name}")
    line = None if order is None else _sortable(order, f"order {how.order!r} of {name}")
    return _cut_by_split(LabelledRows(name, rows, y, groups=groups, order=line))


def _feature_columns(columns: list[str], how: ReadOptions, like: RowRequirements, name: str) -> list[str]:
    """Those asked for, or every column but those that are something else."""
    if like.columns is not None:
        for column in like.columns:
            refuse_unknown(column, columns, name, "feature")
        return list(like.columns)
    for column in how.drop:
        refuse_unknown(column, columns, name, "such")
    taken = {how.target, how.group, how.order, *how.drop}
    features = [c for c in columns if c not in taken]
    if not features:
        raise InputError(f"{name} has no column besides {listing(columns)}; there is nothing to learn from")
    return features


def _sortable(column: Any, what: str) -> NDArray:
    """Values (n,) that can be sorted and compared."""
    column = whole(column)
    if column.null_count:
        raise InputError(f"{what} is empty in {column.null_count:,} of {len(column):,} rows; fill or drop these rows")
    values = column.to_numpy(zero_copy_only=False)
    return np.asarray(values.tolist()) if values.dtype == object else np.asarray(values)


def _cut_by_split(found: LabelledRows) -> LabelledRows:
    """Train and test part by a column `split`, where it says nothing but train, val and test."""
    if found.y is None or "split" not in found.rows.column_names:
        return found
    words = whole(found.rows.column("split"))
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
