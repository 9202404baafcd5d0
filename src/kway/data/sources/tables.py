"""Tables in: a file -> Dataset with numeric rows X (n, d), labels y (n,) and the names of the columns.

    .csv .csv.gz .parquet   one column a feature and one, the target, with the label
    .npz                    x_train, y_train, x_test, y_test | x, y, split | X, y | x_base, x_query; label_names
    .svm .libsvm (.gz)      "label index:value ...", sparse

Only numeric columns are features; a text column is an error that names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.data.datasets.dataset import Dataset
from kway.data.sources.arrow import SUFFIXES, read_arrow, suffix_of
from kway.data.sources.frames import refuse_repeated
from kway.data.sources.target import column_labels
from kway.data.suggest import listing, nearest
from kway.errors import InputError

__all__ = ["SUFFIXES", "known_column", "parts_of", "read", "read_arrow", "read_npz", "suffix_of"]

_TRAIN_PARTS = ("train", "val", "valid", "validation", "dev")  # what a column named split may say
_TEST_PARTS = ("test",)


def read(
    path: str | Path,
    target: str | None = None,
    features: Sequence[str] | None = None,
    n_features: int | None = None,
    text_labels: bool = False,
) -> Dataset:
    """The file as a Dataset.

    `target` names the label column; `features` the columns to use, in this order (all others where None);
    `n_features` the width of libsvm rows, which the file itself does not say; `text_labels` keeps the labels of a csv
    as text although all of them look like numbers, for a model whose other labels do not.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"no file {path}{_near_files(path)}; give an existing file or the name of a known set")
    suffix = suffix_of(path)
    if suffix == ".npz":
        return read_npz(path)
    if "svm" in suffix:
        return _read_libsvm(path, n_features)
    table = read_arrow(path, () if target is None else (target,))
    return _from_arrow(table, path.name, target, features, text_labels or suffix == ".parquet")


def _from_arrow(table: Any, name: str, target: str | None, features: Sequence[str] | None, typed: bool) -> Dataset:
    """Dataset of a pyarrow table: labels from `target`, rows from `features` or every other column."""
    columns = list(table.column_names)
    refuse_repeated(columns, name)
    if target is not None:
        known_column(target, columns, name, "target")
    if features is None:
        features = [c for c in columns if c != target]
    for column in features:
        known_column(column, columns, name, "feature")
    if table.num_rows == 0 or not features:
        raise InputError(f"{name} has {table.num_rows} rows and {len(features)} feature columns; both must be above 0")
    _refuse_text(table, features, name)
    y = None if target is None else column_labels(table.column(target), f"target {target!r} of {name}", typed)
    return Dataset(
        name=name,
        x_train=_matrix(table, features),
        y_train=y,
        feature_names=tuple(features),
    )


def read_npz(path: Path) -> Dataset:
    """An npz file with any of the key names above; arrays of Python objects are refused, never unpickled."""
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except Exception as error:  # zipfile, zlib, struct and numpy each have their own
        raise InputError(f"{path.name} cannot be read as npz: {error}") from error
    names = tuple(str(v) for v in arrays.pop("label_names", ()))
    columns = tuple(str(v) for v in arrays.pop("feature_names", ()))
    x, y, x_test, y_test = _npz_parts(arrays, path.name)
    _refuse_lengths(x, y, path.name)
    _refuse_lengths(x_test, y_test, path.name)
    return Dataset(path.name, x, y, x_test, y_test, names, columns, f"from {path.name}", arrays)


def _npz_parts(arrays: dict[str, NDArray], name: str) -> tuple[Any, Any, Any, Any]:
    """Take x, y, x_test, y_test out of `arrays`; what stays is extra."""
    lower = {key.lower(): key for key in arrays}

    def take(key: str) -> Any:
        return arrays.pop(lower[key]) if key in lower else None

    if "x_train" in lower:
        return take("x_train"), take("y_train"), take("x_test"), take("y_test")
    if "x_base" in lower:
        return take("x_base"), None, take("x_query"), None
    if "x" not in lower:
        raise InputError(
            f"{name} has keys {listing(arrays)}; name the rows x_train (with y_train, x_test, y_test) or x"
        )
    x, y, split = take("x"), take("y"), take("split")
    if split is None:
        return x, y, None, None
    train, test = parts_of(split, name)
    for key in [k for k in arrays if arrays[k].shape[:1] == split.shape]:
        arrays[f"{key}_train"], arrays[f"{key}_test"] = arrays[key][train], arrays[key][test]
        del arrays[key]
    return x[train], y[train], x[test], y[test]


def parts_of(split: NDArray, name: str) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Masks of the train and test rows by a column that says "train", "val" or "test"; val rows count as train."""
    words = np.char.lower(np.asarray(split, dtype=str))
    train, test = np.isin(words, _TRAIN_PARTS), np.isin(words, _TEST_PARTS)
    if not (train | test).all():
        strange = np.unique(words[~(train | test)])
        raise InputError(f"column split of {name} says {listing(strange)}; it may say train, val or test")
    return train, test


def _read_libsvm(path: Path, n_features: int | None) -> Dataset:
    from sklearn.datasets import load_svmlight_file

    try:
        x, y = load_svmlight_file(str(path), n_features=n_features)
    except ValueError as error:
        raise InputError(f"{path.name} cannot be read as libsvm: {error}") from error
    whole = y.astype(np.int64)
    return Dataset(path.name, x, whole if np.array_equal(whole, y) else y)


def _matrix(table: Any, features: Sequence[str]) -> NDArray:
    """(n, d) in float32 where it holds every value exactly, in float64 otherwise; a gap is NaN."""
    columns = [table.column(c) for c in features]
    x = np.empty((table.num_rows, len(features)), np.float32 if all(map(_exact_in_float32, columns)) else np.float64)
    for j, column in enumerate(columns):
        x[:, j] = column.cast("float64").to_numpy()
    return x


def _exact_in_float32(column: Any) -> bool:
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    if kinds.is_integer(column.type):
        ends = pc.min_max(column).as_py()
        return (ends["min"] or 0) >= -(2**24) and (ends["max"] or 0) <= 2**24
    return kinds.is_boolean(column.type) or kinds.is_null(column.type) or str(column.type) in ("float", "halffloat")


def _refuse_text(table: Any, features: Sequence[str], name: str) -> None:
    import pyarrow.types as kinds

    numeric = (kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_decimal, kinds.is_null)
    text = [c for c in features if not any(is_kind(table.schema.field(c).type) for is_kind in numeric)]
    if text:
        raise InputError(
            f"{name} has columns that are not numbers: {listing(text)}; encode them as numbers or drop them"
        )


def _refuse_lengths(x: Any, y: Any, name: str) -> None:
    if x is not None and y is not None and len(x) != len(y):
        raise InputError(f"{name} has {len(x)} rows and {len(y)} labels; they must be as many")


def known_column(column: str, columns: list[str], name: str, what: str) -> None:
    """An error that offers the nearest name, where a table has no such column."""
    if column not in columns:
        raise InputError(
            f"{name} has no {what} column {column!r}{nearest(column, columns)}; its columns are {listing(columns)}"
        )


def _near_files(path: Path) -> str:
    folder = path.parent
    return nearest(path.name, [p.name for p in folder.iterdir()]) if folder.is_dir() else ""
