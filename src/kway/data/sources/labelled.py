"""DATA as it came: rows of a table or a matrix, not yet numbers, with labels, groups and order.

    csv, csv.gz, parquet, folder of parquet files    rows: pyarrow Table without the target, group and order columns
    npz, libsvm, known sets of numbers               rows: (n, d) array or CSR
    folder of images, one sub-folder a class         rows: (n, d) bytes, with the form they were brought to

A column (or npz key) `split` that says train, val and test cuts the rows; otherwise there is no test part.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.data.datasets import catalog
from kway.data.datasets.dataset import Dataset
from kway.data.features.columns import is_text, whole
from kway.data.sources import images, tables
from kway.data.sources.arrow import SUFFIXES, parquet_files, read_arrow, suffix_of
from kway.data.sources.frames import n_rows, refuse_repeated, take
from kway.data.sources.images import Form
from kway.data.sources.requirements import Wanted, words_of
from kway.data.sources.target import column_labels
from kway.data.suggest import listing, nearest
from kway.errors import InputError


@dataclass(frozen=True, eq=False)
class Raw:
    """Rows with labels y (n,), groups and order (n,), each None where there is none; the test part likewise.

    `files` names the images; `image` is their form; `notes` say what was found on the way, in words.
    """

    name: str
    rows: Any
    y: NDArray | None = None
    test_rows: Any = None
    test_y: NDArray | None = None
    groups: NDArray | None = None
    order: NDArray | None = None
    image: Form | None = None
    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """Rows, the test part left out."""
        return n_rows(self.rows)

    def wanted(self) -> Wanted:
        """What another file must bring to be used beside this one."""
        text_labels = self.y is not None and self.y.dtype.kind in "UO"
        if not hasattr(self.rows, "column_names"):
            return Wanted(None, (), self.image, self.rows.shape[1], text_labels)
        columns = tuple(self.rows.column_names)
        return Wanted(columns, words_of(self.rows), self.image, None, text_labels)


def read_raw(
    source: str | Path,
    target: str | None = None,
    group: str | None = None,
    order: str | None = None,
    like: Wanted | None = None,
    skip_bad: bool = False,
) -> Raw:
    """DATA of the command line: a file, a folder or the name of a known set.

    `target`, `group` and `order` name columns. `like` is what a model (`Features.wanted()`) or other rows
    (`Raw.wanted()`) ask for: only those columns, text as text, images in that form. `skip_bad` leaves out images
    that cannot be read.
    """
    path = Path(source)
    like = like or Wanted()
    if path.is_dir():
        return _from_folder(path, target, group, order, like, skip_bad)
    if path.is_file() or "/" in str(source) or str(source).lower().endswith(SUFFIXES):
        return _from_file(path, target, group, order, like)
    return _from_catalog(str(source), target, group, order, like)


def check_labels(y: NDArray, what: str) -> tuple[str, ...]:
    """Notes on labels that can be learned; an error for those that cannot."""
    classes, counts = np.unique(y, return_counts=True)
    if len(classes) < 2:
        raise InputError(f"{what} has one class only ({classes.tolist()[0]!r}); a classifier needs two or more")
    if len(classes) == len(y):
        raise InputError(
            f"{what} has another label in each of its {len(y):,} rows, so nothing can be learned; "
            "name the column of the classes (is this one an id, or a measure?)"
        )
    if y.dtype.kind == "f" and (y != np.floor(y)).any():
        raise InputError(
            f"{what} holds fractions such as {y[y != np.floor(y)][0]:g}, a measure; a target names classes"
        )
    single = classes[counts == 1].tolist()
    if not single:
        return ()
    return (f"{len(single)} classes have one row only ({listing(single, 5)}): learned from, but never tested",)


def check_known(y: NDArray, classes: NDArray, what: str) -> None:
    """Labels of test rows must have been seen in training."""
    unseen = sorted(set(np.unique(y).tolist()) - set(np.unique(classes).tolist()), key=str)
    if unseen:
        rows = int(np.isin(y, unseen).sum())
        raise InputError(
            f"{what} has labels that training never saw: {listing(map(repr, unseen), 5)} ({rows:,} rows); "
            "add training rows for them, or drop these rows"
        )


# ---- folders


def _from_folder(
    path: Path, target: str | None, group: str | None, order: str | None, like: Wanted, skip_bad: bool
) -> Raw:
    if parquet_files(path):
        return _from_table(read_arrow(path, like.words), path.name, target, group, order, like, typed=True)
    if group or order:
        raise InputError(f"{path} is a folder of images, which has no columns; leave out --group and --order")
    if images.class_folders(path):
        found = images.read_images(path, like.image, skip_bad)
        return Raw(path.name, found.rows, found.labels, image=found.form, files=found.files, notes=found.notes)
    if images.loose_images(path):
        found = images.read_loose_images(path, like.image, skip_bad)
        return Raw(path.name, found.rows, image=found.form, files=found.files, notes=found.notes)
    raise InputError(
        f"folder {path} has neither parquet files nor images ({listing(images.SUFFIXES)}) in sub-folders, one a class"
    )


# ---- files and known sets


def _from_file(path: Path, target: str | None, group: str | None, order: str | None, like: Wanted) -> Raw:
    if path.is_file() and ".npz" not in (suffix := suffix_of(path)) and "svm" not in suffix:
        words = [*like.words, *([target] if target else [])]
        table = read_arrow(path, words)
        typed = suffix == ".parquet" or like.text_labels
        return _from_table(table, path.name, target, group, order, like, typed)
    data = tables.read(path, n_features=like.n_features)
    return _from_matrix(data, group, order)


def _from_catalog(name: str, target: str | None, group: str | None, order: str | None, like: Wanted) -> Raw:
    file = catalog.table_file(name)
    if file is not None:
        table = read_arrow(file, [*like.words, target or catalog.TARGET])
        target = target or (catalog.TARGET if catalog.TARGET in table.column_names else None)
        return _from_table(table, name, target, group, order, like, like.text_labels)
    if name not in catalog.names():
        raise InputError(
            f"{name!r} is neither a file, a folder nor a known set{nearest(name, catalog.names())}; known sets are "
            f"{listing(catalog.names(), 40)}, and files end in {listing(SUFFIXES)}"
        )
    return _from_matrix(catalog.load(name), group, order)


def _from_matrix(data: Dataset, group: str | None, order: str | None) -> Raw:
    data = data.named()
    form = picture_form(data.x_train.shape)
    return Raw(
        data.name,
        _flat(data.x_train),
        data.y_train,
        None if data.x_test is None else _flat(data.x_test),
        data.y_test,
        groups=_extra(data, group, "group"),
        order=_extra(data, order, "order"),
        image=form,
    )


def picture_form(shape: tuple[int, ...]) -> Form | None:
    """The form of images given as (n, height, width) or (n, height, width, 1 or 3)."""
    if len(shape) == 3:
        return Form(shape[1], shape[2], 1)
    return Form(shape[1], shape[2], shape[3]) if len(shape) == 4 and shape[3] in (1, 3) else None


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


def _from_table(
    table: Any, name: str, target: str | None, group: str | None, order: str | None, like: Wanted, typed: bool
) -> Raw:
    columns = [str(c) for c in table.column_names]
    refuse_repeated(columns, name)
    for what, column in (("target", target), ("group", group), ("order", order)):
        if column is not None:
            tables.known_column(column, columns, name, what)
    if table.num_rows == 0:
        raise InputError(f"{name} has a header but no rows; give rows to learn from or to predict")
    y = None if target is None else column_labels(table.column(target), f"target {target!r} of {name}", typed)
    rows = table.select(_feature_columns(columns, (target, group, order), like, name))
    groups = None if group is None else _plain(table.column(group), f"group {group!r} of {name}")
    line = None if order is None else _plain(table.column(order), f"order {order!r} of {name}")
    return _cut(Raw(name, rows, y, groups=groups, order=line))


def _feature_columns(columns: list[str], taken: Iterable[str | None], like: Wanted, name: str) -> list[str]:
    """Every column but those taken, or those asked for."""
    features = [c for c in columns if c not in set(taken)]
    if like.columns is not None:
        for column in like.columns:
            tables.known_column(column, columns, name, "feature")
        return list(like.columns)
    if not features:
        raise InputError(f"{name} has no column besides {listing(columns)}; there is nothing to learn from")
    return features


def _plain(column: Any, what: str) -> NDArray:
    """Values (n,) that can be sorted and compared."""
    column = whole(column)
    if column.null_count:
        raise InputError(f"{what} is empty in {column.null_count:,} of {len(column):,} rows; fill or drop these rows")
    values = column.to_numpy(zero_copy_only=False)
    return np.asarray(values.tolist()) if values.dtype == object else np.asarray(values)


def _cut(raw: Raw) -> Raw:
    """Train and test part by a column `split`, where it says nothing but train, val and test."""
    if raw.y is None or "split" not in raw.rows.column_names:
        return raw
    words = whole(raw.rows.column("split"))
    if not is_text(words.type) or words.null_count:
        return raw
    try:
        train, test = tables.parts_of(np.asarray(words.to_pylist()), raw.name)
    except InputError:  # some other column of that name
        return raw
    if not train.any() or not test.any():
        return raw
    rows = raw.rows.drop_columns(["split"])
    note = f"column split cuts the rows: {int(train.sum()):,} to learn from, {int(test.sum()):,} to test"
    return replace(
        raw,
        rows=take(rows, train),
        y=raw.y[train],
        test_rows=take(rows, test),
        test_y=raw.y[test],
        groups=None if raw.groups is None else raw.groups[train],
        order=None if raw.order is None else raw.order[train],
        notes=(*raw.notes, note),
    )
